"""CacheMonitor in one process: what it logs, in every format, and over a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback, LightningModule

from lightning_gnnload import CacheMonitor, FeatureCache, GraphDataModule, NeighborSampler
from lightning_gnnload.cache.trace import similarity, visit_counts
from lightning_gnnload.errors import CacheConfigError
from tests.integration.learnable import quiet_trainer
from tests.unit.toy import toy_data


class Still(LightningModule):
    """Learns nothing, from batches of any format."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.weight * 1.0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class EachEpoch(Callback):
    """Keeps what was logged in each epoch; comes after the monitor."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._keep(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._keep(trainer)

    def _keep(self, trainer: Any) -> None:
        if trainer.callback_metrics:
            self.logged.append({name: value.item() for name, value in trainer.callback_metrics.items()})


def module(**settings: Any) -> GraphDataModule:
    sampler = NeighborSampler([3, 2], expand="new")
    cache = FeatureCache("degree", ratio=0.2)
    return GraphDataModule(toy_data(), sampler, **{"batch_size": 16, "seed": 3, "cache": cache, **settings})


def logged(max_epochs: int, data: GraphDataModule, **settings: Any) -> list[dict[str, float]]:
    keep = EachEpoch()
    trainer = quiet_trainer(max_epochs=max_epochs, callbacks=[CacheMonitor(similarity=0.1), keep])
    trainer.fit(Still(), data, **settings)
    if "save" in data.__dict__:
        trainer.save_checkpoint(data.__dict__["save"])
    return keep.logged


@pytest.fixture(scope="module")
def wanted() -> list[float]:
    """Similarities of epochs 0 and 1, and of 1 and 2."""
    workload = module().workload("train")
    visits = [visit_counts(workload, [epoch], progress=False) for epoch in range(3)]
    return [similarity(*visits[epoch : epoch + 2], 0.1) for epoch in range(2)]


@pytest.mark.parametrize("batch_format", ["blocks", "dgl", "pyg"])
def test_similarity_is_that_of_the_epochs_mini_batches(wanted: list[float], batch_format: Any) -> None:
    first, *others = logged(3, module(batch_format=batch_format))
    assert np.isnan(first["cache/similarity"])
    assert [each["cache/similarity"] for each in others] == pytest.approx(wanted)


def test_each_epoch_counts_by_itself() -> None:
    first, second = logged(2, module())
    rows = [epoch["cache/bytes_cache"] / 20 + epoch["cache/bytes_memory"] / 20 for epoch in (first, second)]
    counts = [visit_counts(module().workload("train"), [epoch], progress=False).sum() for epoch in range(2)]
    assert rows == counts
    assert first["cache/hit_rate"] == pytest.approx(first["cache/bytes_cache"] / 20 / counts[0])


def test_a_resumed_run_compares_with_the_epoch_before(wanted: list[float], tmp_path: Path) -> None:
    data = module()
    data.__dict__["save"] = tmp_path / "two.ckpt"
    logged(2, data)
    assert logged(3, module(), ckpt_path=tmp_path / "two.ckpt")[-1]["cache/similarity"] == pytest.approx(wanted[1])


def test_without_a_cache_there_is_no_hit_rate() -> None:
    (epoch,) = logged(1, module(cache=None))
    assert sorted(epoch) == ["cache/bytes_memory", "cache/similarity"]


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_that_is_none(share: float) -> None:
    with pytest.raises(CacheConfigError, match=f"similarity={share}"):
        CacheMonitor(similarity=share)

"""Loaders that are made before the Trainer knows of the data module are shared out among its ranks all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.strategies import DDPStrategy

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from lightning_gnnload.data.plan import BatchRequest
from tests.integration.learnable import quiet_trainer
from tests.rings import mostly_matrix
from tests.unit.toy import toy_data

NUM_TRAINERS = 2


class Notes(LightningModule):
    """Writes down which seeds each rank was given."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.folder = folder
        self.seeds: dict[str, list[list[int]]] = {"train": [], "val": []}

    def training_step(self, batch: Any) -> torch.Tensor:
        self.seeds["train"].append(batch.seeds.tolist())
        return self.layer(batch.y[:, None].float()).mean()

    def validation_step(self, batch: Any) -> None:
        self.seeds["val"].append(batch.seeds.tolist())

    def on_fit_end(self) -> None:
        (self.folder / f"{self.global_rank}.json").write_text(json.dumps(self.seeds))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("strategy", mostly_matrix([DDPStrategy, FactoredStrategy], FactoredStrategy))
def test_ranks_share_the_seeds(tmp_path: Path, strategy: Any) -> None:
    data = GraphDataModule(toy_data(num_train=200, val=range(60)), NeighborSampler([3]), batch_size=20)
    loaders = data.train_dataloader(), data.val_dataloader()
    assert (loaders[0].num_ranks, len(loaders[0])) == (1, 10)
    num_devices = NUM_TRAINERS + (strategy is FactoredStrategy)
    trainer = quiet_trainer(
        max_epochs=1, devices=num_devices, strategy=strategy(start_method="spawn"), num_sanity_val_steps=0
    )
    trainer.fit(Notes(tmp_path), *loaders)
    for phase in ("train", "val"):
        workload = data.workload(phase)
        for rank in range(NUM_TRAINERS):
            found = json.loads((tmp_path / f"{rank}.json").read_text())[phase]
            wanted = [
                BatchRequest(0, step, rank, NUM_TRAINERS) for step in range(workload.plan(NUM_TRAINERS).num_steps)
            ]
            assert found == [workload.seeds_of(request).tolist() for request in wanted]


def test_a_process_group_decides_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = GraphDataModule(
        toy_data(num_train=200, val=range(60)), NeighborSampler([3]), batch_size=20, num_threads=0
    ).train_dataloader()
    assert len(loader) == 10  # Lightning asks before it has one, too
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 3)
    assert (len(loader), loader.rank, loader.source.workload.num_ranks) == (3, 3, 4)
    assert sum(batch.num_seeds for batch in loader) == 50

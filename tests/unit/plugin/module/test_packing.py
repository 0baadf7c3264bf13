"""Packing in a data module: which phases use it, what excludes it, and a run that resumes."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from lightning_gnnload import SAGE, FeatureCache, GraphDataModule, MiniBatch, NeighborSampler, Packing
from lightning_gnnload.cache.packed import layout
from lightning_gnnload.errors import PackingConfigError
from lightning_gnnload.plugin.compat import batch_limits
from tests.unit.toy import content, toy_data

EPOCHS = 2


@pytest.fixture(autouse=True)
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_LEAST_CHUNK", 4096)
    monkeypatch.setattr(layout, "_LEAST_BUFFER", 8192)


class Recorder(SAGE):
    """A model that keeps what it was trained and evaluated on."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.stop_at = stop_at
        self.trained: list[Any] = []
        self.evaluated: list[Any] = []
        self.tiers: set[str] = set()

    def training_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        if self.trainer.global_step == self.stop_at:
            raise KeyboardInterrupt
        self.trained.append(content(batch))
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: MiniBatch, batch_idx: int) -> Any:
        self.evaluated.append(content(batch))
        return super().validation_step(batch, batch_idx)

    def on_train_epoch_end(self) -> None:
        self.tiers |= {tier for tier, *_ in self.trainer.train_dataloader.stats.reads}


def module(**settings: Any) -> GraphDataModule:
    data = toy_data(600, 112, width=100, val=np.arange(20))
    return GraphDataModule(data, NeighborSampler([3, 2]), batch_size=16, num_threads=1, **settings)


def trainer(folder: Path, **settings: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(accelerator="cpu", max_epochs=EPOCHS, default_root_dir=folder, **{**quiet, **settings})


def fit(folder: Path, packing: Packing | None, **settings: Any) -> Recorder:
    model = Recorder()
    trainer(folder, enable_checkpointing=False, **settings).fit(model, module(packing=packing))
    return model


def test_a_fit_is_the_same_and_leaves_nothing(tmp_path: Path) -> None:
    packing = Packing(str(tmp_path / "packed"), memory=130_000, window=3, always=True)
    plain, packed = fit(tmp_path, None), fit(tmp_path, packing)
    assert packed.trained == plain.trained
    assert packed.evaluated == plain.evaluated
    assert packed.tiers == {"cache", "packed"}
    assert not (tmp_path / "packed").exists()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("gnnload-pack")]


def test_a_run_resumes_in_mid_epoch(tmp_path: Path) -> None:
    packing = Packing(str(tmp_path / "packed"), memory=130_000, window=3, always=True, cycle=1)
    expected = fit(tmp_path, packing).trained
    assert expected[:7] == expected[7:]
    saved = pl.callbacks.ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=5, save_top_k=-1)
    first = Recorder(stop_at=5)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        trainer(tmp_path, callbacks=[saved]).fit(first, module(packing=packing))
    second = Recorder()
    resumed = trainer(tmp_path, enable_checkpointing=False)
    resumed.fit(second, module(packing=packing), ckpt_path=tmp_path / "step=5.ckpt")
    assert first.trained + second.trained == expected


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"packing": "packed"}, "give Packing"),
        ({"packing": Packing("packed"), "cache": FeatureCache(ratio=0.1)}, "cache= and packing="),
        ({"packing": Packing("packed"), "partition": "parts"}, "partition= and packing="),
        ({"packing": Packing("packed"), "sampling_device": "cuda"}, "sampling_device='cuda' and packing="),
    ],
)
def test_what_excludes_packing_is_named(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(PackingConfigError, match=problem):
        module(**settings)


@pytest.mark.parametrize("name", ["packing.json", "hot-items.bin", "notes.txt"])
def test_files_of_others_are_not_taken_for_packed_rows(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"format": "of another program"}')
    packed = module(packing=Packing(tmp_path, memory="4MB", room="1GB", always=True))
    with pytest.raises(PackingConfigError, match="has files that are no packed mini-batches"):
        next(iter(packed.train_dataloader()))
    packed.teardown()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_run_that_is_limited_packs_its_own_steps_alone(tmp_path: Path) -> None:
    packing = Packing(str(tmp_path / "packed"), memory=130_000, window=3, always=True)
    limits = {"limit_train_batches": 4, "max_steps": 6}
    packed = fit(tmp_path, packing, **limits)
    assert packed.trained == fit(tmp_path, None, **limits).trained
    assert len(packed.trained) == 6
    assert packed.tiers == {"cache", "packed"}


@pytest.mark.parametrize(
    ("settings", "expected"), [((1.0, -1, 1), (None, None)), ((0.5, 5, 2), (3, 10)), ((2, -1, 1), (2, None))]
)
def test_limits_of_a_trainer_are_heeded(settings: tuple[float, int, int], expected: Any) -> None:
    limit, steps, accumulated = settings
    limited = SimpleNamespace(
        limit_train_batches=limit, num_training_batches=3, max_steps=steps, accumulate_grad_batches=accumulated
    )
    assert batch_limits(limited) == expected  # type: ignore[arg-type]

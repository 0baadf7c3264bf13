"""Damage in a folder ends a fit that trains on it, and the check does not disturb one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from lightning_gnnload import GraphDataModule, NeighborSampler, load_graph_data, partition_graph, save_graph_data
from lightning_gnnload.errors import LoaderConfigError, StoreFormatError
from lightning_gnnload.plugin.module import integrity
from lightning_gnnload.storage.background import BackgroundCheck
from tests.unit.toy import toy_data


class Waiting(pl.LightningModule):
    """Its first step lasts until the folder was read."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(5, 1)
        self.num_steps = 0

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.num_steps += 1
        for check in self.trainer.datamodule._folder_checks._checks.values():  # type: ignore[attr-defined]
            assert check.wait(60)
        return self.layer(batch.x).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(integrity, "default_root", lambda: tmp_path / "cache")
    save_graph_data(toy_data(), tmp_path / "graph")
    return tmp_path / "graph"


def fit(folder: Path, **settings: Any) -> int:
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Waiting()
    data = load_graph_data(folder)
    trainer.fit(model, datamodule=GraphDataModule(data, NeighborSampler([2]), batch_size=50, num_threads=0, **settings))
    return model.num_steps


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)


def test_damaged_features_end_the_fit(folder: Path) -> None:
    flip(folder / "x.bin")
    with pytest.raises(StoreFormatError, match=r"x\.bin is damaged: bytes 0 to \d+ of array 'x'"):
        fit(folder)
    assert fit(folder, verify=False) > 1


def test_damage_in_another_part_ends_it_too(folder: Path, tmp_path: Path) -> None:
    partition_graph(toy_data(), tmp_path / "parts", 1, "random", hops=1, progress=False)
    flip(tmp_path / "parts" / "part-0000" / "edge_starts.bin")
    with pytest.raises(StoreFormatError, match=r"edge_starts\.bin"):
        fit(folder, partition=str(tmp_path / "parts"))


def test_a_whole_folder_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[BackgroundCheck] = []
    monkeypatch.setattr(
        integrity, "BackgroundCheck", lambda *settings: made.append(BackgroundCheck(*settings)) or made[-1]
    )
    assert fit(folder) == fit(folder, verify=True) > 1
    assert len(list((tmp_path / "cache" / "verified").iterdir())) == 1
    assert len(made) == 2  # of which the second has found the note, as test_damage.py shows
    assert not any(check._thread.is_alive() for check in made)


def test_damage_that_the_last_step_shows_is_told_at_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = GraphDataModule(load_graph_data(folder), NeighborSampler([2]), num_threads=0)
    flip(folder / "x.bin")
    module.trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    module.setup()
    for check in module._folder_checks._checks.values():
        check.wait(60)
    with pytest.raises(StoreFormatError, match="damaged"):
        module.teardown()
    module.teardown()


@pytest.mark.parametrize("verify", [None, 1, "background"])
def test_a_setting_that_is_none(verify: Any) -> None:
    with pytest.raises(LoaderConfigError, match="verify="):
        GraphDataModule(toy_data(), NeighborSampler([2]), verify=verify)

"""PredictionWriter: each row is that of its node, whatever the order, the format and the number of ranks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule
from torch.utils.data import DataLoader

from lightning_gnnload import GraphDataModule, NeighborSampler, PredictionWriter
from lightning_gnnload.errors import LoaderConfigError, StoreFormatError
from lightning_gnnload.pipeline.loader import SampledLoader
from tests.integration.learnable import quiet_trainer
from tests.unit.toy import toy_data


class Predicts(LightningModule):
    def __init__(self, predict: Any) -> None:
        super().__init__()
        self.predict = predict

    def predict_step(self, batch: Any) -> Any:
        return self.predict(batch)


def predicted(path: Path, step: Any, **settings: Any) -> dict[str, np.ndarray]:
    data = GraphDataModule(toy_data(), NeighborSampler([3], expand="new"), batch_size=7, **settings)
    quiet_trainer(callbacks=[PredictionWriter(path)]).predict(Predicts(step), data)
    return dict(np.load(path, allow_pickle=False))


@pytest.mark.parametrize(("place", "told"), [("folder.npz", "is a folder"), ("file/it.npz", "is no folder")])
def test_a_place_that_cannot_be_written_is_told_before_the_work(tmp_path: Path, place: str, told: str) -> None:
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises((LoaderConfigError, StoreFormatError), match=told):
        predicted(tmp_path / place, lambda batch: pytest.fail("a batch was predicted"))


@pytest.mark.parametrize("ids", ["all", "train", [7, 3, 299, 12, 0, 5, 80, 2]])
def test_rows_are_those_of_the_nodes_in_the_order_asked_for(tmp_path: Path, ids: Any) -> None:
    def predict(batch: Any) -> dict[str, torch.Tensor]:
        own = batch.seeds
        return {"twice": 2 * own[:, None].bfloat16(), "label": batch.y, "view": batch.x[: len(own)]}

    found = predicted(tmp_path / "new" / "out.npz", predict, predict=ids)
    wanted = {"all": np.arange(300), "train": np.arange(300)[::-1][:100]}.get(ids if isinstance(ids, str) else "", ids)
    assert found["ids"].tolist() == list(wanted)
    assert np.array_equal(found["twice"][:, 0], (2 * torch.as_tensor(found["ids"])).bfloat16().float())
    assert np.array_equal(found["label"], found["ids"] % 7)
    assert np.array_equal(found["view"][:, 0], found["ids"])  # not of a slot that was used again
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["out.npz"]


def test_ranks_are_joined_in_the_order_of_one(tmp_path: Path) -> None:
    data = GraphDataModule(toy_data(), NeighborSampler([3]), batch_size=7)
    source = data.source("predict")
    writers = [PredictionWriter(tmp_path / "out") for _ in range(3)]
    for rank in (2, 1, 0):  # rank 0 joins what the others have written
        loader = SampledLoader(source, num_ranks=3, rank=rank, num_threads=0)
        trainer: Any = SimpleNamespace(
            predict_dataloaders=loader,
            global_rank=rank,
            world_size=3,
            is_global_zero=rank == 0,
            strategy=SimpleNamespace(barrier=lambda name: None),
        )
        writers[rank].on_predict_epoch_start(trainer, None)
        for step, batch in enumerate(loader):
            writers[rank].on_predict_batch_end(trainer, None, batch.seeds * 10, batch, step)
        writers[rank].on_predict_epoch_end(trainer, None)
    found = np.load(tmp_path / "out.npz")
    assert found["ids"].tolist() == list(range(300))
    assert np.array_equal(found["predictions"], found["ids"] * 10)
    trainer.world_size, trainer.global_rank = 4, 3
    with pytest.raises(LoaderConfigError, match=r"out.npz.rank0.npz is not there.*folder that all machines share"):
        writers[0].on_predict_epoch_end(trainer, None)


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (lambda batch: batch.x, r"predict_step returned \[\d+, 5\] as 'predictions' for 7 seeds.*a row for each seed"),
        (lambda batch: [1] * 7, r"predict_step returned list as 'predictions'"),
        (lambda batch: {"ids": batch.seeds}, r"none of which is named 'ids'"),
        (lambda batch: None, r"predict_step returned NoneType"),
    ],
)
def test_what_has_no_row_a_seed_is_refused(tmp_path: Path, predict: Any, message: str) -> None:
    with pytest.raises(LoaderConfigError, match=message):
        predicted(tmp_path / "out.npz", predict)


def test_other_loaders_are_refused(tmp_path: Path) -> None:
    trainer = quiet_trainer(callbacks=[PredictionWriter(tmp_path / "out.npz")])
    with pytest.raises(LoaderConfigError, match="predict loader 0 is a DataLoader"):
        trainer.predict(Predicts(lambda batch: batch), DataLoader(torch.arange(4)))

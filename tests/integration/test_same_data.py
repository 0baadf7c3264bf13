"""Ranks that have loaded different data, as where a folder was replaced while they started, train on none of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.strategies import DDPStrategy

from lightning_gnnload import FactoredStrategy, GraphData, GraphDataModule, NeighborSampler, save_graph_data
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.errors import PeerError
from lightning_gnnload.storage.graphs import load_graph_data
from tests.integration.learnable import quiet_trainer
from tests.unit.toy import toy_data


class Rewritten(Dataset):
    """A folder that was another one when ``odd_rank`` loaded it."""

    def __init__(self, root: Path, odd_rank: int) -> None:
        super().__init__()
        self.root, self.odd_rank = root, odd_rank

    def prepare(self) -> None:
        pass

    def load(self) -> GraphData:
        is_odd = int(os.environ.get("LOCAL_RANK", 0)) == self.odd_rank
        return load_graph_data(self.root / ("second" if is_odd else "first"))


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any) -> torch.Tensor:
        raise AssertionError("nothing may be trained")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("versions")
    data = toy_data(num_train=200)
    save_graph_data(data, folder / "first")
    data.y = data.y.flip(0).clone()  # of the same sizes, and the same graph
    save_graph_data(data, folder / "second")
    return folder


TRAINERS_DIFFER = "trainer rank 0 has loaded .* but trainer rank 1 "


@pytest.mark.parametrize(
    ("strategy", "num_devices", "odd_rank", "says"),
    [
        pytest.param(DDPStrategy, 2, 1, TRAINERS_DIFFER, marks=pytest.mark.matrix),
        pytest.param(FactoredStrategy, 3, 1, TRAINERS_DIFFER, marks=pytest.mark.matrix),
        (FactoredStrategy, 2, 1, "a trainer has loaded .* but sampler rank 1 "),
    ],
    ids=["ddp", "trainers", "sampler"],
)
def test_ranks_with_other_data_end_the_job(
    root: Path, strategy: Any, num_devices: int, odd_rank: int, says: str
) -> None:
    data = GraphDataModule(Rewritten(root, odd_rank), NeighborSampler([3]), batch_size=20)
    trainer = quiet_trainer(max_epochs=1, devices=num_devices, strategy=strategy(start_method="spawn"))
    with pytest.raises(
        (PeerError, torch.multiprocessing.ProcessRaisedException), match=rf"(?s){says}.*start the job again"
    ):
        trainer.fit(Model(), data)

"""A training that goes on until something happens to it.

Arguments: how, num_devices, what happens, and as wanted the number of nodes, and "takeover" where the work of a lost
sampler is to be taken over. Each rank writes its process id to a file named after its role and rank, trainers once
five batches are behind them.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Trainer

from lightning_gnnload import FactoredStrategy, FeatureStore, GraphData, GraphDataModule, NeighborSampler
from lightning_gnnload.plugin.job import Role
from tests.faults.stores import StoreInFront
from tests.integration.scripts import launch
from tests.integration.scripts.toy import NUM_NODES, Recorder, toy_data

HAPPENS = sys.argv[3] if len(sys.argv) > 3 else ""
TAKEOVER = "takeover" in sys.argv[4:]
EARLY_STEP = 5  # by then the pipeline is full


class BrokenDisk(StoreInFront):
    """A feature store that fails once it has served some batches."""

    def __init__(self, store: FeatureStore) -> None:
        super().__init__(store)
        self.num_served = 0

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        self.num_served += 1
        if self.num_served > 20:
            fail()
            raise OSError("the disk is gone")
        self.store.gather(ids, out)


class BrokenSampler(NeighborSampler):
    """A sampler that fails at one step, or marks the moment when it will."""

    def draw(self, graph: Any, draw: Any, memory: Any) -> Any:
        if HAPPENS == "seed" and draw.seeds.max() >= NUM_NODES:
            fail()
        if HAPPENS == "sampler" and draw.key.step == 10:
            fail()
            raise ArithmeticError("cannot draw")
        return super().draw(graph, draw, memory)


class FaultyData(GraphDataModule):
    """Fails, or takes its time, where it is told to."""

    def prepare_data(self) -> None:
        if HAPPENS == "prepare_data":
            fail()
            raise PermissionError("cannot download")
        if HAPPENS.startswith("slow_prepare"):
            Path("preparing").touch()
            rest()

    def setup(self, stage: str | None = None) -> None:
        assert self.trainer is not None
        strategy = self.trainer.strategy
        if strategy.role is Role.SAMPLER:
            write_pid(f"sampler-{strategy.global_rank}")
            if HAPPENS == "setup":
                fail()
                raise KeyError("no such split on this rank")
        super().setup(stage)


class Endless(Recorder):
    """Trains for minutes, a few milliseconds a step."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        time.sleep(0.005)
        if batch_idx == EARLY_STEP:
            write_pid(f"trainer-{self.trainer.global_rank}")
        if HAPPENS == "training_step" and batch_idx == 10 and self.trainer.global_rank == self.trainer.world_size - 1:
            fail()
            raise ValueError("a bad batch")
        return super().training_step(batch, batch_idx)


def rest() -> None:
    for _ in range(600):  # in pieces: Python hears of a signal that comes just before a sleep only after it
        time.sleep(0.1)


def come_late_to_barriers() -> None:
    """Has this rank rest where it has a group and waits in no barrier yet, as Lightning's do for a moment."""
    new_group = torch.distributed.new_group

    def group_and_rest(*args: Any, **kwargs: Any) -> Any:
        group = new_group(*args, **kwargs)
        Path("late").touch()
        rest()
        return group

    torch.distributed.new_group = group_and_rest


def fail() -> None:
    """Marks the moment."""
    Path("failing").touch()


def write_pid(name: str) -> None:
    # Renamed into place, so that whoever sees the file reads a whole number.
    Path(f".{name}").write_text(str(os.getpid()))
    Path(f".{name}").rename(name)


def faulty_data() -> GraphDataModule:
    data = toy_data()
    if HAPPENS == "store":
        assert data.x is not None
        data = GraphData(data.graph, x=BrokenDisk(data.x), y=data.y, train=data.train)
    if HAPPENS == "seed":
        data.train[:] = np.where(np.arange(len(data.train)) == 200, NUM_NODES + 7, data.train)
    return FaultyData(data, BrokenSampler([4, 3]), batch_size=4, order="sequential")


if __name__ == "__main__":
    how, devices = sys.argv[1], int(sys.argv[2])
    if HAPPENS == "slow_prepare_and_rank_1_late" and os.environ.get("LOCAL_RANK") == "1":
        come_late_to_barriers()
    write_pid(f"early-{os.environ.get('LOCAL_RANK', 0)}")
    strategy = FactoredStrategy(
        samplers=1,
        stall_timeout_s=2 if HAPPENS == "stall" else 60,
        connect_timeout_s=30 * launch.PATIENCE,
        takeover=TAKEOVER,
        start_method=how if how in ("spawn", "fork") else "popen",
    )
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        num_nodes=next(map(int, filter(str.isdigit, sys.argv[4:])), 1),
        strategy=strategy,
        max_epochs=1000,
        limit_val_batches=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        use_distributed_sampler=False,
    )
    trainer.fit(Endless(), faulty_data())

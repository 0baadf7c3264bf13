"""A whole job, fit and then test, that misfortunes befall.

Arguments: how, num_devices, num_samplers, ms that a training step takes at least, num_epochs, "shared" where samplers
share a cache, and misfortunes, each ``what:where:visit:sampler``: what becomes of which sampler when it has come to a
place so often before. Each trainer writes what it saw and its final weights.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer, seed_everything

from lightning_gnnload import FactoredStrategy, FeatureCache, GraphData, GraphDataModule, NeighborSampler
from lightning_gnnload.plugin.job import Role
from tests.faults.campaign.jobs import BEGAN, TRAINED, keep_to_given_cores
from tests.faults.stores import StoreInFront
from tests.faults.takeover import Written, once
from tests.integration.scripts import launch
from tests.integration.scripts.toy import toy_data

IN_A_SAMPLER = ("start", "setup", "opening", "gather", "sample")
IN_TRAINER_0 = ("trained", "tested")
"""After its last mini-batch of a launch, which the sampler has long made."""
_here: list[int] = []  # which sampler this process is, if it is one
_visits: Counter[str] = Counter()


def visit(where: str) -> None:
    """Comes to a place, and suffers what is to happen there."""
    number = _visits[where]
    _visits[where] += 1
    for what, place, at, sampler in (each.split(":") for each in sys.argv[6:] if ":" in each):
        is_here = where in IN_TRAINER_0 or _here == [int(sampler)]
        if (place, int(at)) == (where, number) and is_here and once(what, where):
            if where in IN_TRAINER_0:
                os.kill(int(Path(f"sampler-{sampler}.pid").read_text()), signal.SIGSTOP)
            else:
                suffer(what)


def suffer(what: str) -> None:
    """Stops this process, or what it does, for good."""
    if what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    while what == "sleeps":
        time.sleep(3600)
    while what == "spins":
        pass
    if what == "reads":
        os.mkfifo("never")
        Path("never").read_bytes()  # nobody ever writes
    if what == "holds":
        ctypes.PyDLL(None).sleep(1 << 30)  # keeps the interpreter's lock, so that no other thread runs


class Visiting(NeighborSampler):
    def draw(self, graph: Any, draw: Any, memory: Any) -> Any:
        if _here:
            visit("sample")
        return super().draw(graph, draw, memory)


class VisitingStore(StoreInFront):
    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        if _here:
            visit("gather")
        self.store.gather(ids, out)


class VisitingData(GraphDataModule):
    """Knows which sampler this process is."""

    def __init__(self) -> None:
        data = toy_data()
        assert data.x is not None
        data = GraphData(data.graph, VisitingStore(data.x), data.y, data.train, data.val, data.test)
        cache = FeatureCache(ratio=0.3, share="partitioned") if "shared" in sys.argv[6:] else None
        super().__init__(data, Visiting([4, 3]), batch_size=16, seed=5, cache=cache)

    def setup(self, stage: str | None = None) -> None:
        assert self.trainer is not None
        strategy = self.trainer.strategy
        if strategy.role is Role.SAMPLER:
            _here[:] = [strategy.roles.index(strategy.local_rank)]
            Path(f"sampler-{_here[0]}.pid").write_text(str(os.getpid()))
            visit("setup")
        super().setup(stage)

    def train_dataloader(self) -> Any:
        if _here:
            visit("opening")
        return super().train_dataloader()


class Timed(Written):
    """Says how long training took."""

    began: float | None = None

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.began is None:
            self.began = time.monotonic()
            Path(BEGAN).touch()
        return super().training_step(batch, batch_idx)

    def on_train_end(self) -> None:
        if self.trainer.is_global_zero and self.began is not None:
            Path(TRAINED).write_text(json.dumps(time.monotonic() - self.began))
            visit("trained")

    def on_test_end(self) -> None:
        if self.trainer.is_global_zero:
            visit("tested")


def time_limits() -> dict[str, float]:
    """Short ones, where they are to be exceeded; of a job that others crowd, none is to be."""
    limits = dict.fromkeys(("connect_timeout_s", "stall_timeout_s", "setup_timeout_s"), 30.0 * launch.PATIENCE)
    if "shared" not in sys.argv[6:]:
        limits |= {"connect_timeout_s": 15.0 * launch.PATIENCE, "stall_timeout_s": 3.0 * launch.PATIENCE}
        limits |= {"setup_timeout_s": 8.0 * launch.PATIENCE}
    return limits


def main() -> None:
    keep_to_given_cores()
    how, devices, num_samplers, step_ms, num_epochs = sys.argv[1], *map(int, sys.argv[2:6])
    if (index := int(os.environ.get("LOCAL_RANK", 0)) - (devices - num_samplers)) >= 0:
        _here[:] = [index]
        visit("start")
        _here.clear()  # no more than a rank yet: only its set-up makes it a sampler
    seed_everything(1, verbose=False)
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=FactoredStrategy(
            num_samplers, start_method=how if how in ("spawn", "fork") else "popen", **time_limits()
        ),
        max_epochs=num_epochs,
        num_sanity_val_steps=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    model, data = Timed(step_ms, []), VisitingData()
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)


if __name__ == "__main__":
    main()

"""A whole job, fit and then test, in which samplers are lost where they are told to be.

Arguments: how, num_devices, num_samplers, and for each loss ``what:where:sampler``: what becomes of which sampler, and
where. Each trainer writes what it saw and its final weights. A last argument of digits is how long a training step
takes at least, in ms. NUM_NODES in the environment says of how many machines this is one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer, seed_everything

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from lightning_gnnload.plugin.job import Role
from tests.integration.scripts import launch
from tests.integration.scripts.toy import Recorder, digest, toy_data

STALL_TIMEOUT_S = 3.0 * launch.PATIENCE
PLACES = {
    # (phase, which of the mini-batches that this process makes in it)
    "begin": ("train", 0),
    "middle": ("train", 5),
    "end": ("train", 9),  # of twenty steps, two samplers make ten each
    "second_epoch": ("train", 14),
    "sanity": ("eval", 1),
    "validation": ("eval", 3),
}


def lose(what: str) -> None:
    """Ends this process, or what it does."""
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "raises":
        raise ArithmeticError("cannot draw")
    elif what == "memory":
        raise MemoryError
    else:
        raise ValueError(what)


class Losing(NeighborSampler):
    """Counts what it samples, on sampler ranks, and is lost at its place in that."""

    def __init__(self, phase: str, losses: list[tuple[str, str, int]]) -> None:
        super().__init__([4, 3])
        self.phase = phase
        self.losses = losses
        self.sampler: int | None = None
        self.num_sampled = 0

    def sample_into(self, graph: Any, seeds: Any, key: Any, arena: Any) -> Any:
        for what, where, sampler in self.losses:
            if sampler == self.sampler and PLACES.get(where) == (self.phase, self.num_sampled) and once(what, where):
                lose(what)
        self.num_sampled += self.sampler is not None
        return super().sample_into(graph, seeds, key, arena)


def once(*names: str) -> bool:
    """Whether nobody did so before, in this process or another one."""
    try:
        Path(f"{'-'.join(names)}-{os.environ['LOCAL_RANK']}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class LosingData(GraphDataModule):
    """Tells its samplers which rank's they are."""

    def __init__(self, losses: list[tuple[str, str, int]]) -> None:
        samplers = {phase: Losing(phase, losses) for phase in ("train", "eval")}
        super().__init__(toy_data(), samplers["train"], batch_size=16, seed=5, eval_sampler=samplers["eval"])
        self.losses = losses

    def setup(self, stage: str | None = None) -> None:
        assert self.trainer is not None
        strategy = self.trainer.strategy
        if strategy.role is Role.SAMPLER:
            index = strategy.roles.index(strategy.local_rank)
            for sampler in (self.sampler, self.eval_sampler):
                sampler.sampler = index
            for what, where, sampler_index in self.losses:
                if where == "setup" and sampler_index == index and once(what, where):
                    lose(what)
        super().setup(stage)


def step_ms() -> int:
    return int(sys.argv[-1]) if len(sys.argv) > 4 and sys.argv[-1].isdigit() else 0


def main() -> None:
    how, devices, num_samplers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    losses = [
        (what, where, int(sampler))
        for what, where, sampler in (each.split(":") for each in sys.argv[4:] if ":" in each)
    ]
    num_trainers = devices - num_samplers
    for what, where, sampler in losses:
        if where == "start" and os.environ.get("LOCAL_RANK") == str(num_trainers + sampler):
            lose(what)
    seed_everything(1, verbose=False)
    strategy = FactoredStrategy(
        num_samplers,
        stall_timeout_s=STALL_TIMEOUT_S,
        connect_timeout_s=30 * launch.PATIENCE,
        start_method=how if how in ("spawn", "fork") else "popen",
    )
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        num_nodes=int(os.environ.get("NUM_NODES", 1)),
        strategy=strategy,
        max_epochs=2,
        num_sanity_val_steps=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    model, data = Written(step_ms()), LosingData(losses)
    trainer.fit(model, data)
    began = time.monotonic()
    results = trainer.test(model, data, verbose=False)
    hands = {"metrics": results, "test_s": time.monotonic() - began, "epoch": trainer.current_epoch}
    Path(f"hands-{os.environ.get('LOCAL_RANK', 'script')}.json").write_text(json.dumps(hands))


class Written(Recorder):
    """Writes down what it saw, in the process that trained."""

    def __init__(self, step_ms: int) -> None:
        super().__init__()
        self.step_ms = step_ms

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        time.sleep(self.step_ms / 1e3)
        return super().training_step(batch, batch_idx)

    def teardown(self, stage: Any) -> None:
        if self.trainer.strategy.role is Role.TRAINER:
            record = {"seen": self.seen, "weights": digest(self.state_dict().values())}
            Path(f"{stage.value}-{self.trainer.global_rank}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main()

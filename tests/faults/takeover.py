"""A whole job, fit and then test, in which samplers are lost where they are told to be.

Arguments: how, num_devices, num_samplers, and for each loss ``what:where:sampler``: what becomes of which sampler, and
where. Each trainer writes what it saw and its final weights. A last argument of digits is how long a training step
takes at least, in ms. NUM_NODES in the environment says of how many machines this is one, SAMPLER_NODES how many of
them only sample, CONNECT_TIMEOUT_S how long ranks wait for each other, SETUP_TIMEOUT_S how long a sampler may get
nowhere, TAKEOVER whether others go on without one, and DRAW_MS how long this machine takes for a mini-batch at least.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
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
    "end": ("train", 9),  # of twenty steps, which two samplers share
    "second_epoch": ("train", 14),
    "sanity": ("eval", 1),
    "validation": ("eval", 3),
}
"""Where a sampler is lost by what it does itself; at ``idle`` and ``fit_end``, trainer 0 does it to the sampler."""
_LEAVES_S = 0.5 * STALL_TIMEOUT_S
_DRAW_S = float(os.environ.get("DRAW_MS", 0)) / 1e3
SETUP_TIMEOUT_S = float(os.environ.get("SETUP_TIMEOUT_S", 3.0 * launch.PATIENCE))


def lose(what: str) -> None:
    """Ends this process, or what it does."""
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "loops":
        while True:
            pass
    elif what == "sleeps":  # as who opens a file of a dead server does
        time.sleep(3600)
    elif what == "frozen":  # it keeps all other threads from running, too
        ctypes.PyDLL(None).sleep(3600)
    elif what == "raises":
        raise ArithmeticError("cannot draw")
    elif what == "memory":
        raise MemoryError
    else:
        raise ValueError(what)


def lose_other(what: str, sampler: int) -> None:
    """Has a sampler do so, or its rank, of which the sampler is a child."""
    pid = int(Path(f"sampler-{sampler}").read_text())
    if what == "stopped":
        os.kill(pid, signal.SIGSTOP)
    elif what == "rank_stopped":
        os.kill(psutil.Process(pid).ppid(), signal.SIGSTOP)
    else:
        Path(f"do-{what}-{sampler}").touch()
        time.sleep(0.5)


def obey(sampler: int) -> None:
    """Does what :func:`lose_other` wants, in a thread."""
    while True:
        for path in Path().glob(f"do-*-{sampler}"):
            path.unlink()
            lose(path.name.split("-")[1])
        time.sleep(0.02)


class Losing(NeighborSampler):
    """Counts what it samples, on sampler ranks, and is lost at its place in that."""

    def __init__(self, phase: str, losses: list[tuple[str, str, int]]) -> None:
        super().__init__([4, 3])
        self.phase = phase
        self.losses = losses
        self.sampler: int | None = None
        self.num_sampled = 0

    def draw(self, graph: Any, draw: Any, memory: Any) -> Any:
        for what, where, sampler in self.losses:
            phase, number = PLACES.get(where, ("", 0))
            if phase != self.phase or self.sampler is None:
                continue
            if sampler != self.sampler:
                # Steps go to whoever is free: this one leaves the other enough of them to come to its place.
                deadline = time.monotonic() + _LEAVES_S
                while self.num_sampled >= number and not happened(what, where) and time.monotonic() < deadline:
                    time.sleep(0.005)
            elif self.num_sampled == number and once(what, where):
                lose(what)
        self.num_sampled += self.sampler is not None
        time.sleep(_DRAW_S)
        return super().draw(graph, draw, memory)


def once(*names: str) -> bool:
    """Whether nobody did so before, in this process or another one."""
    try:
        Path(f"{'-'.join(names)}-{os.environ['LOCAL_RANK']}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def happened(*names: str) -> bool:
    """Whether :func:`once` was true in any process."""
    return any(Path().glob(f"{'-'.join(names)}-*"))


class LosingStrategy(FactoredStrategy):
    """Is lost on a sampler rank before that connects."""

    losses: Sequence[tuple[str, str, int]] = ()

    def play(self, *args: Any, **kwargs: Any) -> Any:
        for what, where, sampler in self.losses:
            is_it = self.role is Role.SAMPLER and self.roles.index(self.local_rank) == sampler
            if where == "launch" and is_it and once(what, where):
                lose(what)
        return super().play(*args, **kwargs)


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
            Path(f"sampler-{index}").write_text(str(os.getpid()))
            threading.Thread(target=obey, args=(index,), name="obey", daemon=True).start()
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
    strategy = LosingStrategy(
        num_samplers,
        stall_timeout_s=STALL_TIMEOUT_S,
        connect_timeout_s=float(os.environ.get("CONNECT_TIMEOUT_S", 30 * launch.PATIENCE)),
        setup_timeout_s=SETUP_TIMEOUT_S,
        sampler_nodes=int(os.environ.get("SAMPLER_NODES", 0)),
        takeover=os.environ.get("TAKEOVER") != "no",
        start_method=how if how in ("spawn", "fork") else "popen",
    )
    strategy.losses = losses
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
    model, data = Written(step_ms(), losses), LosingData(losses)
    trainer.fit(model, data)
    began = time.monotonic()
    results = trainer.test(model, data, verbose=False)
    hands = {"metrics": results, "test_s": time.monotonic() - began, "epoch": trainer.current_epoch}
    Path(f"hands-{os.environ.get('LOCAL_RANK', 'script')}.json").write_text(json.dumps(hands))


class Written(Recorder):
    """Writes down what it saw, in the process that trained."""

    def __init__(self, step_ms: int, losses: list[tuple[str, str, int]]) -> None:
        super().__init__()
        self.step_ms = step_ms
        self.losses = losses

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        time.sleep(self.step_ms / 1e3)
        return super().training_step(batch, batch_idx)

    def on_validation_end(self) -> None:
        if not self.trainer.sanity_checking and self.trainer.current_epoch == 0:
            self._lose_at("idle")

    def on_fit_end(self) -> None:
        self._lose_at("fit_end")

    def _lose_at(self, now: str) -> None:
        for what, where, rank in self.losses:
            if where != now or self.trainer.state.fn != "fit":
                continue
            if what == "trainer_stopped" and self.trainer.global_rank == rank:
                lose("stopped")
            elif what != "trainer_stopped" and self.trainer.is_global_zero:
                lose_other(what, rank)

    def teardown(self, stage: Any) -> None:
        if self.trainer.strategy.role is Role.TRAINER:
            record = {"seen": self.seen, "weights": digest(self.state_dict().values())}
            Path(f"{stage.value}-{self.trainer.global_rank}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main()

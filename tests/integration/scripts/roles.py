"""Runs cases of roles, one after the other: ``roles.py HOW NUM_DEVICES CASE...``; each rank writes what it was.

A case is one fit. Where one depends on an earlier one (a file that it left), they are named in that order.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, Trainer, seed_everything

from lightning_gnnload import FactoredStrategy, GraphDataModule, MiniBatch, NeighborSampler
from tests.faulted import faults_of_a_step
from tests.integration.scripts.toy import Recorder, digest, toy_data


class Slow(NeighborSampler):
    """Takes 50 ms a batch."""

    def draw(self, *arguments: Any) -> Any:
        time.sleep(0.05)
        return super().draw(*arguments)


class Sleepy(Recorder):
    """Takes 50 ms a step and the rest, so that one sampler feeds one of it or more; draws from all generators."""

    def training_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        time.sleep(0.05)
        noise = torch.rand(1).item() + np.random.rand() + random.random()
        return super().training_step(batch, batch_idx) * noise


class Broken(Recorder):
    """Cannot be trained."""

    def training_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        raise ZeroDivisionError("by zero")


class Masks(Callback):
    """Which cores the threads of a rank may use, and how many torch uses, in the midst of training; and page faults."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.faults: int | None = None

    def on_train_batch_end(self, *_: Any) -> None:
        self.seen = masks()

    def on_train_end(self, *_: Any) -> None:
        self.faults = faults_of_a_step()


class LookingSampler(NeighborSampler):
    """Notes where it samples."""

    seen: list[Any]

    def draw(self, *arguments: Any) -> Any:
        type(self).seen = masks()
        return super().draw(*arguments)


def masks() -> list[Any]:
    cores: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            cores |= os.sched_getaffinity(int(thread))
    return [sorted(cores), torch.get_num_threads()]


CASES: dict[str, dict[str, Any]] = {
    "auto": {"samplers": "auto", "queue_depth": "auto", "queue_memory_bytes": 1 << 20},
    "again": {"samplers": "auto", "queue_depth": "auto", "queue_memory_bytes": 1 << 20},
    "auto_once_more": {"samplers": "auto"},
    "fixed_2": {"samplers": 2},
    "beside": {"samplers": 1},
    "beside_auto": {"samplers": "auto"},
    "beside_pinned": {"pin_cores": True},
    "alternating": {"switching": True, "queue_depth": 3},
    "by_memory": {"switching": True, "queue_depth": "auto", "queue_memory_bytes": 60_000},
    "shared": {"trainers": 2, "samplers": 2},
    "pinned": {"pin_cores": True},
    "broken": {"samplers": "auto"},
}


def run(name: str, how: str, devices: int) -> None:
    seed_everything(1, verbose=False)
    strategy: Any = "ddp"
    if name in CASES:
        strategy = FactoredStrategy(
            sampler_threads=1, connect_timeout_s=300, start_method="spawn" if how == "spawn" else "popen", **CASES[name]
        )
    pinned = name == "pinned"
    looked = Masks()
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=strategy,
        max_steps=4,
        limit_val_batches=0,
        callbacks=[looked],
        **dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False),
    )
    model = {"broken": Broken}.get(name, Sleepy)()
    sampler = (LookingSampler if pinned else Slow)([4, 3])
    before = masks()
    trainer.fit(model, GraphDataModule(toy_data(), sampler, batch_size=16, seed=5))
    decision = getattr(strategy, "role_decision", None)
    found = {
        "role": strategy.role.value if name in CASES else None,
        "decision": decision and asdict(decision) | {"sample_ms": decision.sample_ms, "train_ms": decision.train_ms},
        "weights": digest(model.state_dict().values()),
        "seen": model.seen,
        "masks": [before, getattr(sampler, "seen", None) or looked.seen, masks()],
        "faults": looked.faults,
        "devices": [str(device) for device in trainer.strategy._parallel_devices],  # type: ignore[attr-defined]
    }
    Path(f"{name}-{trainer.local_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    for case in sys.argv[3:]:
        run(case, sys.argv[1], int(sys.argv[2]))
        print(os.environ.get("LOCAL_RANK", 0), case, flush=True)

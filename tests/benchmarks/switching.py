"""What it wins that idle samplers train, on a job whose trainers are the bottleneck.

    python -m tests.benchmarks.switching

Training steps sleep, so that cores do not matter; an epoch has 240 mini-batches of 20 ms. The ideal is that all ranks
are busy all the time: the time without switching, times the trainers' share of the ranks.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.scripts import launch, switching
from tests.integration.scripts.switching import Settings

NUM_BATCHES = 240
TRAIN_MS = 20.0
NUM_EPOCHS = 3
SCRIPT = Path(switching.__file__)


class Case(NamedTuple):
    trainers: int
    samplers: int
    staleness: int


CASES = [Case(2, 1, 0), Case(2, 1, 2), Case(2, 2, 0), Case(3, 1, 0)]


def settings(case: Case, *, switches: bool) -> Settings:
    strategy = {"samplers": case.samplers, "staleness": case.staleness, "switching": switches}
    trainer = {"limit_train_batches": NUM_BATCHES // case.trainers, "limit_val_batches": 0, "max_epochs": NUM_EPOCHS}
    name = "with" if switches else "without"
    return Settings(name, batch_size=1, strategy=strategy, trainer=trainer, model={"train_ms": TRAIN_MS})


def measured(case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trainer 0's records of a run without switching, and with it."""
    with tempfile.TemporaryDirectory() as folder:
        told = json.dumps([asdict(settings(case, switches=switches)) for switches in (False, True)])
        devices = case.trainers + case.samplers
        launch.run(SCRIPT, told, folder=Path(folder), num_devices=devices, timeout_s=600)
        without, switched = (
            json.loads((Path(folder) / name / "rank-0.json").read_text()) for name in ("without", "with")
        )
    return without, switched


def row(case: Case) -> str:
    """The epochs after the first, in which the samplers still build their models."""
    without, switched = measured(case)
    plain_ms, switched_ms = (sorted(record["epoch_ms"][1:])[0] for record in (without, switched))
    ideal_ms = plain_ms * case.trainers / (case.trainers + case.samplers)
    stats = switched["stats"]
    return (
        f"| {case.trainers} + {case.samplers} | {case.staleness} | {plain_ms:.0f} | {switched_ms:.0f} | {ideal_ms:.0f} "
        f"| {switched_ms / ideal_ms:.2f} | {switched['epoch_ms'][0]:.0f} | {stats['merged'] / NUM_EPOCHS:.0f} "
        f"| {stats['refused']} | {stats['max_lag']} | {stats['awaited_ms'] / NUM_EPOCHS:.0f} |"
    )


if __name__ == "__main__":
    print(
        "| trainers + samplers | staleness | without, ms an epoch | with | ideal | with / ideal | first epoch "
        "| contributed | refused | largest lag | awaited ms |"
    )
    print("|" + "---|" * 11)
    for case in CASES:
        print(row(case), flush=True)

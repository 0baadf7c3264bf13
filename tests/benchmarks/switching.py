"""What it wins that idle samplers train, on a job whose trainers are the bottleneck.

    python -m tests.benchmarks.switching [equal] [slow] [unequal]

Training steps sleep, so that cores do not matter; an epoch has 240 mini-batches. The ideal is that all ranks are busy
all the time: their rates added up, the trainers' as measured without switching, a sampler's as it sleeps.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.scripts import launch, switching
from tests.integration.scripts.switching import Settings

NUM_BATCHES = 240
NUM_EPOCHS = 3
SCRIPT = Path(switching.__file__)


class Job(NamedTuple):
    """Ranks that train without switching, and then with each of ``speeds`` and bounds.

    Attributes:
        train_ms: a trainer's step.
        speeds: what a mini-batch takes each sampler, and ``switching``.
    """

    trainers: int
    train_ms: float
    staleness: int
    speeds: list[tuple[tuple[float, ...], int]]


def bounds(*speeds: tuple[float, ...], needed: dict[tuple[float, ...], int]) -> list[tuple[tuple[float, ...], int]]:
    """Each speed with the bound that ``switching=True`` gives, and with the one that it needs."""
    return [(each, bound) for each in speeds for bound in sorted({1, needed[each]})]


NEEDED: dict[tuple[float, ...], int] = {(20.0,): 1, (40.0,): 2, (60.0,): 3, (100.0,): 5}
JOBS = {
    "equal": [
        Job(2, 20.0, 2, [((20.0,), 1)]),
        Job(2, 20.0, 0, [((20.0, 20.0), 1)]),
        Job(3, 20.0, 0, [((20.0,), 1)]),
    ],
    "slow": [Job(2, 20.0, staleness, bounds(*NEEDED, needed=NEEDED)) for staleness in (0, 1, 2)],
    "unequal": [Job(3, 15.0, 0, [((35.0, 70.0), 1), ((35.0, 70.0), 2), ((35.0, 70.0), 5)])],
}


def settings(job: Job) -> list[Settings]:
    options = {"limit_train_batches": NUM_BATCHES // job.trainers, "limit_val_batches": 0, "max_epochs": NUM_EPOCHS}
    shared = {"samplers": len(job.speeds[0][0]), "staleness": job.staleness}
    found = [Settings("without", 1, shared | {"switching": False}, options, {"train_ms": job.train_ms})]
    for number, (sampler_ms, bound) in enumerate(job.speeds):
        # What ``True`` says is one update.
        strategy = shared | {"switching": True if bound == 1 else bound}
        model = {"train_ms": job.train_ms, "sampler_ms": sampler_ms}
        found.append(Settings(f"with-{number}", 1, strategy, options, model))
    return found


def measured(job: Job) -> tuple[list[dict[str, Any]], list[str]]:
    """Trainer 0's records, without switching first, and what was told of decisions."""
    with tempfile.TemporaryDirectory() as folder:
        each = settings(job)
        devices = job.trainers + each[0].strategy["samplers"]
        output = launch.run(
            SCRIPT, json.dumps([asdict(one) for one in each]), folder=Path(folder), num_devices=devices, timeout_s=600
        ).output
        records = [json.loads((Path(folder) / one.name / "rank-0.json").read_text()) for one in each]
    return records, [line for line in output.splitlines() if "FactoredStrategy: " in line]


def rows(job: Job) -> str:
    """The epochs after the first, in which the samplers still build their models."""
    records, told = measured(job)
    plain_ms = min(records[0]["epoch_ms"][1:])
    lines = []
    for record, (sampler_ms, bound) in zip(records[1:], job.speeds, strict=True):
        epoch = min(range(1, NUM_EPOCHS), key=record["epoch_ms"].__getitem__)
        epoch_ms, per_ms = record["epoch_ms"][epoch], sum(1 / each for each in sampler_ms)
        ideal_ms = 1 / (1 / plain_ms + per_ms / NUM_BATCHES)
        num_joined = sum(len(merging) for at, _, merging in record["merged"] if at == epoch)
        busy, stats = num_joined / (per_ms * epoch_ms), record["stats"]
        speeds = ", ".join(f"{each:.0f}" for each in sampler_ms)
        lines.append(
            f"| {job.trainers} of {job.train_ms:.0f} | {speeds} | {job.staleness} | {max(bound, job.staleness)} "
            f"| {plain_ms:.0f} | {epoch_ms:.0f} | {ideal_ms:.0f} | {epoch_ms / ideal_ms:.2f} "
            f"| {epoch_ms / plain_ms:.2f} | {record['epoch_ms'][0]:.0f} | {num_joined} | {busy:.0%} "
            f"| {stats['refused']} | {stats['max_lag']} | {stats['awaited_ms'] / NUM_EPOCHS:.0f} |"
        )
    return "\n".join([*lines, "", *told, ""])


if __name__ == "__main__":
    print(
        "| trainers, ms | samplers, ms | staleness | bound | without, ms an epoch | with | ideal | with / ideal "
        "| with / without | first epoch | joined | of what samplers can | refused | largest lag | awaited ms |"
    )
    print("|" + "---|" * 15)
    for name in sys.argv[1:] or JOBS:
        for each in JOBS[name]:
            print(rows(each), flush=True)

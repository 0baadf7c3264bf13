"""How much of the trainers' waiting for each other bounded staleness hides: ``python -m tests.benchmarks.jitter``.

Of two trainers' steps a fifth takes 40 ms more. Plain DDP waits in each step for the trainer that is late in it; a run
that never waits takes as long as the trainer that is late for longer. The difference is the avoidable wait. Where one
trainer alone is late there is none: the other must wait for it in the end, whatever the bound.
All are measured in one run: not waiting is a staleness of as many steps as there are.

Beside the measured share stands what the bound allows, from the same steps if nothing else took time: with a staleness
of k, a trainer that is 40 ms late holds the other up once that has done k more steps. Lightning's own synchronization
in each step, which ends with k = 0, is no part of that. Beside them stands the price: how many updates late gradients
were, on average.

Names of modes as arguments choose among them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.integration.scripts import launch

NUM_TURNS = 2
LATE_MS, LATE_SHARE = 40.0, 0.2
STALENESS = (0, 1, 2, 4)
NO_WAIT = 1000
ALL = (*STALENESS, NO_WAIT)


class Mode(NamedTuple):
    """Which steps are late, of how many that take how long."""

    words: str
    num_steps: int = 300
    step_ms: float = 5.0


MODES = {
    "either": Mode("either trainer is late in a fifth of its steps, drawn at random"),
    "turns": Mode("in turn: trainer 1 is late one step after trainer 0"),
    "long": Mode("either trainer is late in a fifth of its steps, drawn at random", 100, 40.0),
    "alone": Mode("trainer 1 alone is late, in a fifth of its steps, drawn at random", 100, 40.0),
    "nobody": Mode("nobody is late", 200),
}


def durations_ms(mode: str) -> np.ndarray:
    """Of each trainer's steps, float64 ``[2, num_steps]``; the same in every process."""
    _, num_steps, step_ms = MODES[mode]
    late = np.zeros((2, num_steps), dtype=bool)
    if mode == "turns":
        late[0, 3::5] = late[1, 4::5] = True
    else:
        for trainer in {"alone": [1], "nobody": []}.get(mode, [0, 1]):
            chosen = np.random.default_rng(trainer).permutation(num_steps)[: int(LATE_SHARE * num_steps)]
            late[trainer, chosen] = True
    return step_ms + LATE_MS * late


def bound_ms(durations: np.ndarray, staleness: int) -> float:
    """Milliseconds a step if nothing cost anything but the steps and the bound: no trainer ends step t before all
    have computed step t - staleness."""
    num_trainers, num_steps = durations.shape
    computed = np.zeros((num_trainers, num_steps))
    ended = np.zeros(num_trainers)
    for step in range(num_steps):
        computed[:, step] = ended + durations[:, step]
        awaited = computed[:, step - staleness].max() if step >= staleness else 0.0
        ended = np.maximum(computed[:, step], awaited)
    return float(ended.max() / num_steps)


def measured(mode: str) -> tuple[dict[int, float], dict[int, float]]:
    """Milliseconds a step of the slower trainer, the least of some turns, as noise only adds; and the mean lag of both
    trainers' updates over all turns; by staleness."""
    job = Path(__file__).with_name("jitter_job.py")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        launch.run(job, mode, *NUM_TURNS * ALL, folder=folder, num_devices=3, timeout_s=600)
        runs = np.array([json.loads((folder / f"runs-{rank}.json").read_text()) for rank in range(2)])  # [rank, run, 2]
    by_turn = runs.reshape(2, NUM_TURNS, len(ALL), 2)
    took, lags = by_turn[..., 0].max(0).min(0), by_turn[..., 1].mean((0, 1))
    return dict(zip(ALL, took.tolist(), strict=True)), dict(zip(ALL, lags.tolist(), strict=True))


def table(mode: str) -> str:
    """Markdown."""
    durations, (took, lags) = durations_ms(mode), measured(mode)
    bounds = {k: bound_ms(durations, k) for k in ALL}
    rows = [
        "| staleness | ms a step | avoidable wait hidden | allowed by the bound | mean lag, updates |",
        "| --- | --: | --: | --: | --: |",
    ]
    for k in ALL:
        avoidable = bounds[0] > bounds[NO_WAIT]
        hidden, allowed = (_share(each, k) if avoidable else "none to hide" for each in (took, bounds))
        name = "no waiting" if k == NO_WAIT else k
        rows.append(f"| {name} | {took[k]:.1f} | {hidden} | {allowed} | {lags[k]:.2f} |")
    return "\n".join(rows)


def _share(took_ms: dict[int, float], staleness: int) -> str:
    return f"{(took_ms[0] - took_ms[staleness]) / (took_ms[0] - took_ms[NO_WAIT]):.0%}"


if __name__ == "__main__":
    for name in sys.argv[1:] or MODES:
        words, _, step_ms = MODES[name]
        print(f"Two trainers, {step_ms:g} ms a step, late by {LATE_MS:g} ms; {words}:\n\n{table(name)}\n", flush=True)

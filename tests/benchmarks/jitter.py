"""How much of the trainers' waiting for each other bounded staleness hides: ``python -m tests.benchmarks.jitter``.

Two trainers' steps take 5 ms, a fifth of them 40 ms more. Plain DDP waits in each step for the trainer that is late in
it; a run that never waits takes as long as the trainer that is late for longer. The difference is the avoidable wait.
(Where one trainer alone is late there is none: the other must wait for it in the end.)
All are measured in one run: not waiting is a staleness of as many steps as there are.

Beside the measured share stands what the bound allows, from the same steps if nothing else took time: with a staleness
of k, a trainer that is 40 ms late holds the other up once that has done k more steps of 5 ms. Lightning's own
synchronization in each step, which ends with k = 0, is no part of that.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from tests.integration.scripts import launch

NUM_STEPS = 300
NUM_TURNS = 2
STEP_MS, LATE_MS, LATE_SHARE = 5.0, 40.0, 0.2
STALENESS = (0, 1, 2, 4)
NO_WAIT = NUM_STEPS
ALL = (*STALENESS, NO_WAIT)
MODES = {
    "either": "either trainer is late in a fifth of its steps, drawn at random",
    "turns": "in turn: trainer 1 is late one step after trainer 0",
}


def durations_ms(mode: str) -> np.ndarray:
    """Of each trainer's steps, float64 ``[2, NUM_STEPS]``; the same in every process."""
    late = np.zeros((2, NUM_STEPS), dtype=bool)
    if mode == "turns":
        late[0, 3::5] = late[1, 4::5] = True
    else:
        for trainer in range(2):
            chosen = np.random.default_rng(trainer).permutation(NUM_STEPS)[: int(LATE_SHARE * NUM_STEPS)]
            late[trainer, chosen] = True
    return STEP_MS + LATE_MS * late


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


def measured_ms(mode: str) -> dict[int, float]:
    """Milliseconds a step of the slower trainer, by staleness; the least of some turns, as noise only adds."""
    job = Path(__file__).with_name("jitter_job.py")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        launch.run(job, mode, *NUM_TURNS * ALL, folder=folder, num_devices=3, timeout_s=600)
        took = [json.loads((folder / f"took-{rank}.json").read_text()) for rank in range(2)]  # [rank][run]
    slower = [max(pair) for pair in zip(*took, strict=True)]
    return {k: min(slower[run] for run in range(i, len(slower), len(ALL))) for i, k in enumerate(ALL)}


def table(mode: str) -> str:
    """Markdown."""
    durations, measured = durations_ms(mode), measured_ms(mode)
    rows = ["| staleness | ms a step | avoidable wait hidden | allowed by the bound |", "| --- | --: | --: | --: |"]
    for k in ALL:
        hidden = _share(measured[0], measured[k], measured[NO_WAIT])
        allowed = _share(*(bound_ms(durations, each) for each in (0, k, NO_WAIT)))
        rows.append(f"| {'no waiting' if k == NO_WAIT else k} | {measured[k]:.1f} | {hidden} | {allowed} |")
    return "\n".join(rows)


def _share(waits_ms: float, hides_ms: float, floor_ms: float) -> str:
    return f"{(waits_ms - hides_ms) / (waits_ms - floor_ms):.0%}"


if __name__ == "__main__":
    for mode, words in MODES.items():
        print(f"Two trainers, {STEP_MS:g} ms a step, late by {LATE_MS:g} ms; {words}:\n\n{table(mode)}\n", flush=True)

"""Runs resume in mid-epoch: with the settings of then, as if nothing had been; with others, not at all."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.campaign import resuming
from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.jobs import LIMIT_S
from tests.integration.scripts import launch

SCRIPT = Path(resuming.__file__)
_SAME = "the same settings"
_NUM_STEPS = 40  # two epochs of twenty
_RANKS = ((1, 0), (2, 1), (3, 2))
"""Numbers of devices, and of samplers among them: all have one trainer, and so the same mini-batches."""


class Resumes(Attack):
    name = "resumes"
    good = frozenset({"the same batches and weights", "refused"})
    ways = (_SAME, *(f"other {what}" for what in resuming.OTHERS))

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        # In mid-epoch: a checkpoint of an epoch's end resumes with any settings.
        step = choose.choice([step for step in range(1, _NUM_STEPS) if step % 20])
        other = "nothing" if way == _SAME else way.removeprefix("other ")
        before, after = choose.choice(_RANKS), choose.choice(_RANKS)
        whole = self._run(before, folder, "whole", step, "nothing")
        resumed = self._run(after, folder, "resume", step, other)
        seen = f"step {step}, {before} and then {after}: {resumed.get('error')}"
        return Verdict(judged(whole, resumed, step, is_same=way == _SAME), seen)

    def _run(self, ranks: tuple[int, int], folder: Path, what: str, step: int, other: str) -> dict[str, Any]:
        num_devices, num_samplers = ranks
        with launch.start(
            SCRIPT, num_samplers, what, step, other, folder=folder, num_devices=num_devices, log=f"{what}.txt"
        ) as job:
            job.wait(LIMIT_S)
        file = folder / f"{what}.json"
        if not file.exists():
            raise RuntimeError(job.output)
        told: dict[str, Any] = json.loads(file.read_text())
        return told


def judged(whole: dict[str, Any], resumed: dict[str, Any], step: int, *, is_same: bool) -> str:
    """Judges a resumed run beside the one that was never cut."""
    if "error" in resumed:
        return "an error, with the settings of then" if is_same else "refused"
    if not is_same:
        return "went on with other mini-batches"
    wanted = [entry for entry in whole["seen"] if entry[0] != "train" or entry[3] >= step]
    is_equal = resumed["seen"] == wanted[-len(resumed["seen"]) :] and resumed["weights"] == whole["weights"]
    trained = sum(entry[0] == "train" for entry in resumed["seen"])
    return "the same batches and weights" if is_equal and trained == _NUM_STEPS - step else "other batches or weights"

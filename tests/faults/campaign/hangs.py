"""What a sampler calls never returns: a network disk that is gone, a lock that nobody gives back, an endless loop."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.jobs import SHAPES, ending

_VISITS = {"setup": 1, "opening": 1, "gather": 15, "sample": 15}
_HANGS = ("sleeps", "spins", "reads", "holds")


class Hangs(Attack):
    name = "hangs"
    good = frozenset({"taken over"})
    ways = tuple(f"{place} {what}" for place in _VISITS for what in _HANGS)

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        place, what = way.split()
        shape = choose.choice(SHAPES)
        wanted = self.jobs.undisturbed(shape)
        misfortune = f"{what}:{place}:{choose.randrange(_VISITS[place])}:{choose.randrange(shape.num_samplers)}"
        with self.jobs.start(shape, folder, misfortune) as job:
            began = time.monotonic()
            came = ending(job, folder, wanted)
        return Verdict(came, f"{shape}, {misfortune}\n{job.output}", {"s to the end": time.monotonic() - began})

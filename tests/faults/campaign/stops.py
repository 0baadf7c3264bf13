"""Processes are stopped (SIGSTOP), as a debugger, a full terminal or a suspended virtual machine stops them.

A stopped sampler's work is taken over, and it does not outlive the job; with a stopped trainer, a job can be ended.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from random import Random

from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.jobs import SHAPES, ending, ends, signal_at
from tests.integration.scripts import launch

END_S = 30.0 * launch.PATIENCE
_VISITS = {"start": 1, "setup": 1, "opening": 1, "gather": 15, "sample": 15, "trained": 1, "tested": 1}
"""How often, at least, a sampler comes to each place."""


class Stops(Attack):
    name = "stops"
    good = frozenset({"taken over", "unmissed", "over before", "ended"})
    ways = (
        "sampler at a random moment",
        *(f"sampler at {place}" for place in _VISITS),
        "trainer, then SIGTERM",
        "trainer, then Ctrl-C",
    )

    def obstacle(self, way: str) -> str:
        if way == "sampler at start" and self.jobs.how in ("spawn", "fork"):
            return "ranks that are spawned or forked run nothing of the script first"
        return ""

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        shape = choose.choice(SHAPES)
        wanted = self.jobs.undisturbed(shape)
        moment_s = choose.uniform(0.0, wanted.seconds)
        local_rank = choose.choice(shape.local_ranks("sampler" if way.startswith("sampler") else "trainer"))
        place = way.rpartition(" ")[2]
        misfortunes = []
        if place in _VISITS:
            sampler = local_rank - shape.num_trainers
            misfortunes = [f"stopped:{place}:{choose.randrange(_VISITS[place])}:{sampler}"]
        with self.jobs.start(shape, folder, *misfortunes) as job:
            began, at = time.monotonic(), None
            if not misfortunes:
                # Under some launchers, a rank waits while a process of its own samples.
                at = signal_at(job, local_rank, signal.SIGSTOP, moment_s, which=choose.choice((0, -1)))
            if way.startswith("sampler"):
                came = ending(job, folder, wanted)
            elif at is None:
                came = ends(job, END_S)
            else:
                time.sleep(1.0)
                began = time.monotonic()
                if job.process.poll() == 0:
                    came = "over before"  # stopped while it left, when the first rank had left already
                else:
                    _end(job, way, is_first=local_rank == 0)
                    came = ends(job, END_S)
        seen = f"{shape}, local rank {local_rank}, {misfortunes or f'stopped at {at} s'}\n{job.output}"
        return Verdict(came, seen, {"s to the end": time.monotonic() - began})


def _end(job: launch.Job, way: str, *, is_first: bool) -> None:
    """Ends a job as its user does, or systemd."""
    if way.endswith("SIGTERM"):
        job.process.send_signal(signal.SIGTERM)
    else:
        launch.interrupt(job)
    if is_first:
        # A stopped process hears of nothing before it goes on; systemd and timeout send this after SIGTERM.
        job.process.send_signal(signal.SIGCONT)

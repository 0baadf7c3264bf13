"""Processes of another user connect to all that a job opens, take the names that it will want, and forge what they can.

The job has the machine's loopback and its abstract names in common with them, and nothing else: it must train on with
the same mini-batches and weights, keep its samplers, and say little.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from tests.faults.campaign import network, stranger
from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.jobs import BEGAN, TRAINED, Shape, ending, num_lines, pinned

MOST_LINES = 50
"""That a job's log may have more than without strangers, however many come."""
# Two trainers, who meet by a store and by gloo's pairs; two samplers, who meet to share a cache.
_SHAPE = Shape(4, 2, step_ms=0, num_epochs=15, shares=True)
_HARMS = {
    "names connected to": ["sockets"],
    "names taken": ["names"],
    "flags forged": ["flags"],
    "garbage to ports": ["garbage"],
    "half-open ports": ["half-open"],
    "gloo's pairs joined": ["pairs"],
    "requests to the store": ["requests"],
    "everything": ["sockets", "names", "flags", "garbage", "half-open", "pairs", "requests"],
}


class Strangers(Attack):
    name = "strangers"
    # gloo cannot be kept from taking a stranger for a rank while it connects: the job ends before anything is sent.
    good = frozenset({"unmissed", "kept from starting"})
    ways = tuple(_HARMS)

    def obstacle(self, way: str) -> str:
        if self.jobs.how == "torchrun" and way in ("requests to the store", "everything"):
            return "torchrun's agent keeps a store that asks nobody who he is"
        return network.obstacle()

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        # Its own use of the processor must not be the harm: the job keeps to one core, strangers to the others.
        cores = sorted(os.sched_getaffinity(0))
        environment = pinned(cores[0])
        if self.jobs.how != "torchrun":
            environment |= {"MASTER_PORT": str(stranger.MAIN_PORT)}
        # Measured in each trial, as the machine may have had less to do, or more, when another one was made.
        wanted = self.jobs.measure(_SHAPE, folder / "undisturbed", environment)
        with strangers(_HARMS[way], str(choose.random()), set(cores[1:] or cores)) as done:
            with self.jobs.start(_SHAPE, folder / "disturbed", environment=environment) as job:
                came = ending(job, folder / "disturbed", wanted)
            told = done()
        figures = {f"{name} of strangers": float(number) for name, number in told.items()}
        figures["lines more"] = float(num_lines(job) - wanted.num_lines)
        trained = folder / "disturbed" / TRAINED
        if trained.exists():
            figures["of the throughput without"] = wanted.train_s / json.loads(trained.read_text())
        if came == "ended with an error" and "pairs" in _HARMS[way] and not (folder / "disturbed" / BEGAN).exists():
            came = "kept from starting"
        if came == "taken over":
            came = "a living sampler was given up"
        elif came == "unmissed" and figures["lines more"] > MOST_LINES:
            came = "the log was flooded"
        return Verdict(came, job.output, figures)


@contextmanager
def strangers(harms: list[str], seed: str, cores: set[int]) -> Iterator[Callable[[], dict[str, int]]]:
    """Lets one loose; gives a function that ends it and returns what it did."""
    context = multiprocessing.get_context("fork")  # a new interpreter could not read what only root may
    ours, theirs = context.Pipe()
    process = context.Process(target=stranger.run, args=(harms, seed, cores, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield lambda: _told(ours)
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def _told(channel: Connection) -> dict[str, int]:
    channel.send("enough")
    if not channel.poll(10.0):
        return {}
    told: dict[str, int] = channel.recv()
    return told

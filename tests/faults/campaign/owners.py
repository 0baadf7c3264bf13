"""Owners of parts are killed, stopped, parted from clients, starved and lied to, while a process samples from them.

It must go on with the same mini-batches and rows, bit for bit, or end with one error that says what is missing.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.cluster import network
from tests.faults.campaign import disks, harms
from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.cases import LIMIT_S, Case, write_secret
from tests.faults.campaign.harms import ANSWERS_S, LOST, PASSES_S, SAME


class Harm(NamedTuple):
    """What is done, what must come of it, and how many seconds the client may pause meanwhile."""

    do: Callable[[Case], str]
    wanted: str = SAME
    most_s: float = LIMIT_S
    needs_root: bool = False


HARMS: dict[str, Harm] = {
    "killed, started elsewhere": Harm(harms.killed_and_started_elsewhere, most_s=ANSWERS_S),
    "killed, started there": Harm(harms.killed_and_started_there, most_s=ANSWERS_S),
    "killed, served from a copy": Harm(harms.killed_and_served_from_a_copy, most_s=ANSWERS_S),
    "killed, a replica left": Harm(harms.killed_with_a_replica, most_s=PASSES_S),
    "killed ten times": Harm(harms.killed_again_and_again, most_s=ANSWERS_S),
    "killed for good": Harm(harms.killed_for_good, LOST),
    "stopped, a replica left": Harm(harms.stopped_with_a_replica, most_s=PASSES_S),
    "stopped for a while": Harm(harms.stopped_for_a_while),
    "stopped for 20 s": Harm(harms.stopped_for_long),
    "parted for a while": Harm(harms.parted),
    "cut for a while": Harm(harms.cut),
    "connections reset": Harm(harms.reset, most_s=PASSES_S),
    "a long way": Harm(harms.far),
    "a cable pulled": Harm(harms.pulled, needs_root=True),
    "half a cable pulled": Harm(harms.half_pulled, needs_root=True),
    "a narrow cable": Harm(harms.narrow, needs_root=True),
    "full folders": Harm(disks.full_folders, needs_root=True),
    "a full log": Harm(disks.full_log, needs_root=True),
    "copied to a full disk": Harm(disks.full_copy, needs_root=True),
    "two clients": Harm(harms.two_clients, most_s=PASSES_S),
    "another graph's parts": Harm(disks.another_graph, LOST),
    "replaced beneath an owner": Harm(disks.replaced_beneath),
    "replaced, started again": Harm(disks.replaced_and_started_again, LOST),
    "without the secret": Harm(harms.no_secret, LOST),
}
_SCHEMES = {"TCP": "", "Flight": "grpc://"}


class Owners(Attack):
    name = "owners"
    good = frozenset({SAME, "one clear error"})
    ways = tuple(f"{harm}, over {front}" for harm in HARMS for front in _SCHEMES)

    def obstacle(self, way: str) -> str:
        harm, _, front = way.rpartition(", over ")
        if front == "Flight" and importlib.util.find_spec("pyarrow") is None:
            return "needs pyarrow, which the extra 'flight' installs"
        if HARMS[harm].needs_root and os.getuid():
            return "needs root, for disks and networks of its own"
        return network.obstacle() if "cable" in harm else ""

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        harm, _, front = way.rpartition(", over ")
        do, wanted, most_s, _ = HARMS[harm]
        folder.mkdir()
        write_secret(folder / "secret")
        (folder / "log").touch()
        with ExitStack() as stack:
            case = Case(folder, self.jobs.parts, choose, _SCHEMES[front], stack, wanted != SAME)
            came = do(case)
            lines = [client.lines[-1:] for client in case.clients]
            seen = "\n".join([came, (folder / "log").read_text(), *map(str, lines)])
            pause_s = max((client.longest_pause_s for client in case.clients[-1:]), default=0.0)
        if came == wanted != SAME:
            came = "one clear error"
        elif came == SAME and pause_s > most_s:
            came = "the same batches, late"
        return Verdict(came.partition("\n")[0], seen, {"s of the longest pause": pause_s})

"""Owners of parts are killed, stopped, parted from clients, starved and lied to, while a process samples from them.

It must go on with the same mini-batches and rows, bit for bit, or end with one error that says what is missing.
"""

from __future__ import annotations

import importlib.util
import os
from contextlib import ExitStack
from pathlib import Path
from random import Random

from lightning_gnnload import partition_graph
from tests.cluster import network
from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.cases import Case, write_secret
from tests.faults.campaign.harms import HARMS, SAME
from tests.faults.campaign.jobs import Jobs
from tests.integration.scripts import toy

_SCHEMES = {"TCP": "", "Flight": "grpc://"}


class Owners(Attack):
    name = "owners"
    good = frozenset({SAME, "one clear error"})
    ways = tuple(f"{harm}, over {front}" for harm in HARMS for front in _SCHEMES)

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(jobs)
        self._parts: Path | None = None

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
            case = Case(folder, self._prepared(folder.parent), choose, _SCHEMES[front], stack, wanted != SAME)
            came = do(case)
            lines = [client.lines[-1:] for client in case.clients]
            seen = "\n".join([came, (folder / "log").read_text(), *map(str, lines)])
            pause_s = max((client.longest_pause_s for client in case.clients[-1:]), default=0.0)
        if came == wanted != SAME:
            came = "one clear error"
        elif came == SAME and pause_s > most_s:
            came = "the same batches, late"
        return Verdict(came.partition("\n")[0], seen, {"s of the longest pause": pause_s})

    def _prepared(self, folder: Path) -> Path:
        """Returns a partition's folder that all trials share."""
        if self._parts is None:
            self._parts = folder.parent / "owners-parts"
            partition_graph(toy.toy_data(), self._parts, 2, "random", hops=0, progress=False)
        return self._parts

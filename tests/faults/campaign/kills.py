"""Processes are killed at random moments: samplers, whose work must be taken over; trainers, whose end must end the
job; and who writes a folder, of which all must be there or nothing.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.campaign import versions
from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.jobs import LIMIT_S, SHAPES, ending, ends, signal_at
from tests.faults.campaign.versions import BEGAN
from tests.integration.scripts import launch

END_S = 10.0 * launch.PATIENCE
SCRIPT = Path(versions.__file__)
_WRITERS = ("save_graph_data", "save_features", "partition_graph", "prepare", "gnnload cache")
_LEFT = (".scratch-*", ".*.partial")
_NEXT = 49


class Kills(Attack):
    name = "kills"
    good = frozenset({"taken over", "unmissed", "over before", "ended", "all of the new", "all of the old"})
    ways = ("sampler", "trainer", *_WRITERS)

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        return self._writer(way, choose, folder) if way in _WRITERS else self._rank(way, choose, folder)

    def _rank(self, role: str, choose: Random, folder: Path) -> Verdict:
        shape = choose.choice(SHAPES)
        wanted = self.jobs.undisturbed(shape)
        local_rank, moment_s = choose.choice(shape.local_ranks(role)), choose.uniform(0, wanted.seconds)
        with self.jobs.start(shape, folder) as job:
            at = signal_at(job, local_rank, signal.SIGKILL, moment_s)
            began = time.monotonic()
            came = ends(job, END_S) if role == "trainer" and at is not None else ending(job, folder, wanted)
        if at is None and came == "unmissed":
            came = "over before"
        seen = f"{shape}, local rank {local_rank}, killed at {at} s\n{job.output}"
        return Verdict(came, seen, {"s to the end": time.monotonic() - began})

    def _writer(self, kind: str, choose: Random, folder: Path) -> Verdict:
        """Kills a process that overwrites a folder again and again: each stage of writing has its share of moments."""
        run("write", kind, 1, folder=folder)
        moment_s = choose.uniform(0.02, 1.0)
        with launch.start(SCRIPT, "write_for", kind, 60.0, folder=folder, log="killed.txt") as job:
            while job.process.poll() is None and not (folder / BEGAN).exists():
                time.sleep(1e-3)
            time.sleep(moment_s)
            job.process.kill()
            job.kill()
        seen = f"killed {moment_s:.3f} s after its first write began\n{job.output}"
        began = int((folder / BEGAN).read_text() or 1)
        found = run("check", kind, folder=folder)
        if not (is_whole(found) or (kind == "prepare" and "versions" in found)):
            return Verdict("neither the old nor the new", f"{found}\n{seen}")
        # prepare() looks for what was left of the same folder, the others for what was left of any version's.
        written = began if kind == "prepare" else _NEXT
        run("write", kind, written, folder=folder)
        if left := [str(path.relative_to(folder)) for pattern in _LEFT for path in folder.rglob(pattern)]:
            return Verdict("left by the next run", f"{sorted(left)}\n{seen}")
        after = run("check", kind, folder=folder)
        if kind == "gnnload cache":
            written = versions.cached_as(written)
        if written not in after.get("versions", []):
            return Verdict("the next run failed", f"{after}\n{seen}")
        return Verdict("all of the new" if began in found["versions"] else "all of the old", seen)


def is_whole(found: dict[str, Any]) -> bool:
    """Whether a folder that was checked has one version."""
    return len(found.get("versions", [])) == 1


def run(*arguments: object, folder: Path) -> dict[str, Any]:
    """Runs the script of versions to its end; what it printed last."""
    job = launch.run(SCRIPT, *arguments, folder=folder, timeout_s=LIMIT_S)
    told: dict[str, Any] = json.loads(job.output.splitlines()[-1])
    return told

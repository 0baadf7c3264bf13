"""Trainings whose graph lies with owners: owners are killed and come back, trainers, samplers and disks are lost.

The mini-batches and weights must be those of the whole graph, undisturbed, bit for bit; where a trainer is lost, once
the job was started again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from lightning_gnnload.owners.address import Address
from tests.faults.campaign import training
from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.cases import Case, write_secret
from tests.faults.campaign.harms import ANSWERS_S, PASSES_S
from tests.faults.campaign.jobs import LIMIT_S, Jobs, ends
from tests.integration.scripts import launch
from tests.integration.scripts.meeting import by_lightning, free_port

SCRIPT = Path(training.__file__)
SAME = "the same batches and weights"
NUM_KILLS = 5
_NUM_DEVICES = {"alone": 1, "ddp": 2, "factored": 3, "nodes": 2}
"""Of each kind of job (training.py), on each of its machines."""
_NUM_STEPS = 20 * training.NUM_EPOCHS
_LATEST = _NUM_STEPS - training.SAVE_EACH  # by when something is lost, so that some of the training is left


class OwnedJob:
    """A training in a folder of its own, which can be started again there.

    Args:
        head: of the partition, or ``training.WHOLE``.
    """

    def __init__(self, kind: str, folder: Path, head: Path | str, addresses: Path, secret: Path) -> None:
        self.kind, self.folder = kind, folder
        self._arguments, self._secret = (kind, head, addresses), secret
        self.output = ""

    @contextmanager
    def start(self) -> Iterator[list[launch.Job]]:
        """Starts it: one job a machine."""
        num_machines, port = 2 if self.kind == "nodes" else 1, free_port()
        with ExitStack() as stack:
            jobs = []
            for node in range(num_machines):
                meeting = by_lightning(node, port)["environment"] if num_machines > 1 else {}
                job = launch.start(
                    SCRIPT,
                    *self._arguments,
                    num_devices=_NUM_DEVICES[self.kind],
                    folder=self.folder / f"machine-{node}",
                    environment={"GNNLOAD_SECRET_FILE": str(self._secret), **meeting},
                )
                jobs.append(stack.enter_context(job))
            yield jobs
            self.output += "\n".join(job.output for job in jobs)

    def reach(self, jobs: list[launch.Job], step: int) -> None:
        """Waits until so many steps are done, or the job has ended."""
        deadline = time.monotonic() + LIMIT_S
        while len(self.steps) < step and jobs[0].process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)

    def kill(self, role: str, rank: int) -> None:
        """Kills one of its processes."""
        [file] = self.folder.rglob(f"{role}-{rank}.pid")
        os.kill(int(file.read_text()), signal.SIGKILL)

    @property
    def saved(self) -> Path:
        return self.folder / "machine-0" / training.SAVED

    @property
    def steps(self) -> list[dict[str, Any]]:
        file = self.folder / "machine-0" / training.STEPS
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def longest_pause_s(self) -> float:
        return float(np.diff([each["at"] for each in self.steps]).max(initial=0))

    def came(self, jobs: list[launch.Job], wanted: dict[str, Any]) -> str:
        """Waits for the end, and says in a few words what came of it. A record of a job that was started again has
        what came after its checkpoint."""
        if any(ends(job, LIMIT_S) == "hung" for job in jobs):
            return "hung"
        if jobs[0].returncode:
            return "ended with an error"
        records = self.records()
        same = records.keys() == wanted.keys() and all(
            record["weights"] == wanted[rank]["weights"]
            and record["seen"]
            and record["seen"] == wanted[rank]["seen"][-len(record["seen"]) :]
            for rank, record in records.items()
        )
        return SAME if same else "other batches or weights"

    def records(self) -> dict[str, Any]:
        return {file.name: json.loads(file.read_text()) for file in (self.folder / "machine-0").glob("record-*")}


class Trainings(Attack):
    name = "trainings"
    good = frozenset({SAME})

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(jobs)
        self._whole: dict[int, dict[str, Any]] = {}

    def obstacle(self, way: str) -> str:
        return "needs root, to fill a disk of its own" if way == FULL_DISK and os.getuid() else ""

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        lose, kinds, most_s = LOSSES[way]
        folder.mkdir()
        write_secret(folder / "secret")
        kind = choose.choice(kinds)
        wanted = self._undisturbed(1 if kind == "alone" else 2, folder.parent.parent)
        with ExitStack() as stack:
            case = Case(folder, self.jobs.parts, choose, "", stack)
            head = shutil.copytree(case.parts, folder / "head", ignore=shutil.ignore_patterns("part-*"))
            job = OwnedJob(kind, folder / "job", head, case.addresses, folder / "secret")
            came = lose(case, job, wanted)
            figures = {"s of the longest pause": job.longest_pause_s}
        if came == SAME and job.longest_pause_s > most_s:
            came = f"{SAME}, late"
        return Verdict(came, f"{kind}\n{job.output}", figures)

    def _undisturbed(self, num_trainers: int, root: Path) -> dict[str, Any]:
        """Trains over the whole graph in peace, once for each number of trainers."""
        if num_trainers not in self._whole:
            folder = root / f"trainings-{num_trainers}"
            job = OwnedJob("alone" if num_trainers == 1 else "ddp", folder, training.WHOLE, Path(), Path())
            with job.start() as jobs:
                if ends(jobs[0], LIMIT_S) == "hung" or jobs[0].returncode:
                    raise RuntimeError(f"an undisturbed job ended with {jobs[0].returncode}:\n{jobs[0].output}")
            self._whole[num_trainers] = job.records()
        return self._whole[num_trainers]


def replicas_killed(case: Case, job: OwnedJob, wanted: dict[str, Any]) -> str:
    """One of two owners of all parts, again and again; it comes back elsewhere before the next is killed."""
    owners = [case.own("0,1"), case.own("0,1")]
    case.name(*owners)
    with job.start() as jobs:
        for step in sorted(case.choose.sample(range(1, _NUM_STEPS), NUM_KILLS)):
            job.reach(jobs, step)
            lost = case.choose.randrange(2)
            owners[lost].kill()
            owners[lost] = case.own("0,1")
            case.name(*owners)
        return job.came(jobs, wanted)


def owner_killed(case: Case, job: OwnedJob, wanted: dict[str, Any]) -> str:
    """The only one of a part; a new process serves the folder, there or elsewhere."""
    owners = [case.own("0"), case.own("1")]
    case.name(*owners)
    with job.start() as jobs:
        job.reach(jobs, case.choose.randrange(_NUM_STEPS // 2))  # with more to ask for than is under way
        lost = case.choose.randrange(2)
        owners[lost].kill()
        port = case.choose.choice((Address.parse(owners[lost].address).port, 0))
        owners[lost] = case.own(str(lost), is_anew=True, port=port)
        case.name(*owners)
        return job.came(jobs, wanted)


def rank_killed(case: Case, job: OwnedJob, wanted: dict[str, Any]) -> str:
    """The job is started again, and goes on from its last checkpoint, with the same owners."""
    case.name(case.own("0"), case.own("1"))
    with job.start() as jobs:
        job.reach(jobs, case.choose.randrange(1, _LATEST))
        job.kill("trainer", case.choose.randrange(len(wanted)))
        if any(ends(each, LIMIT_S) == "hung" for each in jobs):
            return "hung"
    with job.start() as jobs:
        return job.came(jobs, wanted)


def sampler_killed(case: Case, job: OwnedJob, wanted: dict[str, Any]) -> str:
    """Trainers take its work over, and ask owners themselves."""
    case.name(case.own("0"), case.own("1"))
    with job.start() as jobs:
        job.reach(jobs, case.choose.randrange(1, _LATEST))
        job.kill("sampler", 2)
        return job.came(jobs, wanted)


def samplers_machine_killed(case: Case, job: OwnedJob, wanted: dict[str, Any]) -> str:
    """Mini-batches came from it over TCP."""
    case.name(case.own("0"), case.own("1"))
    with job.start() as jobs:
        job.reach(jobs, case.choose.randrange(1, _LATEST))
        jobs[1].kill()
        return job.came(jobs[:1], wanted)


def disk_filled(case: Case, job: OwnedJob, wanted: dict[str, Any]) -> str:
    """No further checkpoint can be written: the job ends by the system's own error. With room, it goes on from the last
    one that is whole."""
    disk = case.full(64 << 10)
    job.saved.parent.mkdir(parents=True)
    job.saved.symlink_to(disk)
    case.name(case.own("0"), case.own("1"))
    with job.start() as jobs:
        job.reach(jobs, training.SAVE_EACH + 1)
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(1 << 10)):
                pass
        if any(ends(each, LIMIT_S) == "hung" for each in jobs):
            return "hung"
        if jobs[0].returncode == 0 or "No space left on device" not in jobs[0].output:
            return f"went on without checkpoints, and ended with {jobs[0].returncode}"
    subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
    with job.start() as jobs:
        return job.came(jobs, wanted)


FULL_DISK = "checkpoints on a full disk"
_HERE = ("alone", "ddp", "factored")
LOSSES: dict[str, tuple[Callable[[Case, OwnedJob, dict[str, Any]], str], tuple[str, ...], float]] = {
    "owners killed, a replica left": (replicas_killed, _HERE, PASSES_S),
    "an owner killed, started again": (owner_killed, _HERE, ANSWERS_S),
    "a trainer killed": (rank_killed, _HERE, LIMIT_S),
    "a sampler killed": (sampler_killed, ("factored",), LIMIT_S),
    "the samplers' machine killed": (samplers_machine_killed, ("nodes",), LIMIT_S),
    FULL_DISK: (disk_filled, _HERE, LIMIT_S),
}
"""What is lost, of which kinds of jobs, and how many seconds training may pause."""
Trainings.ways = tuple(LOSSES)

"""Jobs: trainings of several ranks to be disturbed, and how they run undisturbed."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from lightning_gnnload import partition_graph
from tests.integration.scripts import launch, toy

SCRIPT = Path(__file__).with_name("job.py")
LIMIT_S = 60.0 * launch.PATIENCE
"""Of a job of a few seconds, beside all time-outs that a disturbance may bring about."""
CORES = "GNNLOAD_CAMPAIGN_CORES"
BEGAN, TRAINED = "began", "trained.json"
_HEIRS = ("takes its work over", "sample themselves from here on")


@dataclass(frozen=True)
class Shape:
    """A job's ranks and length. A training step takes at least ``step_ms``, so that moments fall into training;
    ``shares`` means that samplers share a cache."""

    num_devices: int
    num_samplers: int
    step_ms: int = 60
    num_epochs: int = 2
    shares: bool = False

    @property
    def num_trainers(self) -> int:
        return self.num_devices - self.num_samplers

    def local_ranks(self, role: str) -> range:
        return range(self.num_trainers) if role == "trainer" else range(self.num_trainers, self.num_devices)


SHAPES = (Shape(2, 1), Shape(3, 2), Shape(3, 1))


@dataclass(frozen=True)
class Undisturbed:
    """What all trainers saw and have in the end, how long it took, and how much was said."""

    records: dict[str, Any]
    seconds: float
    train_s: float
    num_lines: int


class Jobs:
    """Starts jobs, and keeps what each shape of them comes to when nobody disturbs it.

    Args:
        how: ``"script"``, ``"torchrun"``, ``"spawn"`` or ``"fork"``: who starts the ranks.
        folder: for the undisturbed jobs.
    """

    def __init__(self, how: str, folder: Path) -> None:
        self.how = how
        self._folder = folder
        self._known: dict[Shape, Undisturbed] = {}

    @contextmanager
    def start(
        self, shape: Shape, folder: Path, *misfortunes: str, environment: Mapping[str, str] | None = None
    ) -> Iterator[launch.Job]:
        """Starts a job; misfortunes are written as ``job.py`` has them."""
        arguments = (shape.num_samplers, shape.step_ms, shape.num_epochs, *(["shared"] if shape.shares else []))
        with launch.start(
            SCRIPT,
            *arguments,
            *misfortunes,
            folder=folder,
            how=self.how,
            num_devices=shape.num_devices,
            environment=environment,
        ) as job:
            yield job

    def undisturbed(self, shape: Shape) -> Undisturbed:
        """Runs a job in peace, once for each shape. Raises RuntimeError: it fails even so."""
        if shape not in self._known:
            self._known[shape] = self.measure(shape, self._folder / str(len(self._known)))
        return self._known[shape]

    @functools.cached_property
    def parts(self) -> Path:
        """The folder of a partition that trials share, each node's list and row with its owner."""
        self._folder.mkdir(parents=True, exist_ok=True)
        partition_graph(toy.toy_data(), self._folder / "parts", 2, "random", hops=0, progress=False)
        return self._folder / "parts"

    def measure(self, shape: Shape, folder: Path, environment: Mapping[str, str] | None = None) -> Undisturbed:
        """Runs a job in peace. Raises RuntimeError: it fails even so."""
        with self.start(shape, folder, environment=environment) as job:
            seconds = job.wait(2 * LIMIT_S)
        if job.returncode:
            raise RuntimeError(f"an undisturbed job of {shape} ended with {job.returncode}:\n{job.output}")
        return Undisturbed(records(folder), seconds, json.loads((folder / TRAINED).read_text()), num_lines(job))


def records(folder: Path) -> dict[str, Any]:
    """Reads what trainers saw and have, in fit and in test."""
    return {file.name: json.loads(file.read_text()) for pattern in ("fit-*", "test-*") for file in folder.glob(pattern)}


def num_lines(job: launch.Job) -> int:
    return job.output.count("\n")


def ending(job: launch.Job, folder: Path, wanted: Undisturbed) -> str:
    """Waits for a job that must train to its end, and says in a few words how it did."""
    if ends(job, LIMIT_S) == "hung":
        return "hung"
    if job.returncode:
        return "ended with an error"
    if records(folder) != wanted.records:
        return "other batches or weights"
    return "taken over" if any(words in job.output for words in _HEIRS) else "unmissed"


def ends(job: launch.Job, limit_s: float) -> str:
    """Waits for a job that must end, whatever it comes to. The output of one that hangs says where."""
    try:
        job.wait(limit_s)
    except TimeoutError as error:
        with job.log.open("a") as log:
            log.write(str(error).splitlines()[0])
        return "hung"
    return "ended"


def processes_of(job: launch.Job, local_rank: int) -> list[psutil.Process]:
    """The processes of a rank, the youngest last: where a rank has several, that one does its work."""
    found = []
    for process in job.processes():
        try:
            is_launcher = "torch.distributed.run" in process.cmdline()
            if not is_launcher and int(process.environ().get("LOCAL_RANK", 0)) == local_rank:
                found.append((process.create_time(), process))
        except psutil.Error:
            continue
    return [process for _, process in sorted(found, key=lambda each: each[0])]


def signal_at(
    job: launch.Job, local_rank: int, number: signal.Signals, moment_s: float, *, which: int = -1
) -> float | None:
    """Sends one of a rank's processes a signal at a moment, or as soon as it is there; returns when that was, None if
    the job was over first."""
    while job.process.poll() is None:
        at = time.monotonic() - job.began
        if at >= moment_s and (found := processes_of(job, local_rank)):
            try:
                found[which].send_signal(number)
            except psutil.NoSuchProcess:
                return None
            return at
        time.sleep(0.005)
    return None


def pinned(core: int) -> dict[str, str]:
    """Variables by which all ranks of a job keep to one core."""
    return {CORES: str(core)}


def keep_to_given_cores() -> None:
    """Called in a rank, as soon as it runs."""
    if CORES in os.environ:
        os.sched_setaffinity(0, {int(os.environ[CORES])})

"""Jobs of several processes, started as a user would start them, and ended whatever happens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests import forkserver
from tests.guards import HIDDEN

ROOT = Path(__file__).parents[3]
JOB_MARK = "GNNLOAD_TEST_JOB"
PATIENCE = float(os.environ.get("GNNLOAD_TEST_PATIENCE", "1"))
"""Multiplies time limits, for a machine that has much else to do."""
_OF_A_LAUNCHER = re.compile(
    r"(LOCAL_|NODE_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|PL_GLOBAL_SEED|SLURM_.*|GNNLOAD_LIGHTNING"
)


@dataclass
class Job:
    """A started script: all processes of a session, known by a mark in their environment."""

    process: subprocess.Popen[str]
    mark: str
    log: Path
    began: float = field(default_factory=time.monotonic)

    def processes(self) -> list[psutil.Process]:
        """Those that still run, wherever they hang now. Zombies do not run."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(JOB_MARK) == self.mark:
                    found.append(process)
            except psutil.Error:  # ended meanwhile, or not ours to look at
                continue
        return found

    def wait(self, timeout_s: float) -> float:
        """Seconds until the last process was gone.

        Raises:
            TimeoutError: some are left; the message has the job's output.
        """
        began = time.monotonic()
        with suppress(subprocess.TimeoutExpired):  # the others are looked for after it
            self.process.wait(timeout_s)
        while left := self.processes():
            if time.monotonic() - began > timeout_s:
                names = [f"{p.pid} {p.status()} rank {p.environ().get('LOCAL_RANK')}" for p in left]
                self._write_stacks(left)
                raise TimeoutError(f"after {timeout_s:.0f} s there still run {names}:\n{self.output}")
            time.sleep(0.05)
        return time.monotonic() - began

    def _write_stacks(self, hanging: Sequence[psutil.Process]) -> None:
        """Ends them in such a way that the output says where they hang."""
        for process in hanging:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGABRT)
        psutil.wait_procs(hanging, timeout=5)

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def returncode(self) -> int:
        assert self.process.returncode is not None
        return self.process.returncode

    def kill(self) -> None:
        for process in self.processes():
            process.kill()
        self.process.kill()
        self.process.wait()


@contextmanager
def start(
    script: Path,
    *arguments: object,
    folder: Path,
    how: str = "script",
    num_devices: int = 1,
    environment: Mapping[str, str] | None = None,
    agent: Sequence[str] = ("--standalone",),
    prefix: Sequence[str] = (),
    log: str = "output.txt",
    anew: bool = False,
) -> Iterator[Job]:
    """Starts ``script`` and kills what is left of it at the end.

    Args:
        arguments: of the script; the first ones it gets are ``how`` and ``num_devices``.
        folder: working directory, for all that the job writes.
        how: ``"torchrun"`` starts the ranks itself; under any other name the script does.
        environment: variables of the job, beside those of this process.
        agent: options of torchrun.
        prefix: a command that runs the one after it, elsewhere.
        log: the file in ``folder`` that the output goes to.
        anew: each process is a new interpreter, as a user's is, and none a fork of one that has imported torch already.
    """
    mark = uuid.uuid4().hex
    variables = {name: value for name, value in os.environ.items() if not _OF_A_LAUNCHER.fullmatch(name)}
    paths = os.pathsep.join(map(str, (ROOT, HIDDEN)))
    variables |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", JOB_MARK: mark}
    variables |= {"PYTHONFAULTHANDLER": "1"}
    variables |= environment or {}
    command = [*prefix, sys.executable]
    if how == "torchrun":
        command += ["-m", "torch.distributed.run", *agent, f"--nproc-per-node={num_devices}"]
    command += [str(script), how, str(num_devices), *map(str, arguments)]
    folder.mkdir(parents=True, exist_ok=True)
    log_path = folder / log
    with log_path.open("w") as out:
        # A session of its own, as a shell gives a job: Ctrl-C reaches the job and nobody else.
        process = (subprocess.Popen if anew or prefix else forkserver.Popen)(
            command,
            cwd=folder,
            env=variables,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_hear_interrupts,
            text=True,
        )
    job = Job(process, mark, log_path)
    try:
        yield job
    finally:
        job.kill()


def run(
    script: Path,
    *arguments: object,
    folder: Path,
    how: str = "script",
    num_devices: int = 1,
    timeout_s: float = 120,
    anew: bool = False,
) -> Job:
    """Runs ``script`` to its end.

    Raises:
        TimeoutError, RuntimeError: it hangs or fails; the message has the job's output.
    """
    with start(script, *arguments, folder=folder, how=how, num_devices=num_devices, anew=anew) as job:
        job.wait(timeout_s)
    if job.returncode != 0:
        raise RuntimeError(f"{script.name} {arguments} ended with {job.returncode}:\n{job.output}")
    return job


def interrupt(job: Job) -> None:
    """Ctrl-C in the terminal: SIGINT to the whole process group."""
    os.killpg(job.process.pid, signal.SIGINT)


def _hear_interrupts() -> None:
    # A shell's background job, which the tests may be, ignores Ctrl-C, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

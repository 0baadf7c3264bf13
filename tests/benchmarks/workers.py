"""Worker: one library in a process of its own, told what to measure by lines of JSON.

A process each gives every contender its own settings (threads, malloc) and its own peak of memory. A worker
that waits for its turn takes no time from the one that is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import IO, Any

from tests.benchmarks.errors import BenchmarkError, Unavailable
from tests.benchmarks.peers import Found

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ALL_CORES = dict.fromkeys(ONE_THREAD, str(len(os.sched_getaffinity(0))))
HUGE_PAGE_MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_GOODBYE_S = 10.0
_LAST_CHARACTERS = 4000


class Worker:
    """A ``python -m tests.benchmarks.<module>``, for a ``with`` statement; it starts on the first call at the latest.

    Args:
        module: a module of this folder that ends in :func:`serve`.
        environment: variables that it gets besides this process's own.
        python: the interpreter; this process's own by default.
        show_output: let what it prints through; otherwise it is kept for when the worker dies.
        settings: keyword arguments of its class.
    """

    def __init__(
        self,
        module: str,
        environment: dict[str, str] | None = None,
        *,
        python: str = sys.executable,
        show_output: bool = False,
        **settings: Any,
    ) -> None:
        self.module = module
        self.python = python
        self.environment = ONE_THREAD | (environment or {})
        self.settings = settings
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None if show_output else tempfile.TemporaryFile("w+")  # noqa: SIM115  closed on exit

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._log is not None:
            self._log.close()
        if self._process is None:
            return
        self.dismiss()
        try:
            self._process.wait(_GOODBYE_S if kind is None else 0.1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def call(self, task: str, **arguments: Any) -> dict[str, Any]:
        """What the worker's method ``task`` returned.

        Raises:
            Unavailable: what the task needs is not here.
            BenchmarkError: it raised, or the worker is gone; with the reason.
        """
        process = self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            print(json.dumps({"task": task, "arguments": arguments}), file=process.stdin, flush=True)
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = process.wait()
            raise BenchmarkError(
                f"the {self.module} worker ended in {task!r} with status {status}.\n{self._last_words()}"
            )
        reply: dict[str, Any] = json.loads(line)
        if "unavailable" in reply:
            raise Unavailable(reply["unavailable"])
        if "error" in reply:
            raise BenchmarkError(f"the {self.module} worker failed in {task!r}:\n{reply['error']}")
        return reply

    def dismiss(self) -> None:
        """No more orders: the process ends, and this does not wait for it."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it is gone already
                self._process.stdin.close()

    def start(self) -> subprocess.Popen[str]:
        """The process, which begins to import at once; started already, nothing happens."""
        if self._process is None:
            self._process = subprocess.Popen(
                [self.python, "-m", f"tests.benchmarks.{self.module}", json.dumps(self.settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=os.environ | self.environment,
            )
        return self._process

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        return self._log.read()[-_LAST_CHARACTERS:]


class Workers(ExitStack):
    """Workers that live as long as the ``with`` statement, one of a kind.

    Args:
        found: the peers that are here, by family.
    """

    def __init__(self, found: Iterable[Found] = ()) -> None:
        super().__init__()
        self.found = {one.peer.family: one for one in found if one.build is not None}
        self._pythons = {one.peer.worker: one.python for one in self.found.values()}
        self._made: dict[str, Worker] = {}

    def __exit__(self, *error: Any) -> bool | None:
        for worker in self._made.values():  # all at once: each takes a while
            worker.dismiss()
        return super().__exit__(*error)

    def get(self, module: str, environment: dict[str, str] | None = None, **settings: Any) -> Worker:
        """The worker of this kind; a new one the first time, which imports while others do, before turn 0 is over."""
        kind = json.dumps([module, environment, settings])
        if kind not in self._made:
            python = next((self._pythons[peer] for peer in self._pythons if module.startswith(peer)), sys.executable)
            self._made[kind] = self.enter_context(Worker(module, environment, python=python, **settings))
            self._made[kind].start()
        return self._made[kind]

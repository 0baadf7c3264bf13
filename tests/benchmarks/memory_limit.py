"""MemoryLimit: a control group that gives a process no more memory than it may have."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from tests.benchmarks.errors import Unavailable

_ROOT = Path("/sys/fs/cgroup")


class MemoryLimit:
    """For a ``with`` statement; a process joins by writing its id to :attr:`procs`. Files that it reads count, too,
    as far as the page cache keeps them: the system takes those pages back when the limit is reached.

    Raises:
        Unavailable: no memory controller that this user may use.
    """

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        name = f"gnnload-bench-{os.getpid()}"
        self._is_v1 = (_ROOT / "memory").is_dir()
        self.folder = (_ROOT / "memory" if self._is_v1 else _ROOT) / name

    @property
    def procs(self) -> Path:
        return self.folder / "cgroup.procs"

    def __enter__(self) -> MemoryLimit:
        try:
            self.folder.mkdir()
            limit = "memory.limit_in_bytes" if self._is_v1 else "memory.max"
            (self.folder / limit).write_text(str(self.num_bytes))
        except OSError as error:
            self.__exit__()
            raise Unavailable(f"no process can be limited to less memory here: {error}") from error
        return self

    def __exit__(self, *_error: object) -> None:
        for _ in range(100):  # the last process of the group may still be on its way out
            with contextlib.suppress(FileNotFoundError):
                try:
                    self.folder.rmdir()
                except OSError:
                    time.sleep(0.05)
                    continue
            return

    def peak_bytes(self) -> int:
        """The most that the group ever had, its share of the page cache included."""
        return int((self.folder / ("memory.max_usage_in_bytes" if self._is_v1 else "memory.peak")).read_text())

    def describe(self) -> str:
        version = 1 if self._is_v1 else 2
        return f"each process alone in a control group (version {version}) of {self.num_bytes / 2**30:.3g} GiB"

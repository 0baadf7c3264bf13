"""What a process has taken of the machine's memory, and memory on 2 MB pages."""

from __future__ import annotations

import mmap
import re
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

MIB = 1 << 20


class MemoryWatch:
    """Begins when it is made: best before the data are loaded.

    The peak is the kernel's high-water mark (VmHWM) of resident memory: ``ru_maxrss`` without what an
    ancestor left in it. It counts mapped files as far as they were touched; private memory is in no file.
    """

    def __init__(self) -> None:
        self.at_start = _status_bytes("VmRSS")
        self.private_bytes = 0

    def look(self) -> None:
        self.private_bytes = max(self.private_bytes, private_bytes())

    def report(self) -> dict[str, float | list[float]]:
        """In MiB; ``"worker"`` is the largest of the processes that this one started and saw end."""
        self.look()
        found: dict[str, float | list[float]] = {
            "values": [peak_bytes() / MIB],
            "after imports": self.at_start / MIB,
            "private": self.private_bytes / MIB,
        }
        if largest_worker := resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024:
            found["largest worker"] = largest_worker / MIB
        return found


def on_huge_pages(array: np.ndarray) -> np.ndarray:
    """A copy in private memory for which 2 MB pages were asked. A mapped file has 4 KB pages."""
    memory = mmap.mmap(-1, max(array.nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    copy = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    copy[...] = array
    return copy


def huge_page_bytes() -> int:
    """How much of this process's memory lies on 2 MB pages."""
    return _kilobytes("/proc/self/smaps_rollup", "AnonHugePages")


def private_bytes() -> int:
    """What is resident and in no file."""
    return _status_bytes("RssAnon") + _status_bytes("RssShmem")


def peak_bytes() -> int:
    """The most that was ever resident, pages of mapped files that were touched included."""
    return _status_bytes("VmHWM")


def held_bytes(process: int | str = "self") -> int:
    """What a process and all that it started hold of the machine's memory, each shared page once (``Pss``)."""
    held = 0
    for one in (process, *_descendants(process)):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            held += _kilobytes(f"/proc/{one}/smaps_rollup", "Pss")
    return held


def _descendants(process: int | str) -> Iterator[str]:
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in file.read_text().split():
                yield from (child, *_descendants(child))


def _status_bytes(field: str) -> int:
    return _kilobytes("/proc/self/status", field)


def _kilobytes(file: str, field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB$", Path(file).read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0

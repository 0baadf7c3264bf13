"""MemoryWatch: what a process has taken of the machine's memory."""

from __future__ import annotations

import re
import resource
from pathlib import Path

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
        self.private_bytes = max(self.private_bytes, _status_bytes("RssAnon") + _status_bytes("RssShmem"))

    def report(self) -> dict[str, float | list[float]]:
        """In MiB; ``"worker"`` is the largest of the processes that this one started and saw end."""
        self.look()
        found: dict[str, float | list[float]] = {
            "values": [_status_bytes("VmHWM") / MIB],
            "after imports": self.at_start / MIB,
            "private": self.private_bytes / MIB,
        }
        if largest_worker := resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024:
            found["largest worker"] = largest_worker / MIB
        return found


def huge_page_bytes() -> int:
    """How much of this process's memory lies on 2 MB pages."""
    return _kilobytes("/proc/self/smaps_rollup", "AnonHugePages")


def _status_bytes(field: str) -> int:
    return _kilobytes("/proc/self/status", field)


def _kilobytes(file: str, field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB$", Path(file).read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0

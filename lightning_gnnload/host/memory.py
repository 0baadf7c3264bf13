"""How much memory is free: the machine's, or what control groups leave of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


def free_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Returns the bytes that processes may still take: of the machine, or what the container's limits leave."""
    # Pages of files that were read lately count as free: the system gives them up.
    try:
        free = int((proc / "meminfo").read_text().partition("MemAvailable:")[2].split()[0]) << 10
    except OSError:  # Linux alone says what is available
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(min([free, *_rooms(proc, cgroups)]), 0)


def reserve_bytes(total: int) -> int:
    """Returns how much of a device's memory to leave for fragments, libraries and other programs: 1 GiB, or 5 %."""
    return max(1 << 30, total // 20)


def in_units(num_bytes: int) -> str:
    """Formats a number of bytes for people.

    Example:
        >>> in_units(1_500_000), in_units(-3 << 30)
        ('1.4 MiB', '-3.0 GiB')
    """
    # By bits, as a logarithm of floats errs at the powers.
    power = min(max(abs(num_bytes).bit_length() - 1, 0) // 10, 4)
    return f"{num_bytes / 1024**power:.{min(power, 1)}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def _rooms(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yields the free bytes of each control group of this process and of those above it, version 1 or 2."""
    with suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                root, limit, usage, idle = cgroups, "memory.max", "memory.current", "inactive_file"
            elif "memory" in controllers.split(","):
                root, limit, usage = cgroups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
                idle = "total_inactive_file"
            else:
                continue
            folder = root / path.lstrip("/")
            # In a container the path may be the host's; the container's own group is then the root.
            for group in [folder, *folder.parents]:
                with suppress(OSError, ValueError):  # no such file, or "max"
                    # A group's usage counts the page cache; the inactive part of it is reclaimed under pressure.
                    used = int((group / usage).read_text()) - _stat(group / "memory.stat", idle)
                    yield int((group / limit).read_text()) - used
                if group == root:
                    break


def _stat(file: Path, name: str) -> int:
    with suppress(OSError):
        for line in file.read_text().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    return 0


class ResidentMemory(NamedTuple):
    """The memory of this process that lies in the machine's: ``private`` bytes that no other process can share, those
    of ``file`` pages and of memory ``shared`` with other ranks, and the ``peak`` of all."""

    private: int
    file: int
    shared: int
    peak: int

    @property
    def peak_private(self) -> int:
        """The most that was private, if the rest did not shrink since."""
        return max(self.peak - self.file - self.shared, self.private)


def resident_memory(proc: Path = Path("/proc")) -> ResidentMemory:
    """Returns what this process has now, and the most that it had; zeros where the system does not say."""
    names, values = ("RssAnon", "RssFile", "RssShmem", "VmHWM"), dict[str, int]()
    with suppress(OSError, ValueError):
        for line in (proc / "self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in names:
                values[name] = int(value.split()[0]) << 10
    return ResidentMemory(*(values.get(name, 0) for name in names))


def forget_peak(proc: Path = Path("/proc")) -> None:
    """Lets the peak of :func:`resident_memory` begin anew, where the system allows it."""
    with suppress(OSError):
        (proc / "self/clear_refs").write_text("5")

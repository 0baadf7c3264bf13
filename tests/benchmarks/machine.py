"""The machine and the versions that figures belong to."""

from __future__ import annotations

import os
import platform
import re
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("lightning_gnnload", "torch", "pytorch-lightning", "numpy")  # peers tell of their own builds
_ALLOCATORS = ("GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_CONF", "LD_PRELOAD")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")


def describe() -> list[str]:
    """A line each on processor, pages and software."""
    model = _found(r"^model name\s*:\s*(.*)$", "/proc/cpuinfo") or platform.machine()
    vectors = "with" if "avx512f" in _found(r"^flags\s*:(.*)$", "/proc/cpuinfo").split() else "without"
    cores = len(os.sched_getaffinity(0))
    memory_gib = int(_found(r"^MemTotal:\s+(\d+) kB$", "/proc/meminfo") or 0) / 2**20
    kernel = ".".join(platform.release().split(".")[:2])
    packages = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    return [
        f"{model} {vectors} AVX-512, {cores} cores, {memory_gib:.0f} GiB of memory",
        f"2 MB pages: {_chosen('enabled')!r} for private memory, {_chosen('shmem_enabled')!r} for shared",
        f"Linux {kernel}, Python {platform.python_version()}, {packages}; our kernels use {_instruction_set()}",
    ]


def _instruction_set() -> str:
    from lightning_gnnload import ops

    return ops.instruction_sets()[-1]


def allocator() -> str:
    """Which malloc all libraries have, and what the environment tells it."""
    name, release = platform.libc_ver()
    told = [f"{variable}={os.environ[variable]}" for variable in _ALLOCATORS if variable in os.environ]
    where = "where a row says so, GLIBC_TUNABLES=glibc.malloc.hugetlb=1 gives it 2 MB pages"
    return f"malloc of {name or 'libc'} {release}, environment: {', '.join(told) or 'nothing set'}; {where}"


class Neighbours:
    """What else the machine does from when this is made; figures depend on it."""

    def __init__(self) -> None:
        self._load_before = os.getloadavg()[0]
        self._began = time.monotonic(), self._seconds_of_others()

    def describe(self) -> str:
        """Call it when this process's children have ended: only then their time is not taken for others'."""
        began, before = self._began
        elapsed_s = time.monotonic() - began
        share = max(self._seconds_of_others() - before, 0) / (elapsed_s * (os.cpu_count() or 1))
        return (
            f"other processes used {share:.0%} of the processor during the {elapsed_s / 60:.0f} minutes of the run; "
            f"the load average before it was {self._load_before:.1f}"
        )

    @staticmethod
    def _seconds_of_others() -> float:
        user, nice, system, _, _, *interrupts = map(int, _found(r"^cpu +(.*)$", "/proc/stat").split()[:8])
        busy_s = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
        return busy_s - sum(os.times()[:4])


def _found(pattern: str, file: str) -> str:
    match = re.search(pattern, Path(file).read_text(), re.MULTILINE)
    return match[1].strip() if match else ""


def _chosen(setting: str) -> str:
    try:
        return _found(r"\[(\w+)\]", str(_HUGE_PAGES / setting))
    except OSError:
        return "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"

"""Memory on 2 MB pages: what is read or written at random then waits less for the addresses of its pages.

All of this is advice. A system without such pages serves smaller ones, more slowly.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.memory import free_bytes
from lightning_gnnload.errors import SlotMemoryError

HUGE_PAGE_BYTES = 2 << 20


def buffer_memory(num_bytes: int, fd: int = -1) -> mmap.mmap:
    """Allocates at least so many zeroed bytes, in whole pages; pages that are never touched cost nothing.

    Args:
        num_bytes: size; from 2 MB on it is rounded up to whole pages of that size.
        fd: a memfd to share, which grows when it is smaller; -1 for private memory.

    Raises:
        SlotMemoryError: the machine gives no such memory.
    """
    page = mmap.PAGESIZE if num_bytes < HUGE_PAGE_BYTES else HUGE_PAGE_BYTES
    size = max(-(-num_bytes // page), 1) * page
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS if fd < 0 else mmap.MAP_SHARED
    try:
        # It only grows: a page that is cut off under another process's map would end that process (SIGBUS).
        if fd >= 0 and os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
        memory = mmap.mmap(fd, size, flags=flags)
    except (OSError, ValueError, OverflowError) as error:
        raise SlotMemoryError(
            f"a mini-batch needs a buffer of {size / 2**20:.0f} MiB, which the machine does not give ({error}). "
            f"Use a smaller batch_size, smaller fanouts, or fewer slots (queue_depth, num_threads)."
        ) from error
    advise_huge(memory)
    return memory


def private_bytes(num_bytes: int) -> np.ndarray:
    """Allocates so many zeroed bytes, uint8, for this process alone, and not a page more. Raises MemoryError."""
    try:
        memory = mmap.mmap(-1, max(num_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError) as error:
        raise MemoryError(
            f"{num_bytes / 2**20:.0f} MiB of memory, which the machine does not give: {error}."
        ) from error
    advise_huge(memory)
    return np.frombuffer(memory, np.uint8, num_bytes)


def mapped_bytes(file: Path, fd: int | None = None) -> np.ndarray:
    """Maps a file that is not empty, read-only uint8, without a copy: all processes share the system's pages of it.

    With ``fd``, it is that descriptor's file, whatever bears its name by now.

    Where the file system can, the file is read and mapped by 2 MB pages. Measured with ext4: the first pass over a
    file that is not in memory takes half the time; from then on rows of 8 bytes are gathered 1.7 times as fast,
    rows of 100 bytes 1.5 times, rows of 512 bytes as fast. A file larger than half of the free memory is read by the
    smallest pages, and nothing ahead of them.

    A file that is cut off while it is mapped ends the process that reads there; its name is told before.
    """
    with open(file if fd is None else fd, "rb", closefd=fd is None) as opened:
        memory = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    if len(memory) <= free_bytes() // 2:
        advise_huge(memory)
    elif hasattr(mmap, "MADV_RANDOM"):
        # What memory cannot hold is read again and again: a row must cost neither 2 MB nor what systems read ahead,
        # which may be more (8 MB a row were seen).
        memory.madvise(mmap.MADV_RANDOM)
    mapped = np.frombuffer(memory, np.uint8)
    weakref.finalize(memory, ops.unwatch_map, ops.watch_map(mapped, printable(file))).atexit = False
    return mapped


@dataclass(frozen=True)
class MappedFile:
    """The file, or memory that processes share, whose pages lie at an address, and whether this process may write to
    these. A name that no file has any more ends in ``(deleted)``."""

    path: str
    inode: int
    is_writable: bool


def mapped_file(address: int) -> MappedFile | None:
    """Returns what is mapped at an address of this process; None where that is memory of its own."""
    with open("/proc/self/maps", errors="surrogateescape") as file:
        for line in file:
            span, permissions, _offset, _device, inode, *path = line.rstrip("\n").split(maxsplit=5)
            begin, end = (int(part, 16) for part in span.split("-"))
            if begin <= address < end:
                # What the system calls [heap] or [stack] has no inode.
                return MappedFile(path[0], int(inode), "w" in permissions) if path and inode != "0" else None
    return None


def printable(path: str | os.PathLike[str]) -> str:
    """Writes a path as text that can be encoded: names of files may be any bytes, which native code and logs refuse."""
    return os.fspath(path).encode(errors="backslashreplace").decode()


def rest_mapped(array: np.ndarray) -> None:
    """Takes the pages of a mapped file off this process's memory, though not out of the page cache; what of them is
    looked at again comes back. Other arrays stay as they are."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        found = mapped_file(array.ctypes.data)
        if found is not None and not found.is_writable:  # else it would be the end of what the pages hold
            base.madvise(mmap.MADV_DONTNEED)


def let_go(fd: int) -> None:
    """Drops the pages of a file that was written and synchronised from the page cache.

    They are small ones, and would serve :func:`mapped_bytes` as such for as long as they are in memory.
    """
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def advise_huge(memory: mmap.mmap) -> None:
    """Asks for 2 MB pages, where there is room for one."""
    if len(memory) >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):  # Linux alone has it
        with contextlib.suppress(OSError):  # and not in every build
            memory.madvise(mmap.MADV_HUGEPAGE)

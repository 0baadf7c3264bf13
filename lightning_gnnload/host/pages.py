"""Memory and mapped files on 2 MB pages, where random reads and writes wait less for page addresses.

Huge pages are only advice: a system without them serves smaller ones, more slowly.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.errors import SlotMemoryError
from lightning_gnnload.host.memory import free_bytes

HUGE_PAGE_BYTES = 2 << 20


class _Spare(threading.local):
    memory: torch.Tensor | None = None


_spare = _Spare()


def buffer_memory(num_bytes: int, fd: int = -1) -> mmap.mmap:
    """Allocates at least ``num_bytes`` zeroed bytes in whole pages; pages that are never touched cost nothing.

    ``fd`` is a memfd to map, which grows when it is smaller; -1 for private memory.
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
    """Allocates zeroed bytes, uint8 ``[num_bytes]``, for this process alone. Raises MemoryError."""
    try:
        memory = mmap.mmap(-1, max(num_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError) as error:
        raise MemoryError(
            f"{num_bytes / 2**20:.0f} MiB of memory, which the machine does not give: {error}."
        ) from error
    advise_huge(memory)
    return np.frombuffer(memory, np.uint8, num_bytes)


@contextlib.contextmanager
def scratch_rows(num_rows: int, width: int, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Lends uninitialised rows ``[num_rows, width]`` for as long as the ``with`` block lasts; blocks may be nested."""
    num_bytes = num_rows * width * dtype.itemsize
    # The thread keeps the memory: pages that are touched for the first time cost more than the rows they are for
    # (1.5 us for 4 KB). It is taken out meanwhile, so that a nested block finds none and makes its own.
    memory, _spare.memory = _spare.memory, None
    if memory is None or len(memory) < num_bytes:
        # A quarter more: mini-batches differ in size, and the next that is a little larger still fits.
        memory = torch.frombuffer(buffer_memory(num_bytes + num_bytes // 4), dtype=torch.uint8)
    try:
        yield memory[:num_bytes].view(dtype).view(num_rows, width)
    finally:
        _spare.memory = memory


def mapped_bytes(file: Path, fd: int | None = None) -> np.ndarray:
    """Maps a file that is not empty, read-only uint8, without a copy: all processes share the system's pages of it.

    With ``fd``, it is that descriptor's file, even if another one has its name by now. Reading where a file was cut
    off while it is mapped ends the process, which prints the file's name before.
    """
    with open(file if fd is None else fd, "rb", closefd=fd is None) as opened:
        memory = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    # Huge pages, measured with ext4: the first pass over a file that is not in memory takes half the time; later, rows
    # of 8 bytes are gathered 1.7 times as fast, rows of 100 bytes 1.5 times, rows of 512 bytes as fast.
    if len(memory) <= free_bytes() // 2:
        advise_huge(memory)
    elif hasattr(mmap, "MADV_RANDOM"):
        # What memory cannot hold is read again and again: a row must cost neither 2 MB nor what systems read ahead,
        # which may be more (8 MB a row were seen).
        memory.madvise(mmap.MADV_RANDOM)
    mapped = np.frombuffer(memory, np.uint8)
    # The handler of SIGBUS prints the file's name. It stays at exit, as threads may read to the end.
    weakref.finalize(memory, ops.unwatch_map, ops.watch_map(mapped, encodable(file))).atexit = False
    return mapped


@dataclass(frozen=True)
class MappedFile:
    """The file, or shared memory, that is mapped at an address; ``path`` of a deleted one ends in ``(deleted)``."""

    path: str
    inode: int
    is_writable: bool
    offset: int = 0
    """Of the address within the file."""


def mapped_file(address: int) -> MappedFile | None:
    """Returns the file mapped at an address of this process; None for private memory."""
    with open("/proc/self/maps", errors="surrogateescape") as file:
        for line in file:
            span, permissions, offset, _device, inode, *path = line.rstrip("\n").split(maxsplit=5)
            begin, end = (int(part, 16) for part in span.split("-"))
            if begin <= address < end:
                # What the system calls [heap] or [stack] has no inode.
                if not path or inode == "0":
                    return None
                return MappedFile(path[0], int(inode), "w" in permissions, int(offset, 16) + address - begin)
    return None


def source_of(address: int) -> str:
    """Returns a sentence that names the file mapped at an address, for errors about what lies there; "" of others."""
    with contextlib.suppress(OSError):  # of a system that does not tell
        if (file := mapped_file(address)) is not None:
            return f" They were read from {encodable(file.path)}: if it is damaged (gnnload verify), make it again."
    return ""


def encodable(path: str | os.PathLike[str]) -> str:
    """Returns a path as text for native code and logs, which refuse file names that are no UTF-8."""
    return os.fspath(path).encode(errors="backslashreplace").decode()


def release_pages(array: np.ndarray) -> None:
    """Unmaps the pages of a mapped file, which stay in the page cache; later reads map them again."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        file = mapped_file(array.ctypes.data)
        if file is not None and not file.is_writable:  # private changes would be lost
            base.madvise(mmap.MADV_DONTNEED)


def drop_page_cache(fd: int) -> None:
    """Drops the pages of a file that was written and synchronised from the page cache."""
    # They are small, and :func:`mapped_bytes` would be served those for as long as they are in memory.
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def advise_huge(memory: mmap.mmap) -> None:
    """Asks for 2 MB pages for memory that has room for one."""
    if len(memory) >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):  # Linux alone has it
        with contextlib.suppress(OSError):  # and not in every build
            memory.madvise(mmap.MADV_HUGEPAGE)

"""HostMemory: arrays of this process that a device reads in place, page-locked while anybody needs them."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy as np
import torch

from ....errors import DeviceMemoryError
from .device import Mapped

CHUNK_BYTES = 64 << 30  # of one registration at most: new drivers refuse 512 GiB at once
HEAP_BYTES = 32 << 20  # from here on malloc maps separate pages, as its threshold never grows beyond

_PORTABLE, _READ_ONLY = 1, 8  # cudaHostRegisterPortable, cudaHostRegisterReadOnly

Pages = tuple[int, int]


class _Holder:
    """An object that lives as long as a mapping, whose pages are released after it."""


class HostMemory:
    """Registers the pages of host arrays with CUDA, so that kernels can read them. Thread-safe.

    Pages are counted, as arrays may share them and CUDA registers none twice. A page that an array shares with other
    memory is not registered: CUDA then refuses anybody's copy to or from memory that is on it in part, "invalid
    argument". So an array below :data:`HEAP_BYTES` that may share its first or last page, as arrays of the heap do, is
    copied to separate pages.

    ``runtime`` is CuPy's binding of CUDA's, which clears the pending error when it raises. ``when_idle`` enters the
    device when no kernel reads any more; pages are unregistered there, by whatever thread. ``is_coherent``: the device
    reads pageable memory itself (``pageableMemoryAccessUsesHostPageTables``). ``reads_only``: it can register memory
    that this process must not write.
    """

    def __init__(
        self,
        runtime: Any,
        when_idle: Callable[[], AbstractContextManager[object]],
        *,
        is_coherent: bool = False,
        reads_only: bool = True,
    ) -> None:
        self._runtime, self._when_idle = runtime, when_idle
        self._is_coherent, self._reads_only = is_coherent, reads_only
        self._lock = threading.RLock()  # reentrant: the collector may end a holder while this thread has the lock
        self._uses: dict[Pages, int] = {}
        self._pid = os.getpid()

    @property
    def num_registered_bytes(self) -> int:
        """The bytes that are page-locked at present."""
        with self._lock:
            return sum(end - begin for begin, end in self._uses)

    def map(self, array: np.ndarray) -> Mapped:
        """Maps an array for kernels to read, for as long as the result lives: in place or from a copy, which is then
        the result's tensor. Raises DeviceMemoryError where the array has gaps, or the system lets no more memory be
        page-locked."""
        if not array.flags.c_contiguous:
            raise DeviceMemoryError(
                f"An array of shape {array.shape} and strides {array.strides} cannot be mapped: kernels need it "
                "without gaps. Pass np.ascontiguousarray(array)."
            )
        holder = _Holder()
        if array.nbytes and not self._is_coherent:
            array = _on_own_pages(array)
            used = self._register(array)
            weakref.finalize(holder, self._release, used)
        return Mapped(_tensor(array), array.ctypes.data, (array, holder))

    def _register(self, array: np.ndarray) -> list[Pages]:
        """Registers the pages of the array, and returns their ranges, each with one use more."""
        begin, end = _pages(array)
        # Portable, as several devices of this process may read the same table.
        flags = _PORTABLE | (_READ_ONLY if self._reads_only and not array.flags.writeable else 0)
        with self._lock:
            used = sorted(pages for pages in self._uses if pages[0] < end and begin < pages[1])
            new: list[Pages] = []
            try:
                for gap in _gaps(begin, end, used):
                    self._runtime.hostRegister(gap[0], gap[1] - gap[0], flags)
                    new.append(gap)
            except Exception as error:
                for pages in new:
                    self._runtime.hostUnregister(pages[0])
                raise DeviceMemoryError(
                    f"{array.nbytes:,} bytes of host memory cannot be page-locked for the device to read ({error}); "
                    f"{self.num_registered_bytes:,} bytes are already. Raise the limit (ulimit -l) or the container's, "
                    "or keep less in host memory."
                ) from error
            # Counted last, so that a failure leaves the counts of other arrays as they were.
            for pages in (*used, *new):
                self._uses[pages] = self._uses.get(pages, 0) + 1
            return [*used, *new]

    def _release(self, used: list[Pages]) -> None:
        if os.getpid() != self._pid:
            return  # a forked child has no registrations, and must not call CUDA
        with self._lock:
            for pages in used:
                self._uses[pages] -= 1
            # Under the lock to the end, so that no other thread counts on pages that are about to be unregistered.
            over = [pages for pages in used if not self._uses[pages]]
            with self._when_idle() if over else nullcontext():
                for pages in over:
                    del self._uses[pages]
                    with suppress(RuntimeError):  # a failed device raises where it is used next
                        self._runtime.hostUnregister(pages[0])


def _pages(array: np.ndarray) -> Pages:
    """Returns where the first page of a nonempty array begins, and where the last one ends."""
    begin = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    return begin, -(-(array.ctypes.data + array.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE


def _on_own_pages(array: np.ndarray) -> np.ndarray:
    """Returns the array, or a copy on separate pages where other memory may be on the array's."""
    begin, end = _pages(array)
    if array.nbytes >= HEAP_BYTES or end - begin == array.nbytes or _fills_its_mapping(array):
        return array
    try:
        memory = mmap.mmap(-1, array.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise DeviceMemoryError(
            f"{array.nbytes:,} bytes of host memory, to be page-locked, cannot be allocated: {error}."
        ) from error
    pages = np.frombuffer(memory, np.uint8, array.nbytes)
    pages[:] = array.reshape(-1).view(np.uint8)
    return pages.view(array.dtype).reshape(array.shape)


def _fills_its_mapping(array: np.ndarray) -> bool:
    """Tells whether the array is on all pages of an ``mmap``, of a file, shared or private, so that nothing else is
    there."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return isinstance(owner, mmap.mmap) and _pages(np.frombuffer(owner, np.uint8)) == _pages(array)


def _gaps(begin: int, end: int, used: list[Pages]) -> list[Pages]:
    """Lists the parts of [begin, end) that no range covers, in pieces of CHUNK_BYTES at most."""
    gaps = []
    for first, last in (*used, (end, end)):
        while begin < first:
            gaps.append((begin, min(first, begin + CHUNK_BYTES)))
            begin = gaps[-1][1]
        begin = max(begin, last)
    return gaps


def _tensor(array: np.ndarray) -> torch.Tensor:
    """Makes a tensor of the same memory, without torch's warning where the array is read-only."""
    if not array.flags.writeable and array.nbytes:
        memory = (ctypes.c_ubyte * array.nbytes).from_address(array.ctypes.data)
        array = np.frombuffer(memoryview(memory), array.dtype).reshape(array.shape)
    return torch.from_numpy(array)

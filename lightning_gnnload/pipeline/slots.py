"""Slots: the reusable buffers that mini-batches are written to.

Fresh memory costs more than the gather that fills it (a page fault every 4 KB), so buffers are recycled. A slot
is written by one sampling thread, then lent; it comes back when the last tensor over it is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
from typing import Any

import numpy as np
import torch

from lightning_gnnload.errors import SlotMemoryError

FIRST_SLOT_BYTES = 1 << 20
_HUGE_PAGE_BYTES = 2 << 20


class Slot:
    """A growable buffer: private to the process, or shared through a memfd that leaves nothing behind.

    Args:
        num_bytes: size; untouched pages cost nothing.
        fd: the memfd to map; None for private memory.
        pinned: page-lock it for asynchronous copies to a CUDA device.

    Raises:
        SlotMemoryError: the machine gives no such memory.
    """

    _pinned_address: int | None = None

    def __init__(self, num_bytes: int = FIRST_SLOT_BYTES, fd: int = -1, *, pinned: bool = False) -> None:
        self.fd = fd
        self.pinned = pinned
        self._map(num_bytes)

    @classmethod
    def shared(cls, num_bytes: int = FIRST_SLOT_BYTES) -> Slot:
        """A slot over a new memfd, which may grow but never shrinks under a reader's feet."""
        fd = os.memfd_create("gnnload-slot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            return cls(num_bytes, fd)
        except BaseException:
            os.close(fd)
            raise

    @property
    def num_bytes(self) -> int:
        return self.array.nbytes

    def grow(self, num_bytes: int) -> None:
        """Makes the slot at least this large. What a private slot held is lost; tensors over it stay valid."""
        self._map(max(num_bytes, self.num_bytes))

    def remap(self) -> None:
        """For a reader: follows the writer, who has grown the slot."""
        self._map(os.fstat(self.fd).st_size)

    def buffer(self) -> Any:
        """The memory for ``torch.frombuffer``. Who has it keeps the mapping alive, and the slot."""
        buffer: Any = (ctypes.c_char * self.num_bytes).from_buffer(self._memory)
        buffer.slot = self
        return buffer

    def close(self) -> None:
        """Unpins, and closes the memfd; mappings that tensors still use stay until they are gone."""
        self._unpin()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self._unpin()  # before the mapping goes: the driver must not hold pages that are no longer there

    def _map(self, num_bytes: int) -> None:
        self._unpin()
        size = _round_up(num_bytes)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS if self.fd < 0 else mmap.MAP_SHARED
        try:
            if self.fd >= 0 and os.fstat(self.fd).st_size < size:
                os.ftruncate(self.fd, size)
            self._memory = mmap.mmap(self.fd, size, flags=flags)
        except (OSError, ValueError, OverflowError) as error:
            raise SlotMemoryError(
                f"a mini-batch needs a buffer of {size / 2**20:.0f} MiB, which the machine does not give ({error}). "
                f"Use a smaller batch_size, smaller fanouts, or fewer slots (queue_depth, num_threads)."
            ) from error
        if size >= _HUGE_PAGE_BYTES:
            # Advice: a kernel without transparent huge pages refuses, and 4 KB pages do, more slowly.
            with contextlib.suppress(OSError):
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        self.array = np.frombuffer(self._memory, np.uint8)
        if self.pinned:
            self._pin()

    def _pin(self) -> None:
        """Where the system lets no more memory be locked, copies from here are slower and as right."""
        address = self.array.ctypes.data
        if int(torch.cuda.cudart().cudaHostRegister(address, self.num_bytes, 0)) == 0:
            self._pinned_address = address

    def _unpin(self) -> None:
        # A lent slot is neither grown nor closed, so that no copy is under way.
        if self._pinned_address is not None:
            torch.cuda.cudart().cudaHostUnregister(self._pinned_address)
            self._pinned_address = None


def _round_up(num_bytes: int) -> int:
    """To whole pages; to huge ones once a slot is that large."""
    page = mmap.PAGESIZE if num_bytes < _HUGE_PAGE_BYTES else _HUGE_PAGE_BYTES
    return max(-(-num_bytes // page), 1) * page

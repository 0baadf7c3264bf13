"""Slots: the reusable buffers that mini-batches are written to.

Fresh memory costs more than the gather that fills it (a page fault every 4 KB), so buffers are recycled. A slot
is written by one sampling thread, then lent; it comes back when the last tensor over it is gone.

Pages come as they are first written. To have them all made at once (MADV_POPULATE_WRITE) takes as long as the
faults that it spares, 36 of 38 ms for 64 MB of a memfd on 4 KB pages, and makes those that no batch fills, too.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from lightning_gnnload.host.pages import buffer_memory

FIRST_SLOT_BYTES = 1 << 20  # slots grow to what mini-batches need within a few steps
Token = TypeVar("Token")


class Slot:
    """A growable buffer, private to the process or shared through a memfd, which leaves nothing behind.

    ``fd`` is the memfd to map, -1 for private memory. ``pinned`` page-locks it for asynchronous copies to the current
    CUDA device, which may be another one in threads that use the slot later. Raises SlotMemoryError where the machine
    has no such memory.
    """

    _pinned_address: int | None = None

    def __init__(self, num_bytes: int = FIRST_SLOT_BYTES, fd: int = -1, *, pinned: bool = False) -> None:
        self.fd = fd
        self.pinned = pinned
        self._device = torch.cuda.current_device() if pinned else -1
        self._map(num_bytes)

    @classmethod
    def shared(cls, num_bytes: int = FIRST_SLOT_BYTES, *, pinned: bool = False) -> Slot:
        """A slot over a new memfd, which may grow but never shrinks under a reader's feet."""
        fd = os.memfd_create("gnnload-slot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            return cls(num_bytes, fd, pinned=pinned)
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
        """Maps a slot again that its writer has grown."""
        self._map(os.fstat(self.fd).st_size)

    @property
    def memory_handle(self) -> dict[str, Any]:
        """What a reader needs beside the descriptor, which for memory of the host is nothing."""
        return {}

    def put(self, offset: int, tensor: torch.Tensor) -> None:
        """Copies a tensor of any device to the slot, on its current stream. Does not wait where the slot is pinned."""
        span = torch.from_numpy(self.array[offset : offset + tensor.nbytes])
        span.copy_(tensor.view(torch.uint8), non_blocking=True)

    def buffer(self) -> Any:
        """Returns the memory for ``torch.frombuffer``; it keeps the mapping alive, and the slot."""
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
        self._memory = buffer_memory(num_bytes, self.fd)
        self.array = np.frombuffer(self._memory, np.uint8)
        if self.pinned:
            self._pin()

    def _pin(self) -> None:
        """Page-locks the slot; where the system lets no more memory be locked, copies are slower and as right."""
        address = self.array.ctypes.data
        with torch.cuda.device(self._device):
            if int(torch.cuda.cudart().cudaHostRegister(address, self.num_bytes, 0)) == 0:
                self._pinned_address = address

    def _unpin(self) -> None:
        # A lent slot is neither grown nor closed, so that no copy is under way.
        if self._pinned_address is not None:
            with torch.cuda.device(self._device):
                torch.cuda.cudart().cudaHostUnregister(self._pinned_address)
            self._pinned_address = None


class _LentBuffer(weakref.ref, Generic[Token]):
    token: Token


class LentBuffers(Generic[Token]):
    """Lends buffers over slots, and finds those that nobody uses any more.

    A buffer comes back when the last tensor over it is gone: in any thread, in the middle of a garbage collection or
    of a signal's handler. All that runs then is ``deque.append``, which is no Python code, so that no Ctrl-C can be
    lost in it. What came back is looked up later, by :meth:`returned`.

    Example:
        >>> import torch
        >>> lent, slot = LentBuffers(), Slot()
        >>> tensor = torch.frombuffer(lent.lend(slot, "a slot's name"), dtype=torch.uint8, count=3)
        >>> len(lent), list(lent.returned())
        (1, [])
        >>> del tensor
        >>> list(lent.returned()), len(lent)
        (["a slot's name"], 0)
    """

    def __init__(self) -> None:
        self._returned: deque[_LentBuffer[Token]] = deque()
        self._out: dict[int, _LentBuffer[Token]] = {}  # a weak reference must be kept for its callback to come

    def lend(self, slot: Slot, token: Token) -> Any:
        """Returns a buffer over ``slot`` for ``torch.frombuffer``; ``token`` names it when it comes back."""
        buffer = slot.buffer()
        reference: _LentBuffer[Token] = _LentBuffer(buffer, self._returned.append)
        reference.token = token
        self._out[id(reference)] = reference
        return buffer

    def returned(self) -> Iterator[Token]:
        """Yields the tokens of the buffers that came back since the last call."""
        while self._returned:
            reference = self._returned.popleft()
            self._out.pop(id(reference), None)  # Ctrl-C may have come before it was put there
            yield reference.token

    def __len__(self) -> int:
        """Counts the buffers that are out, or came back since :meth:`returned` was last called."""
        return len(self._out)


class SlotPool:
    """A pool of private slots, which are recycled. Thread-safe. It keeps as many as were ever in use at once; new slots
    begin at the size that earlier ones grew to."""

    def __init__(self, *, pinned: bool = False) -> None:
        self.pinned = pinned
        self._free: list[Slot] = []
        self._lent: LentBuffers[Slot] = LentBuffers()
        self._num_bytes = FIRST_SLOT_BYTES
        self._lock = threading.Lock()

    def initializer(self) -> Callable[[], None] | None:
        """Returns an initializer for threads that take slots: it makes the caller's device current, whose slots are
        page-locked."""
        return partial(torch.cuda.set_device, torch.cuda.current_device()) if self.pinned else None

    def take(self) -> Slot:
        """Returns a slot to write to: one that came back, or a new one."""
        with self._lock:
            self._free.extend(self._lent.returned())
            if self._free:
                return self._free.pop()
            num_bytes = self._num_bytes
        # Outside the lock: other threads need not wait while the system maps and page-locks memory.
        return Slot(num_bytes, pinned=self.pinned)

    def give(self, slot: Slot) -> None:
        """Takes back a slot that was not lent."""
        with self._lock:
            self._num_bytes = max(self._num_bytes, slot.num_bytes)
            self._free.append(slot)

    def room(self, num_bytes: int) -> Any:
        """Returns a buffer of at least so many bytes, which goes back to the pool when its last user is gone."""
        slot = self.take()
        if slot.num_bytes < num_bytes:
            slot.grow(num_bytes * 5 // 4)  # a quarter more, so that the next ones fit as well
        return self.lend(slot)

    def lend(self, slot: Slot) -> Any:
        """Returns a buffer over ``slot``, which goes back to the pool when the buffer's last user is gone."""
        with self._lock:
            self._num_bytes = max(self._num_bytes, slot.num_bytes)
            return self._lent.lend(slot, slot)

"""The emulated device's memory, given and taken back as torch's allocator does.

What a stream frees comes back to the same stream at once, with garbage in it; around each tensor lie bytes that nobody
may write. So an address that outlives its tensor leads to garbage, or to another tensor's numbers.
"""

from __future__ import annotations

import bisect
import os
import threading
import weakref
from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np
import torch

from lightning_gnnload.errors import DeviceMemoryError

from .streams import Span, Streams

UNWRITTEN = 0xA5  # every byte of memory that nobody has written
FREED = 0x5A
_GUARD = 0x96
# Where CUDA's memory begins, and what torch's allocator gives it in multiples of. A sanitizer sees more by itself: then
# each tensor is an allocation of the host, and nothing lies around it.
_UNIT = 1 if "GNNLOAD_SANITIZED" in os.environ else 512


class OverrunError(AssertionError):
    """A kernel has written outside of a tensor."""


@dataclass
class Block:
    """Memory of one tensor, ``num_bytes`` from ``address`` on, with guards before and behind.

    Attributes:
        room: all of its bytes, guards too, which it keeps when it goes to the next tensor.
        stream: the one that it belongs to.
        storage: of the tensor, as :class:`.Streams` names it.
    """

    room: np.ndarray
    stream: str
    first: int
    num_bytes: int
    storage: int = 0

    @property
    def address(self) -> int:
        return self.room.ctypes.data + self.first

    @property
    def is_whole(self) -> bool:
        """Whether the guards hold what they held."""
        before, behind = self.room[: self.first], self.room[self.first + self.num_bytes :]
        return bool((before == _GUARD).all() and (behind == _GUARD).all())


class Allocator:
    """Memory of ``total_bytes`` for tensors on ``streams``. Thread-safe."""

    def __init__(self, total_bytes: int, streams: Streams) -> None:
        self.total_bytes, self._streams = total_bytes, streams
        self._lock = threading.RLock()
        self._freed: deque[Block] = deque()  # appended to by finalizers, which may take no lock
        self._held: dict[int, Block] = {}  # by address
        self._addresses: list[int] = []  # of them, in order
        self._idle: defaultdict[tuple[str, int], list[Block]] = defaultdict(list)
        self._overrun: Block | None = None

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Allocates unwritten memory. Raises DeviceMemoryError, and OverrunError for what was freed meanwhile."""
        num_bytes = count * dtype.itemsize
        if not num_bytes:
            return torch.empty(count, dtype=dtype)
        if (free := self.free_bytes()) < num_bytes:
            raise DeviceMemoryError(f"{num_bytes} bytes of device memory are needed, but {free} are free.")
        with self._lock:
            block = self._take(num_bytes)
            memory = block.room[block.first : block.first + num_bytes]
            memory[:] = UNWRITTEN
            tensor = torch.from_numpy(memory).view(dtype)
            weakref.finalize(memory, self._freed.append, block).atexit = False
            block.storage = tensor.untyped_storage()._cdata
            self._held[block.address] = block
            bisect.insort(self._addresses, block.address)
        self._streams.allocate(tensor)
        return tensor

    def free_bytes(self) -> int:
        with self._lock:
            while self._freed:
                block = self._freed.popleft()
                del self._held[block.address]
                del self._addresses[bisect.bisect_left(self._addresses, block.address)]
                self._check(block)
                block.room[block.first : block.first + block.num_bytes] = FREED
                if _UNIT > 1:
                    self._idle[block.stream, len(block.room)].append(block)
            return self.total_bytes - sum(block.num_bytes for block in self._held.values())

    def span(self, address: int) -> Span | None:
        """The bytes from an address to the end of its tensor; None for memory that is not the device's.

        Raises:
            OverrunError: the tensor is gone.
        """
        self.free_bytes()
        with self._lock:
            place = bisect.bisect_right(self._addresses, address) - 1
            if place >= 0:
                block = self._held[self._addresses[place]]
                if address < block.address + block.num_bytes:
                    return Span(block.storage, address - block.address, block.num_bytes)
            for blocks in self._idle.values():
                for block in blocks:
                    if 0 <= address - block.address < block.num_bytes:
                        raise OverrunError(f"a kernel gets the address {address:#x}, of a tensor that was freed.")
        return None

    def check(self, tensor: torch.Tensor) -> None:
        """Raises OverrunError where somebody has written beside a tensor's memory."""
        if (block := self._held.get(tensor.untyped_storage().data_ptr())) is not None:
            self._check(block)

    def _take(self, num_bytes: int) -> Block:
        whole = -(-num_bytes // _UNIT) * _UNIT
        stream = self._streams.current
        size = whole if _UNIT == 1 else whole + 3 * _UNIT
        if idle := self._idle[stream, size]:
            block = idle.pop()
            block.num_bytes = num_bytes
        else:
            room = np.empty(size, np.uint8)
            first = 0 if _UNIT == 1 else 2 * _UNIT - room.ctypes.data % _UNIT
            block = Block(room, stream, first, num_bytes)
        block.room[: block.first] = block.room[block.first + num_bytes :] = _GUARD
        return block

    @staticmethod
    def _check(block: Block) -> None:
        if not block.is_whole:
            raise OverrunError(f"memory before or behind a tensor of {block.num_bytes} bytes was written.")

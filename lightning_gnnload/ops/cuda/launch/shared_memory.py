"""Device memory that one process owns and others read.

It travels over a socket that knows who is at its other end, as a handle of a few numbers and a descriptor. That is one
end of a pipe into which nobody writes, open for as long as a reader lives and reads: so the owner, at the other end,
knows when it may free the memory, and a killed reader cannot keep it waiting.

A reader that outlives its owner reads what CUDA does not define, since the driver frees a dead process's memory; so a
job ends when one of its owners is killed, which the strategy sees to. Memory of CUDA's virtual memory management,
exported as a descriptor, would outlive its owner; it is not used, as CuPy does not bind it and each mapping needs
access for each device.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import time
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from lightning_gnnload.errors import CudaCallError, DeviceShareError

from .runtime import Runtime

HANDLE_BYTES = 64
_SENTINEL_BYTES = 64
# cudaMalloc cuts small allocations out of blocks of this size, and a handle opens the block: smaller ones would show
# their neighbours as well (CUDA Runtime API, cudaIpcGetMemHandle).
_BLOCK_BYTES = 2 << 20


@dataclass(frozen=True)
class MemoryHandle:
    """A handle by which another process opens device memory."""

    handle: str  # of ``cudaIpc``, hexadecimal
    num_bytes: int  # of the memory, without the sentinel
    nonce: str  # drawn anew for each memory, so that its sentinel is like no other
    purpose: str  # what the memory is and whose, for messages

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> MemoryHandle:
        """Restores a handle from its :attr:`values`. Raises DeviceShareError where these are none."""
        types = {field.name: int if field.name == "num_bytes" else str for field in fields(cls)}
        # Not isinstance(): JSON's true would pass for a number.
        sound = values.keys() == types.keys() and all(
            type(values[name]) is expected for name, expected in types.items()
        )
        if sound:
            with contextlib.suppress(ValueError):
                memory_handle = cls(**values)
                if len(bytes.fromhex(memory_handle.handle)) == HANDLE_BYTES and memory_handle.num_bytes >= 0:
                    return memory_handle
        raise DeviceShareError(f"a malformed ticket for a device's memory came from another rank: {str(values)[:200]}")

    @property
    def values(self) -> dict[str, Any]:
        """The fields as JSON values, for a message."""
        return asdict(self)

    @property
    def sentinel(self) -> np.ndarray:
        """The bytes that follow the memory, uint8; others there mean that it is other memory, or of another size."""
        return np.frombuffer(hashlib.blake2b(repr(self).encode(), digest_size=_SENTINEL_BYTES).digest(), np.uint8)


class ExportedMemory:
    """Device memory of this process that other processes can open; not zeroed. A reader needs ``memory_handle`` and a
    duplicate of ``fd``. Raises CudaCallError where the device has no such memory, or cannot share it."""

    def __init__(self, runtime: Runtime, num_bytes: int, purpose: str) -> None:
        self.num_bytes = num_bytes
        self.is_freed = False
        self._runtime = runtime
        size = -(-(num_bytes + _SENTINEL_BYTES) // _BLOCK_BYTES) * _BLOCK_BYTES
        # Whole blocks of its own: see _BLOCK_BYTES. cudaMalloc aligns to 256 bytes, as vector loads need.
        self.address = runtime.allocate(size)
        try:
            self.memory_handle = MemoryHandle(
                runtime.export(self.address).hex(), num_bytes, os.urandom(16).hex(), purpose
            )
            runtime.write(self.address + num_bytes, self.memory_handle.sentinel)
            # Close-on-exec, as a program started meanwhile would keep the descriptor open, and count as a reader.
            self._readers, self.fd = os.pipe2(os.O_CLOEXEC)
        except BaseException:
            runtime.free(self.address)
            raise

    def close(self, timeout_s: float) -> bool:
        """Frees the memory once all readers have closed it or are gone, and returns whether it did. Memory that is
        still read after ``timeout_s`` is left to the end of this process, since freeing it would let readers see
        anything."""
        if self.fd >= 0:
            # This process's copy first, as the pipe hangs up only when all copies are closed.
            os.close(self.fd)
            self.fd = -1
            self.is_freed = _is_hung_up(self._readers, timeout_s)
            os.close(self._readers)
            if self.is_freed:
                with contextlib.suppress(CudaCallError):  # a failed device raises where it is used next
                    self._runtime.free(self.address)
        return self.is_freed


class OpenedMemory:
    """Another process's device memory, opened here from what the owner sent; the descriptor is this object's from now
    on. Raises DeviceShareError where it cannot be opened, or its sentinel is not where it belongs."""

    def __init__(self, runtime: Runtime, memory_handle: MemoryHandle, fd: int) -> None:
        self.num_bytes = memory_handle.num_bytes
        self.purpose = memory_handle.purpose
        self._runtime = runtime
        self._fd = fd
        if fd < 0:  # the owner would not know of this reader, and might free the memory
            raise DeviceShareError(f"{memory_handle.purpose}: a ticket came without its descriptor.")
        try:
            self.address = runtime.open(bytes.fromhex(memory_handle.handle))
        except CudaCallError as failure:
            self._close_descriptor()
            raise DeviceShareError(f"{memory_handle.purpose}: its memory cannot be opened here. {failure}") from failure
        try:
            sentinel = runtime.read(self.address + memory_handle.num_bytes, _SENTINEL_BYTES)
            if not np.array_equal(sentinel, memory_handle.sentinel):
                raise DeviceShareError(
                    f"{memory_handle.purpose}: the memory that its handle opens is not what it gave: after "
                    f"{memory_handle.num_bytes} bytes come {sentinel[:8].tobytes().hex()}... in place of "
                    f"{memory_handle.sentinel[:8].tobytes().hex()}... Run one driver in all containers of this machine."
                )
        except BaseException as error:
            self.close()
            if isinstance(error, CudaCallError):
                raise DeviceShareError(f"{memory_handle.purpose}: its memory cannot be read here. {error}") from error
            raise

    @property
    def is_held(self) -> bool:
        """Whether it is open here, and its owner lives and keeps it."""
        # The owner's end of the pipe is closed when it frees the memory, and by the system when it dies.
        return self._fd >= 0 and not _is_hung_up(self._fd, 0.0)

    def close(self) -> None:
        """Waits for the device's work that reads it; the owner may free it from then on."""
        if self._fd < 0:
            return
        try:
            # Before the descriptor, at whose closing the owner may free the memory.
            with contextlib.suppress(CudaCallError):  # a failed device raises where it is used next
                self._runtime.close(self.address)
        finally:
            self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _is_hung_up(fd: int, timeout_s: float) -> bool:
    """Tells whether nobody has the pipe's other end open, now or before the time is over."""
    poll = select.poll()
    poll.register(fd, 0)  # POLLHUP is reported without being asked for
    deadline = time.monotonic() + timeout_s
    while not (events := poll.poll(max(deadline - time.monotonic(), 0) * 1e3)) and time.monotonic() < deadline:
        pass
    return bool(events)

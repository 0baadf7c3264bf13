"""FakeRuntime: the CUDA runtime of a machine that has none, in memory that processes really share."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from lightning_gnnload.errors import CudaCallError
from lightning_gnnload.ops.cuda.launch.runtime import NO_MEMORY

_HANDLE = struct.Struct("<3q40s")  # owner's pid and descriptor, bytes, identity of the device
_MEMORY = "memfd:gnnload-fake-gpu"


class _Memory(NamedTuple):
    mapped: mmap.mmap
    fd: int
    size: int


class FakeRuntime:
    """See :class:`.Runtime` of ``ops/cuda/launch``. Memory of a "device" is a memfd, which an emulated kernel can read.
    What is freed while another process reads it kills that process (SIGBUS).

    Args:
        visible: identities of the devices, by the numbers that they have in this process.
        device: which of them is this process's.
        apart: pairs of identities that cannot read each other's memory.
        room_bytes: of the device, for this process.
        broken: opening fails for handles of these identities' devices.
        astray: handles of these identities' devices open other memory.
    """

    def __init__(
        self,
        visible: Sequence[str] = ("gpu-0",),
        device: int = 0,
        *,
        apart: Collection[frozenset[str]] = (),
        room_bytes: int = 1 << 30,
        broken: Collection[str] = (),
        astray: Collection[str] = (),
    ) -> None:
        self.device = device
        self._visible = list(visible)
        self._apart, self._broken, self._astray = apart, broken, astray
        self._room_bytes = room_bytes
        self._memory: dict[int, _Memory] = {}
        self._opened: dict[int, mmap.mmap] = {}

    @property
    def num_held(self) -> int:
        """Allocations and openings that were not undone."""
        return len(self._memory) + len(self._opened)

    def num_devices(self) -> int:
        return len(self._visible)

    def identity(self, device: int) -> str:
        return self._visible[device]

    def can_access(self, peer: int) -> bool:
        return not self._is_apart(self.identity(peer))

    def free_bytes(self) -> int:
        return self._room_bytes - sum(memory.size for memory in self._memory.values())

    def allocate(self, num_bytes: int) -> int:
        if num_bytes > self.free_bytes():
            raise _failure(NO_MEMORY, "out of memory")
        fd = os.memfd_create(_MEMORY.removeprefix("memfd:"), os.MFD_CLOEXEC)
        os.ftruncate(fd, num_bytes)
        mapped = mmap.mmap(fd, num_bytes)
        address = _address(mapped)
        self._memory[address] = _Memory(mapped, fd, num_bytes)
        return address

    def free(self, address: int) -> None:
        mapped, fd, _ = self._memory.pop(address)
        mapped.close()
        os.ftruncate(fd, 0)
        os.close(fd)

    def export(self, address: int) -> bytes:
        memory = self._memory[address]
        return _HANDLE.pack(os.getpid(), memory.fd, memory.size, self.identity(self.device).encode())

    def open(self, handle: bytes) -> int:
        pid, fd, size, name = _HANDLE.unpack(handle)
        identity = name.rstrip(b"\0").decode()
        if pid == os.getpid():
            raise _failure("cudaErrorDeviceUninitialized", "invalid device context")
        if self._is_apart(identity):
            raise _failure("cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices")
        if identity in self._broken:
            raise _failure("cudaErrorMapBufferObjectFailed", "mapping of buffer object failed")
        try:
            if _MEMORY not in os.readlink(f"/proc/{pid}/fd/{fd}"):
                raise FileNotFoundError
            theirs = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _failure("cudaErrorInvalidValue", "invalid argument") from None
        mapped = mmap.mmap(-1 if identity in self._astray else theirs, size)
        os.close(theirs)
        address = _address(mapped)
        self._opened[address] = mapped
        return address

    def close(self, address: int) -> None:
        self._opened.pop(address).close()

    def write(self, address: int, array: np.ndarray) -> None:
        source = np.ascontiguousarray(array)
        self._check(address, source.nbytes)
        ctypes.memmove(address, source.ctypes.data, source.nbytes)

    def read(self, address: int, num_bytes: int) -> np.ndarray:
        self._check(address, num_bytes)
        target = np.empty(num_bytes, np.uint8)
        ctypes.memmove(target.ctypes.data, address, num_bytes)
        return target

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        ctypes.memmove(target, source, num_bytes)

    def _is_apart(self, peer: str) -> bool:
        return frozenset((self.identity(self.device), peer)) in self._apart

    def _check(self, address: int, num_bytes: int) -> None:
        spans = {begin: memory.size for begin, memory in self._memory.items()}
        spans |= {begin: len(mapped) for begin, mapped in self._opened.items()}
        if not any(begin <= address and address + num_bytes <= begin + size for begin, size in spans.items()):
            raise _failure("cudaErrorInvalidValue", "invalid argument")


def _address(mapped: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped))


def _failure(name: str, text: str) -> CudaCallError:
    return CudaCallError(name, f"fake CUDA: {name}: {text}.")

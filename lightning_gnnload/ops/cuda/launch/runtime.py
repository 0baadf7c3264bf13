"""Runtime: the CUDA runtime's functions for sharing a device's memory between processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from lightning_gnnload.errors import CudaCallError

from .device import Device

NO_MEMORY = "cudaErrorMemoryAllocation"  # CUDA's name of a failure to allocate


class Runtime(Protocol):
    """The interface of the CUDA runtime, bound to device number ``device`` of this process, which every call makes
    current meanwhile.

    Addresses are of that device's memory or of memory opened on it. Every call raises CudaCallError where CUDA reports
    an error, and clears the pending one, which a later launch would be blamed for.
    """

    device: int

    def num_devices(self) -> int:
        """Counts the devices that this process sees."""

    def identity(self, device: int) -> str:
        """Names a device of this process, alike in all processes of the machine, however each numbers its devices."""

    def can_access(self, peer: int) -> bool:
        """Tells whether this device can read the memory of another one that this process sees."""

    def free_bytes(self) -> int:
        """Returns the bytes of the device's memory that no process has."""

    def allocate(self, num_bytes: int) -> int:
        """Allocates memory that ``cudaIpc`` can share, which torch's cannot always be."""

    def free(self, address: int) -> None:
        """Frees memory, after the device's work is done. What another process has opened must not be freed."""

    def export(self, address: int) -> bytes:
        """Returns 64 bytes by which another process opens memory of :meth:`allocate`."""

    def open(self, handle: bytes) -> int:
        """Opens another process's memory on this device; over NVLink or PCIe where it is another device's."""

    def close(self, address: int) -> None:
        """Undoes :meth:`open`, after the device's work is done."""

    def write(self, address: int, array: np.ndarray) -> None:
        """Copies from the host. When it returns, other processes see the bytes."""

    def read(self, address: int, num_bytes: int) -> np.ndarray:
        """Copies to the host, uint8, and waits."""

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        """Copies from device to device on torch's current stream, without waiting."""


def runtime_of(device: Device) -> Runtime:
    """Returns the CUDA runtime by which the device's memory is shared between processes."""
    return CupyRuntime(device.torch_device.index or 0)


class CupyRuntime:
    """The CUDA :class:`.Runtime` as CuPy binds it. It does not survive a fork: the child makes its own."""

    def __init__(self, device: int) -> None:
        from cupy.cuda import runtime

        self.device = device
        self._cuda = runtime

    def num_devices(self) -> int:
        return int(self._call(self._cuda.getDeviceCount))

    def identity(self, device: int) -> str:
        # CuPy cuts the UUID off at its first zero byte, so the bus id is added; instances of one GPU (MIG), which share
        # the bus id, differ in what is left of the UUID.
        uuid = self._call(self._cuda.getDeviceProperties, device)["uuid"][:16]
        return f"{uuid.hex()}@{self._call(self._cuda.deviceGetPCIBusId, device)}"

    def can_access(self, peer: int) -> bool:
        return peer == self.device or bool(self._call(self._cuda.deviceCanAccessPeer, self.device, peer))

    def free_bytes(self) -> int:
        return int(self._call(self._cuda.memGetInfo)[0])

    def allocate(self, num_bytes: int) -> int:
        try:
            return int(self._call(self._cuda.malloc, num_bytes))
        except CudaCallError as failure:
            if failure.name != NO_MEMORY:
                raise
        with torch.cuda.device(self.device):
            torch.cuda.empty_cache()  # torch reserves what tensors have freed
        return int(self._call(self._cuda.malloc, num_bytes))

    def free(self, address: int) -> None:
        self._call(self._cuda.free, address)

    def export(self, address: int) -> bytes:
        return bytes(self._call(self._cuda.ipcGetMemHandle, address))

    def open(self, handle: bytes) -> int:
        return int(self._call(self._cuda.ipcOpenMemHandle, handle, self._cuda.cudaIpcMemLazyEnablePeerAccess))

    def close(self, address: int) -> None:
        self._call(self._cuda.deviceSynchronize)  # kernels of any stream may still read it
        self._call(self._cuda.ipcCloseMemHandle, address)

    def write(self, address: int, array: np.ndarray) -> None:
        source = np.ascontiguousarray(array)
        self._call(self._cuda.memcpy, address, source.ctypes.data, source.nbytes, self._cuda.memcpyHostToDevice)
        # A copy from pageable memory returns when the bytes are staged, not when they have arrived.
        self._call(self._cuda.streamSynchronize, 0)

    def read(self, address: int, num_bytes: int) -> np.ndarray:
        target = np.empty(num_bytes, np.uint8)
        self._call(self._cuda.memcpy, target.ctypes.data, address, num_bytes, self._cuda.memcpyDeviceToHost)
        return target

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self._call(self._cuda.memcpyAsync, target, source, num_bytes, self._cuda.memcpyDefault, stream)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls CUDA, and raises its error as a CudaCallError; CuPy has cleared the pending error by then."""
        try:
            if self._cuda.getDevice() == self.device:
                return function(*arguments)
            # Not setDevice() alone, as going back by it makes a context on the previous device: hundreds of megabytes.
            with torch.cuda.device(self.device):
                self._cuda.setDevice(self.device)
                return function(*arguments)
        except self._cuda.CUDARuntimeError as error:
            name = str(error).split(":", 1)[0]
            raise CudaCallError(name, f"CUDA device {self.device}: {function.__name__} failed: {error}.") from error

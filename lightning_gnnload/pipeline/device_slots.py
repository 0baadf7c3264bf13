"""Device slots: slots in the memory of a sampler's device, from which a trainer copies to its own.

The sampler publishes a slot when the host has seen its copies end, so that no event has to cross processes: another
of its threads samples meanwhile. The trainer copies a mini-batch out at once, and gives the slot back when the host
has seen that copy end; a tensor that is kept keeps no slot.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lightning_gnnload.errors import CudaCallError, DeviceShareError, QueueProtocolError, SlotMemoryError
from lightning_gnnload.pipeline.slots import Slot

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.launch.device import Device, Event
    from lightning_gnnload.ops.cuda.launch.runtime import Runtime
    from lightning_gnnload.ops.cuda.launch.shared_memory import ExportedMemory, MemoryHandle

_CLOSE_S = 2.0  # how long to wait for readers, which close when they hear of the end
_log = logging.getLogger(__name__)


class DeviceSlot:
    """A slot in device memory, at the sampler that writes it.

    It grows by being replaced under a new handle. The old memory is freed when the reader gives the slot back, having
    closed it. Raises CudaCallError where the device has no such memory, or cannot share it.
    """

    def __init__(self, runtime: Runtime, num_bytes: int) -> None:
        self._runtime = runtime
        self._replaced: list[ExportedMemory] = []
        self._memory = self._export(num_bytes)

    @property
    def num_bytes(self) -> int:
        return self._memory.num_bytes

    @property
    def array(self) -> np.ndarray:
        """Raises TypeError: the host cannot write to it, as it can to a :class:`.Slot`."""
        raise TypeError("a slot of a device's memory has no array of the host.")

    @property
    def fd(self) -> int:
        """The descriptor, which a reader needs with the handle."""
        return self._memory.fd

    @property
    def memory_handle(self) -> dict[str, Any]:
        return self._memory.memory_handle.values

    def grow(self, num_bytes: int) -> None:
        """Makes the slot at least this large and drops its contents. SlotMemoryError: the device has no such memory."""
        if num_bytes <= self.num_bytes:
            return
        try:
            memory = self._export(num_bytes)
        except CudaCallError as error:
            raise SlotMemoryError(
                f"a mini-batch needs a buffer of {num_bytes / 2**20:.0f} MiB on the sampler's device, which has no "
                f"such memory ({error}). Use a smaller batch_size, smaller fanouts, or a smaller queue_depth."
            ) from error
        self._replaced.append(self._memory)
        self._memory = memory

    def put(self, offset: int, tensor: torch.Tensor) -> None:
        """Copies a tensor of the device to the slot, on the current stream. Does not wait."""
        assert 0 <= offset <= offset + tensor.nbytes <= self.num_bytes, "it was packed for another slot"
        if tensor.nbytes:
            self._runtime.copy(self._memory.address + offset, tensor.data_ptr(), tensor.nbytes)

    def free_replaced(self) -> None:
        """Frees the memory that was replaced: the reader has seen the new handle, and so has closed the old one."""
        for memory in self._replaced:
            memory.close(0)
        self._replaced.clear()

    def close(self) -> None:
        """Frees the memory once its reader has closed it or is gone, for which it waits a while."""
        self._memory.close(_CLOSE_S)
        for memory in self._replaced:
            memory.close(_CLOSE_S)
        self._replaced.clear()

    def _export(self, num_bytes: int) -> ExportedMemory:
        from lightning_gnnload.ops.cuda.launch.shared_memory import ExportedMemory

        return ExportedMemory(self._runtime, num_bytes, f"a slot of the sampler with process id {os.getpid()}")


AnySlot = Slot | DeviceSlot


class DeviceExporter:
    """Makes slots in the memory of a sampler's device, which trainers read."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._is_open_to: dict[str, bool] = {}

    def is_open_to(self, device: str) -> bool:
        """Whether another process's device, by its :attr:`DeviceReader.name`, is seen here and can read the memory."""
        # Needs no lock of its own: samplers ask when they take a slot, under the service's.
        if device and device not in self._is_open_to:
            visible = [
                number for number in range(self.runtime.num_devices()) if self.runtime.identity(number) == device
            ]
            self._is_open_to[device] = any(map(self.runtime.can_access, visible))
            way = "from device to device" if self._is_open_to[device] else "over page-locked memory of the host"
            here = self.runtime.identity(self.runtime.device)
            _log.info("Mini-batches from %s to %s go %s.", here, device, way)
        return self._is_open_to.get(device, False)


class OpenedSlot:
    """A slot in device memory, at the trainer that reads it. DeviceShareError: the memory cannot be opened, or is
    another's."""

    def __init__(self, reader: DeviceReader, memory_handle: MemoryHandle, fd: int) -> None:
        from lightning_gnnload.ops.cuda.launch.shared_memory import OpenedMemory

        self._reader = reader
        self._memory = OpenedMemory(reader.runtime, memory_handle, fd)

    def copy(self, num_bytes: int) -> tuple[torch.Tensor, Event]:
        """Copies the first bytes to this process's device, in the current stream, without waiting; also returns the
        event of the copy's end. QueueProtocolError: the slot is smaller."""
        if not 0 <= num_bytes <= self._memory.num_bytes:
            raise QueueProtocolError(
                f"a mini-batch of {num_bytes} bytes does not lie in its slot, of {self._memory.num_bytes} bytes."
            )
        copied = self._reader.device.empty(num_bytes, torch.uint8)
        if num_bytes:
            self._reader.runtime.copy(copied.data_ptr(), self._memory.address, num_bytes)
        return copied, self._reader.device.record()

    def close(self) -> None:
        """Waits for the device's work that reads the memory, and closes it; the sampler may free it then."""
        self._memory.close()


class DeviceReader:
    """Opens the memory of samplers' devices on a trainer's device."""

    def __init__(self, device: Device, runtime: Runtime) -> None:
        self.device = device
        self.runtime = runtime

    @property
    def name(self) -> str:
        """The device's name, which is the same in all processes."""
        return self.runtime.identity(self.runtime.device)

    def open(self, memory_handle: dict[str, Any], fd: int) -> OpenedSlot:
        """Opens a slot, which owns the descriptor from now on; on an error it is closed.

        Raises DeviceShareError where the memory cannot be opened or is another's, QueueProtocolError for a malformed
        handle.
        """
        from lightning_gnnload.ops.cuda.launch.shared_memory import MemoryHandle

        try:
            checked = MemoryHandle.from_values(memory_handle)
        except DeviceShareError as error:
            os.close(fd)
            raise QueueProtocolError(str(error)) from error
        return OpenedSlot(self, checked, fd)

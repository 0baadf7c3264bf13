"""A device of so much memory and no kernels: what is put on it lies in tensors, and is counted."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from lightning_gnnload.errors import DeviceMemoryError
from lightning_gnnload.ops.cuda.launch.device import Mapped

from .streams import Streams


class SmallDevice:
    """Gives at most ``total_bytes``, and page-locks arrays of at most ``lockable_bytes``; read-only ones as it is told.

    Attributes:
        used_bytes: given so far.
        largest_put: bytes of the largest copy at once.
        num_synchronized: how often somebody waited.
    """

    torch_device = torch.device("cpu")
    num_processors = 1

    def __init__(
        self,
        total_bytes: int = 1 << 40,
        lockable_bytes: int = 1 << 40,
        says_free: int | None = None,
        locks_read_only: bool = True,
    ) -> None:
        self.locks_read_only, self._streams = locks_read_only, Streams()
        self.total_bytes, self.lockable_bytes, self.says_free = total_bytes, lockable_bytes, says_free
        self.used_bytes = self.largest_put = self.num_synchronized = self.num_reads = 0

    def launch(self, *_: Any, **__: Any) -> None:
        raise AssertionError("no kernel is needed here")

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        tensor = torch.full((count,), -7, dtype=dtype)  # what nobody fills is seen
        if self.used_bytes + tensor.nbytes > self.total_bytes:
            raise DeviceMemoryError(f"{tensor.nbytes} bytes, but {self.total_bytes - self.used_bytes} are left")
        self.used_bytes += tensor.nbytes
        return tensor

    def zeros(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return self.empty(count, dtype).zero_()

    def put(self, array: np.ndarray) -> torch.Tensor:
        self.largest_put = max(self.largest_put, array.nbytes)
        return torch.from_numpy(array.copy())

    def read(self, tensor: torch.Tensor) -> np.ndarray:
        self.num_reads += 1
        return tensor.numpy().copy()

    def map_host(self, array: np.ndarray) -> Mapped:
        if array.nbytes > self.lockable_bytes or not (array.flags.writeable or self.locks_read_only):
            raise DeviceMemoryError(f"{array.nbytes} bytes cannot be page-locked")
        memory = (ctypes.c_byte * array.nbytes).from_address(array.ctypes.data)  # torch warns of read-only arrays
        tensor = torch.from_numpy(np.frombuffer(memory, array.dtype).reshape(array.shape))
        return Mapped(tensor, array.ctypes.data, array)

    def side_stream(self) -> Any:
        return nullcontext()

    def current_stream(self) -> torch.Stream:
        return self._streams.current_stream

    def record(self) -> SmallDevice:
        return self

    def synchronize(self) -> None:
        self.num_synchronized += 1

    def wait(self) -> None: ...

    def is_done(self) -> bool:
        return True

    def free_bytes(self) -> int:
        return self.total_bytes - self.used_bytes if self.says_free is None else self.says_free

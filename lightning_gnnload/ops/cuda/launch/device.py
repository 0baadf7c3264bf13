"""Device: the interface of an accelerator to those who launch kernels, and of the memory and events they keep.

There are two: a CUDA device (:mod:`.cuda_device`) and, in tests, one that runs the same kernels on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

Argument: TypeAlias = Any
"""An argument of a kernel: for a pointer, memory that the device can reach (its tensor, :class:`Mapped` memory, an
address, or None for a null pointer); for a number, one that the parameter's type holds; for a structure, any object
that has an attribute for each member."""


@dataclass(frozen=True)
class Mapped:
    """Host memory that kernels read in place over the bus (unified virtual addressing)."""

    tensor: torch.Tensor  # the memory, on the CPU
    address: int  # where the device finds it
    keeps: Any = None  # objects that must live as long


class Event(Protocol):
    """A point in a CUDA stream's work that can be waited for."""

    def wait(self) -> None:
        """Makes the current stream's later work wait for this point; the host does not wait."""

    def is_done(self) -> bool:
        """Tells whether the work before it is done, without waiting."""

    def synchronize(self) -> None:
        """Waits on the host."""


class LoadedKernel(Protocol):
    """The interface of a kernel for some types, ready to be launched."""

    @property
    def handle(self) -> int:
        """Returns the driver's."""

    @property
    def arguments(self) -> Any:
        """Returns its :class:`.KernelArguments`."""


class Device(Protocol):
    """The interface of an accelerator that allocates, copies and launches kernels, on torch's current stream of the
    calling thread, in torch's memory."""

    torch_device: torch.device
    num_processors: int  # multiprocessors, by which grids are sized
    num_reads: int  # times that read() has made the host wait
    driver: Any  # the CUDA driver as native code calls it; None: kernels can be launched from here alone

    def kernel(self, op: str, kernel: str, types: Sequence[str] = ()) -> LoadedKernel:
        """Loads a kernel. Raises as :meth:`launch`."""

    def launch(
        self,
        op: str,
        kernel: str,
        types: Sequence[str] = (),
        *,
        blocks: int,
        threads: int,
        shared_bytes: int = 0,
        **arguments: Argument,
    ) -> None:
        """Starts ``kernel<types>`` of ``kernels/<op>/<op>_cuda.cu`` on the current stream, with at least one block of a
        multiple of 32 threads, ``shared_bytes`` of dynamic shared memory a block, and every parameter by its name.
        Raises KernelCompileError, or GnnLoadError where there is no such kernel or the arguments are not its own."""

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Allocates memory. Raises DeviceMemoryError."""

    def zeros(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Allocates zeroed memory. Raises DeviceMemoryError."""

    def grow(self, tensor: torch.Tensor, count: int) -> torch.Tensor:
        """Allocates more memory that begins with the elements of a tensor, which is not used any more. Raises
        DeviceMemoryError."""

    def put(self, array: np.ndarray, each_batch: bool = False) -> torch.Tensor:
        """Copies to the device; the host does not wait, and may change the array at once. ``each_batch``: the array is
        another one for each mini-batch."""

    def read(self, tensor: torch.Tensor) -> np.ndarray:
        """Copies to the host and waits for the current stream; no other function of this package waits for it."""

    def map_host(self, array: np.ndarray) -> Mapped:
        """Lets kernels read the array, in place unless it is small and shares pages with other memory, whose copies
        would then fail; later changes must be made to the result's tensor. Raises DeviceMemoryError where the system
        lets no more memory be page-locked."""

    def side_stream(self, purpose: str = "draws") -> AbstractContextManager[None]:
        """Sends the calling thread's work to its own side stream meanwhile; each thread keeps one for each purpose."""

    def stream(self) -> int:
        """Returns the driver's handle of the current stream."""

    def current_stream(self) -> torch.Stream:
        """Returns torch's current stream of the calling thread, for ``Tensor.record_stream``: memory belongs to the
        stream that allocated it, and is given to that stream's next work as soon as its tensor is dropped."""

    def record(self) -> Event:
        """Marks this point in the current stream."""

    def synchronize(self) -> None:
        """Waits on the host for the work of all streams, training's too. Passes over the errors of a failed device,
        which are raised where it is used next."""

    def free_bytes(self) -> int:
        """Counts what can still be allocated: the device's free memory, and what torch has reserved and not used."""

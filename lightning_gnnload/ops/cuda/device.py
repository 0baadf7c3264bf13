"""Device: an accelerator as the callers of kernels see it, and what they keep on it.

There are two: a CUDA device (:mod:`.cupy_device`), and, in tests, one that runs the same kernels on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

Argument: TypeAlias = Any
"""Of a kernel: for a pointer, memory that the device can reach (a tensor of its own, :class:`Mapped` memory, an
address, or None for a null pointer); for a number, one that the parameter's type holds; for a structure, any object
that has an attribute for each member."""


@dataclass(frozen=True)
class Mapped:
    """Host memory that kernels read in place over the bus (unified virtual addressing).

    Attributes:
        tensor: the memory, on the CPU.
        address: where the device finds it.
        keeps: what has to live as long.
    """

    tensor: torch.Tensor
    address: int
    keeps: Any = None


class Event(Protocol):
    """A point in a CUDA stream's work that can be waited for."""

    def wait(self) -> None:
        """Makes the current stream's further work wait for this point; the host does not wait."""

    def is_done(self) -> bool:
        """Tells whether the work before it is done. Does not wait."""

    def synchronize(self) -> None:
        """Waits on the host."""


class Device(Protocol):
    """The interface of an accelerator: it allocates, copies and launches kernels. Work goes to torch's current stream
    of the calling thread; memory is torch's.

    Attributes:
        torch_device: where its tensors lie.
        num_processors: multiprocessors, by which grids are sized.
        num_reads: how often :meth:`read` has made the host wait.
    """

    torch_device: torch.device
    num_processors: int
    num_reads: int

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
        """Starts ``kernel<types>`` of ``kernels/<op>/<op>_cuda.cu`` on the current stream.

        Args:
            blocks: at least 1.
            threads: of a block, a multiple of 32.
            shared_bytes: dynamic shared memory of a block.
            **arguments: by the kernel's parameters, each of them and no other.

        Raises:
            KernelCompileError: the kernel does not compile.
            GnnLoadError: no such kernel, or arguments that are not its own.
        """

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Raises DeviceMemoryError: there is no such memory."""

    def zeros(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Raises DeviceMemoryError: there is no such memory."""

    def put(self, array: np.ndarray) -> torch.Tensor:
        """Copies to the device; the host does not wait, and may change the array at once."""

    def read(self, tensor: torch.Tensor) -> np.ndarray:
        """Copies to the host, and waits for the current stream: the one way in which this package does."""

    def map_host(self, array: np.ndarray) -> Mapped:
        """Lets kernels read the array: in place, unless it is small and shares pages with other memory, whose copies
        would then fail. Who changes it later changes the result's tensor.

        Raises:
            DeviceMemoryError: the system lets no more memory be page-locked.
        """

    def side_stream(self) -> AbstractContextManager[None]:
        """Sends the calling thread's work to its own side stream meanwhile; each thread keeps one for good."""

    def record(self) -> Event:
        """Marks this point in the current stream."""

    def free_bytes(self) -> int:
        """Counts what could still be allocated: the device's free memory and what torch holds without use."""

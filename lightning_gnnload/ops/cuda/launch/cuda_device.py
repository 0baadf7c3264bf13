"""CudaDevice: launches through the CUDA driver as native code binds it; memory, streams and events are torch's."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ....errors import CudaCallError, DeviceMemoryError, ForkError, KernelCompileError
from ...dispatch import kernels
from . import sources
from .arguments import KernelArguments, check_grid
from .compile import CompiledKernels, architecture
from .cubins import cached_kernels
from .device import Argument, Mapped
from .host_memory import HostMemory
from .signatures import KernelSource


class CudaEvent:
    """A point in a torch stream's work that can be waited for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(device))

    def wait(self) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._event)

    def is_done(self) -> bool:
        return self._event.query()

    def synchronize(self) -> None:
        self._event.synchronize()


class _SideStream:
    """The side stream of a thread, which another thread gets when this one has ended.

    torch caches free memory by stream, so threads that come and go with new streams would each leave some behind.
    """

    def __init__(self, device: torch.device, idle: deque[torch.cuda.Stream]) -> None:
        self._idle = idle
        try:
            self.stream = idle.pop()
        except IndexError:
            self.stream = torch.cuda.Stream(device)

    def __del__(self) -> None:
        # A finalizer may run within any code of any thread, so it must take no lock; a deque needs none.
        self._idle.append(self.stream)


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel for some types on the device, ready to be launched."""

    source: KernelSource
    handle: int  # of the driver's function
    arguments: KernelArguments


class CudaDevice:
    """A :class:`.Device` that is a CUDA GPU with an index. Thread-safe; no fork of the process may use it.

    ``driver`` is CUDA's, opened for the same device, and ``runtime`` as CuPy binds it.

    ``supported`` are the architectures that NVRTC knows, such as 90; ``compile`` makes an operation's kernels for an
    architecture.
    """

    def __init__(
        self,
        torch_device: torch.device,
        driver: kernels.DeviceDriver,
        runtime: Any,
        supported: Sequence[int],
        compile: Callable[[str, str], CompiledKernels] = cached_kernels,
    ) -> None:
        self.torch_device = torch_device
        properties = torch.cuda.get_device_properties(torch_device)
        self.num_processors: int = properties.multi_processor_count
        self.num_reads = 0
        self.driver = driver
        self._runtime, self._compile = runtime, compile
        self._owner = os.getpid()
        self._arch = architecture((properties.major, properties.minor), supported)
        self._loading = threading.Lock()
        self._modules: dict[str, tuple[int, dict[str, str]]] = {}
        self._kernels: dict[tuple[str, str, tuple[str, ...]], LoadedKernel] = {}
        self._local = threading.local()
        self._idle_streams: deque[torch.cuda.Stream] = deque()
        index = torch_device.index
        self._host_memory = HostMemory(
            runtime,
            self._idle,
            is_coherent=bool(
                runtime.deviceGetAttribute(runtime.cudaDevAttrPageableMemoryAccessUsesHostPageTables, index)
            ),
            reads_only=bool(runtime.deviceGetAttribute(runtime.cudaDevAttrHostRegisterReadOnlySupported, index)),
        )

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
        loaded = self.kernel(op, kernel, types)
        check_grid(loaded.source, blocks, threads, shared_bytes)
        memory, offsets = loaded.arguments.pack(arguments), loaded.arguments.offsets
        try:
            self.driver.launch(loaded.handle, blocks, threads, shared_bytes, self.stream(), memory, offsets)
        except CudaCallError as error:
            raise CudaCallError(
                error.name,
                f"{self.torch_device} does not start kernel {op}/{loaded.source.expression(tuple(types))} with "
                f"{blocks} blocks of {threads} threads and {shared_bytes} bytes of shared memory ({error}) An "
                "earlier kernel may have failed: run again with CUDA_LAUNCH_BLOCKING=1 to see which.",
            ) from error

    def kernel(self, op: str, kernel: str, types: Sequence[str] = ()) -> LoadedKernel:
        # Read without the lock: entries are complete when they are added, and never replaced.
        return self._kernels.get((op, kernel, tuple(types))) or self._load(op, kernel, tuple(types))

    def stream(self) -> int:
        try:
            return torch.cuda.current_stream(self.torch_device).cuda_stream
        except RuntimeError as error:
            if os.getpid() == self._owner:
                raise
            raise ForkError(
                f"CUDA does not survive a fork: process {self._owner} opened {self.torch_device}, and this is its "
                f"child {os.getpid()} ({error}). Start processes that use a GPU with the start method 'spawn'."
            ) from error

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return self._allocate(torch.empty, count, dtype)

    def zeros(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return self._allocate(torch.zeros, count, dtype)

    def grow(self, tensor: torch.Tensor, count: int) -> torch.Tensor:
        # The old memory may go at once: torch reuses it in this stream's order, after the copy.
        grown = self.empty(count, tensor.dtype)
        grown[: len(tensor)] = tensor
        return grown

    def put(self, array: np.ndarray, each_batch: bool = False) -> torch.Tensor:
        # The staging memory may be dropped at once: torch reuses a pinned block only after the copies out of it.
        with self._out_of_memory_as_ours(array.nbytes):
            staged = _pinned(array.shape, _dtype(array))
            staged.numpy()[...] = array
            return staged.to(self.torch_device, non_blocking=True)

    def read(self, tensor: torch.Tensor) -> np.ndarray:
        staged = _pinned(tensor.shape, tensor.dtype)
        staged.copy_(tensor, non_blocking=True)
        # This stream alone: synchronizing the device would wait for training as well.
        torch.cuda.current_stream(self.torch_device).synchronize()
        with self._loading:
            self.num_reads += 1
        # Copied: a caller may keep the result for long, and page-locked memory is scarce.
        return staged.numpy().copy()

    def map_host(self, array: np.ndarray) -> Mapped:
        with self._entered():
            return self._host_memory.map(array)

    @contextmanager
    def side_stream(self, purpose: str = "draws") -> Iterator[None]:
        streams = vars(self._local).setdefault("side_streams", {})
        lent = streams.get(purpose)
        if lent is None:
            lent = streams[purpose] = _SideStream(self.torch_device, self._idle_streams)
        # The stream's context alone would leave a new thread on device 0, and make a CUDA context there.
        with torch.cuda.device(self.torch_device), torch.cuda.stream(lent.stream):
            yield

    def current_stream(self) -> torch.Stream:
        return torch.cuda.current_stream(self.torch_device)

    def record(self) -> CudaEvent:
        return CudaEvent(self.torch_device)

    def synchronize(self) -> None:
        with suppress(RuntimeError):
            torch.cuda.synchronize(self.torch_device)

    def free_bytes(self) -> int:
        free, _ = torch.cuda.mem_get_info(self.torch_device)
        reusable = torch.cuda.memory_reserved(self.torch_device) - torch.cuda.memory_allocated(self.torch_device)
        return free + reusable

    def _load(self, op: str, kernel: str, types: tuple[str, ...]) -> LoadedKernel:
        source = sources.kernel(op, kernel)
        arguments = KernelArguments(source, types, self.torch_device)
        # Compiling takes seconds, so threads that need the same kernels wait for the first.
        with self._loading:
            if (loaded := self._kernels.get((op, kernel, types))) is not None:
                return loaded
            if op not in self._modules:
                compiled = self._compile(op, self._arch)
                try:
                    self._modules[op] = self.driver.load(compiled.image), compiled.symbols
                except CudaCallError as error:
                    raise KernelCompileError(
                        f"the driver of {self.torch_device} does not load the kernels of {op}, compiled for "
                        f"{self._arch} ({error}) Update the driver, or install a CuPy of its CUDA."
                    ) from error
            module, symbols = self._modules[op]
            handle = self.driver.function(module, symbols[source.expression(types)])
            loaded = self._kernels[op, kernel, types] = LoadedKernel(source, handle, arguments)
            return loaded

    def _allocate(self, make: Callable[..., torch.Tensor], count: int, dtype: torch.dtype) -> torch.Tensor:
        with self._out_of_memory_as_ours(count * dtype.itemsize):
            return make(count, dtype=dtype, device=self.torch_device)

    @contextmanager
    def _out_of_memory_as_ours(self, num_bytes: int) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # for page-locked memory, torch raises a plain RuntimeError
            if not isinstance(error, torch.cuda.OutOfMemoryError) and "out of memory" not in str(error):
                raise
            raise DeviceMemoryError(
                f"{self.torch_device} cannot give {num_bytes:,} bytes; {self.free_bytes():,} bytes are free. Use "
                "smaller batches, a smaller cache or sampling_device='cpu'."
            ) from error

    @contextmanager
    def _idle(self) -> Iterator[None]:
        with self._entered():
            self.synchronize()
            yield

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Makes this device current in the calling thread, whose first CUDA call this may be."""
        with torch.cuda.device(self.torch_device):
            if not getattr(self._local, "has_context", False):
                self._runtime.setDevice(self.torch_device.index)
                self._runtime.free(0)  # a call without effect that makes the device's context current
                self._local.has_context = True
            yield


def _pinned(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)


def _dtype(array: np.ndarray) -> torch.dtype:
    return torch.from_numpy(np.empty(0, array.dtype)).dtype

"""EmulatedDevice: runs the real CUDA kernels on the host, to compare their results with the CPU's.

It is stricter than a device: about a launch's arguments, about the meeting of threads (kernels/emulate/), about what
memory holds before it is written, and about the order of streams (:mod:`.streams`).
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ops.cuda.launch import sources
from lightning_gnnload.ops.cuda.launch.arguments import KernelArguments, check_grid
from lightning_gnnload.ops.cuda.launch.device import Argument, Event, Mapped
from lightning_gnnload.ops.cuda.launch.host_memory import HostMemory
from lightning_gnnload.ops.cuda.launch.signatures import KernelSource, checks, parse

from . import host_build
from .allocator import Allocator
from .emulated_libcuda import EmulatedLibcuda, image_of
from .fakes import FakeRuntime
from .streams import DEFAULT, HOST_MEMORY, Span, Streams
from .torch_work import TorchWork

MAX_SHARED_BYTES = 48 << 10


@dataclass(frozen=True)
class Instantiation:
    """One kernel for some types, ready to be launched."""

    source: KernelSource
    types: tuple[str, ...]
    arguments: KernelArguments
    launch: Any
    handle: int = 0  # of the emulated driver, where there is one

    @property
    def name(self) -> str:
        return f"{self.source.op}/{self.expression}"

    @cached_property
    def expression(self) -> str:
        return self.source.expression(self.types)


class EmulatedEvent:
    def __init__(self, streams: Streams) -> None:
        self._streams, self._moment = streams, streams.moment()

    def wait(self) -> None:
        self._streams.wait(self._moment)

    def is_done(self) -> bool:
        self._streams.wait_on_host(self._moment)
        return True

    def synchronize(self) -> None:
        self._streams.wait_on_host(self._moment)


def parameter_pointers(memory: bytes, offsets: bytes) -> Any:
    """What leads to the parameters of a launch, which have to live as long."""
    begin = ctypes.cast(memory, ctypes.c_void_p).value or 0
    addresses = [begin + offset for offset in memoryview(offsets).cast("I")]
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)


class EmulatedDevice:
    """A :class:`~lightning_gnnload.ops.cuda.launch.device.Device` whose memory is the host's.

    Args:
        seed: of the order in which threads and blocks run; every launch has another one.
        num_processors: as told to those who size grids.
        memory_bytes: of its tensors together; more than that raises DeviceMemoryError.
        kernels: a folder of further ``.cu`` files, an operation each.
        library: by which native code launches kernels; None: it does not.
    """

    def __init__(
        self,
        seed: int = 0,
        num_processors: int = 1,
        memory_bytes: int = 1 << 32,
        kernels: Path | None = None,
        library: EmulatedLibcuda | None = None,
    ) -> None:
        self.driver = None if library is None else library.driver()
        self.torch_device = torch.device("cpu")
        self.num_processors = num_processors
        self.num_reads = 0
        self.num_launches = 0
        self.launched: set[str] = set()
        self.streams = Streams()
        self.memory = Allocator(memory_bytes, self.streams)
        self._runtime = FakeRuntime()
        self._host_memory = HostMemory(self._runtime, self._idle)
        self._mapped: dict[int, int] = {}  # where each array that was mapped begins and ends
        self._kernels = kernels
        self._lane_seeds = itertools.count(seed << 32)
        self._instantiations: dict[tuple[str, str, tuple[str, ...]], Instantiation] = {}

    def kernel(self, op: str, kernel: str, types: Sequence[str] = ()) -> Instantiation:
        return self._instantiation(op, kernel, tuple(types))

    def stream(self) -> int:
        return 0 if self.streams.current == DEFAULT else self.current_stream().stream_id

    def launch(
        self,
        op: str,
        kernel: str,
        types: tuple[str, ...] = (),
        *,
        blocks: int,
        threads: int,
        shared_bytes: int = 0,
        **arguments: Argument,
    ) -> None:
        kernel_of_types = self._instantiation(op, kernel, tuple(types))
        check_grid(kernel_of_types.source, blocks, threads, shared_bytes)
        if shared_bytes > MAX_SHARED_BYTES:
            raise GnnLoadError(
                f"{op}/{kernel}: a block wants {shared_bytes} bytes of {MAX_SHARED_BYTES} that there are."
            )
        memory = kernel_of_types.arguments.pack(arguments)
        passed = list(zip(kernel_of_types.arguments.leaves, kernel_of_types.arguments.collect(arguments), strict=True))
        if mapped := [p.name for p, value in passed if isinstance(value, Mapped) and not p.is_read_only]:
            raise GnnLoadError(f"{op}/{kernel} may write to {mapped}, but host memory is only read.")
        touched = [(p, at) for p, value in passed if p.is_pointer and (at := self._memory_of(value)) is not None]
        written = [at for p, at in touched if not p.is_read_only and isinstance(at, torch.Tensor)]
        read = [at for p, at in touched if p.is_read_only or not isinstance(at, torch.Tensor)]
        # An address without its tensor leads to words that kernels of all streams count in, by atomic operations.
        self.streams.work(kernel_of_types.name, read, written)
        expression, error = kernel_of_types.expression.replace(" ", "").encode(), ctypes.create_string_buffer(1024)
        seed, pointers = next(self._lane_seeds), parameter_pointers(memory, kernel_of_types.arguments.offsets)
        self.num_launches += 1
        self.launched.add(kernel_of_types.name)
        if kernel_of_types.launch(expression, blocks, threads, shared_bytes, seed, pointers, error, len(error)):
            raise GnnLoadError(f"{kernel_of_types.name}: {error.value.decode()}")
        for tensor in written:
            self.memory.check(tensor)

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return self.memory.empty(count, dtype)

    def zeros(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        tensor = self.memory.empty(count, dtype).zero_()
        self.streams.work("zeros()", [], [tensor])
        return tensor

    def grow(self, tensor: torch.Tensor, count: int) -> torch.Tensor:
        grown = self.empty(count, tensor.dtype)
        grown[: len(tensor)] = tensor
        return grown

    def put(self, array: np.ndarray, each_batch: bool = False) -> torch.Tensor:
        source = torch.from_numpy(np.array(array))
        tensor = self.memory.empty(source.numel(), source.dtype).reshape(source.shape).copy_(source)
        self.streams.work("put()", [], [tensor])
        return tensor

    def read(self, tensor: torch.Tensor) -> np.ndarray:
        self.num_reads += 1
        self.streams.work("read()", [tensor], [])
        self.streams.wait_on_host(self.streams.moment())
        return tensor.numpy().copy()

    def map_host(self, array: np.ndarray) -> Mapped:
        mapped = self._host_memory.map(array)
        self._mapped[mapped.address] = mapped.address + mapped.tensor.nbytes
        return mapped

    def copy_from_host(self, array: np.ndarray) -> torch.Tensor:
        """Copies pageable memory, as a user's ``.to(device)`` does, which fails where others have registered a part."""
        self._runtime.memcpy(array.ctypes.data, array.nbytes)
        return self.put(array)

    @contextmanager
    def side_stream(self, purpose: str = "draws") -> Iterator[None]:
        with self.streams.side(purpose), self.watched():
            yield

    def watched(self) -> TorchWork:
        """While it lasts, what the calling thread does by torch is work of its stream; in side streams it always is."""
        return TorchWork(self.streams)

    def current_stream(self) -> torch.Stream:
        return self.streams.current_stream

    def record(self) -> Event:
        return EmulatedEvent(self.streams)

    def synchronize(self) -> None:
        self.streams.wait_for_all()

    def free_bytes(self) -> int:
        return self.memory.free_bytes()

    @contextmanager
    def _idle(self) -> Iterator[None]:
        self.synchronize()
        yield

    def _memory_of(self, value: Any) -> torch.Tensor | Span | None:
        """What a pointer leads to, if it is the device's or mapped."""
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, Mapped):
            return Span(HOST_MEMORY, value.address, value.address + value.tensor.nbytes)
        if not isinstance(value, int) or not value:
            return None
        if (own := self.memory.span(value)) is not None:
            return own
        ends = [end for begin, end in self._mapped.items() if begin <= value < end]
        return Span(HOST_MEMORY, value, max(ends)) if ends else None

    def _instantiation(self, op: str, kernel: str, types: tuple[str, ...]) -> Instantiation:
        found = self._instantiations.get((op, kernel, types))
        if found is None:
            path = None if self._kernels is None else self._kernels / f"{op}.cu"
            if path is not None and path.exists():
                known = parse(op, path.read_text())
                source = known[kernel]
            else:
                path, known, source = sources.source_path(op), sources.kernels(op), sources.kernel(op, kernel)
            arguments = KernelArguments(source, types, self.torch_device)
            launch, handle = host_build.load(path, checks(known)).lg_emulate_launch, 0
            if self.driver is not None:
                module = self.driver.load(image_of(path, checks(known)))
                handle = self.driver.function(module, source.expression(types).replace(" ", ""))
            found = Instantiation(source, types, arguments, launch, handle)
            self._instantiations[op, kernel, types] = found
        return found

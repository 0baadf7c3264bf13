"""EmulatedDevice: runs the real CUDA kernels on the host, to compare their results with the CPU's.

It is stricter than a device: about a launch's arguments, about the meeting of threads (kernels/emulate/), about what
memory holds before it is written, and about the order of streams (:mod:`.streams`).
"""

from __future__ import annotations

import ctypes
import itertools
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lightning_gnnload.errors import DeviceMemoryError, GnnLoadError
from lightning_gnnload.ops.cuda import sources
from lightning_gnnload.ops.cuda.device import Argument, Event, Mapped

from . import host_build
from .streams import Streams

UNWRITTEN = 0xA5  # every byte of memory that nobody has written
MAX_SHARED_BYTES = 48 << 10

NUMBERS: dict[str, type[ctypes._SimpleCData]] = {
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
# What a tensor holds, by what a pointer points to. A kernel may see signed words as unsigned; bytes may be anything.
DTYPES = {
    "int32_t": {torch.int32},
    "uint32_t": {torch.int32, torch.uint32},
    "int64_t": {torch.int64},
    "uint64_t": {torch.int64, torch.uint64},
    "Word": {torch.int64, torch.uint64},
    "AliasEntry": {torch.int64, torch.uint64},
    "unsigned long long": {torch.int64, torch.uint64},
    "int16_t": {torch.int16},
    "uint16_t": {torch.int16, torch.uint16, torch.float16, torch.bfloat16},
    "int8_t": {torch.int8},
    "float": {torch.float32},
    "double": {torch.float64},
}


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


class EmulatedDevice:
    """A :class:`~lightning_gnnload.ops.cuda.device.Device` whose memory is the host's.

    Args:
        seed: of the order in which threads and blocks run; every launch has another one.
        num_processors: as told to those who size grids.
        memory_bytes: of its tensors together; more than that raises DeviceMemoryError.
        kernels: a folder of further ``.cu`` files, an operation each.
    """

    def __init__(
        self, seed: int = 0, num_processors: int = 2, memory_bytes: int = 1 << 32, kernels: Path | None = None
    ) -> None:
        self.torch_device = torch.device("cpu")
        self.num_processors = num_processors
        self.num_reads = 0
        self.num_launches = 0
        self.memory_bytes = memory_bytes
        self.streams = Streams()
        self._kernels = kernels
        self._lane_seeds = itertools.count(seed << 32)
        self._allocated: list[tuple[StorageWeakRef, int]] = []

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
        path, source = self._source(op, kernel)
        what = f"{op}/{source.expression(tuple(types))}"
        parameters = source.parameters_of(tuple(types))
        _check_launch(what, blocks, threads, shared_bytes)
        names = [parameter.name for parameter in parameters]
        if set(names) != set(arguments):
            missing, unknown = [n for n in names if n not in arguments], sorted(set(arguments) - set(names))
            raise GnnLoadError(f"{what} is launched without {missing} and with {unknown}; its parameters are {names}.")
        values = [_value(what, parameter, arguments[parameter.name]) for parameter in parameters]
        pointers = [(p, arguments[p.name]) for p in parameters if isinstance(arguments[p.name], torch.Tensor)]
        self.streams.work(
            what,
            reads=[tensor for parameter, tensor in pointers if parameter.is_read_only],
            writes=[tensor for parameter, tensor in pointers if not parameter.is_read_only],
        )
        addresses = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        error = ctypes.create_string_buffer(1024)
        expression = source.expression(tuple(types)).replace(" ", "").encode()
        launch = host_build.load(path).lg_emulate_launch
        self.num_launches += 1
        if launch(expression, blocks, threads, shared_bytes, next(self._lane_seeds), addresses, error, len(error)):
            raise GnnLoadError(f"{what}: {error.value.decode()}")

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        tensor = self._allocate(count, dtype)
        tensor.view(torch.uint8).fill_(UNWRITTEN)
        return tensor

    def zeros(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        tensor = self._allocate(count, dtype).zero_()
        self.streams.work("zeros()", [], [tensor])
        return tensor

    def put(self, array: np.ndarray) -> torch.Tensor:
        source = torch.from_numpy(np.array(array))
        tensor = self._allocate(source.numel(), source.dtype).reshape(source.shape).copy_(source)
        self.streams.work("put()", [], [tensor])
        return tensor

    def read(self, tensor: torch.Tensor) -> np.ndarray:
        self.num_reads += 1
        self.streams.work("read()", [tensor], [])
        self.streams.wait_on_host(self.streams.moment())
        return tensor.numpy().copy()

    def map_host(self, array: np.ndarray) -> Mapped:
        writable = (ctypes.c_byte * array.nbytes).from_address(array.ctypes.data)  # torch warns of others
        tensor = torch.from_numpy(np.frombuffer(writable, dtype=array.dtype).reshape(array.shape))
        return Mapped(tensor, array.ctypes.data, keeps=array)

    def side_stream(self) -> AbstractContextManager[None]:
        return self.streams.side()

    def record(self) -> Event:
        return EmulatedEvent(self.streams)

    def free_bytes(self) -> int:
        self._allocated = [(storage, size) for storage, size in self._allocated if not storage.expired()]
        return self.memory_bytes - sum(size for _, size in self._allocated)

    def _allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        needed = count * dtype.itemsize
        if needed > (free := self.free_bytes()):
            raise DeviceMemoryError(f"{needed} bytes of device memory are needed, but {free} are free.")
        tensor = torch.empty(count, dtype=dtype)
        self._allocated.append((StorageWeakRef(tensor.untyped_storage()), needed))
        return tensor

    def _source(self, op: str, kernel: str) -> tuple[Path, sources.KernelSource]:
        path = None if self._kernels is None else self._kernels / f"{op}.cu"
        if path is None or not path.exists():
            return sources.source_path(op), sources.kernel(op, kernel)
        return path, sources.parse(op, path.read_text())[kernel]


def _check_launch(what: str, blocks: int, threads: int, shared_bytes: int) -> None:
    if blocks < 1 or blocks >= 1 << 31 or threads < 32 or threads > 1024 or threads % 32 or shared_bytes < 0:
        raise GnnLoadError(
            f"{what} is launched with {blocks} blocks of {threads} threads and {shared_bytes} bytes. There has to be "
            "at least one block, and threads are a multiple of 32 up to 1024."
        )
    if shared_bytes > MAX_SHARED_BYTES:
        raise GnnLoadError(
            f"{what} wants {shared_bytes} bytes of shared memory a block; without further settings a device gives "
            f"{MAX_SHARED_BYTES}."
        )


def _value(what: str, parameter: sources.Parameter, given: Argument) -> ctypes._SimpleCData:
    """What the kernel gets for an argument, in the parameter's own type."""
    if not parameter.is_pointer:
        return _number(what, parameter, given)
    if isinstance(given, torch.Tensor):
        expected = DTYPES.get(parameter.pointee, {given.dtype})
        if given.device.type != "cpu" or not given.is_contiguous() or given.dtype not in expected:
            raise GnnLoadError(
                f"{what} takes {parameter.ctype} {parameter.name}, but got a tensor of {given.dtype} on {given.device}"
                f"{'' if given.is_contiguous() else ', not contiguous'}."
            )
        return ctypes.c_void_p(given.data_ptr())
    if isinstance(given, Mapped):
        if not parameter.is_read_only or given.tensor.dtype not in DTYPES.get(parameter.pointee, {given.tensor.dtype}):
            raise GnnLoadError(
                f"{what} takes {parameter.ctype} {parameter.name}, but got host memory of {given.tensor.dtype}, which "
                "kernels only read."
            )
        return ctypes.c_void_p(given.address)
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return ctypes.c_void_p(given)
    raise GnnLoadError(f"{what} takes {parameter.ctype} {parameter.name}, but got {given!r}.")


def _number(what: str, parameter: sources.Parameter, given: Argument) -> ctypes._SimpleCData:
    if parameter.ctype in ("float", "double"):
        if not isinstance(given, float | int):
            raise GnnLoadError(f"{what} takes {parameter.ctype} {parameter.name}, but got {given!r}.")
        return NUMBERS[parameter.ctype](given)
    if not isinstance(given, int | np.integer) or NUMBERS[parameter.ctype](int(given)).value != given:
        raise GnnLoadError(f"{what} takes {parameter.ctype} {parameter.name}, which {given!r} is not.")
    return NUMBERS[parameter.ctype](int(given))

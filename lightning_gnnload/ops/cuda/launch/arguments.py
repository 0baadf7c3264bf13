"""KernelArguments: checks the arguments of a kernel's launches against its parameters, and packs them for the
driver."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import torch

from ....errors import GnnLoadError
from .device import Argument, Mapped
from .signatures import KernelParameter, KernelSource, offsets_of

MAX_THREADS = 1024
_FORMATS = {"int32_t": "i", "uint32_t": "I", "int64_t": "q", "uint64_t": "Q", "float": "f", "double": "d"}
_INTEGERS = {
    "int32_t": (-(1 << 31), (1 << 31) - 1),
    "uint32_t": (0, (1 << 32) - 1),
    "int64_t": (-(1 << 63), (1 << 63) - 1),
    "uint64_t": (0, (1 << 64) - 1),
}
_INTEGER_BYTES = {
    **dict.fromkeys(("bool", "char", "unsigned char", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("unsigned short", "int16_t", "uint16_t"), 2),
    **dict.fromkeys(("int", "unsigned", "unsigned int", "int32_t", "uint32_t"), 4),
    **dict.fromkeys(("int64_t", "uint64_t", "long long", "unsigned long long", "Word", "AliasEntry"), 8),
}
_FLOATS = {"float": torch.float32, "double": torch.float64}

Reader = Callable[[Any], "int | float"]
"""Checks the value of a launch for a number or a pointer, and returns what the kernel gets."""


class PackedArguments(NamedTuple):
    """The arguments of a launch as the driver takes them."""

    memory: bytes
    offsets: list[int]  # of each parameter
    leaves: list[tuple[Any, KernelParameter, int]]  # the value of each number and pointer, and its offset


class KernelArguments:
    """Packs the arguments of one instantiation of a kernel, whose parameters were read from its source. Thread-safe.

    Signed and unsigned integers of a width are alike; pointers to vector types and ``void`` take any tensor. Raises
    GnnLoadError where there is no such instantiation.
    """

    def __init__(self, kernel: KernelSource, types: tuple[str, ...], device: torch.device) -> None:
        self._kernel = kernel
        self._parameters = parameters = kernel.parameters_of(types)
        self._names = {parameter.name for parameter in parameters}
        offsets = offsets_of(parameters)
        self.offsets = struct.pack(f"{len(offsets)}I", *offsets)  # where each parameter begins, a uint32 each
        self.leaves: list[KernelParameter] = []  # all numbers and pointers, in order
        self._leaf_offsets: list[int] = []
        self._getters: list[tuple[str, Callable[[Any], tuple[Any, ...]]]] = []
        self._readers: list[Reader] = []
        # "<": struct must add no padding of its own, as offsets come from the sources and gaps are written out.
        layout, end = "<", 0
        for parameter, begin in zip(parameters, offsets, strict=True):
            leaves = list(parameter.leaves(at=begin))
            self._getters.append((parameter.name, _getter([path for path, _, _ in leaves])))
            for path, leaf, offset in leaves:
                where = f"Kernel {kernel.op}/{kernel.name}: argument {parameter.name + path!r}"
                self._readers.append(_reader(where, leaf, device))
                self.leaves.append(leaf)
                self._leaf_offsets.append(offset)
                layout += f"{offset - end}x" + ("Q" if leaf.is_pointer else _FORMATS[leaf.ctype])
                end = offset + leaf.size
        self._layout = struct.Struct(layout)

    def pack(self, arguments: Mapping[str, Argument]) -> bytes:
        """Returns the arguments as they lie in memory. Raises GnnLoadError as :meth:`collect`, and for a tensor on
        another device, with gaps or with other elements than the parameter points to, or a number out of the type's
        range."""
        return self._layout.pack(
            *[read(value) for read, value in zip(self._readers, self.collect(arguments), strict=True)]
        )

    def packed(self, arguments: Mapping[str, Argument]) -> PackedArguments:
        """Packs the arguments of one launch, to be launched again. Raises as :meth:`pack`."""
        leaves = zip(self.collect(arguments), self.leaves, self._leaf_offsets, strict=True)
        return PackedArguments(self.pack(arguments), offsets_of(self._parameters), list(leaves))

    def collect(self, arguments: Mapping[str, Argument]) -> list[Any]:
        """Returns the value for each leaf. Raises GnnLoadError for an argument too few or too many, or an object that
        lacks an attribute for a member."""
        if arguments.keys() != self._names:
            self._refuse_names(arguments)
        values: list[Any] = []
        for name, get in self._getters:
            try:
                values += get(arguments[name])
            except AttributeError as error:
                self._refuse_object(name, arguments[name], error)
        return values

    def _refuse_object(self, name: str, value: Any, error: AttributeError) -> NoReturn:
        (parameter,) = (parameter for parameter in self._parameters if parameter.name == name)
        raise GnnLoadError(
            f"Kernel {self._kernel.op}/{self._kernel.name}: argument {name!r} is {type(value).__name__}, but of a "
            f"{parameter.ctype} it needs {', '.join(path[1:] for path, _, _ in parameter.leaves())} ({error}). Pass "
            "an object with these attributes."
        ) from error

    def _refuse_names(self, arguments: Mapping[str, Argument]) -> None:
        names = [parameter.name for parameter in self._parameters]
        missing, unknown = sorted(set(names) - arguments.keys()), sorted(arguments.keys() - set(names))
        raise GnnLoadError(
            f"Kernel {self._kernel.op}/{self._kernel.name} takes ({', '.join(names)}); missing: {missing or 'none'}, "
            f"unknown: {unknown or 'none'}. Pass each parameter by its name."
        )


def check_grid(kernel: KernelSource, blocks: int, threads: int, shared_bytes: int) -> None:
    """Raises GnnLoadError where no device takes such a grid."""
    # Whole warps, as collectives name all 32 lanes (kernels/common/cuda/scan.h).
    if not 1 <= blocks < 1 << 31 or not 32 <= threads <= MAX_THREADS or threads % 32 or shared_bytes < 0:
        raise GnnLoadError(
            f"Kernel {kernel.op}/{kernel.name}: blocks={blocks}, threads={threads}, shared_bytes={shared_bytes}, but "
            f"there have to be 1 to 2^31 - 1 blocks of a multiple of 32 threads, at most {MAX_THREADS}, and no "
            "negative memory. Launch nothing where there is no work."
        )


def _getter(paths: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function that takes an argument apart into the values for the leaves of its parameter."""
    if paths == [""]:
        return lambda value: (value,)
    get = operator.attrgetter(*(path[1:] for path in paths))
    return get if len(paths) > 1 else lambda value: (get(value),)


def _reader(where: str, parameter: KernelParameter, device: torch.device) -> Reader:
    if parameter.is_pointer:
        return _address_reader(where, parameter, device)
    if parameter.ctype in _FLOATS:
        return _float_reader(where, parameter)
    return _integer_reader(where, parameter)


def _integer_reader(where: str, parameter: KernelParameter) -> Reader:
    low, high = _INTEGERS[parameter.ctype]

    def read(value: Any) -> int:
        # The fast path: nearly every number is a plain integer in range, and a launch has dozens of them.
        if type(value) is int and low <= value <= high:
            return value
        try:
            # A tensor of one element has __index__, but reading it would make the host wait for the device.
            number = None if isinstance(value, torch.Tensor) else operator.index(value)
        except TypeError:
            number = None
        if number is None or not low <= number <= high:
            raise GnnLoadError(
                f"{where} is {value!r}, but {parameter.ctype} holds integers of {low} to {high}. Pass one of them, or "
                "a pointer to it where it is known to the device alone."
            )
        return number

    return read


def _float_reader(where: str, parameter: KernelParameter) -> Reader:
    def read(value: Any) -> float:
        if not isinstance(value, float | int):
            raise GnnLoadError(f"{where} is {value!r}, but {parameter.ctype} takes a number. Pass a float.")
        return float(value)

    return read


def _address_reader(where: str, parameter: KernelParameter, device: torch.device) -> Reader:
    # Threads may overwrite each other's without harm: whatever is here has passed the check.
    accepted: torch.dtype | None = None  # of the last launch, and most likely of this one

    def check_dtype(dtype: torch.dtype) -> None:
        nonlocal accepted
        if not _holds(parameter.pointee, dtype):
            raise GnnLoadError(f"{where} is of {dtype}, but the kernel takes {parameter.ctype}. Convert it first.")
        accepted = dtype

    def read(value: Any) -> int:
        if type(value) is torch.Tensor or isinstance(value, torch.Tensor):
            if value.dtype is not accepted:
                check_dtype(value.dtype)
            if value.device != device or not value.is_contiguous():
                raise GnnLoadError(
                    f"{where} lies on {value.device} with strides {value.stride()}, but has to lie on {device} without "
                    "gaps. Put it there first."
                )
            return value.data_ptr()
        if value is None:
            return 0
        if isinstance(value, Mapped):
            check_dtype(value.tensor.dtype)
            return value.address
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64:
            return value
        raise GnnLoadError(
            f"{where} is {value!r}, but {parameter.ctype} takes a tensor, mapped memory, an address or None."
        )

    return read


def _holds(pointee: str, dtype: torch.dtype) -> bool:
    """Tells whether a pointer to ``pointee`` may lead to memory of ``dtype``."""
    if pointee in _FLOATS:
        return dtype == _FLOATS[pointee]
    if pointee in _INTEGER_BYTES:
        # Rows of features are copied as elements of one or two bytes, whatever their dtype.
        width = _INTEGER_BYTES[pointee]
        return dtype.itemsize == width and (width < 4 or not dtype.is_floating_point)
    return True

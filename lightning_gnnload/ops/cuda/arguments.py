"""What a launch passes, checked against the kernel's own parameters, alike on every device."""

from __future__ import annotations

import operator
from collections.abc import Mapping

import torch

from ...errors import GnnLoadError
from .device import Argument, Mapped
from .sources import KernelSource, Parameter

MAX_THREADS = 1024
_INTEGERS = {
    "int32_t": (-(1 << 31), (1 << 31) - 1),
    "uint32_t": (0, (1 << 32) - 1),
    "int64_t": (-(1 << 63), (1 << 63) - 1),
    "uint64_t": (0, (1 << 64) - 1),
}
_INTEGER_BYTES = {
    "bool": 1,
    "char": 1,
    "unsigned char": 1,
    "int8_t": 1,
    "uint8_t": 1,
    "unsigned short": 2,
    "int16_t": 2,
    "uint16_t": 2,
    "int": 4,
    "unsigned": 4,
    "unsigned int": 4,
    "int32_t": 4,
    "uint32_t": 4,
    "int64_t": 8,
    "uint64_t": 8,
    "long long": 8,
    "unsigned long long": 8,
    "Word": 8,
    "AliasEntry": 8,
}
_FLOATS = {"float": torch.float32, "double": torch.float64}


def launch_values(
    kernel: KernelSource,
    types: tuple[str, ...],
    arguments: Mapping[str, Argument],
    device: torch.device,
) -> list[int | float]:
    """The values of the kernel's parameters, in order; of a pointer its address.

    Signed and unsigned integers of a width are one memory; vector types and ``void`` take any.

    Raises:
        GnnLoadError: no such instantiation; an argument too few or too many; a tensor that lies elsewhere than on
            ``device``, has gaps, or other elements than the parameter points to; a number out of the type's range.
    """
    parameters = kernel.parameters_of(types)
    names = [parameter.name for parameter in parameters]
    if arguments.keys() != set(names):
        missing, unknown = sorted(set(names) - arguments.keys()), sorted(arguments.keys() - set(names))
        raise GnnLoadError(
            f"Kernel {kernel.op}/{kernel.name} takes ({', '.join(names)}); missing: {missing or 'none'}, unknown: "
            f"{unknown or 'none'}. Pass each parameter by its name."
        )
    return [_value(kernel, parameter, arguments[parameter.name], device) for parameter in parameters]


def check_grid(kernel: KernelSource, blocks: int, threads: int, shared_bytes: int) -> None:
    """Raises GnnLoadError: a grid that no device takes."""
    if not 1 <= blocks < 1 << 31 or not 32 <= threads <= MAX_THREADS or threads % 32 or shared_bytes < 0:
        raise GnnLoadError(
            f"Kernel {kernel.op}/{kernel.name}: blocks={blocks}, threads={threads}, shared_bytes={shared_bytes}, but "
            f"there have to be 1 to 2^31 - 1 blocks of a multiple of 32 threads, at most {MAX_THREADS}, and no "
            "negative memory. Launch nothing where there is no work."
        )


def _value(kernel: KernelSource, parameter: Parameter, value: Argument, device: torch.device) -> int | float:
    where = f"Kernel {kernel.op}/{kernel.name}: argument {parameter.name!r}"
    if parameter.is_pointer:
        return _address(where, parameter, value, device)
    if parameter.ctype in _FLOATS:
        if not isinstance(value, float | int):
            raise GnnLoadError(f"{where} is {value!r}, but {parameter.ctype} takes a number. Pass a float.")
        return float(value)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    low, high = _INTEGERS[parameter.ctype]
    # A tensor of one element is an index, too, but reading it would make the host wait.
    if number is None or isinstance(value, torch.Tensor) or not low <= number <= high:
        raise GnnLoadError(
            f"{where} is {value!r}, but {parameter.ctype} holds integers of {low} to {high}. Pass one of them, or a "
            "pointer to it where it is known to the device alone."
        )
    return number


def _address(where: str, parameter: Parameter, value: Argument, device: torch.device) -> int:
    if value is None:
        return 0
    if isinstance(value, Mapped):
        _check_dtype(where, parameter, value.tensor.dtype)
        return value.address
    if isinstance(value, torch.Tensor):
        _check_dtype(where, parameter, value.dtype)
        if value.device != device or not value.is_contiguous():
            raise GnnLoadError(
                f"{where} lies on {value.device} with strides {value.stride()}, but has to lie on {device} without "
                "gaps. Put it there first."
            )
        return value.data_ptr()
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64:
        return value
    raise GnnLoadError(
        f"{where} is {value!r}, but {parameter.ctype} takes a tensor, mapped memory, an address or None."
    )


def _check_dtype(where: str, parameter: Parameter, dtype: torch.dtype) -> None:
    pointee = parameter.pointee
    if pointee in _FLOATS:
        fits = dtype == _FLOATS[pointee]
    elif pointee in _INTEGER_BYTES:
        # Elements of one or two bytes are anybody's: rows of features are copied as such.
        width = _INTEGER_BYTES[pointee]
        fits = dtype.itemsize == width and (width < 4 or not dtype.is_floating_point)
    else:
        return
    if not fits:
        raise GnnLoadError(f"{where} is of {dtype}, but the kernel takes {parameter.ctype}. Convert it first.")

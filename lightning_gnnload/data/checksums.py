"""Checksums of arrays, and descriptions of objects by their settings: what checkpoints compare."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import torch

from lightning_gnnload.settings import keywords_of

_DEEPEST = 8  # of lists in lists, which may hold themselves


def checksum_of(arrays: Iterable[np.ndarray | torch.Tensor | None], start: int = 0) -> int:
    """Returns the CRC-32 of the bytes of arrays and tensors on the CPU, one after the other; None has none.

    Example:
        >>> checksum_of([np.arange(3)]) == checksum_of([np.arange(2), None, torch.tensor([2])])
        True
    """
    for array in arrays:
        if isinstance(array, torch.Tensor):
            flat = array.detach().contiguous().reshape(-1)
            # As bytes: NumPy has no bfloat16, and tensors without entries have no other view.
            array = flat.view(torch.uint8).numpy() if len(flat) else None
        start = zlib.crc32(b"" if array is None else np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, start)
    return start


def describe_settings(instance: object) -> str:
    """Describes an object by its class and those arguments of its constructor that it keeps under their names, of
    arrays by a checksum.

    Example:
        >>> class Window:
        ...     def __init__(self, size, starts=None):
        ...         self.size, self.starts = size, starts
        >>> describe_settings(Window(7)), describe_settings(Window(7, np.arange(3)))
        ('Window(size=7, starts=None)', "Window(size=7, starts=int64 [3] '4f8c5ccc')")
    """
    settings = ", ".join(f"{name}={_shown(value)}" for name, value in _arguments(instance).items())
    return f"{type(instance).__name__}({settings})" if settings else type(instance).__name__


def array_settings(instance: object) -> dict[str, np.ndarray | torch.Tensor]:
    """Returns the arrays among the arguments of an object's constructor that it keeps under their names."""
    return {name: value for name, value in _arguments(instance).items() if _is_array(value)}


def _arguments(instance: object) -> dict[str, Any]:
    # Not all attributes: what an object computes and keeps for later is no setting, and changes while it works.
    attributes = {name: getattr(instance, name, keywords_of) for name in keywords_of(type(instance).__init__)}
    return {name: value for name, value in attributes.items() if value is not keywords_of}


def _is_array(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout == torch.strided


def _shown(value: Any, depth: int = 0) -> str:
    if _is_array(value):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)} '{checksum_of([value]):08x}'"
    if isinstance(description := getattr(value, "description", None), str):  # a sampler within another
        return description
    if depth == _DEEPEST:
        return repr(value)
    show = partial(_shown, depth=depth + 1)
    # Sets have another order in each process; and repr leaves out the middle of arrays that lie in lists and dicts.
    if isinstance(value, set | frozenset):
        return f"[{', '.join(sorted(map(show, value)))}]"
    if type(value) is dict:
        return "{" + ", ".join(f"{show(key)}: {show(entry)}" for key, entry in value.items()) + "}"
    if type(value) is list:
        return f"[{', '.join(map(show, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(show, value))}{',' * (len(value) == 1)})"
    return repr(value)

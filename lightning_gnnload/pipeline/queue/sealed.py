"""Sealed values: plain values and tensors, written to memory that another process can read.

No pickle: what came is data, checked before anything is made of it. A memory file holds the length of a description,
the description (JSON), and the tensors' bytes, each at a multiple of 64.
"""

from __future__ import annotations

import base64
import json
import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.slab import view_of
from lightning_gnnload.errors import CacheShareError, QueueProtocolError
from lightning_gnnload.host.memfd import MemoryFile

_ALIGN = 64
_LENGTH = struct.Struct("<Q")
_META = torch.device("meta")
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


class NotPlainError(TypeError):
    """A value that is neither plain nor a dense tensor; the message names its type."""


def to_json(value: Any) -> tuple[Any, list[torch.Tensor | np.ndarray]]:
    """Returns a value as JSON, and the tensors and arrays that it refers to by number, each once.

    Plain are None, bool, int, float, str, bytes, ``Path``, ``torch.dtype``, ``torch.device``; numpy's arrays and
    numbers; and lists, tuples, sets and dicts of these. Raises NotPlainError for any other type (subclasses too: they
    would come back as another type), for sparse or quantized tensors, and for cycles.
    """
    tensors: list[torch.Tensor | np.ndarray] = []
    numbers: dict[int, int] = {}

    def number(tensor: torch.Tensor | np.ndarray) -> int:
        is_dense = isinstance(tensor, np.ndarray) or (tensor.layout is torch.strided and not tensor.is_quantized)
        if not is_dense or tensor.device == _META or _name(tensor.dtype) not in _DTYPES:
            raise NotPlainError(f"a tensor or an array of {tensor.dtype}, sparse, quantized, or without memory")
        if id(tensor) not in numbers:
            numbers[id(tensor)] = len(tensors)
            # The list keeps each one alive, so that no other object gets its id.
            tensors.append(tensor)
        return numbers[id(tensor)]

    def node(value: Any) -> Any:
        cls = type(value)
        if value is None or cls in (bool, int, float, str):
            return value
        if cls is list:
            return [node(entry) for entry in value]
        if cls in (tuple, set):
            return {cls.__name__: [node(entry) for entry in value]}
        if cls is dict:
            return {"dict": [[node(key), node(entry)] for key, entry in value.items()]}
        if cls is torch.Tensor:
            return {"tensor": number(value)}
        if cls is np.ndarray or isinstance(value, np.generic):
            return {"array" if cls is np.ndarray else "number": number(np.asarray(value))}
        return _scalar(value)

    try:
        return node(value), tensors
    except RecursionError:
        raise NotPlainError("a value that is in itself") from None


def _scalar(value: Any) -> dict[str, str]:
    cls = type(value)
    if cls is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    # By isinstance, unlike the others: Path() makes an object of a subclass.
    if isinstance(value, Path):
        return {"path": str(value)}
    if cls in (torch.dtype, torch.device):
        return {cls.__name__: _name(value)}
    raise NotPlainError(f"{cls.__module__}.{cls.__qualname__}")


def seal(value: Any) -> MemoryFile:
    """Writes a value to memory that another process can open. Raises NotPlainError like :func:`to_json`,
    CacheShareError where the machine has no such memory."""
    root, tensors = to_json(value)
    views: list[Any] = []
    end = 0
    for tensor in tensors:
        views.append([_name(tensor.dtype), list(tensor.shape), end])
        end = _aligned(end + tensor.nbytes)
    description = json.dumps({"value": root, "tensors": views}).encode()
    begin = _aligned(_LENGTH.size + len(description))
    file = MemoryFile.create("outcome", begin + end)
    file.array[: _LENGTH.size + len(description)] = np.frombuffer(
        _LENGTH.pack(len(description)) + description, np.uint8
    )
    memory = torch.from_numpy(file.array)
    for tensor, (_, _, offset) in zip(tensors, views, strict=True):
        # Straight to its place: no copy in between, from whatever device and in whatever strides.
        view = view_of(memory, begin + offset, tuple(tensor.shape), _DTYPES[_name(tensor.dtype)])
        if isinstance(tensor, np.ndarray):
            np.copyto(view.numpy(), tensor)
        else:
            view.copy_(tensor.detach())
    return file


def unseal(file: MemoryFile) -> Any:
    """Returns the value that another process sealed; QueueProtocolError where the memory holds none.

    Its tensors view one private writable mapping, which stays until the last of them is gone: clone what outlives the
    others.
    """
    try:
        memory = mmap.mmap(file.fd, len(file.array), access=mmap.ACCESS_COPY)
        (length,) = _LENGTH.unpack_from(memory)
        begin = _aligned(_LENGTH.size + length)
        if begin > len(memory):
            raise ValueError(f"a description of {length} bytes in a file of {len(memory)}")
        parts = json.loads(memory[_LENGTH.size : _LENGTH.size + length])
        if parts.keys() != {"value", "tensors"}:
            raise ValueError("not the parts of a value")
        return _value(parts["value"], _tensors(torch.frombuffer(memory, dtype=torch.uint8), begin, parts["tensors"]))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, struct.error, RuntimeError) as error:
        # A RecursionError, of JSON that is nested too deeply, is a RuntimeError, as are torch's own errors.
        raise QueueProtocolError(f"a malformed value came from another rank: {error!r:.200}") from error


def _tensors(buffer: torch.Tensor, begin: int, described: Any) -> list[torch.Tensor]:
    tensors, end = list[torch.Tensor](), begin
    for dtype, shape, offset in described:
        if type(offset) is not int or offset % _ALIGN or begin + offset < end:  # none lies in another
            raise ValueError(f"a tensor at {offset!r}")
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"a tensor of shape {shape!r}")
        tensors.append(view_of(buffer, begin + offset, tuple(shape), _DTYPES[dtype]))
        end = begin + offset + tensors[-1].nbytes
    return tensors


def adopt_sealed(fd: int, num_bytes: int) -> MemoryFile:
    """Opens the memory that came with a message, and owns the descriptor. QueueProtocolError: another size, or not
    sealed."""
    try:
        return MemoryFile.adopt(fd, num_bytes)
    except CacheShareError as error:
        raise QueueProtocolError(f"a malformed value came from another rank: {error}") from error


def _value(node: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(node, list):
        return [_value(entry, tensors) for entry in node]
    if not isinstance(node, dict):
        return node
    ((tag, content),) = node.items()
    if tag in _OF_TENSORS:
        if type(content) is not int or content < 0:
            raise ValueError(f"tensor {content!r}")
        return _OF_TENSORS[tag](tensors[content])
    if tag == "dict":
        return {_value(key, tensors): _value(entry, tensors) for key, entry in content}
    if tag in _COLLECTIONS:
        return _COLLECTIONS[tag]([_value(entry, tensors) for entry in content])
    return _SCALARS[tag](content)


def _name(named: Any) -> str:
    """Returns the name of a dtype, torch's or numpy's, or of a device."""
    return str(named).removeprefix("torch.")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_OF_TENSORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda tensor: tensor,
    "array": torch.Tensor.numpy,
    "number": lambda tensor: tensor.numpy()[()],
}
_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {"tuple": tuple, "set": set}
_SCALARS: dict[str, Callable[[str], Any]] = {
    "bytes": _bytes,
    "path": Path,
    "dtype": _DTYPES.__getitem__,
    "device": torch.device,
}


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN

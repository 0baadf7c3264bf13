"""Messages between ranks that sample together, as bytes: named arrays with a word on what they are.

A message is self-describing, so that ranks need agree on nothing before they meet. Nothing in it is executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_gnnload.errors import ExchangeError

_KINDS = "iuf"  # of the dtypes that an array may have


@dataclass(frozen=True)
class Message:
    """What one rank tells another.

    Attributes:
        about: JSON values by name.
        arrays: of numbers, one dimension, by name.
    """

    about: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    def to_bytes(self) -> np.ndarray:
        """uint8 ``[bytes]``, a multiple of 8."""
        shapes = [[name, array.dtype.str, len(array)] for name, array in self.arrays.items()]
        head = json.dumps([self.about, shapes]).encode()
        sizes = np.array([len(head)], np.int64)
        return join([sizes.view(np.uint8), np.frombuffer(head, np.uint8), *map(as_bytes, self.arrays.values())])

    @classmethod
    def from_bytes(cls, data: np.ndarray) -> Message:
        """The message, whose arrays are views of ``data``, uint8 aligned to 8 bytes.

        Raises:
            ExchangeError: these bytes are no message.
        """
        try:
            [size] = data[:8].view(np.int64).tolist()
            about, shapes = json.loads(data[8 : 8 + size].tobytes())
            if not isinstance(about, dict):
                raise ValueError(f"about a {type(about).__name__}")
            arrays, begin = {}, 8 + aligned(size)
            for name, kind, length in shapes:
                dtype = np.dtype(kind)
                end = begin + length * dtype.itemsize
                if not isinstance(name, str) or dtype.kind not in _KINDS or length < 0 or end > len(data):
                    raise ValueError(f"array {name} of {length} x {kind}")
                arrays[name], begin = data[begin:end].view(dtype), aligned(end)
            return cls(about, arrays)
        except (ValueError, TypeError, RecursionError) as error:
            raise ExchangeError(
                f"a rank sent {len(data)} bytes that are no message ({error}): do all ranks run the same version?"
            ) from error


def narrow(values: np.ndarray, bound: int | None = None) -> np.ndarray:
    """Whole numbers of at least 0 in the smallest dtype that holds them all, for the wire.

    Args:
        values: integers.
        bound: they lie below it; None to look.
    """
    largest = int(values.max(initial=0)) if bound is None else max(bound - 1, 0)
    dtype = np.min_scalar_type(largest)
    return values.astype(np.int64 if dtype == np.uint64 else dtype, copy=False)  # a graph has no 2**63 of anything


def join(pieces: Sequence[np.ndarray]) -> np.ndarray:
    """uint8 pieces one after the other, each from a multiple of 8 bytes on."""
    joined = np.zeros(sum(aligned(len(piece)) for piece in pieces), np.uint8)
    begin = 0
    for piece in pieces:
        joined[begin : begin + len(piece)] = piece
        begin += aligned(len(piece))
    return joined


def as_bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)


def aligned(num_bytes: int) -> int:
    return -(-num_bytes // 8) * 8

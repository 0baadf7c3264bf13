"""What ranks that sample together tell each other, as bytes: messages, the answers in them, and what a round carries.

A message is self-describing, so that ranks need agree on nothing before they meet. Nothing in it is executed, and of
what comes back nothing is believed before it is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeGuard

import numpy as np

from lightning_gnnload.errors import ExchangeError

MOST = 2**63
"""Every int64 lies below it."""
OPEN, LEAVING, FAILED = range(3)
"""The states of a rank: it asks and serves; it only serves, until all ranks leave; it does neither."""
_KINDS = "iuf"  # of the dtypes that an array may have


@dataclass(frozen=True)
class Message:
    """A message between ranks: JSON fields (``about``) and named one-dimensional arrays of numbers."""

    about: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    def to_bytes(self) -> np.ndarray:
        """Encodes the message as uint8 ``[bytes]``, a multiple of 8."""
        shapes = [[name, array.dtype.str, len(array)] for name, array in self.arrays.items()]
        head = json.dumps([self.about, shapes]).encode()
        sizes = np.array([len(head)], np.int64)
        return join([sizes.view(np.uint8), np.frombuffer(head, np.uint8), *map(_bytes_of, self.arrays.values())])

    def numbers(self, name: str, below: int) -> np.ndarray:
        """Reads an array of whole numbers in ``[0, below)``. ExchangeError: there is none, or it has others."""
        array = self.arrays.get(name)
        if not _are_numbers(array, below):
            raise ExchangeError(f"a rank sent no {name} that are whole numbers in [0, {below}).")
        return array

    @classmethod
    def from_bytes(cls, data: np.ndarray) -> Message:
        """Decodes a message, whose arrays are views of ``data`` (uint8, aligned to 8 bytes). ExchangeError: it is
        none."""
        try:
            [size] = data[:8].view(np.int64).tolist()
            about, shapes = json.loads(data[8 : 8 + size].tobytes())
            if not isinstance(about, dict):
                raise ValueError(f"about a {type(about).__name__}")
            # Each begins at a multiple of 8 bytes, so that it is viewed where it lies, whatever its dtype.
            arrays, begin = {}, 8 + _padded(size)
            for name, dtype_name, length in shapes:
                dtype = np.dtype(dtype_name)
                end = begin + length * dtype.itemsize
                if not isinstance(name, str) or dtype.kind not in _KINDS or length < 0 or end > len(data):
                    raise ValueError(f"array {name} of {length} x {dtype_name}")
                arrays[name], begin = data[begin:end].view(dtype), _padded(end)
            return cls(about, arrays)
        except (ValueError, TypeError, RecursionError) as error:
            raise ExchangeError(
                f"a rank sent {len(data)} bytes that are no message ({error}): do all ranks run the same version?"
            ) from error


@dataclass(frozen=True)
class Answer:
    """One rank's reply about its nodes, validated as it is read. ``positions``, int64 ``[D]``, say where these stand
    among the nodes that were asked for; ``arrays`` is the result as it came."""

    rank: int
    positions: np.ndarray
    arrays: Mapping[str, np.ndarray]

    def numbers(self, name: str, below: int, length: int | None = None) -> np.ndarray:
        """Reads whole numbers in ``[0, below)``, ``[length]`` or as many as came. ExchangeError: it has none, or
        others."""
        array = self.arrays.get(name)
        if array is None or not np.can_cast(array.dtype, np.int64):
            self.refuse(name, "whole numbers")
        if length is not None and len(array) != length:
            self.refuse(name, f"{length} numbers")
        if len(array) and not (array.min() >= 0 and array.max() < below):
            self.refuse(name, f"numbers in [0, {below})")
        return array

    def fractions(self, name: str, length: int) -> np.ndarray:
        """Reads floats ``[length]``. ExchangeError: it has none, or something else."""
        array = self.arrays.get(name)
        if array is None or array.dtype.kind != "f" or len(array) != length:
            self.refuse(name, f"{length} floats")
        return array

    def refuse(self, name: str, needed: str) -> NoReturn:
        """Raises ExchangeError: an array is not what was asked for."""
        array = self.arrays.get(name)
        got = f"no {name}"
        if array is not None:
            spans = f" in [{array.min()}, {array.max()}]" if len(array) else ""
            got = f"{name} {array.dtype} [{len(array)}]{spans}"
        raise ExchangeError(
            f"rank {self.rank} answered with {got}, but {needed} were asked for. Do all ranks run the same version, "
            f"over parts that pass load_partition(folder, verify=True)?"
        )


@dataclass
class Parcel:
    """What one rank sends another in one round: tasks and results, uint8 by request number; its ``state``, the
    ``reason`` where it has failed, and whether it brings anybody anything (``is_busy``)."""

    state: int = OPEN
    reason: str = ""
    tasks: dict[int, np.ndarray] = field(default_factory=dict)
    results: dict[int, np.ndarray] = field(default_factory=dict)
    is_busy: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.tasks and not self.results

    def to_bytes(self) -> np.ndarray:
        """Encodes the parcel as uint8 ``[bytes]``; empty from an idle rank."""
        # No bytes rather than an empty message: where no rank has any, the exchange moves nothing further.
        if self.state == OPEN and not self.is_busy:
            return np.empty(0, np.uint8)
        arrays = {f"task {number}": data for number, data in self.tasks.items()}
        arrays |= {f"result {number}": data for number, data in self.results.items()}
        about = {"state": self.state, "reason": self.reason, "busy": self.is_busy}
        return Message(about, arrays).to_bytes()

    @classmethod
    def from_bytes(cls, data: np.ndarray) -> Parcel:
        """Decodes a parcel. Raises ExchangeError: these bytes are no parcel."""
        if not len(data):
            return cls()
        message = Message.from_bytes(data)
        try:
            about, tasks, results = message.about, _called("task", message.arrays), _called("result", message.arrays)
            if about["state"] not in (OPEN, LEAVING, FAILED):
                raise ValueError(f"state {about['state']}")
            return cls(int(about["state"]), str(about["reason"]), tasks, results, bool(about["busy"]))
        except (LookupError, ValueError, TypeError) as error:
            raise ExchangeError(f"a rank sent a message that is no parcel ({error!r}).") from error


def _are_numbers(array: np.ndarray | None, below: int) -> TypeGuard[np.ndarray]:
    """Returns whether an array that another rank sent has whole numbers in ``[0, below)`` alone."""
    if array is None or not np.can_cast(array.dtype, np.int64):
        return False
    return not len(array) or bool(array.min() >= 0 and array.max() < below)


def _called(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    arrays_by_rank = {}
    for name, data in arrays.items():
        which, number = name.split()
        if which == prefix:
            arrays_by_rank[int(number)] = data
    return arrays_by_rank


def narrow(values: np.ndarray, bound: int | None = None) -> np.ndarray:
    """Casts whole numbers from 0 on, below ``bound`` (None: their largest decides), to the smallest dtype, for the
    wire."""
    largest = int(values.max(initial=0)) if bound is None else max(bound - 1, 0)
    dtype = np.min_scalar_type(largest)
    return values.astype(np.int64 if dtype == np.uint64 else dtype, copy=False)  # a graph has no 2**63 of anything


def join(pieces: Sequence[np.ndarray]) -> np.ndarray:
    """Joins uint8 pieces one after the other, each from a multiple of 8 bytes on."""
    joined = np.zeros(sum(_padded(len(piece)) for piece in pieces), np.uint8)
    begin = 0
    for piece in pieces:
        joined[begin : begin + len(piece)] = piece
        begin += _padded(len(piece))
    return joined


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // 8) * 8

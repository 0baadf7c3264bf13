"""Ids of any kind found among those of an array, by their row.

Shapes: N ids, K keys to find, B bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import GraphFormatError
from .checks import INDEX_DTYPES, as_integer, check_array
from .dispatch import kernels

MAX_IDS: int = kernels.MAX_IDS
"""The most ids of one index: rows are int32, beside what says that there is none."""
UNKNOWN, NULL = -1, -2
"""In place of the row of a key that is none of the ids, and of one that is missing."""


class FoundRows(NamedTuple):
    """The rows of keys.

    Attributes:
        rows: int32 ``[K]``; :data:`UNKNOWN` or :data:`NULL` where there is none.
        num_unknown: how many are unknown.
        num_null: how many keys were missing.
    """

    rows: np.ndarray
    num_unknown: int
    num_null: int


class IdIndex:
    """Finds the rows of ids, which are int64 or bytes of any length. Rows come in by :meth:`add`, in their order.

    Equal hashes are confirmed by a comparison with the ids themselves, so that no key finds another's row. The index
    takes 12 bytes an id, beside the ids, which it reads where they lie: in memory, or in a file that is mapped.

    Args:
        values: int64 ``[N]``; or uint8 ``[B]``, the bytes of all ids.
        offsets: of bytes: int64 ``[N + 1]``; id ``i`` is ``values[offsets[i]:offsets[i + 1]]``.
        key: of the hash, 64 bits that nobody should know who chooses ids. What is found does not depend on it.

    Raises:
        GraphFormatError: arrays of other dtypes, more than :data:`MAX_IDS` ids, or more than memory holds.

    Example:
        >>> index = IdIndex(np.frombuffer(b"annbobann", np.uint8), np.array([0, 3, 6, 9]))
        >>> index.add(3)
        >>> [rows.tolist() for rows in index.repeats()]
        [[2], [0]]
        >>> index.find(np.frombuffer(b"bobeve", np.uint8), np.array([0, 3, 6])).rows.tolist()
        [1, -1]
    """

    def __init__(self, values: np.ndarray, offsets: np.ndarray | None = None, *, key: int = 0) -> None:
        self._keys = _Keys("ids", values, offsets, (np.int64,))
        self.values, self.offsets = values, offsets
        self.num_ids, self.num_added = len(self._keys), 0
        if self.num_ids > MAX_IDS:
            raise GraphFormatError(f"{self.num_ids} ids are too many: rows are numbered up to {MAX_IDS}.")
        key = as_integer("key", key, GraphFormatError) % 2**64
        try:
            if offsets is None:
                self._native: Any = kernels.IntegerIndex(values, key)
            else:
                self._native = kernels.TextIndex(offsets, values, key)
        except MemoryError as error:
            raise GraphFormatError(
                f"an index of {self.num_ids} ids takes {12 * self.num_ids / 1e9:.1f} GB, more than this machine gives."
            ) from error

    def add(self, end: int) -> None:
        """Takes in the rows up to ``end``; of those with equal ids, the first.

        Raises:
            GraphFormatError: ``end`` lies before rows that are there, or beyond the last; offsets outside the bytes.
        """
        end = as_integer("end", end, GraphFormatError)
        if not self.num_added <= end <= self.num_ids:
            raise GraphFormatError(f"end is {end}, but must lie in [{self.num_added}, {self.num_ids}].")
        self._native.add(end)
        self.num_added = end

    def repeats(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows whose ids an earlier one has, int64 ``[D]``, in their order, and which row that is."""
        rows, of = np.empty((2, self._native.num_repeats), np.int64)
        self._native.repeats(rows, of)
        return rows, of

    def find(
        self, values: np.ndarray, offsets: np.ndarray | None = None, is_null: np.ndarray | None = None
    ) -> FoundRows:
        """Finds keys among the ids that were added. Threads may call it at once, but not while rows are added.

        Args:
            values: int64 ``[K]`` or uint8 ``[B]``, as the ids are.
            offsets: of bytes: int32 or int64 ``[K + 1]``.
            is_null: bool ``[K]``: which keys are missing; what stands in their place is not looked at.

        Raises:
            GraphFormatError: arrays of other dtypes or lengths; offsets outside the bytes.
        """
        keys = _Keys("keys", values, offsets, INDEX_DTYPES)
        if (offsets is None) != (self._keys.offsets is None):
            raise GraphFormatError("the ids are numbers and the keys are bytes, or the other way; give one kind.")
        if is_null is not None:
            check_array("is_null", is_null, (np.bool_,), 1, GraphFormatError)
            if len(is_null) != len(keys):
                raise GraphFormatError(f"is_null has {len(is_null)} entries for {len(keys)} keys; one each is needed.")
            is_null = is_null.view(np.uint8)
        rows = np.empty(len(keys), np.int32)
        given = (values,) if offsets is None else (offsets, values)
        return FoundRows(rows, *self._native.find(*given, is_null, rows))


class _Keys:
    """Checks numbers, or bytes and their offsets; holds them as long as the index reads them."""

    def __init__(self, name: str, values: np.ndarray, offsets: np.ndarray | None, dtypes: Any) -> None:
        self.values, self.offsets = values, offsets
        if offsets is None:
            check_array(name, values, (np.int64,), 1, GraphFormatError)
            return
        check_array(name, values, (np.uint8,), 1, GraphFormatError)
        check_array(f"offsets of {name}", offsets, dtypes, 1, GraphFormatError)
        if len(offsets) == 0:
            raise GraphFormatError(f"offsets of {name} are empty, but must be one more than {name}: [0] of none.")

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

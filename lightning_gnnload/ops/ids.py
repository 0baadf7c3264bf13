"""Finds the rows of ids: integers, or bytes of any length.

Shapes: N ids, K keys to find, B bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import GraphFormatError
from .checks import INDEX_DTYPES, as_integer, as_integer_within, check_array
from .dispatch import kernels

MAX_IDS: int = kernels.MAX_IDS  # rows are int32, and two numbers stand for no row
UNKNOWN, NULL = -1, -2  # in place of a row: the key is none of the ids; the key is missing


class FoundRows(NamedTuple):
    """The rows of keys, int32 ``[K]``, :data:`UNKNOWN` or :data:`NULL` where there is none; and how many are either."""

    rows: np.ndarray
    num_unknown: int
    num_null: int


class IdIndex:
    """Finds the rows of ids, which are int64 or bytes of any length. Rows are added by :meth:`add`, in their order.

    ``values`` are int64 ``[N]``; or uint8 ``[B]``, the bytes of all ids, where id ``i`` is
    ``values[offsets[i]:offsets[i + 1]]``, int64 ``[N + 1]``. Equal hashes are confirmed by comparing the ids
    themselves. ``key`` is that of the hash, 64 bits that nobody who chooses ids should know; the result does not depend
    on it. The index takes 12 bytes an id, and reads the ids where they are, in memory or in a mapped file. Raises
    GraphFormatError for other dtypes, more than :data:`MAX_IDS` ids, or more than memory holds.

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
        # Modulo, as hash() and secrets may give negative or larger integers, and any 64 bits will do.
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
        """Adds the rows up to ``end``; of equal ids the first counts. Raises GraphFormatError for an ``end`` before
        rows that were added or beyond the last, and for offsets outside the bytes."""
        end = as_integer_within("end", end, self.num_added, self.num_ids, GraphFormatError)
        self._native.add(end)
        self.num_added = end

    def repeats(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows whose ids an earlier row has, int64 ``[D]``, in their order, and those earlier rows."""
        rows, first_rows = np.empty((2, self._native.num_repeats), np.int64)
        self._native.repeats(rows, first_rows)
        return rows, first_rows

    def find(
        self, values: np.ndarray, offsets: np.ndarray | None = None, is_null: np.ndarray | None = None
    ) -> FoundRows:
        """Finds keys, as the ids are, among those that were added; ``is_null``, bool ``[K]``, marks missing keys, whose
        values are not looked at. Threads may call it at once, but not while rows are added. Raises GraphFormatError for
        arrays of other dtypes or lengths, or offsets outside the bytes."""
        keys = _Keys("keys", values, offsets, INDEX_DTYPES)
        if (offsets is None) != (self._keys.offsets is None):
            raise GraphFormatError("the ids are numbers and the keys are bytes, or the other way; give one kind.")
        if is_null is not None:
            check_array("is_null", is_null, (np.bool_,), 1, GraphFormatError)
            if len(is_null) != len(keys):
                raise GraphFormatError(f"is_null has {len(is_null)} entries for {len(keys)} keys; one each is needed.")
            is_null = is_null.view(np.uint8)
        rows = np.empty(len(keys), np.int32)
        arrays = (values,) if offsets is None else (offsets, values)
        return FoundRows(rows, *self._native.find(*arrays, is_null, rows))


class _Keys:
    """Checks integers, or bytes and their offsets, and keeps them alive as long as the index reads them."""

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

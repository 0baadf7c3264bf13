"""RowSet: some rows of a table, in a bit each."""

from __future__ import annotations

import numpy as np

_WORD = 64
# Masks of a parallel count of bits: every second, pairs of each four, lower halves of bytes, lowest bits of bytes.
_ONES = [np.uint64(value) for value in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F, 0x0101010101010101)]


class RowSet:
    """Holds some of a table's rows, in a bit each, and counts those before a row.

    None of ``num_rows`` is in the set at first. A table that is read row by row starts with 0, and grows by
    :meth:`append`.

    Example:
        >>> rows = RowSet(8)
        >>> rows.add(np.array([1, 5]))
        >>> len(rows), rows.count_below(np.array([1, 2, 7])).tolist(), rows.holds(4, 8).tolist()
        (2, [0, 1, 2], [False, True, False, False])
    """

    def __init__(self, num_rows: int = 0) -> None:
        self.num_rows = num_rows
        self._bytes = np.zeros(_num_bytes(num_rows), np.uint8)
        self._before: np.ndarray | None = None

    def append(self, holds: np.ndarray) -> None:
        """Adds rows to the table, of which bool ``holds`` are in the set."""
        begin, self.num_rows = self.num_rows, self.num_rows + len(holds)
        if _num_bytes(self.num_rows) > len(self._bytes):
            more = _num_bytes(self.num_rows + self.num_rows // 4) - len(self._bytes)
            self._bytes = np.concatenate([self._bytes, np.zeros(more, np.uint8)])
        packed = np.packbits(np.concatenate([np.zeros(begin % 8, np.bool_), holds]), bitorder="little")
        self._bytes[begin // 8 : begin // 8 + len(packed)] |= packed
        self._before = None

    def add(self, rows: np.ndarray) -> None:
        """Adds rows ``[n]`` to the set; those that are there stay."""
        # Unlike indexing by rows, .at sets the bits of several rows that share a byte.
        np.bitwise_or.at(self._bytes, rows >> 3, np.left_shift(1, rows & 7).astype(np.uint8))
        self._before = None

    def holds(self, begin: int, end: int) -> np.ndarray:
        """Returns which of the rows from ``begin`` to ``end - 1`` are in the set, bool."""
        bits = np.unpackbits(self._bytes[begin // 8 : -(-end // 8)], bitorder="little")
        return bits[begin % 8 : begin % 8 + end - begin].view(np.bool_)

    def count_below(self, rows: np.ndarray) -> np.ndarray:
        """Returns for each of ``rows`` ``[n]`` how many rows before it are in the set, int64."""
        words, before = self._bytes.view(np.uint64), self._counts
        word = rows // _WORD
        within = words[word] & ((np.uint64(1) << (rows % _WORD).astype(np.uint64)) - np.uint64(1))
        return before[word] + _ones(within)

    def __len__(self) -> int:
        return int(self._counts[-1])

    @property
    def _counts(self) -> np.ndarray:
        """int64: how many lie before each word, and in all."""
        if self._before is None:
            ones = _ones(self._bytes.view(np.uint64))
            self._before = np.concatenate([[0], np.cumsum(ones, dtype=np.int64)])
        return self._before


def _num_bytes(num_rows: int) -> int:
    """Of whole words, and one more: what lies beyond the last row has a word, too."""
    return (num_rows // _WORD + 1) * 8


def _ones(words: np.ndarray) -> np.ndarray:
    """Counts the ones of each word, int64: first by pairs of bits, then by fours and eights, which one product sums."""
    pairs, fours, eights, sums = _ONES
    words = words - ((words >> np.uint64(1)) & pairs)
    words = (words & fours) + ((words >> np.uint64(2)) & fours)
    return (((words + (words >> np.uint64(4))) & eights) * sums >> np.uint64(56)).astype(np.int64)

"""Budget: how many rows a cache may hold, and why. Never more than was asked for, never less without an error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lightning_gnnload.data.memory import free_bytes, in_units
from lightning_gnnload.errors import CacheConfigError, CacheTooSmallError

AUTO_SHARE = 0.25
"""Of the free memory, before training shows its need: as much again for slots, as much for the page cache, the rest in
reserve."""
_A_BIT_MORE, _TOO_LITTLE = 0.1, 0.01  # of the memory, and of the misses that it saves
LOCATION_BYTES = 4  # int32: shard and slot


@dataclass(frozen=True)
class Table:
    """The size of the table that is to be cached, and the number of copies.

    Attributes:
        num_nodes: rows of the table.
        row_bytes: of one row.
        slot_bytes: what a cached row takes beside itself.
        copies: of the cached rows on this machine: 1, or one a rank where each has its own.
        indices: tables of where each node's row is; None: as many as copies.
    """

    num_nodes: int
    row_bytes: int
    slot_bytes: int = 0
    copies: int = 1
    indices: int | None = None

    @property
    def index_bytes(self) -> int:
        """The bytes that all copies take to know where each node's row is."""
        return (self.copies if self.indices is None else self.indices) * self.num_nodes * LOCATION_BYTES

    @property
    def bytes_per_row(self) -> int:
        """The bytes of all copies of a cached row."""
        return self.copies * (self.row_bytes + self.slot_bytes)

    def rows_in(self, capacity_bytes: int) -> int:
        """Returns how many rows fit, index included."""
        return min(max(capacity_bytes - self.index_bytes, 0) // max(self.bytes_per_row, 1), self.num_nodes)


@dataclass(frozen=True)
class Budget:
    """The memory that a cache may take.

    Attributes:
        num_rows: cached rows.
        num_bytes: that they take with their index, all copies together.
        reason: why so many, in a few words.
    """

    num_rows: int
    num_bytes: int
    reason: str

    def __str__(self) -> str:
        if not self.num_rows:
            return f"none, as {self.reason}"
        return f"{self.num_rows} rows, {in_units(self.num_bytes)} with their index: {self.reason}"


@dataclass(frozen=True)
class Allowance:
    """The memory of a device, or of the machine, that a cache may take, and why no more.

    Attributes:
        num_bytes: of each device, for all ranks there together.
        num_devices: that there are.
        reason: why so much, in a few words.
    """

    num_bytes: int
    num_devices: int
    reason: str

    def __str__(self) -> str:
        each = "" if self.num_devices == 1 else f" on each of {self.num_devices} devices"
        return f"{in_units(self.num_bytes)}{each}: {self.reason}"


def budget(
    table: Table,
    ratio: float | None,
    capacity_bytes: int | None,
    free: int | None = None,
    left: Allowance | None = None,
) -> Budget:
    """Computes the rows that settings allow. Where both limits are given, the lower one holds; where none is, what
    training leaves is taken, or a quarter of the free memory while nobody knows; and no more than the table needs.

    Args:
        table: what is cached.
        ratio: of all rows, each counted once.
        capacity_bytes: for rows and index, all copies together.
        free: bytes of memory; None to look at the machine.
        left: what training leaves of it, if that was measured.

    Raises:
        CacheTooSmallError: some memory may be taken, but one row with the index needs more.
        CacheConfigError: the machine has not so much free memory.

    Example:
        >>> print(budget(Table(num_nodes=1000, row_bytes=512), ratio=0.1, capacity_bytes=None, free=10**9))
        100 rows, 53.9 KiB with their index: ratio=0.1 of 1000 rows
    """
    free = free_bytes() if free is None else free
    limits: list[tuple[int, str]] = []
    if ratio is not None:
        ratio = float(ratio)  # NumPy's numbers show themselves otherwise
        # 0.29 is 0.28999... in binary: its digits are what was asked for.
        limits.append((math.floor(Fraction(repr(ratio)) * table.num_nodes), f"ratio={ratio} of {table.num_nodes} rows"))
    if capacity_bytes is not None:
        limits.append((table.rows_in(capacity_bytes), f"capacity_bytes={capacity_bytes}"))
    if not limits and left is not None:
        limits.append((table.rows_in(left.num_bytes), f"training leaves {in_units(left.num_bytes)} ({left.reason})"))
    elif not limits:
        reason = f"{AUTO_SHARE:.0%} of {in_units(free)} of free memory"
        limits.append((table.rows_in(int(free * AUTO_SHARE)), reason))
    num_rows, reason = min(limits)
    if num_rows == table.num_nodes:
        reason += ", which is all rows"
    # A limit of zero is how one asks for no cache; any other that leaves no row is a mistake.
    if num_rows == 0 and table.num_nodes and ratio != 0 and capacity_bytes != 0:
        raise CacheTooSmallError(
            f"{reason} is too little for a single row: the index takes {in_units(table.index_bytes)}, and a row "
            f"{in_units(table.bytes_per_row)}. Give the cache more memory, or use none."
        )
    needed = table.index_bytes + num_rows * table.bytes_per_row
    if num_rows and needed > free:
        raise CacheConfigError(
            f"the cache would take {in_units(needed)} ({reason}), but the machine has {in_units(free)} of free memory. "
            f"Lower ratio or capacity_bytes, or leave both out."
        )
    return Budget(num_rows, needed if num_rows else 0, reason)


def rows_worth_it(visits: np.ndarray, all_visits: float) -> int:
    """Computes how many rows are worth their memory: fewer, once as many more as a tenth of the memory has room for
    would save less than a hundredth of the misses.

    Args:
        visits: of the rows that there is memory for, falling.
        all_visits: of all rows of the table.

    Example:
        >>> rows_worth_it(np.array([50.0, 30.0, 15.0] + 97 * [0.0005]), 96.0)
        3
    """
    misses = all_visits - np.concatenate([[0.0], np.cumsum(visits[:-1], dtype=np.float64)])
    too_little = np.flatnonzero(visits * (_A_BIT_MORE * len(visits)) <= _TOO_LITTLE * np.maximum(misses, 0))
    return int(too_little[0]) if len(too_little) else len(visits)

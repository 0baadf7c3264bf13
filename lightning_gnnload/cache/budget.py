"""How many rows a cache may hold, and why: never more than the settings allow, never none without an error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lightning_gnnload.errors import CacheConfigError, CacheTooSmallError
from lightning_gnnload.host.memory import free_bytes, in_units

AUTO_SHARE = 0.25
"""Share of the free memory to take before training shows its need: slots and the page cache may take as much each, and
the rest is a reserve."""
_A_BIT_MORE, _TOO_LITTLE = 0.1, 0.01  # shares of the memory, and of the misses that it would save
LOCATION_BYTES = 4  # int32: shard and slot


@dataclass(frozen=True)
class Table:
    """The size of the table to cache, and how often its rows are copied on this machine."""

    num_nodes: int
    row_bytes: int
    slot_bytes: int = 0  # that a cached row takes beside itself
    copies: float = 1  # of a cached row, on average: one, one a rank, or one a rank of some rows alone
    indices: int | None = None  # location tables; None: as many as copies

    @property
    def index_bytes(self) -> int:
        """Bytes of all location tables."""
        return (int(self.copies) if self.indices is None else self.indices) * self.num_nodes * LOCATION_BYTES

    @property
    def bytes_per_row(self) -> int:
        """Bytes of all copies of a cached row."""
        return math.ceil(self.copies * (self.row_bytes + self.slot_bytes))

    def rows_in(self, capacity_bytes: int) -> int:
        """Returns how many rows fit into so many bytes, location tables included."""
        return min(max(capacity_bytes - self.index_bytes, 0) // max(self.bytes_per_row, 1), self.num_nodes)


@dataclass(frozen=True)
class Budget:
    """The memory that a cache may take: rows, their bytes with the location tables in all copies, and the reason."""

    num_rows: int
    num_bytes: int
    reason: str

    def __str__(self) -> str:
        if not self.num_rows:
            return f"none, as {self.reason}"
        return f"{self.num_rows} rows, {in_units(self.num_bytes)} with their index: {self.reason}"


@dataclass(frozen=True)
class Allowance:
    """The memory that training leaves to caches on each of ``num_devices`` devices, for all ranks there, and the
    reason."""

    num_bytes: int
    num_devices: int
    reason: str

    def __str__(self) -> str:
        per_device = "" if self.num_devices == 1 else f" on each of {self.num_devices} devices"
        return f"{in_units(self.num_bytes)}{per_device}: {self.reason}"


def budget(
    table: Table,
    ratio: float | None,
    capacity_bytes: int | None,
    free: int | None = None,
    allowance: Allowance | None = None,
) -> Budget:
    """Computes how many rows the settings allow, never more than the table has.

    Of two limits the lower one holds. Without any, the cache gets the ``allowance`` that training leaves, or a quarter
    of the ``free`` memory as long as that is unknown. ``capacity_bytes`` covers rows and location tables of all copies.

    Raises CacheTooSmallError where memory is granted but no row fits, CacheConfigError where the machine has less free
    memory.

    Example:
        >>> print(budget(Table(num_nodes=1000, row_bytes=512), ratio=0.1, capacity_bytes=None, free=10**9))
        100 rows, 53.9 KiB with their index: ratio=0.1 of 1000 rows
    """
    free = free_bytes() if free is None else free
    num_rows, reason = min(_limits(table, ratio, capacity_bytes, free, allowance))
    if num_rows == table.num_nodes:
        reason += ", which is all rows"
    # A limit of zero is how one asks for no cache; any other that leaves no row is a mistake.
    if num_rows == 0 and table.num_nodes and ratio != 0 and capacity_bytes != 0:
        raise CacheTooSmallError(
            f"{reason} is too little for a single row: the index takes {in_units(table.index_bytes)}, and a row "
            f"{in_units(table.bytes_per_row)}. Give the cache more memory, or use none."
        )
    # Checked here, as a cache that does not fit would otherwise be ended by the system's out-of-memory killer while it
    # is filled.
    needed = table.index_bytes + num_rows * table.bytes_per_row
    if num_rows and needed > free:
        raise CacheConfigError(
            f"the cache would take {in_units(needed)} ({reason}), but the machine has {in_units(free)} of free memory. "
            f"Lower ratio or capacity_bytes, or leave both out."
        )
    return Budget(num_rows, needed if num_rows else 0, reason)


def _limits(
    table: Table, ratio: float | None, capacity_bytes: int | None, free: int, allowance: Allowance | None
) -> list[tuple[int, str]]:
    """Returns the numbers of rows that limit the cache, each with its reason."""
    limits: list[tuple[int, str]] = []
    if ratio is not None:
        ratio = float(ratio)  # repr() of NumPy's numbers names their type
        # 0.29 is 0.28999... in binary; its decimal digits are what the user meant.
        limits.append((math.floor(Fraction(repr(ratio)) * table.num_nodes), f"ratio={ratio} of {table.num_nodes} rows"))
    if capacity_bytes is not None:
        limits.append((table.rows_in(capacity_bytes), f"capacity_bytes={capacity_bytes}"))
    if limits:
        return limits
    if allowance is not None:
        num_bytes = allowance.num_bytes
        return [(table.rows_in(num_bytes), f"training leaves {in_units(num_bytes)} ({allowance.reason})")]
    reason = f"{AUTO_SHARE:.0%} of {in_units(free)} of free memory"
    return [(table.rows_in(int(free * AUTO_SHARE)), reason)]


def rows_worth_it(visits: np.ndarray, all_visits: float) -> int:
    """Computes how many rows are worth their memory: the first at which a tenth more memory would save less than a
    hundredth of the misses. ``visits`` are those of the rows that fit, descending; ``all_visits`` those of the whole
    table.

    Example:
        >>> rows_worth_it(np.array([50.0, 30.0, 15.0] + 97 * [0.0005]), 96.0)
        3
    """
    # Misses before each row is cached, so that a row is judged by what the rows ahead of it leave to be saved.
    misses = all_visits - np.concatenate([[0.0], np.cumsum(visits[:-1], dtype=np.float64)])
    too_little = np.flatnonzero(visits * (_A_BIT_MORE * len(visits)) <= _TOO_LITTLE * np.maximum(misses, 0))
    return int(too_little[0]) if len(too_little) else len(visits)

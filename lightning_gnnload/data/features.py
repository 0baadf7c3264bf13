"""FeatureStore: where all feature rows live."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from lightning_gnnload import ops
from lightning_gnnload.data.arrays import as_rows
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.scratch import scratch_rows
from lightning_gnnload.errors import GraphDataError


class TierReads(NamedTuple):
    """Counts the rows and bytes that one gather took from one tier.

    Attributes:
        tier: ``"memory"``, ``"disk"``, ``"cache"`` and so on; a name comes once in a gather.
        rows: rows that it gave.
        num_bytes: bytes read there, which for a disk are those of whole sectors.
    """

    tier: str
    rows: int
    num_bytes: int


Reads = tuple[TierReads, ...]
"""Of all tiers, nearest first; the rows sum to the number of ids."""


def summed_reads(gathers: Iterable[Reads]) -> Reads:
    """Sums reads by tier, in the order of the gather that has read from most tiers.

    Example:
        >>> summed_reads([(TierReads("disk", 3, 12),), (TierReads("cache", 5, 20), TierReads("disk", 1, 4))])
        (TierReads(tier='cache', rows=5, num_bytes=20), TierReads(tier='disk', rows=4, num_bytes=16))
    """
    sums: dict[str, TierReads] = {}
    for reads in sorted(gathers, key=len, reverse=True):
        for tier, rows, num_bytes in reads:
            _, rows_before, bytes_before = sums.get(tier, (tier, 0, 0))
            sums[tier] = TierReads(tier, rows_before + rows, bytes_before + num_bytes)
    return tuple(sums.values())


class FeatureStore(ABC):
    """Holds a table of feature rows, one a node, from which mini-batches gather theirs. Many threads gather at once.

    Every tier is one: a table in memory or on disk, and a cache, which stands in front of another store and gives
    the same rows. A store of one's own needs :attr:`shape`, :attr:`dtype` and :meth:`gather`.

    Shapes: N graph nodes, F feature width, B requested ids.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """``(N, F)``."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row in a mini-batch: ``(F,)``, unless the rows were given with another one of F numbers:
        ``()`` for a column ``[N]``, ``(T, C)`` for a table ``[N, T, C]``."""
        return self.shape[1:]

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The dtype of the rows, as :meth:`gather` writes them."""

    @abstractmethod
    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads | None:
        """Writes row ``ids[b]`` to ``out[b]``.

        Args:
            ids: int64 ``[B]`` on the CPU.
            out: ``[B, F]`` of :attr:`dtype`, contiguous, on the CPU.

        Returns:
            Where the rows came from; None from a store that does not count.

        Raises:
            SeedError: an id is not in ``[0, N)``; nothing outside the table is read.
        """

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor, out: torch.Tensor) -> Reads | None:
        """Writes row ``ids[m]`` to ``out[positions[m]]`` and leaves the other rows alone: what a cache in front asks.

        Args:
            ids: int64 ``[M]`` on the CPU.
            positions: int64 ``[M]``, distinct, in ``[0, B)``.
            out: ``[B, F]`` of :attr:`dtype`, contiguous, on the CPU.

        Raises:
            SeedError: as :meth:`gather`.
        """
        # A store of a user's own need not know positions: its rows are gathered apart and then spread over ``out``.
        with scratch_rows(len(ids), self.shape[1], self.dtype) as rows:
            reads = self.gather(ids, rows)
            gather(rows, torch.arange(len(ids)), out, positions)
        return reads

    def open(self) -> None:  # noqa: B027  most stores are ready as they are
        """Makes it ready to gather, which may take long. The first gather does so otherwise."""

    def announce(self, request: BatchRequest) -> None:  # noqa: B027  most stores have nothing to do here
        """Tells that this thread will next gather for that mini-batch. Stores that look ahead override it."""

    def close(self) -> None:  # noqa: B027  memory goes by itself
        """Gives back what the store holds besides memory: files, threads, sockets. It gathers no more."""

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize


class MemoryFeatureStore(FeatureStore):
    """Keeps feature rows in this process's address space: a tensor, an array, or a shared memory map.

    Rows are not padded to whole cache lines: that saves up to 3 % of a gather's time for 12 to 28 % more memory
    (rows of 400 and 100 bytes, at random).

    Args:
        rows: ``[N, F]`` of any numeric dtype, bfloat16 included; not copied when it is contiguous. A column ``[N]``, or
            a table of more dimensions, keeps its :attr:`row_shape` in mini-batches.

    Attributes:
        rows: the same memory as ``[N, F]``.

    Example:
        >>> store = MemoryFeatureStore(torch.arange(6.0).view(3, 2))
        >>> out = torch.empty(2, 2)
        >>> store.gather(torch.tensor([2, 0]), out)
        (TierReads(tier='memory', rows=2, num_bytes=16),)
        >>> out.tolist()
        [[4.0, 5.0], [0.0, 1.0]]
    """

    def __init__(self, rows: Any) -> None:
        given = as_rows(rows, what="features")
        if given.ndim == 0:
            raise GraphDataError("features must be [N, F], but a single number was given.")
        self.rows = given.view(len(given), math.prod(given.shape[1:]))
        self._row_shape = tuple(given.shape[1:])
        self._row_bytes = self.rows.shape[1] * self.rows.element_size()

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[0], self.rows.shape[1]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self._row_shape

    @property
    def dtype(self) -> torch.dtype:
        return self.rows.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads:
        return self.gather_at(ids, None, out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        gather(self.rows, ids, out, positions)
        return (TierReads("memory", len(ids), len(ids) * self._row_bytes),)

    def __repr__(self) -> str:
        return f"MemoryFeatureStore(shape={self.shape}, dtype={self.dtype})"


def gather(table: torch.Tensor, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor | None = None) -> None:
    """Sets ``out[b] = table[ids[b]]`` for a contiguous table of any dtype, with one row or one number a node; or, with
    ``positions``, ``out[positions[b]] = table[ids[b]]``."""
    ops.gather_rows(bytes_of(table), ids.numpy(), bytes_of(out), None if positions is None else positions.numpy())


def bytes_of(rows: torch.Tensor) -> Any:
    """Views rows as bytes, uint8 ``[B, row_bytes]``: NumPy has no bfloat16, and a copy of rows needs no arithmetic."""
    row_bytes = math.prod(rows.shape[1:]) * rows.element_size()
    if rows.numel() == 0:  # view() to another dtype refuses a width of zero
        return torch.empty(rows.shape[0], row_bytes, dtype=torch.uint8).numpy()
    # By way of one dimension: of a width of one, any stride counts as contiguous, but not to view() as another dtype.
    return rows.view(-1).view(torch.uint8).view(rows.shape[0], row_bytes).numpy()

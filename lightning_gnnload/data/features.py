"""FeatureStore: a table of feature rows, in memory, on disk, or behind a cache."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from lightning_gnnload import ops
from lightning_gnnload.data.arrays import as_rows
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.host.huge_pages import move_to_huge_pages
from lightning_gnnload.host.pages import scratch_rows


class TierReads(NamedTuple):
    """Counts the rows and bytes that one gather read from one tier."""

    tier: str  # "memory", "disk", "cache" and so on; a name comes once in a gather
    rows: int
    num_bytes: int  # of a disk, those of whole sectors


Reads = tuple[TierReads, ...]
"""Reads by tier, nearest first; the rows sum to the number of ids."""


def summed_reads(gathers: Iterable[Reads]) -> Reads:
    """Sums reads by tier, in the order of the gather that has read from most tiers.

    Example:
        >>> summed_reads([(TierReads("disk", 3, 12),), (TierReads("cache", 5, 20), TierReads("disk", 1, 4))])
        (TierReads(tier='cache', rows=5, num_bytes=20), TierReads(tier='disk', rows=4, num_bytes=16))
    """
    sums: dict[str, TierReads] = {}
    # The gather that read from most tiers has them all, nearest first; others leave some out.
    for reads in sorted(gathers, key=len, reverse=True):
        for tier, rows, num_bytes in reads:
            _, rows_before, bytes_before = sums.get(tier, (tier, 0, 0))
            sums[tier] = TierReads(tier, rows_before + rows, bytes_before + num_bytes)
    return tuple(sums.values())


class FeatureStore(ABC):
    """A table of feature rows ``[N, F]``, one a node, from which mini-batches gather theirs.

    Tables in memory and on disk are stores, and so is a cache in front of another store. Write one of your own with
    :attr:`shape`, :attr:`dtype` and :meth:`gather`, which several threads call at once.

    Shapes: N graph nodes, F feature width, B requested ids.

    Example:
        >>> class Ones(FeatureStore):
        ...     shape, dtype = (100, 2), torch.float32
        ...     def gather(self, ids, out):
        ...         out.fill_(1)
        >>> store, out = Ones(), torch.empty(3, 2)
        >>> store.gather(torch.tensor([5, 7, 9]), out)
        >>> out.sum().item(), store.row_bytes
        (6.0, 8)
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
        """Writes row ``ids[m]`` to ``out[positions[m]]`` and leaves the other rows alone, for misses of a cache.

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
        """Prepares to gather, which may take long; otherwise the first gather does."""

    def announce(self, request: BatchRequest) -> None:  # noqa: B027  most stores have nothing to do here
        """Says for which mini-batch this thread gathers next. Stores that read ahead override it."""

    def close(self) -> None:  # noqa: B027  memory goes by itself
        """Closes files, threads and sockets of the store, which gathers no more."""

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize


class MemoryFeatureStore(FeatureStore):
    """Keeps feature rows in this process's address space: a tensor, an array, or a shared memory map.

    Rows are not padded to whole cache lines: that saves up to 3 % of a gather's time for 12 to 28 % more memory
    (rows of 400 and 100 bytes, at random). A large tensor is moved to 2 MB pages where it lies, when it is opened or
    first gathered from (:mod:`.huge_pages`).

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
        table = as_rows(rows, name="features")
        if table.ndim == 0:
            raise GraphDataError("features must be [N, F], but a single number was given.")
        self.rows = table.view(len(table), math.prod(table.shape[1:]))
        self._row_shape = tuple(table.shape[1:])
        self._row_bytes = self.rows.shape[1] * self.rows.element_size()
        self._is_open = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[0], self.rows.shape[1]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self._row_shape

    @property
    def dtype(self) -> torch.dtype:
        return self.rows.dtype

    def open(self) -> None:
        if not self._is_open:
            self._is_open = True  # before: threads that gather meanwhile need not wait
            move_to_huge_pages(byte_rows(self.rows))

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads:
        return self.gather_at(ids, None, out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        if not self._is_open:
            self.open()
        gather(self.rows, ids, out, positions)
        return (TierReads("memory", len(ids), len(ids) * self._row_bytes),)

    def __repr__(self) -> str:
        return f"MemoryFeatureStore(shape={self.shape}, dtype={self.dtype})"


def gather(table: torch.Tensor, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor | None = None) -> None:
    """Sets ``out[b] = table[ids[b]]``, or ``out[positions[b]]``, for a contiguous table of any dtype and width."""
    ops.gather_rows(byte_rows(table), ids.numpy(), byte_rows(out), None if positions is None else positions.numpy())


def byte_rows(rows: torch.Tensor) -> Any:
    """Views rows as a NumPy array of bytes, uint8 ``[B, row_bytes]``, without a copy."""
    # Bytes, because NumPy has no bfloat16, and copying rows needs no arithmetic.
    row_bytes = math.prod(rows.shape[1:]) * rows.element_size()
    if rows.numel() == 0:  # view() to another dtype refuses a width of zero
        return torch.empty(rows.shape[0], row_bytes, dtype=torch.uint8).numpy()
    # By way of one dimension: of a width of one, any stride counts as contiguous, but not to view() as another dtype.
    flat = rows.view(-1)
    if flat.numel() == 1:  # whose stride may be anything, such as 0
        flat = flat.as_strided((1,), (1,))
    return flat.view(torch.uint8).view(rows.shape[0], row_bytes).numpy()

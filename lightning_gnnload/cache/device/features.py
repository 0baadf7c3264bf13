"""DeviceFeatures: feature rows gathered on a device, wherever they lie.

Shapes: N graph nodes, B requested ids, F feature width.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.device.missed import MissedRows
from lightning_gnnload.data.features import FeatureStore, Reads, TierReads
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ops.cuda.device import Device, Event, Mapped
from lightning_gnnload.ops.cuda.dynamic_cache import DynamicCache
from lightning_gnnload.ops.cuda.gather import gather_rows, raise_error
from lightning_gnnload.ops.cuda.tiers import TieredTable, gather_tiered


class DeviceFeatures(ABC):
    """A table whose rows a device gathers, by work in the current stream: the same rows as the store's. Thread-safe.

    Nothing waits for the device, but where a subclass says so. What kernels find wrong is told later, by :meth:`check`
    and :meth:`reads`; the rows concerned are zeros meanwhile.

    Args:
        device: that gathers.
        shape: ``(N, F)``.
        dtype: of the rows.
    """

    def __init__(self, device: Device, shape: tuple[int, int], dtype: torch.dtype) -> None:
        self.device, self.shape, self.dtype = device, shape, dtype
        # The error, rows of each shard, rows of none. Kernels of all streams add to them.
        self._notes = device.zeros(2 + ops.MAX_SHARDS, torch.int64)
        self._error, self._taken = self._notes[:1], self._notes[1:]
        self._told: dict[str, TierReads] = {}
        self._telling = threading.Lock()
        self._ready = device.record()

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize

    def gather(self, ids: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Row ``ids[b]`` as row ``b``.

        Args:
            ids: int64 ``[B]``, on the device.
            out: ``[B, F]``, on the device, contiguous; None for new memory.

        Returns:
            ``out``.

        Raises:
            GnnLoadError: ``out`` has another shape or dtype.
            DeviceMemoryError: there is no memory for it.
        """
        shape = (len(ids), self.shape[1])
        if out is None:
            out = self.device.empty(shape[0] * shape[1], self.dtype).view(shape)
        elif out.shape != shape or out.dtype != self.dtype or not out.is_contiguous():
            raise GnnLoadError(
                f"out is {out.dtype} of shape {list(out.shape)}, but contiguous {self.dtype} of shape {list(shape)} is "
                f"needed."
            )
        if out.numel():
            self._ready.wait()  # whoever opened it did so on another stream
            self._gather(ids, out.view(torch.uint8))
        return out

    def reads(self) -> Reads:
        """What was read since the last call, from where; of batches in the making, perhaps the next time. Waits for the
        current stream: not for every batch.

        Raises:
            SeedError, CacheShareError: as :meth:`check`.
        """
        taken = self._read_notes()[1:]
        with self._telling:
            before, now = self._told, {read.tier: read for read in self._reads(taken)}
            self._told = now
        nothing = TierReads("", 0, 0)
        return tuple(
            TierReads(tier, rows - before.get(tier, nothing).rows, num_bytes - before.get(tier, nothing).num_bytes)
            for tier, rows, num_bytes in now.values()
        )

    def check(self) -> None:
        """Raises what a gather before this found wrong. Waits for the current stream.

        Raises:
            SeedError: an id was not in ``[0, N)``.
            CacheShareError: a table of locations named a slot that there is not.
        """
        self._read_notes()

    def close(self) -> None:
        """Waits until the device has done all it was given, and gives back what it holds. No gather may follow."""
        if self.device.torch_device.type == "cuda":
            with suppress(RuntimeError):  # a device that failed says so where it is used
                torch.cuda.synchronize(self.device.torch_device)  # streams of all threads may read it

    @abstractmethod
    def _gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        """Of one row at least, to uint8 ``[B, row_bytes]``."""

    @abstractmethod
    def _reads(self, taken: np.ndarray) -> Reads:
        """Since the beginning, where so many rows are of each shard, and of none."""

    def _from(self, tier: str, rows: int) -> TierReads:
        return TierReads(tier, rows, rows * self.row_bytes)

    def _read_notes(self) -> np.ndarray:
        self._ready.wait()
        notes = self.device.read(self._notes)
        raise_error(int(notes[0]), self.shape[0])
        return notes


class DeviceTable(DeviceFeatures):
    """All rows in one place: on the device, or in the host's memory, which it reads in place.

    Args:
        device: that gathers.
        rows: ``[N, F]``, on the device, or mapped, in bytes.
        shape: ``(N, F)``.
        dtype: of the rows.
        tier: what :class:`.TierReads` calls it.
    """

    def __init__(
        self, device: Device, rows: torch.Tensor | Mapped, shape: tuple[int, int], dtype: torch.dtype, tier: str
    ) -> None:
        super().__init__(device, shape, dtype)
        self.tier = tier
        self._rows = rows if isinstance(rows, Mapped) or not rows.numel() else rows.view(torch.uint8)
        self._counting = threading.Lock()
        self._num_read = 0

    def _gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        gather_rows(self.device, self._rows, ids, out, self._error)
        with self._counting:
            self._num_read += len(ids)

    def _reads(self, taken: np.ndarray) -> Reads:
        return (self._from(self.tier, self._num_read),)

    def __repr__(self) -> str:
        return f"DeviceTable(shape={self.shape}, dtype={self.dtype}, tier={self.tier!r})"


class CachedFeatures(DeviceFeatures):
    """Rows of which caches on devices hold a part, and the host's memory or a store all.

    Where kernels cannot read the store's memory, ``gather`` waits for the ids that are missed, once a batch.

    Args:
        device: that gathers.
        store: has all rows.
        backing: its rows, mapped, in bytes; None: what is missed is asked of the store.
        tier: what :class:`.TierReads` calls reads from the device's own cache.
    """

    def __init__(self, device: Device, store: FeatureStore, backing: Mapped | None, tier: str) -> None:
        super().__init__(device, store.shape, store.dtype)
        self.store, self.backing, self.tier = store, backing, tier
        self._missed = MissedRows(device, store, self._error) if backing is None else None

    def _gather_from(self, table: TieredTable, ids: torch.Tensor, out: torch.Tensor) -> None:
        def gather() -> None:
            gather_tiered(self.device, table, ids, out, self._taken, self._error)

        if self._missed is None:
            gather()
        else:
            self._missed.fetch(table.location, ids, out, meanwhile=gather)

    def _behind(self, taken: np.ndarray) -> Reads:
        return (self._from("memory", int(taken[-1])),) if self._missed is None else self._missed.reads()


class Shards(Protocol):
    """Rows in the memory of devices, where this one can read them.

    Attributes:
        addresses: of each shard's first row.
        num_rows: of each shard.
        own: the shard that lies on this device; -1: none.
    """

    addresses: list[int]
    num_rows: list[int]
    own: int

    def close(self) -> None:
        """Gives the memory back."""


class StaticFeatures(CachedFeatures):
    """Hot rows in shards, on this device and on those that it reaches.

    Args:
        device: that gathers.
        store: has all rows.
        location: int32 ``[N]``, on the device: ``shard << ops.SLOT_BITS | slot``; negative: no shard holds the row.
        shards: that hold the hot rows; closed with this.
        backing: the store's rows, mapped, in bytes; None: what is missed is asked of the store.
        tier: what :class:`.TierReads` calls reads from the own shard; those of others are ``"<tier> of peers"``.

    Source: GNNLab (EuroSys'22), section 6.1; shards over devices: DSP (PPoPP'23), section 3.1.
    """

    def __init__(
        self,
        device: Device,
        store: FeatureStore,
        location: torch.Tensor,
        shards: Shards,
        backing: Mapped | None = None,
        tier: str = "cache",
    ) -> None:
        self._table = TieredTable.of(device, location, shards.addresses, shards.num_rows, store.row_bytes, backing)
        super().__init__(device, store, backing, tier)
        self._shards = shards

    def close(self) -> None:
        super().close()
        self._shards.close()

    def _gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        self._gather_from(self._table, ids, out)

    def _reads(self, taken: np.ndarray) -> Reads:
        hits, own = taken[: len(self._shards.num_rows)], self._shards.own
        from_own = int(hits[own]) if own >= 0 else 0
        reads = [self._from(self.tier, from_own)] if len(hits) else []
        if len(hits) > (own >= 0):
            reads.append(self._from(f"{self.tier} of peers", int(hits.sum()) - from_own))
        return (*reads, *self._behind(taken))

    def __repr__(self) -> str:
        num_rows = self._shards.num_rows
        return f"StaticFeatures({sum(num_rows)} of {self.shape[0]} rows in {len(num_rows)} shards)"


class DynamicFeatures(CachedFeatures):
    """Rows of the nodes that were asked for last: whoever is missed is admitted, and who came first goes. Batches take
    turns, on whatever stream.

    Args:
        device: that gathers.
        store: has all rows, of one byte at least.
        num_slots: rows that there is room for.
        backing: the store's rows, mapped, in bytes; None: what is missed is asked of the store.
        tier: what :class:`.TierReads` calls reads from the cache.

    Raises:
        DeviceMemoryError: the device has no such memory.

    Source: BGL (NSDI'23), sections 3.2.1 and 3.2.3.
    """

    def __init__(
        self, device: Device, store: FeatureStore, num_slots: int, backing: Mapped | None = None, tier: str = "cache"
    ) -> None:
        self._cache = DynamicCache(device, store.shape[0], num_slots, store.row_bytes)
        self._table = replace(self._cache.table, backing=backing)
        super().__init__(device, store, backing, tier)
        self._turn = threading.Lock()
        self._last: Event | None = None

    def _gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        with self._turn:
            if self._last is not None:
                self._last.wait()
            self._gather_from(self._table, ids, out)
            self._cache.admit(ids, out)
            self._last = self.device.record()

    def _reads(self, taken: np.ndarray) -> Reads:
        return (self._from(self.tier, int(taken[0])), *self._behind(taken))

    def __repr__(self) -> str:
        return f"DynamicFeatures(fifo, {self._cache.num_slots} of {self.shape[0]} rows)"

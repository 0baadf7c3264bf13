"""Feature tables of which a device caches a part, and the host has the rest.

Shapes: N graph nodes, B requested ids, F feature width.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from lightning_gnnload.cache.device.features import DeviceFeatures
from lightning_gnnload.cache.device.shards import Shards
from lightning_gnnload.cache.static import as_rows_of
from lightning_gnnload.data.features import FeatureStore, Reads, TierReads
from lightning_gnnload.host.pages import private_bytes
from lightning_gnnload.ops.cuda.launch.device import Device, Event, Mapped
from lightning_gnnload.ops.cuda.tables.bus_order import AS_THEY_COME, BusOrder
from lightning_gnnload.ops.cuda.tables.dynamic_cache import EvictingSlots
from lightning_gnnload.ops.cuda.tables.gather import gather_rows
from lightning_gnnload.ops.cuda.tables.rows import AS_BYTES, RowCodes
from lightning_gnnload.ops.cuda.tables.tiers import MissCounts, TieredTable, gather_tiered, list_missed, order_missed


class CachedFeatures(DeviceFeatures):
    """A feature table of which device caches hold a part, and the host's memory or a store all rows.

    ``backing`` has the store's rows in bytes, mapped for kernels to read. None asks the store for what is missed: then
    ``gather`` waits, once a batch, for the ids that are missed. Reads from the device's own cache count as ``tier``.
    """

    def __init__(self, device: Device, store: FeatureStore, backing: Mapped | None, tier: str) -> None:
        super().__init__(device, store.shape, store.dtype)
        self.store, self.backing, self.tier = store, backing, tier
        self._missed = MissedRows(device, store, self._error) if backing is None else None
        self._seen = MissCounts(device) if backing is not None else None

    def _gather_from(self, table: TieredTable, ids: torch.Tensor, out: torch.Tensor, codes: RowCodes) -> None:
        def gather(far: BusOrder = AS_THEY_COME, counts_address: int = 0) -> None:
            gather_tiered(
                self.device,
                table,
                ids,
                out,
                self._counts,
                self._error,
                far,
                codes=codes,
                counts_address=counts_address,
            )

        if self._missed is not None:
            self._missed.fetch(table.location, ids, out, codes, meanwhile=gather)
        elif self._seen is not None:
            few = self._seen.expects_few(len(ids))
            far = AS_THEY_COME if few else order_missed(self.device, table, ids)
            gather(far, self._seen.address)

    def _from_shards(self, counts: np.ndarray, num_shards: int, own_shard: int) -> Reads:
        """Returns the reads of a cache in shards, of which this rank has filled one, -1: none; and those behind."""
        hits = counts[:num_shards]
        from_own = int(hits[own_shard]) if own_shard >= 0 else 0
        reads = [self._from(self.tier, from_own)] if num_shards else []
        if num_shards > (own_shard >= 0):
            reads.append(self._from(f"{self.tier} of peers", int(hits.sum()) - from_own))
        return (*reads, *self._behind(counts))

    def _behind(self, counts: np.ndarray) -> Reads:
        return (self._from("memory", int(counts[-1])),) if self._missed is None else self._missed.reads()


class StaticFeatures(CachedFeatures):
    """A static cache in the memory of this device and of the devices that it can read.

    ``location`` is int32 ``[N]`` on the device, ``shard << ops.SLOT_BITS | slot``, negative where no shard has the row.
    ``shards`` are closed with this. Reads from other ranks' shards count as ``"<tier> of peers"``.

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
        # Before super(), which records the event that gathers of other streams wait for.
        self._table = TieredTable.of(device, location, shards.addresses, shards.num_rows, store.row_bytes, backing)
        super().__init__(device, store, backing, tier)
        self._shards = shards

    def close(self) -> None:
        super().close()  # first, as it waits for kernels that may still read the shards
        self._shards.close()

    def _gather(self, ids: torch.Tensor, out: torch.Tensor, codes: RowCodes) -> None:
        self._gather_from(self._table, ids, out, codes)

    def _reads(self, counts: np.ndarray) -> Reads:
        return self._from_shards(counts, len(self._shards.num_rows), self._shards.own_shard)

    def __repr__(self) -> str:
        num_rows = self._shards.num_rows
        return f"StaticFeatures({sum(num_rows)} of {self.shape[0]} rows in {len(num_rows)} shards)"


class EvictingFeatures(CachedFeatures):
    """A cache that admits every row it misses and evicts another; batches take turns, on whatever stream. A subclass
    defines :meth:`_take_turn`."""

    def __init__(self, device: Device, store: FeatureStore, backing: Mapped | None, tier: str) -> None:
        super().__init__(device, store, backing, tier)
        self._turn = threading.Lock()
        self._last: Event | None = None

    def _gather(self, ids: torch.Tensor, out: torch.Tensor, codes: RowCodes) -> None:
        # The cache admits rows as they are, so codes are decoded when it has them.
        rows = out if codes.dtype is None else self.device.empty(len(ids) * self.row_bytes, torch.uint8)
        rows = rows.view(len(ids), self.row_bytes)
        # The lock orders the launches, the event their streams: no slot may change while a gather reads it.
        with self._turn:
            if self._last is not None:
                self._last.wait()
            try:
                self._take_turn(ids, rows)
            finally:
                self._last = self.device.record()
        if codes.dtype is not None:
            gather_rows(self.device, rows, None, out, self._error, codes=codes)

    @abstractmethod
    def _take_turn(self, ids: torch.Tensor, rows: torch.Tensor) -> None:
        """Gathers into ``rows``, uint8 ``[B, row_bytes]``, and admits what was missed."""


class DynamicFeatures(EvictingFeatures):
    """A first-in-first-out cache in device memory. Rows have one byte at least. Raises DeviceMemoryError where the
    device has no such memory.

    Source: BGL (NSDI'23), sections 3.2.1 and 3.2.3.
    """

    def __init__(
        self, device: Device, store: FeatureStore, num_slots: int, backing: Mapped | None = None, tier: str = "cache"
    ) -> None:
        self._cache = EvictingSlots(device, store.shape[0], num_slots, store.row_bytes)
        self._table = replace(self._cache.table, backing=backing)
        super().__init__(device, store, backing, tier)

    def _take_turn(self, ids: torch.Tensor, rows: torch.Tensor) -> None:
        self._gather_from(self._table, ids, rows, AS_BYTES)
        self._cache.admit(ids, rows)

    def _reads(self, counts: np.ndarray) -> Reads:
        return (self._from(self.tier, int(counts[0])), *self._behind(counts))

    def __repr__(self) -> str:
        return f"DynamicFeatures(fifo, {self._cache.num_slots} of {self.shape[0]} rows)"


class MissedRows:
    """Fetches missed rows from a store on disk or of a user, into page-locked memory that the device reads; the host
    waits for the ids. Thread-safe as the store is. ``error`` is the device word in which kernels report errors.
    ``fetch`` raises DeviceMemoryError where the system lets no more memory be page-locked."""

    def __init__(self, device: Device, store: FeatureStore, error: torch.Tensor) -> None:
        self.device, self.store = device, store
        self._error = error
        self._local = threading.local()
        self._counting = threading.Lock()
        self._counts: dict[str, list[int]] = {}

    def fetch(
        self,
        location: torch.Tensor,
        ids: torch.Tensor,
        out: torch.Tensor,
        codes: RowCodes,
        meanwhile: Callable[[], None],
    ) -> None:
        """Copies row ``ids[b]`` of the store, decoded as ``codes`` say, to ``out[b]``, uint8 ``[B, row_bytes *
        codes.itemsize]`` on the device, where ``location[ids[b]]`` is negative; ``meanwhile`` launches what the device
        does while the store is read."""
        device, buffers = self.device, self._buffers()
        missed = buffers.ids(len(ids))
        # On the device, where the kernel that scatters the fetched rows reads them; the host needs the ids alone.
        positions = device.empty(len(ids), torch.int64)
        # Kernels write the ids to mapped memory, so the wait for their number is a wait for them as well.
        number = list_missed(device, location, ids, missed.address, positions)
        count = int(device.read(number)[0])
        meanwhile()  # only now: before the wait it would delay the ids
        if not count:
            return
        rows = buffers.rows(count)
        reads = self.store.gather(missed.tensor[:count], as_rows_of(self.store, rows.tensor[:count].numpy()))
        self._count(reads or (TierReads("store", count, count * self.store.row_bytes),))
        gather_rows(device, rows, None, out, self._error, positions[:count], codes)
        buffers.last_read = device.record()

    def reads(self) -> Reads:
        """Returns what the store has read so far."""
        with self._counting:
            return tuple(TierReads(tier, *counts) for tier, counts in self._counts.items())

    def _count(self, reads: Reads) -> None:
        with self._counting:
            for read in reads:
                counts = self._counts.setdefault(read.tier, [0, 0])
                counts[0] += read.rows
                counts[1] += read.num_bytes

    def _buffers(self) -> _Buffers:
        if not hasattr(self._local, "buffers"):
            self._local.buffers = _Buffers(self.device, self.store.row_bytes)
        return self._local.buffers


class _Buffers:
    """The page-locked buffers of one thread, on pages of their own, as other pages could be registered read-only."""

    def __init__(self, device: Device, row_bytes: int) -> None:
        self._device, self._row_bytes = device, row_bytes
        self._ids = self._rows = device.map_host(private_bytes(0))
        self.last_read: Event | None = None  # when the device has read the rows

    def ids(self, count: int) -> Mapped:
        """int64 ``[count]`` or longer."""
        if self._ids.tensor.nbytes < count * 8:  # a quarter more, as page-locking costs far more than memory
            self._ids = self._device.map_host(private_bytes((count * 5 // 4) * 8).view(np.int64))
        return self._ids

    def rows(self, count: int) -> Mapped:
        """uint8 ``[count, row_bytes]`` or longer, once the device has read what was there."""
        if self.last_read is not None:
            self.last_read.synchronize()
        if len(self._rows.tensor) < count:
            most = count * 5 // 4
            memory = private_bytes(most * self._row_bytes).reshape(most, self._row_bytes)
            self._rows = self._device.map_host(memory)
        return self._rows

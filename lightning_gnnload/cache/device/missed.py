"""MissedRows: what shards on devices lack, where kernels cannot read the table itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import torch

from lightning_gnnload.cache.static import as_rows_of
from lightning_gnnload.data.features import FeatureStore, Reads, TierReads
from lightning_gnnload.data.pages import private_bytes
from lightning_gnnload.ops.cuda.device import Device, Event, Mapped
from lightning_gnnload.ops.cuda.gather import gather_rows
from lightning_gnnload.ops.cuda.tiers import list_missed


class MissedRows:
    """Rows of a store on disk or of a user's own: asked for on the host, by the thread that gathers, and read by the
    device from page-locked memory. The host waits for the ids. Thread-safe, as the store is.

    Args:
        device: that they go to.
        store: has all rows.
        error: the word in which kernels tell what goes wrong.

    Raises:
        DeviceMemoryError: by ``fetch``: the system lets no more memory be page-locked.
    """

    def __init__(self, device: Device, store: FeatureStore, error: torch.Tensor) -> None:
        self.device, self.store = device, store
        self._error = error
        self._of_thread = threading.local()
        self._counting = threading.Lock()
        self._counts: dict[str, list[int]] = {}

    def fetch(
        self, location: torch.Tensor, ids: torch.Tensor, out: torch.Tensor, meanwhile: Callable[[], None]
    ) -> None:
        """Row ``ids[b]`` to ``out[b]`` where ``location[ids[b]]`` is negative.

        Args:
            location: int32 ``[N]``, on the device.
            ids: int64 ``[B]``, on the device.
            out: uint8 ``[B, row_bytes]``, likewise.
            meanwhile: launches what the device does while the store is asked.
        """
        device, buffers = self.device, self._buffers()
        missed = buffers.ids(len(ids))
        positions = device.empty(len(ids), torch.int64)
        number = list_missed(device, location, ids, missed.address, positions)
        count = int(device.read(number)[0])
        meanwhile()
        if not count:
            return
        rows = buffers.rows(count)
        reads = self.store.gather(missed.tensor[:count], as_rows_of(self.store, rows.tensor[:count].numpy()))
        self._count(reads or (TierReads("store", count, count * self.store.row_bytes),))
        gather_rows(device, rows, None, out, self._error, positions[:count])
        buffers.taken = device.record()

    def reads(self) -> Reads:
        """What the store gave so far."""
        with self._counting:
            return tuple(TierReads(tier, *counts) for tier, counts in self._counts.items())

    def _count(self, reads: Reads) -> None:
        with self._counting:
            for read in reads:
                counts = self._counts.setdefault(read.tier, [0, 0])
                counts[0] += read.rows
                counts[1] += read.num_bytes

    def _buffers(self) -> _Buffers:
        if not hasattr(self._of_thread, "buffers"):
            self._of_thread.buffers = _Buffers(self.device, self.store.row_bytes)
        return self._of_thread.buffers


class _Buffers:
    """Page-locked memory of one thread, on pages of its own: others could be registered for reading alone.

    Attributes:
        taken: when the device has read the rows that lie there.
    """

    def __init__(self, device: Device, row_bytes: int) -> None:
        self._device, self._row_bytes = device, row_bytes
        self._ids = self._rows = device.map_host(private_bytes(0))
        self.taken: Event | None = None

    def ids(self, count: int) -> Mapped:
        """int64 ``[count]`` or longer."""
        if self._ids.tensor.nbytes < count * 8:
            self._ids = self._device.map_host(private_bytes((count * 5 // 4) * 8).view(np.int64))
        return self._ids

    def rows(self, count: int) -> Mapped:
        """uint8 ``[count, row_bytes]`` or longer, once nobody reads what lies there."""
        if self.taken is not None:
            self.taken.synchronize()
        if len(self._rows.tensor) < count:
            most = count * 5 // 4
            memory = private_bytes(most * self._row_bytes).reshape(most, self._row_bytes)
            self._rows = self._device.map_host(memory)
        return self._rows

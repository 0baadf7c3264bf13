"""Tables whose rows a device gathers, for mini-batches that come to lie there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

import torch

from lightning_gnnload.data.features import FeatureStore, Reads, byte_rows, summed_reads

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.launch.device import Device


class DeviceTable(Protocol):
    """The interface of a table whose rows a device gathers; :class:`.DeviceFeatures` is one."""

    def gather(self, ids: torch.Tensor) -> torch.Tensor:
        """Gathers the rows ``ids``, ``[B]``, as ``[B, F]``, by work in the current stream."""

    def reads(self) -> Reads:
        """Returns what was read since the last call, by tier. The host may wait; raises what went wrong unnoticed."""

    def close(self) -> None:
        """Frees the table. No gather may be under way."""


class HostTable:
    """Gathers rows on the host, from any store, and copies them to a device. Thread-safe. The host waits for the ids
    once in each batch."""

    def __init__(self, store: FeatureStore, device: Device) -> None:
        self.store = store
        self.device = device
        self._telling = threading.Lock()
        self._reads: Reads = ()

    def gather(self, ids: torch.Tensor) -> torch.Tensor:
        """Gathers the rows ``ids`` (int64 ``[B]``, on the device) as ``[B, F]``. SeedError: an id is out of range."""
        rows = torch.empty((len(ids), self.store.shape[1]), dtype=self.store.dtype)
        if not rows.numel():
            return rows.to(self.device.torch_device)
        # Only the sum is guarded: threads may gather at the same time.
        reads = self.store.gather(torch.from_numpy(self.device.read(ids)), rows)
        with self._telling:
            self._reads = summed_reads([self._reads, reads or ()])
        return self.device.put(byte_rows(rows)).view(rows.dtype).view(rows.shape)

    def reads(self) -> Reads:
        """Returns what was read since the last call, by tier; nothing from a store that does not count."""
        with self._telling:
            reads, self._reads = self._reads, ()
        return reads

    def close(self) -> None:
        """Does nothing: the store stays open."""

"""What it takes to gather a row from a device's own memory, from that of others, and from behind a cache: measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.copies import ReadCosts
from lightning_gnnload.cache.device.linked_memory import LinkedMemory
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.errors import DeviceMemoryError
from lightning_gnnload.ops.cuda.launch.device import Device, Mapped
from lightning_gnnload.ops.cuda.launch.runtime import Runtime
from lightning_gnnload.ops.cuda.tables.gather import gather_rows
from lightning_gnnload.ops.cuda.tables.tiers import TieredTable, gather_tiered

_PROBE_BYTES = 64 << 20  # that a probe gathers: enough to outweigh a launch, beyond what fits into most caches
_PROBE_ROWS_A_PROCESSOR = 1024
_TURNS = 3  # of which the fastest counts: the first one loads kernels, and maps pages of other devices


def measured_costs(
    device: Device, peers: PeerGroup, runtime: Runtime, store: FeatureStore, backing: Mapped | None
) -> ReadCosts | None:
    """Measures what a row of the store takes, by the kernel that gathers from caches, in all ranks at the same time;
    the slowest rank counts, alike in all. None where devices do not read each other's memory, have no room for the
    probe, or where kernels cannot read the store: then rows are not copied at the expense of others.

    Raises CacheShareError where a rank failed or is gone.
    """
    row_bytes = store.row_bytes
    count = max(min(_PROBE_BYTES // max(row_bytes, 1), device.num_processors * _PROBE_ROWS_A_PROCESSOR), 1)
    memory = LinkedMemory(device, peers, runtime, "the probe of links")
    local_s = peers_s = behind_s = -1.0  # unknown
    try:
        memory.probe()
        try:
            count = memory.take(count * row_bytes) // row_bytes
            timer = _RowTimer(device, memory.shards.addresses, count, row_bytes)
            own_shard, num_shards = memory.shards.own_shard, len(memory.shards.addresses)
            local_s = timer.seconds_in(np.array([own_shard]))
            if num_shards > 1:
                peers_s = timer.seconds_in(np.delete(np.arange(num_shards), own_shard))
            if backing is not None:
                behind_s = timer.seconds_behind(backing)
        except DeviceMemoryError:
            pass  # the others learn it by the values below
        values = [value.fields for value in peers.all_gather({"local": local_s, "peers": peers_s, "behind": behind_s})]
    except BaseException as error:
        peers.abort(error)  # before close(), which waits for other ranks, which wait for this one
        memory.shards.close()
        raise
    memory.shards.close()
    local_s, peers_s, behind_s = (
        -1.0 if min(seconds) < 0 else max(seconds)
        for seconds in ([float(fields[name]) for fields in values] for name in ("local", "peers", "behind"))
    )
    costs = ReadCosts(local_s, peers_s, behind_s)
    return costs if min(local_s, peers_s, behind_s) >= 0 else None


class _RowTimer:
    """Gathers rows at random from shards of ``count`` rows, whatever is there, or from behind them."""

    def __init__(self, device: Device, addresses: list[int], count: int, row_bytes: int) -> None:
        self.device, self.addresses, self.count, self.row_bytes = device, addresses, count, row_bytes
        self.draw = np.random.default_rng(0)
        self.out = device.empty(count * row_bytes, torch.uint8).view(count, row_bytes)
        self.error, self.counts = device.zeros(1, torch.int64), device.zeros(ops.MAX_SHARDS + 1, torch.int64)

    def seconds_in(self, shards: np.ndarray) -> float:
        """Times a row of these shards, which are read in equal parts."""
        device, count = self.device, self.count
        locations = self.draw.choice(shards, count) << ops.SLOT_BITS | self.draw.integers(count, size=count)
        location, ids = device.put(locations.astype(np.int32)), device.put(np.arange(count))
        table = TieredTable.of(device, location, self.addresses, [count] * len(self.addresses), self.row_bytes)
        return self._seconds(lambda: gather_tiered(device, table, ids, self.out, self.counts, self.error))

    def seconds_behind(self, backing: Mapped) -> float:
        """Times a row of the table behind."""
        ids = self.device.put(self.draw.integers(len(backing.tensor), size=self.count))
        return self._seconds(lambda: gather_rows(self.device, backing, ids, self.out, self.error))

    def _seconds(self, gather: Callable[[], None]) -> float:
        fastest = math.inf
        for _ in range(_TURNS):
            self.device.record().synchronize()
            began = time.perf_counter()
            gather()
            self.device.record().synchronize()
            fastest = min(fastest, time.perf_counter() - began)
        return fastest / self.count

"""A cache that evicts, over the devices of all ranks of a machine."""

from __future__ import annotations

import logging

import numpy as np
import torch

from lightning_gnnload.cache.device.cached import EvictingFeatures
from lightning_gnnload.cache.device.linked_memory import LinkedMemory
from lightning_gnnload.cache.device.shards import Shards
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.data.features import FeatureStore, Reads
from lightning_gnnload.errors import CacheTooSmallError
from lightning_gnnload.host.memory import in_units
from lightning_gnnload.ops.cuda.launch.device import Device, Mapped
from lightning_gnnload.ops.cuda.launch.runtime import Runtime
from lightning_gnnload.ops.cuda.tables.partitioned_cache import PartitionedSlots, Parts
from lightning_gnnload.ops.cuda.tables.rows import AS_BYTES

_log = logging.getLogger(__name__)


class PartitionedFeatures(EvictingFeatures):
    """A first-in-first-out cache over the devices of several ranks, each of which holds the nodes whose id is its
    number modulo theirs; batches of a rank take turns, on whatever stream, and those of different ranks need not.

    ``memory`` has the memory of each rank, of ``num_slots`` rows (:class:`.PartitionedSlots`); it is closed with this.
    No other rank may gather before all have made theirs. Rows have one byte at least. Reads from other ranks count as
    ``"<tier> of peers"``.

    Source: BGL (NSDI'23), section 3.2.3.
    """

    def __init__(
        self,
        device: Device,
        store: FeatureStore,
        num_slots: int,
        memory: Shards,
        backing: Mapped | None = None,
        tier: str = "cache",
    ) -> None:
        num_nodes, row_bytes = store.shape[0], store.row_bytes
        self._slots = PartitionedSlots(
            device, num_nodes, num_slots, row_bytes, memory.addresses, memory.own_shard, backing
        )
        super().__init__(device, store, backing, tier)
        self._memory = memory

    def close(self) -> None:
        super().close()  # first, as it waits for kernels that may still read the memory
        self._memory.close()

    def _take_turn(self, ids: torch.Tensor, rows: torch.Tensor) -> None:
        self._slots.enter()
        try:
            self._slots.locate(ids)
            self._gather_from(self._slots.table, ids, rows, AS_BYTES)
            self._slots.admit(ids, rows)
        finally:  # a rank that stays inside would keep the others from admitting rows
            self._slots.leave()

    def _reads(self, counts: np.ndarray) -> Reads:
        return self._from_shards(counts, self._slots.num_ranks, self._slots.rank)

    def __repr__(self) -> str:
        slots = self._slots
        return f"PartitionedFeatures(fifo, {slots.num_ranks} times {slots.num_slots} of {self.shape[0]} rows)"


def open_partitioned(
    store: FeatureStore,
    num_rows: int,
    device: Device,
    peers: PeerGroup,
    runtime: Runtime,
    backing: Mapped | None = None,
    tier: str = "cache",
) -> PartitionedFeatures:
    """Opens a cache of ``num_rows`` over the devices of all ranks, or one for each group of those whose devices read
    each other's memory; ``num_rows``, ``store`` and ``tier`` are alike in all ranks, which open it together.

    Raises CacheTooSmallError for fewer rows than ranks, or none in some group, DeviceMemoryError where a device has no
    room, CacheShareError where a rank failed, is gone or has other rows.
    """
    num_nodes, row_bytes, count = store.shape[0], store.row_bytes, peers.membership.count
    if num_rows < count:
        raise CacheTooSmallError(
            f"{num_rows} rows are to be cached by {count} ranks, but each needs room for one. Give the cache more "
            f"memory, or share='replicated'."
        )
    memory = LinkedMemory(device, peers, runtime, "the feature cache")
    try:
        peers.agree({"shape": list(store.shape), "dtype": str(store.dtype), "rows": num_rows})
        memory.probe()
        num_bytes = memory.take(Parts.of(num_nodes, num_rows // count, row_bytes, count).num_bytes)
        # Fewer rows where groups are smaller, whose ranks have more nodes each.
        num_slots = Parts.slots_in(num_bytes, num_nodes, row_bytes, len(memory.group))
        if not num_slots:
            num_ranks = len(memory.group)
            raise CacheTooSmallError(
                f"the device of rank {memory.rank} has {in_units(num_bytes)} for its part of the feature cache, but of "
                f"{num_nodes} rows over {num_ranks} linked rank(s), a single one and its index take "
                f"{in_units(Parts.of(num_nodes, 1, row_bytes, num_ranks).num_bytes)}. Give the cache more memory, or "
                f"share='replicated'."
            )
        features = PartitionedFeatures(device, store, num_slots, memory.shards, backing, tier)
        device.record().synchronize()
        peers.agree({})  # nobody reads before all have cleared their memory
    except BaseException as error:
        peers.abort(error)  # before close(), which waits for other ranks, which wait for this one
        memory.shards.close()
        raise
    if memory.leads and memory.access.reasons:
        _log.warning(
            "Not all ranks' devices read each other's memory (%s). Each of the groups of ranks %s has a feature cache "
            "of its own.",
            "; ".join(memory.access.reasons[:3]),
            memory.access.groups(),
        )
    return features

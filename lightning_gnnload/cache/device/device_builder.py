"""DeviceBuilder: opens feature rows for a device to gather, from a cache in its memory and from the store behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.budget import AUTO_SHARE, Budget, Table, budget
from lightning_gnnload.cache.builder import CacheBuilder
from lightning_gnnload.cache.cache import FeatureCache, cached_bytes
from lightning_gnnload.cache.copies import ReadCosts
from lightning_gnnload.cache.device.cached import DynamicFeatures, StaticFeatures
from lightning_gnnload.cache.device.features import DeviceFeatures, QuantizedFeatures, WholeFeatures
from lightning_gnnload.cache.device.memory_use import shrinking
from lightning_gnnload.cache.device.partitioned import open_partitioned
from lightning_gnnload.cache.device.read_costs import measured_costs
from lightning_gnnload.cache.device.shards import Shards, fill_device_shard, fill_private_shard, map_rows
from lightning_gnnload.cache.device.shared_shards import fill_shared_shards
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.cache.policy import CachePlan, CachePolicy
from lightning_gnnload.cache.rules import Rule, rule_of
from lightning_gnnload.cache.static import SharerOf
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.errors import CacheConfigError, DeviceMemoryError
from lightning_gnnload.host.memory import in_units
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.runtime import CupyRuntime, Runtime
from lightning_gnnload.ops.cuda.tables.partitioned_cache import Parts
from lightning_gnnload.sample.workload import Workload


class DeviceBuilder(CacheBuilder[DeviceFeatures]):
    """Opens caches in a device's memory, which the devices of other ranks may read.

    ``runtime`` is that of the device, by which ranks read each other's memory; None takes CUDA's, for a CUDA device.
    ``room_bytes`` are those of the device that caches of all ranks there may take; None: a quarter of what is free,
    where settings have no limit. ``required`` makes it an error if rows that ranks share have no room. ``costs`` are
    those of a row's reads; None: measured, where the number of copies depends on them.
    """

    where = " on devices"
    evicts_together = True

    def __init__(
        self,
        store: FeatureStore,
        peers: PeerGroup | None,
        device: Device,
        runtime: Runtime | None = None,
        sharer_of: SharerOf | None = None,
        *,
        room_bytes: int | None = None,
        required: bool = False,
        costs: ReadCosts | None = None,
    ) -> None:
        super().__init__(store, peers, sharer_of)
        self.device, self.runtime, self.room_bytes, self.required = device, runtime, room_bytes, required
        self.costs = costs
        self.backing = map_rows(device, store)
        if runtime is None and peers is not None and device.torch_device.type == "cuda":
            self.runtime = CupyRuntime(device.torch_device.index or 0)

    def room(self) -> int:
        """Returns the room of all ranks: those on one device share it equally, and all take as much as the one with
        least."""
        room = self.device.free_bytes() if self.room_bytes is None else self.room_bytes
        # Nearer caches are filled together with this one; the rank that decides knows their bytes in all copies.
        nearer_bytes = sum(value.num_bytes for value in self.nearer)
        if self.peers is None:
            return max(room - nearer_bytes, 0)
        if self.runtime is None:
            return max(self.peers.membership.count * room - nearer_bytes, 0)
        # By UUID, as processes number devices differently.
        rooms = [
            (value.fields["device"], value.fields["room"])
            for value in self.peers.all_gather({"device": self.runtime.identity(self.runtime.device), "room": room})
        ]
        num_ranks = Counter(uuid for uuid, _ in rooms)
        # The least decides, since ranks that share a cache fill shards of one size.
        return max(len(rooms) * min(room // num_ranks[uuid] for uuid, room in rooms) - nearer_bytes, 0)

    def read_costs(self) -> ReadCosts | None:
        if self.costs is None and self.peers is not None and self.runtime is not None:
            self.costs = measured_costs(self.device, self.peers, self.runtime, self.store, self.backing)
        return self.costs

    def slot_bytes(self, rule: Rule | None, policy: CachePolicy | None) -> int:
        return rule.device_slot_bytes or 0 if rule is not None else 0

    def budget(
        self,
        table: Table,
        ratio: float | None,
        capacity_bytes: int | None,
        share: str,
        room: int | None,
        copied: float = 0.0,
    ) -> tuple[Budget, bool]:
        assert room is not None, "room() gives a number here"
        is_unlimited = ratio is None and capacity_bytes is None
        capacity = room if is_unlimited and self.room_bytes is not None else capacity_bytes
        together = self._shares_rows(table, ratio, capacity, share, room)
        num_ranks = int(table.copies)
        # Shared rows are there once, but each rank's device has its own location table.
        once = replace(table, copies=1 + copied * (num_ranks - 1), indices=num_ranks)
        if table.slot_bytes:  # what evicts has a table of slots as well, divided among the ranks
            once = replace(once, slot_bytes=Parts.slot_bytes(table.row_bytes), indices=num_ranks + 1)
        try:
            allowed = budget(once if together else table, ratio, capacity, room)
        except CacheConfigError as error:
            raise DeviceMemoryError(
                f"the devices have {in_units(room)} for a cache of features, which is less than asked for: {error}"
            ) from error
        num_shards = num_ranks if together else 1
        # A location has no bits for more slots.
        return replace(allowed, num_rows=min(allowed.num_rows, num_shards << ops.SLOT_BITS)), together

    def _shares_rows(self, table: Table, ratio: float | None, capacity: int | None, share: str, room: int) -> bool:
        """Whether each row is there once. Where every device has room for all rows, a copy in each is read faster."""
        # What evicts is each rank's own unless settings say otherwise: it has not run over several devices yet.
        if self.runtime is None or share == "replicated" or (share == "auto" and table.slot_bytes):
            return False
        if share != "auto" or ratio not in (None, 1):
            return True
        most = int(room * AUTO_SHARE) if ratio is None and capacity is None else room
        least = most if capacity is None else min(capacity, most)
        return table.rows_in(least) != table.num_nodes

    def open_uncached(self) -> DeviceFeatures:
        device, store = self.device, self.store
        if self.backing is not None:
            return WholeFeatures(device, self.backing, store.shape, store.dtype, "memory")
        location = device.empty(store.shape[0], torch.int32).fill_(-1)
        return StaticFeatures(device, store, location, Shards())

    def open_evicting(
        self, rule: Rule, workload: Workload, num_rows: int, tier: str, *, together: bool
    ) -> DeviceFeatures:
        if together:
            assert self.peers is not None, "a rank alone shares with nobody"
            assert self.runtime is not None, "as above"
            return open_partitioned(self.store, num_rows, self.device, self.peers, self.runtime, self.backing, tier)
        return DynamicFeatures(self.device, self.store, num_rows, self.backing, tier)

    def open_ranked(
        self, plan: CachePlan, workload: Workload, *, epoch: int, progress: bool, tier: str
    ) -> DeviceFeatures:
        device, store, backing = self.device, self.store, self.backing
        levels = [*plan.nearer, plan]
        # Levels become one cache: rows that ranks share, and rows that each rank copies.
        shared = np.concatenate([level.hot[level.num_copied :] for level in levels if level.together] or [plan.hot[:0]])
        hot = np.concatenate([level.hot[: level.num_copied] if level.together else level.hot for level in levels])
        if len(shared):
            assert self.peers is not None, "a rank alone shares with nobody"
            assert self.runtime is not None, "as above"
            location, shards = fill_shared_shards(
                store,
                shared,
                device,
                self.peers,
                self.runtime,
                self.sharer_of,
                copied=hot,
                required=self.required,
                progress=progress,
            )
            if not shards.addresses:
                return self.open_uncached()
        elif len(hot) == store.shape[0]:  # in the order of the store, so that no location table is needed
            rows = device.empty(len(hot) * store.row_bytes, torch.uint8).view(len(hot), store.row_bytes)
            fill_device_shard(device, store, np.arange(len(hot)), rows, backing, progress=progress)
            return WholeFeatures(device, rows, store.shape, store.dtype, tier)
        else:
            location, shards = shrinking(
                lambda num_bytes: fill_private_shard(
                    device, store, hot[: num_bytes // store.row_bytes], backing, progress=progress
                ),
                len(hot) * store.row_bytes,
            )
        return StaticFeatures(device, store, location, shards, backing, tier)


def why_not_on_device(levels: Sequence[FeatureCache]) -> str | None:
    """Returns why devices cannot hold these caches; None where they can."""
    if len(levels) > 1 and any(level.evicts or level.is_unlimited for level in levels):
        return "of several caches on a device each has a limit, and none evicts"
    return next((reason for level in levels if (reason := level.no_device_reason) is not None), None)


def open_on_device(
    settings: FeatureCache | Sequence[FeatureCache] | None,
    store: FeatureStore,
    workload: Workload,
    device: Device,
    *,
    peers: PeerGroup | None = None,
    runtime: Runtime | None = None,
    sharer_of: SharerOf | None = None,
    room_bytes: int | None = None,
    costs: ReadCosts | None = None,
    epoch: int = 0,
    progress: bool = True,
    tier: str = "cache",
) -> DeviceFeatures:
    """Opens the rows of ``store`` for a device to gather. This takes as long as the policy and reading the rows take,
    and prints on stderr how large the cache is, and why. Closing it leaves ``store`` open.

    ``settings`` are one cache or several, nearest first, which become one cache of different rows; None gathers all
    rows from the host. ``peers`` open it together: each row lies on one of their devices, unless the settings want a
    copy in each, or all rows fit into each. ``runtime``, ``sharer_of``, ``room_bytes`` and ``costs`` are those of
    :class:`DeviceBuilder`, ``epoch``, ``progress`` and ``tier`` those of :meth:`.FeatureCache.open`.

    Raises CacheConfigError and CacheTooSmallError for settings or limits that do not work on devices, CacheShareError
    for peers that are late, fail or have another table, DeviceMemoryError for less room than the settings ask for.
    """
    levels = [settings] if isinstance(settings, FeatureCache) else list(settings or ())
    if (reason := why_not_on_device(levels)) is not None:
        raise CacheConfigError(f"this cache cannot lie on a device: {reason}. Give FeatureCache(device='cpu').")
    table = cached_bytes(store)
    required = any(level.device == "cuda" for level in levels)
    builder = DeviceBuilder(
        table, peers, device, runtime, sharer_of, room_bytes=room_bytes, required=required, costs=costs
    )
    if not levels or not table.row_bytes:
        opened = builder.open_uncached()
    else:
        plan = _plan_levels(builder, levels, workload, epoch, progress)
        rule = rule_of(levels[0].policy)
        opened = builder.open(plan, rule, workload, epoch=epoch, progress=progress, tier=tier)
    return QuantizedFeatures(store, opened) if isinstance(store, QuantizedFeatureStore) else opened


def _plan_levels(
    builder: DeviceBuilder, levels: Sequence[FeatureCache], workload: Workload, epoch: int, progress: bool
) -> CachePlan:
    """Plans several caches as one: the last level that has rows, with those in front as its nearer plans."""
    peers = builder.peers
    for level in levels:
        builder.peers = peers  # a level with a ranking of this rank alone has left them
        builder.nearer += (level.choose(builder, workload, epoch=epoch, progress=progress),)
    builder.peers = peers
    *nearer, last = [plan for plan in builder.nearer if plan.num_rows] or builder.nearer[:1]
    return replace(last, nearer=tuple(nearer))

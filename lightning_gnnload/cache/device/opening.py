"""How feature rows come to be gathered on a device: from a cache that lies there, and from the store behind it."""

from __future__ import annotations

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.budget import Table, budget
from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.device.budget import shrinking
from lightning_gnnload.cache.device.features import DeviceFeatures, DeviceTable, DynamicFeatures, Shards, StaticFeatures
from lightning_gnnload.cache.device.filling import OwnShard, fill, hold_alone, map_rows
from lightning_gnnload.cache.device.quantized import QuantizedFeatures
from lightning_gnnload.cache.opening import hot_rows, say
from lightning_gnnload.cache.policies import policy_named
from lightning_gnnload.cache.sharers import Meeting
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.memory import in_units
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.errors import CacheConfigError, DeviceMemoryError
from lightning_gnnload.ops.cuda.device import Device, Mapped
from lightning_gnnload.sample.workload import Workload

_FIFO_SLOT_BYTES = 8


def open_on_device(
    settings: FeatureCache | None,
    store: FeatureStore,
    workload: Workload,
    device: Device,
    *,
    meeting: Meeting | None = None,
    room_bytes: int | None = None,
    epoch: int = 0,
    progress: bool = True,
    tier: str = "cache",
) -> DeviceFeatures:
    """The rows of ``store``, gathered on a device. Takes as long as the policy and reading the rows take; says on
    stderr how large the cache is, and why. Closing it leaves ``store`` open.

    Args:
        settings: of the cache; None: none, and all rows come from the host's memory.
        store: has all rows.
        workload: the mini-batches to come.
        device: that gathers.
        meeting: of the ranks of this machine that open it together; None for a rank alone.
        room_bytes: of the device, that the cache may take; None: a quarter of what is free, where ``settings`` have no
            limit.
        epoch: that training begins with.
        progress: say what is done; for one rank of a machine.
        tier: what reads from the cache are counted as.

    Raises:
        CacheConfigError, CacheTooSmallError: settings that devices cannot have, limits that cannot be kept, a ranking
            that is none.
        CacheShareError: sharers that are late, fail, or have another table.
        DeviceMemoryError: the device has less room than the settings ask for.
    """
    if isinstance(store, QuantizedFeatureStore):
        codes = open_on_device(
            settings,
            store.codes,
            workload,
            device,
            meeting=meeting,
            room_bytes=room_bytes,
            epoch=epoch,
            progress=progress,
            tier=tier,
        )
        return QuantizedFeatures(store, codes)
    if settings is not None and (reason := settings.no_device_reason) is not None:
        raise CacheConfigError(f"this cache cannot lie on a device: {reason}. Give FeatureCache(device='cpu').")
    backing = map_rows(device, store)
    if settings is None or not store.row_bytes:
        return _without_cache(device, store, backing)
    if meeting is not None:
        meeting.agree(settings.facts(store, epoch))
    num_rows = _agreed_rows(settings, store, device, meeting, room_bytes, progress)
    if not num_rows:
        return _without_cache(device, store, backing)
    if settings.evicts:
        return DynamicFeatures(device, store, num_rows, backing, tier)
    policy = policy_named(settings.policy, window=settings.window, progress=progress)
    ranked_by = None if policy.is_own else meeting
    hot = hot_rows(store, workload, policy, num_rows, meeting=ranked_by, epoch=epoch)
    if len(hot) == store.shape[0]:
        return _whole(device, store, backing, tier, progress=progress)

    def hold(num_bytes: int) -> tuple[torch.Tensor, Shards]:
        return hold_alone(device, store, hot[: num_bytes // store.row_bytes], backing, progress=progress)

    location, shards = shrinking(hold, len(hot) * store.row_bytes)
    return StaticFeatures(device, store, location, shards, backing, tier)


def _whole(device: Device, store: FeatureStore, backing: Mapped | None, tier: str, *, progress: bool) -> DeviceFeatures:
    """All rows, in the order of the store, so that nobody has to look them up."""
    num_rows = store.shape[0]
    rows = device.empty(num_rows * store.row_bytes, torch.uint8).view(num_rows, store.row_bytes)
    fill(device, store, np.arange(num_rows), rows, backing, progress=progress)
    return DeviceTable(device, rows, store.shape, store.dtype, tier)


def _without_cache(device: Device, store: FeatureStore, backing: Mapped | None) -> DeviceFeatures:
    if backing is not None:
        return DeviceTable(device, backing, store.shape, store.dtype, "memory")
    location = device.empty(store.shape[0], torch.int32).fill_(-1)
    return StaticFeatures(device, store, location, OwnShard(None, [], [], own=-1))


def _agreed_rows(
    settings: FeatureCache,
    store: FeatureStore,
    device: Device,
    meeting: Meeting | None,
    room_bytes: int | None,
    progress: bool,
) -> int:
    """How many rows each device caches: as many as sharer 0 finds room for."""
    count = 1 if meeting is None else meeting.sharers.count
    found = None
    if meeting is None or meeting.sharers.index == 0:
        table = Table(*store.shape[:1], store.row_bytes, _FIFO_SLOT_BYTES if settings.evicts else 0, copies=count)
        free = count * (device.free_bytes() if room_bytes is None else room_bytes)
        capacity = settings.capacity_bytes
        if settings.ratio is None and capacity is None and room_bytes is not None:
            capacity = free
        try:
            allowed = budget(table, settings.ratio, capacity, free)
        except CacheConfigError as error:
            raise DeviceMemoryError(
                f"the devices have {in_units(free)} for a cache of features, which is less than asked for: {error}"
            ) from error
        if progress:
            say(f"Feature cache on {count} device(s) by {settings.policy!r}: {allowed}")
        found = np.array([min(allowed.num_rows, 1 << ops.SLOT_BITS)])
    if meeting is not None:
        found = meeting.publish(found)
    assert found is not None
    return int(found[0])

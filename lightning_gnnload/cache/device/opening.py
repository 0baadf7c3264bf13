"""How feature rows come to be gathered on a device: from a cache that lies there, and from the store behind it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.budget import AUTO_SHARE, Table, budget
from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.device.budget import shrinking
from lightning_gnnload.cache.device.cached import DynamicFeatures, StaticFeatures
from lightning_gnnload.cache.device.features import DeviceFeatures, DeviceTable, QuantizedFeatures
from lightning_gnnload.cache.device.holding import hold_on_device
from lightning_gnnload.cache.device.shards import Shards, fill, hold_alone, map_rows
from lightning_gnnload.cache.opening import hot_rows, say
from lightning_gnnload.cache.peers import Meeting
from lightning_gnnload.cache.rules import policy_named
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.memory import in_units
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.errors import CacheConfigError, DeviceMemoryError
from lightning_gnnload.ops.cuda.device import Device, Mapped
from lightning_gnnload.ops.cuda.runtime import CupyRuntime, Runtime
from lightning_gnnload.sample.workload import Workload

_FIFO_SLOT_BYTES = 8


def open_on_device(
    settings: FeatureCache | None,
    store: FeatureStore,
    workload: Workload,
    device: Device,
    *,
    meeting: Meeting | None = None,
    runtime: Runtime | None = None,
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
        meeting: of the ranks of this machine that open it together; None for a rank alone. Each row lies on one of
            their devices, but where ``settings`` want a copy in each, or all rows have room in each.
        runtime: of the device, by which ranks read each other's; None: CUDA's, of a CUDA device.
        room_bytes: of the device, that caches of all ranks there may take; None: a quarter of what is free, where
            ``settings`` have no limit.
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
            runtime=runtime,
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
    policy = None if settings.evicts else policy_named(settings.policy, window=settings.window, progress=progress)
    if runtime is None and meeting is not None and device.torch_device.type == "cuda":
        runtime = CupyRuntime(device.torch_device.index or 0)
    if meeting is not None:
        meeting.agree(settings.facts(store, epoch))
    is_shareable = runtime is not None and policy is not None and not policy.is_own and settings.share != "replicated"
    count = 1 if meeting is None else meeting.sharers.count
    room = count * _room_of_each(device, meeting, runtime, room_bytes)
    is_unlimited = settings.ratio is None and settings.capacity_bytes is None
    capacity = room if is_unlimited and room_bytes is not None else settings.capacity_bytes
    num_rows, is_shared = _agreed_rows(settings, store, meeting, (capacity, room), is_shareable, progress)
    if not num_rows:
        return _without_cache(device, store, backing)
    if policy is None:
        return DynamicFeatures(device, store, num_rows, backing, tier)
    ranked_by = None if policy.is_own else meeting
    hot = hot_rows(store, workload, policy, num_rows, meeting=ranked_by, epoch=epoch)
    if is_shared:
        assert meeting is not None, "a rank alone shares with nobody"
        assert runtime is not None, "as above"
        must = settings.device == "cuda"
        location, shards = hold_on_device(store, hot, device, meeting, runtime, required=must, progress=progress)
        if not shards.addresses:
            return _without_cache(device, store, backing)
        return StaticFeatures(device, store, location, shards, backing, tier)
    if len(hot) == store.shape[0]:
        return _whole(device, store, backing, tier, progress=progress)

    def hold(num_bytes: int) -> tuple[torch.Tensor, Shards]:
        return hold_alone(device, store, hot[: num_bytes // store.row_bytes], backing, progress=progress)

    return StaticFeatures(device, store, *shrinking(hold, len(hot) * store.row_bytes), backing, tier)


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
    return StaticFeatures(device, store, location, Shards())


def _room_of_each(device: Device, meeting: Meeting | None, runtime: Runtime | None, room_bytes: int | None) -> int:
    """What each rank may take: ranks on one device take an equal part of its room, and all as much as the least."""
    room = device.free_bytes() if room_bytes is None else room_bytes
    if meeting is None or runtime is None:
        return room
    said = [
        (each.fields["device"], each.fields["room"])
        for each in meeting.exchange({"device": runtime.identity(runtime.device), "room": room})
    ]
    num_ranks = Counter(there for there, _ in said)
    return min(room // num_ranks[there] for there, room in said)


def _agreed_rows(
    settings: FeatureCache,
    store: FeatureStore,
    meeting: Meeting | None,
    limits: tuple[int | None, int],
    is_shareable: bool,
    progress: bool,
) -> tuple[int, bool]:
    """How many rows, as sharer 0 finds, and whether each is there once, not once a rank.

    Args:
        limits: bytes that all ranks' caches may take by the settings, and what room there is for them.
        is_shareable: whether ranks can read each other's devices, as far as is known.
    """
    count = 1 if meeting is None else meeting.sharers.count
    found = None
    if meeting is None or meeting.sharers.index == 0:
        capacity, free = limits
        copies = Table(store.shape[0], store.row_bytes, _FIFO_SLOT_BYTES if settings.evicts else 0, copies=count)
        once = replace(copies, copies=1, indices=count)
        # What every device has room for is best read where it is.
        most = int(free * AUTO_SHARE) if settings.ratio is None and capacity is None else free
        least = most if capacity is None else min(capacity, most)
        fits_each = settings.ratio in (None, 1) and copies.rows_in(least) == store.shape[0]
        is_shared = is_shareable and not (settings.share == "auto" and fits_each)
        try:
            allowed = budget(once if is_shared else copies, settings.ratio, capacity, free)
        except CacheConfigError as error:
            raise DeviceMemoryError(
                f"the devices have {in_units(free)} for a cache of features, which is less than asked for: {error}"
            ) from error
        if progress:
            how = "" if count == 1 else f"; {'partitioned over' if is_shared else 'replicated in'} {count} ranks"
            say(f"Feature cache on devices by {settings.policy!r}: {allowed}{how}")
        num_shards = count if is_shared else 1
        found = np.array([min(allowed.num_rows, num_shards << ops.SLOT_BITS), is_shared])
    if meeting is not None:
        found = meeting.publish(found)
    assert found is not None
    return int(found[0]), bool(found[1])

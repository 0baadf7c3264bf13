"""A data module's features that are gathered on its trainer's device."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lightning_gnnload.cache.budget import Allowance
from lightning_gnnload.cache.builder import lies_in_memory
from lightning_gnnload.cache.cache import FeatureCache, cached_bytes, fitting, open_all
from lightning_gnnload.cache.device.features import LateFeatures
from lightning_gnnload.cache.device.memory_use import memory_of
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.cache.rules import rule_of
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.pipeline.device_tables import DeviceTable, HostTable
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.module.caching import CacheArguments, CachedModule, is_fit
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.plugin.module.probe import CacheProbe
from lightning_gnnload.sample.workload import Workload

if TYPE_CHECKING:
    from lightning_gnnload.cache.device.features import DeviceFeatures
    from lightning_gnnload.ops.cuda.launch.device import Device

_log = logging.getLogger(__name__)


class DeviceTables:
    """The feature tables of a data module on a trainer's device, each opened once, with its caches: those on the
    device, and behind them those with the host that evict (BGL, NSDI'23, section 3.2.3). A cache without a
    limit opens when the fit's first steps have shown how much memory they take (:class:`CacheProbe`). For the training
    thread."""

    def __init__(self) -> None:
        self._tables: dict[str, DeviceTable] = {}
        self._late: list[_Late] = []
        self._host_levels: list[FeatureStore] = []  # behind caches of the device
        self._probing: CacheProbe | None = None

    def open(self, module: CachedModule, source: BatchSource, device: Device) -> dict[str, DeviceTable]:
        """Opens the tables of ``source``, by name. Raises CacheConfigError where caches with ``device="cuda"`` cannot
        lie on one, DeviceMemoryError where the device has no room for the settings, and as :func:`.open_on_device`
        does."""
        for name in source.features:
            if name not in self._tables:
                self._tables[name] = self._open(name, module, source, device)
        if self._late and self._probing is None:
            self._probing = self._new_probe(device)
        return self._tables

    def begin_step(self, num_updates: int) -> None:
        """Opens the caches that waited for it, before a training step and after so many optimizer steps."""
        if self._probing is not None:
            self._probing.begin_step(num_updates)

    def close(self) -> None:
        tables, self._tables, self._late, self._probing = self._tables, {}, [], None
        for table in tables.values():
            table.close()
        behind, self._host_levels = self._host_levels, []
        for store in behind:
            store.close()

    def _open(self, name: str, module: CachedModule, source: BatchSource, device: Device) -> DeviceTable:
        levels = fitting(module.caching.levels.get(name, ()), source.data, name)
        if (reason := _why_not(levels)) is not None:
            if any(level.device == "cuda" for level in levels):
                raise CacheConfigError(
                    f"features {name!r}: a cache has device='cuda', but cannot lie on the device: {reason}. Change the "
                    f"caches; from the first with device='cpu' on, they lie with the host behind the others."
                )
            if reason:
                _log.warning("Features %r are gathered on the host: %s.", name, reason)
            source.features[name].open()
            return HostTable(source.features[name], device)
        opening = module.caching.opening(name, module, GatherGroup.of_devices(module.trainer))
        opening = self._behind(opening, name)
        if not opening.levels:
            return _on_device(opening, None, source.workload, device)
        settings, workload = opening.levels, opening.workload or source.workload
        if settings[0].is_unlimited and not settings[0].evicts and is_fit(module.trainer):
            late = _Late(opening, settings[0], workload, LateFeatures(_on_device(opening, None, workload, device)))
            self._late.append(late)
            return late.features
        membership = opening.gather_group.membership(f"device-cache-{name}")
        with nullcontext() if membership is None else membership.connect() as peers:
            return _on_device(opening, settings, workload, device, peers)

    def _behind(self, opening: CacheArguments, name: str) -> CacheArguments:
        """Opens the caches that lie with the host behind the device's, as the store that these ask. All ranks of the
        machine share them."""
        near, behind = split_levels(opening.levels)
        if not behind:
            return opening
        assert opening.workload is not None, "caches have one"
        if lies_in_memory(cached_bytes(opening.store)):
            _log.warning(
                "Features %r are in memory already, where the device reads them: the cache with the host behind the "
                "device's is left out.",
                name,
            )
            return replace(opening, levels=near)
        store = open_all(
            behind,
            opening.store,
            opening.workload,
            membership=opening.gather_group.membership(f"host-cache-{name}"),
            sharer_of=opening.sharer_of,
            epoch=opening.epoch,
            progress=opening.progress,
            num_nearer=len(near),
        )
        self._host_levels.append(store)
        return replace(opening, store=store, levels=near)

    def _new_probe(self, device: Device) -> CacheProbe:
        """One probe for all tables, which share by size what training leaves."""
        tables, first = list(self._late), self._late[0].opening
        sizes = [late.opening.store.shape[0] * late.opening.store.row_bytes for late in tables]

        def open_caches(allowed: Allowance, peers: PeerGroup | None) -> None:
            for late, size in zip(tables, sizes, strict=True):
                # By size, so that each table has room for the same share of its rows.
                room = allowed.num_bytes * size // max(sum(sizes), 1)
                cache = _on_device(late.opening, late.settings, late.workload, device, peers, room)
                late.features.take_over(cache)

        return CacheProbe(
            memory_of(device),
            open_caches,
            membership=first.gather_group.membership("probing"),
            required=any(late.settings.device == "cuda" for late in tables),
            progress=first.progress,
        )


@dataclass(frozen=True)
class _Late:
    """A table whose cache opens when there is room for it."""

    opening: CacheArguments
    settings: FeatureCache
    workload: Workload
    features: LateFeatures


def _on_device(
    opening: CacheArguments,
    settings: FeatureCache | Sequence[FeatureCache] | None,
    workload: Workload,
    device: Device,
    peers: PeerGroup | None = None,
    room_bytes: int | None = None,
) -> DeviceFeatures:
    from lightning_gnnload.cache.device.device_builder import open_on_device

    return open_on_device(
        settings,
        opening.store,
        workload,
        device,
        peers=peers,
        sharer_of=opening.sharer_of,
        room_bytes=room_bytes,
        epoch=opening.epoch,
        progress=opening.progress,
    )


def _why_not(levels: Sequence[FeatureCache]) -> str | None:
    """Why caches lie with the host, where all rows then are gathered; empty where the settings say so; None where they
    do not."""
    from lightning_gnnload.cache.device.device_builder import why_not_on_device

    near, behind = split_levels(levels)
    if any(level.device != "cpu" for level in behind):
        return "behind a cache that lies with the host, there is none on the device"
    if behind and not near:
        return ""
    # Nobody tells these which mini-batch comes, and they are asked for what it lacks alone: a look ahead sees nothing.
    if any((rule := rule_of(level.policy)) is None or rule.admit is None or rule.looks_ahead for level in behind):
        return (
            "behind a device's cache, one that lies with the host has to evict without a look ahead, as 'fifo' and "
            "'s3fifo' do"
        )
    return why_not_on_device(near)


def split_levels(levels: Sequence[FeatureCache]) -> tuple[tuple[FeatureCache, ...], tuple[FeatureCache, ...]]:
    """Splits caches, nearest first, at the first that has to lie with the host."""
    count = next((number for number, level in enumerate(levels) if level.device == "cpu"), len(levels))
    return tuple(levels[:count]), tuple(levels[count:])

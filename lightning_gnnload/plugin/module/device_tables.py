"""How a data module's features come to be gathered on its trainer's device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lightning_gnnload.cache.cache import FeatureCache, fitting
from lightning_gnnload.cache.device.budget import Allowance, DeviceMemory, MemoryUse, allowance, memory_of
from lightning_gnnload.cache.device.features import LateFeatures
from lightning_gnnload.cache.opening import print_line
from lightning_gnnload.cache.peers import Membership, PeerGroup
from lightning_gnnload.errors import CacheShareError, DeviceMemoryError
from lightning_gnnload.pipeline.device_tables import DeviceTable, HostTable
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.compat import TrainerFn, pl
from lightning_gnnload.plugin.module.caching import CacheArguments, CachedModule
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.sample.workload import Workload

if TYPE_CHECKING:
    from lightning_gnnload.cache.device.features import DeviceFeatures
    from lightning_gnnload.ops.cuda.device import Device

WARM_UP_STEPS = 4
"""Steps before memory is measured: the first one makes the optimizer's state, and mini-batches differ in size."""
_log = logging.getLogger(__name__)

OpenCache = Callable[[Allowance, PeerGroup | None], None]
"""Opens the cache in so much of each device; the ranks that share it do so at once, and raise alike."""


class DeviceTables:
    """The feature tables of a data module on a trainer's device, each opened once, with the cache that its settings ask
    for.

    Caches without a limit open when the fit's first steps have shown how much memory they take; see
    :class:`CacheProbe`.
    For the thread that trains.
    """

    def __init__(self) -> None:
        self._tables: dict[str, DeviceTable] = {}
        self._late: list[_Late] = []
        self._probing: CacheProbe | None = None

    def open(self, module: CachedModule, source: BatchSource, device: Device) -> dict[str, DeviceTable]:
        """Opens the tables of ``source``, and returns them by name.

        Raises:
            CacheConfigError, CacheTooSmallError, CacheShareError: as :func:`.open_on_device` has them.
            DeviceMemoryError: the device has no room for what the settings ask.
        """
        for name in source.features:
            if name not in self._tables:
                self._tables[name] = self._opened(name, module, source, device)
        if self._late and self._probing is None:
            self._probing = self._probed(device)
        return self._tables

    def begin_step(self, num_updates: int) -> None:
        """Opens the caches that waited for it, before a training step and after so many optimizer steps."""
        if self._probing is not None:
            self._probing.begin_step(num_updates)

    def close(self) -> None:
        tables, self._tables, self._late, self._probing = self._tables, {}, [], None
        for each in tables.values():
            each.close()

    def _opened(self, name: str, module: CachedModule, source: BatchSource, device: Device) -> DeviceTable:
        levels = fitting(module.caching.levels.get(name, ()), source.data, name)
        if (reason := _why_not(levels)) is not None:
            if reason:
                _log.warning("Features %r are gathered on the host: %s.", name, reason)
            source.features[name].open()
            return HostTable(source.features[name], device)
        opening = module.caching.opening(name, module, GatherGroup.of_devices(module.trainer))
        if not opening.levels:
            return _on_device(opening, None, source.workload, device)
        [settings], workload = opening.levels, opening.workload or source.workload
        if _waits(settings, module.trainer):
            late = _Late(opening, settings, workload, LateFeatures(_on_device(opening, None, workload, device)))
            self._late.append(late)
            return late.features
        membership = opening.gather_group.membership(f"device-cache-{name}")
        with nullcontext() if membership is None else membership.connect() as peers:
            return _on_device(opening, settings, workload, device, peers)

    def _probed(self, device: Device) -> CacheProbe:
        """Makes one probe for all tables, as what training leaves is shared among them by size."""
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


class CacheProbe:
    """Opens a device's cache once the first steps of a fit have shown how much memory they leave. Rows are the same
    with the cache or without. For the thread that trains.

    All ranks that share the cache call :meth:`begin_step` before each step, and meet in the same one: there is no step
    under way on any device meanwhile.

    Args:
        memory: of this rank's device.
        open_cache: opens it. Raises DeviceMemoryError or CacheShareError.
        membership: of those that this rank shares it with; None for a rank alone.
        num_steps: optimizer steps to wait for.
        required: what cannot be opened is an error; else a warning, and training goes on without.
        progress: say how much it gets; for one rank of a machine.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        open_cache: OpenCache,
        *,
        membership: Membership | None = None,
        num_steps: int = WARM_UP_STEPS,
        required: bool = False,
        progress: bool = True,
    ) -> None:
        self._memory, self._open_cache, self._membership = memory, open_cache, membership
        self._num_steps, self._required, self._progress = num_steps, required, progress
        self._first: int | None = None
        self.is_over = False

    def begin_step(self, num_updates: int) -> None:
        """Opens the cache where the warm-up is over.

        Args:
            num_updates: optimizer steps so far, of this fit and those that it resumes; alike in all ranks.

        Raises:
            DeviceMemoryError, CacheShareError: it is required, and cannot be opened.
        """
        if self._first is None:
            self._first = num_updates
        if self.is_over or num_updates - self._first < self._num_steps:
            return
        # Before the attempt: what failed once is not tried again before each step.
        self.is_over = True
        try:
            with nullcontext() if self._membership is None else self._membership.connect() as peers:
                self._open(peers)
        except (DeviceMemoryError, CacheShareError) as error:
            if self._required:
                raise
            _log.warning("There is no cache of features on the devices: %s", error)

    def _open(self, peers: PeerGroup | None) -> None:
        use = self._memory.use()
        # Who has come to the exchange has peaked, and holds still until all have told.
        uses = [use] if peers is None else [MemoryUse.of(each.fields) for each in peers.all_gather(use.fields())]
        allowed = allowance(uses)
        if self._progress:
            print_line(f"Feature cache on the devices: {allowed}")
        if not allowed.num_bytes:
            raise DeviceMemoryError(
                f"training leaves no room ({allowed.reason}). Lower batch_size, or give FeatureCache(device='cpu')."
            )
        self._open_cache(allowed, peers)


def _on_device(
    opening: CacheArguments,
    settings: FeatureCache | None,
    workload: Workload,
    device: Device,
    peers: PeerGroup | None = None,
    room_bytes: int | None = None,
) -> DeviceFeatures:
    from lightning_gnnload.cache.device.opening import open_on_device

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
    """Returns why caches lie with the host, where all rows then are gathered; empty where that was asked for; None
    where they do not."""
    if len(levels) > 1:
        return "caches in front of each other are the host's"
    if not levels:
        return None
    return "" if levels[0].device == "cpu" else levels[0].no_device_reason


def _waits(settings: FeatureCache, trainer: pl.Trainer | None) -> bool:
    """Whether the cache opens once it is known how much memory training takes."""
    is_limited = settings.ratio is not None or settings.capacity_bytes is not None
    is_fit = trainer is not None and trainer.state.fn == TrainerFn.FITTING
    return is_fit and not is_limited and not settings.evicts

"""How a data module's features come to be gathered on its trainer's device."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import torch

from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.nodetype import fitting
from lightning_gnnload.pipeline.device_batches import Rows
from lightning_gnnload.pipeline.host_rows import HostRows
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.compat import TrainerFn, pl
from lightning_gnnload.plugin.gathering import Gathering

if TYPE_CHECKING:
    from lightning_gnnload.cache.device.budget import Allowance
    from lightning_gnnload.cache.sharers import Meeting
    from lightning_gnnload.ops.cuda.device import Device
    from lightning_gnnload.plugin.datamodule import GraphDataModule
    from lightning_gnnload.plugin.probing import Probing

_log = logging.getLogger(__name__)


class DeviceRows:
    """The tables of a data module, each opened on the device once, with the cache that its settings ask for there.

    A cache without a limit opens when the fit's first steps have shown how much memory they take; see :mod:`.probing`.
    For the thread that trains.
    """

    def __init__(self) -> None:
        self._rows: dict[str, Rows] = {}
        self._probings: list[Probing] = []

    def open(self, module: GraphDataModule, source: BatchSource, device: Device) -> dict[str, Rows]:
        """The tables of ``source`` by name.

        Raises:
            CacheConfigError, CacheTooSmallError, CacheShareError: as :func:`.open_on_device` has them.
            DeviceMemoryError: the device has no room for what the settings ask.
        """
        for name in source.features:
            if name not in self._rows:
                self._rows[name] = self._opened(name, module, source, device)
        return self._rows

    def begin_step(self, num_updates: int) -> None:
        """Before each training step, after so many optimizer steps: opens the caches that waited for it."""
        for probing in self._probings:
            probing.begin_step(num_updates)

    def close(self) -> None:
        rows, self._rows, self._probings = self._rows, {}, []
        for each in rows.values():
            each.close()

    def _opened(self, name: str, module: GraphDataModule, source: BatchSource, device: Device) -> Rows:
        from lightning_gnnload.cache.device.opening import open_on_device

        levels = fitting(module.caching.levels.get(name, ()), source.data.tables.get(name), name)
        if (reason := _why_not(levels)) is not None:
            if reason:
                _log.warning("Features %r are gathered on the host: %s.", name, reason)
            source.features[name].open()
            return HostRows(source.features[name], device)
        trainer, gathering = module.trainer, Gathering.of_devices(module.trainer)
        store, settings = source.data.stores[name], levels[0] if levels else None
        progress = gathering.index == 0 and trainer is not None and trainer.progress_bar_callback is not None
        epoch = 0 if trainer is None else trainer.current_epoch
        opening = partial(open_on_device, epoch=epoch, progress=progress)
        if settings is None:
            return opening(None, store, source.workload, device)
        workload, sharers = module.workload(module.caching.phase), gathering.sharers(f"device-cache-{name}")
        if not _waits(settings, trainer, device):
            with nullcontext() if sharers is None else sharers.meet() as meeting:
                return opening(settings, store, workload, device, meeting=meeting)

        from lightning_gnnload.cache.device.budget import TorchMemory
        from lightning_gnnload.cache.device.late import LateFeatures
        from lightning_gnnload.plugin.probing import Probing

        late = LateFeatures(opening(None, store, workload, device))

        def open_cache(allowed: Allowance, meeting: Meeting | None) -> None:
            room = allowed.num_bytes
            late.take_over(opening(settings, store, workload, device, meeting=meeting, room_bytes=room))

        memory = TorchMemory(device.torch_device, str(torch.cuda.get_device_properties(device.torch_device).uuid))
        must = settings.device == "cuda"
        self._probings.append(Probing(memory, open_cache, sharers=sharers, required=must, progress=progress))
        return late


def _why_not(levels: Sequence[FeatureCache]) -> str | None:
    """Why caches lie with the host, where all rows then are gathered; empty where they were asked to; None: they do
    not."""
    if len(levels) > 1:
        return "caches in front of each other are the host's"
    if not levels:
        return None
    return "" if levels[0].device == "cpu" else levels[0].no_device_reason


def _waits(settings: FeatureCache, trainer: pl.Trainer | None, device: Device) -> bool:
    """Whether the cache opens once it is known how much memory training takes."""
    is_limited = settings.ratio is not None or settings.capacity_bytes is not None
    is_fit = trainer is not None and trainer.state.fn == TrainerFn.FITTING
    return is_fit and not is_limited and not settings.evicts and device.torch_device.type == "cuda"

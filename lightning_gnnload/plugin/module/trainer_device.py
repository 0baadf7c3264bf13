"""Where a data module's mini-batches are made: on the host or, where that is possible, on the device that trains."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from lightning_gnnload.adapters.formats import FORMATS
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CacheDisagreementError, CacheShareError, CudaUnavailableError, LoaderConfigError
from lightning_gnnload.pipeline.device_batches import DeviceBatches
from lightning_gnnload.pipeline.device_tables import DeviceTable
from lightning_gnnload.pipeline.queue.prefetch import DevicePrefetcher
from lightning_gnnload.pipeline.source import BatchSource, Draws
from lightning_gnnload.plugin.module.caching import CachedModule
from lightning_gnnload.plugin.module.device_tables import DeviceTables
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.plugin.module.rank_device import UNAVAILABLE, RankDevice, open_together, sharing_errors
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.device.samplers import UploadingSampler, can_sample_parts, why_on_host
from lightning_gnnload.sample.parts.sampler import PartSampler
from lightning_gnnload.sample.workload import Workload
from lightning_gnnload.settings import check_one_of

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.launch.device import Device

DeviceChoice = Literal["auto", "cpu", "cuda"]


class TrainerDevice:
    """The device of a trainer that samples for itself, opened when the first mini-batch is needed. ``setting`` is
    ``GraphDataModule(sampling_device=...)``."""

    def __init__(self, setting: DeviceChoice) -> None:
        check_one_of("sampling_device", setting, ("auto", "cpu", "cuda"), LoaderConfigError)
        self.setting = setting
        self._opening = threading.Lock()
        self._device = RankDevice("Mini-batches are made on the CPU")
        self._drawings: dict[Sampler, Draws] = {}
        self._tables = DeviceTables()
        self._agreed: set[object] = set()  # samplers, and DevicePrefetcher, that all ranks have devices for
        self._refused: set[object] = set()  # those that one of them has none for

    def batches(
        self, module: CachedModule, source: BatchSource, convert: Callable[[MiniBatch], Any]
    ) -> DeviceBatches | None:
        """Makes a phase's mini-batches, drawn on the device, or drawn by the host and gathered from a cache there; None
        where the host makes them. With ``"auto"``, the reason is logged once; with ``"cuda"``, here or of a cache, it
        is raised: one of :data:`UNAVAILABLE`, or a LoaderConfigError."""
        computes_on, caches = _root_device(module), _cache_devices(module)
        is_required = "cuda" in {self.setting, *caches}
        if not is_required and computes_on.type != "cuda":
            return None
        draws = self._can_draw(source) and not (self.setting == "auto" and _host_draws(module))
        if not draws and caches <= {"cpu"}:
            return None
        sampler = source.workload.sampler
        reason = why_not_gathered(source, module.batch_format)
        if not self._device.allows(reason, self.setting) or sampler in self._refused:
            return None
        try:
            with self._opening, sharing_errors(is_required=is_required):
                return self._open(module, source, convert, computes_on, draws=draws)
        except UNAVAILABLE as error:
            if is_required:
                raise
            self._refused.add(sampler)
            self._drawings.pop(sampler, None)
            # Another phase may still draw from the graph that lies there.
            if not self._drawings:
                self._device.clear()
            self._device.say(str(error))
            return None

    def _can_draw(self, source: BatchSource) -> bool:
        if self.setting == "cpu":
            return False
        reason = can_sample_parts(source.workload.sampler) or why_on_host(source.workload)
        return self._device.allows(reason, self.setting)

    def prefetcher(self, module: CachedModule, source: BatchSource) -> DevicePrefetcher | None:
        """Opens what brings samplers' mini-batches to the device and gathers their features there; None where the
        samplers gather them. Reasons as in :meth:`batches`."""
        computes_on, caches = _root_device(module), _cache_devices(module)
        is_required = "cuda" in {self.setting, *caches}
        if not (is_required or computes_on.type == "cuda") or (self.setting == "cpu" and caches <= {"cpu"}):
            return None
        if DevicePrefetcher in self._refused:
            return None
        if (reason := why_not_gathered(source, module.batch_format)) is None:
            gather_group = GatherGroup.of_devices(module.trainer)
            try:
                with self._opening, self._peers(DevicePrefetcher, module, gather_group) as peers:
                    device, _ = open_together(lambda: (_device(module, computes_on), None), peers)
                    return DevicePrefetcher(source, self._open_tables(module, source, device, peers), device)
            except UNAVAILABLE as error:
                if is_required:
                    raise
                self._refused.add(DevicePrefetcher)
                reason = str(error)
        self._device.say(reason, "Features are gathered by the samplers")
        return None

    def begin_step(self, num_updates: int) -> None:
        """Opens what waits for a fit's first steps, before each training step."""
        self._tables.begin_step(num_updates)

    def close(self) -> None:
        """Frees the device's memory, which is filled again when it is next needed."""
        with self._opening:
            self._device.clear()
            self._drawings.clear()
            self._agreed.clear()
            self._refused.clear()
            self._tables.close()

    def __getstate__(self) -> dict[str, Any]:
        """Leaves what is open out, as another process has a device of its own."""
        return {"setting": self.setting}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["setting"])  # type: ignore[misc]

    def _open(
        self,
        module: CachedModule,
        source: BatchSource,
        convert: Callable[[MiniBatch], Any],
        computes_on: torch.device,
        *,
        draws: bool,
    ) -> DeviceBatches:
        group = GatherGroup.of(module.trainer)
        with self._peers(source.workload.sampler, module, group, source.workload if draws else None) as peers:
            device = open_together(lambda: _device(module, computes_on), peers)
            draw = open_together(
                lambda: self._drawing(module, source, device, peers) if draws else _uploaded(source, device), peers
            )
            tables = self._open_tables(module, source, device, peers)
        return DeviceBatches(source, draw, tables, device, convert=convert, max_threads=1 if draws else None)

    def _peers(
        self, opener: object, module: CachedModule, gather_group: GatherGroup, workload: Workload | None = None
    ) -> AbstractContextManager[PeerGroup | None]:
        """Connects the machine's ranks where they open caches on their devices together, or place the graph of
        ``workload`` there, as a rank without a device must not be waited for. None once they have agreed."""
        if opener in self._agreed:
            return nullcontext()
        if _cache_devices(module) <= {"cpu"}:
            return nullcontext() if workload is None else self._device.meeting(workload, gather_group)
        self._agreed.add(opener)
        membership = gather_group.membership("devices")
        return nullcontext() if membership is None else membership.connect()

    def _open_tables(
        self, module: CachedModule, source: BatchSource, device: Device, peers: PeerGroup | None
    ) -> dict[str, DeviceTable]:
        """Opens the tables, if all ranks that meet can; else all raise one of :data:`UNAVAILABLE`."""

        def opened() -> dict[str, DeviceTable]:
            try:
                return self._tables.open(module, source, device)
            except CacheDisagreementError:
                raise
            except CacheShareError as error:
                if self.setting == "cuda" or "cuda" in _cache_devices(module):
                    raise
                raise CudaUnavailableError(f"there is no cache on the devices: {error}") from error

        try:
            return open_together(opened, peers)
        except UNAVAILABLE:
            self._tables.close()
            raise

    def _drawing(self, module: CachedModule, source: BatchSource, device: Device, peers: PeerGroup | None) -> Draws:
        workload, trainer = source.workload, module.trainer
        if workload.sampler not in self._drawings:
            rank, num_ranks = (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
            place_graph = partial(
                self._device.place,
                device=device,
                samplers=(module.sampler, module.eval_sampler),
                progress=trainer is not None and trainer.is_global_zero and trainer.progress_bar_callback is not None,
                peers=None if isinstance(workload.sampler, PartSampler) else peers,
            )
            self._drawings[workload.sampler] = self._device.draws(
                workload, BatchRequest(0, 0, rank, num_ranks), place_graph, device
            )
        return self._drawings[workload.sampler]


def why_not_gathered(source: BatchSource, batch_format: str) -> str | None:
    """Why features of this source must be gathered on the host, wherever its mini-batches are drawn; or None."""
    sampler, data = source.workload.sampler, source.data
    if data.edge_stores:
        return f"the data has tables of edges ({', '.join(data.edge_stores)}), which are gathered on the host"
    carries_ids = sampler.columns is None or "edge_ids" in sampler.columns
    if FORMATS[batch_format].library is not None and carries_ids and data.graph.edge_order is not None:
        return f"batch_format={batch_format!r} asks for edge ids of the graph as it was given, which the host looks up"
    return None


def _uploaded(source: BatchSource, device: Device) -> UploadingSampler:
    return UploadingSampler(source.workload.sampler, source.workload.graph, device)


def _device(module: CachedModule, computes_on: torch.device) -> Device:
    """Opens the device. Raises CudaUnavailableError: it cannot be used, or not for such mini-batches."""
    from lightning_gnnload.ops.cuda.launch.open_device import open_device

    device = open_device(computes_on)
    FORMATS[module.batch_format].check_device(device.torch_device)
    return device


def _host_draws(module: CachedModule) -> bool:
    """Whether the trainer's strategy has measured that the host draws faster than the device."""
    decision = getattr(getattr(module.trainer, "strategy", None), "role_decision", None)
    return decision is not None and decision.host_threads > 0


def _cache_devices(module: CachedModule) -> set[str]:
    """The device settings of all caches."""
    return {level.device for levels in module.caching.levels.values() for level in levels}


def _root_device(module: CachedModule) -> torch.device:
    """The device on which the trainer computes; without a trainer, the device that the settings name."""
    if module.trainer is not None:
        return module.trainer.strategy.root_device
    return torch.device("cuda" if "cuda" in {module.sampling_device, *_cache_devices(module)} else "cpu")

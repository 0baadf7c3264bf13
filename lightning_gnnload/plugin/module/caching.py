"""A data module's caches: made from its settings by the ranks that gather, when the first mini-batch is made."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from lightning_gnnload.cache.budget import Allowance
from lightning_gnnload.cache.builder import lies_in_memory
from lightning_gnnload.cache.cache import FeatureCache, fitting, open_all
from lightning_gnnload.cache.packed.settings import Packing
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.cache.shared import share_rows
from lightning_gnnload.cache.static import SharerOf
from lightning_gnnload.cache.store import DeferredStore
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.tables import NodeTable
from lightning_gnnload.errors import (
    CacheConfigError,
    CacheDisagreementError,
    CacheShareError,
    CacheTooSmallError,
    DeviceMemoryError,
)
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.compat import TrainerFn, TrainerStatus, pl
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.plugin.module.packing import ModulePacking
from lightning_gnnload.plugin.module.partition import ModulePartition
from lightning_gnnload.plugin.module.probe import CacheProbe, MachineMemory
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.workload import Workload

TableCache = FeatureCache | list[FeatureCache] | Literal["auto"]
CacheSettings = TableCache | dict[str, TableCache] | None
_WORTH_SHARING_BYTES = 64 << 20  # a smaller table is not worth a rendezvous
_WAIT_FOR_ROWS_S = 60.0
_log = logging.getLogger(__name__)


def cache_levels(cache: CacheSettings) -> dict[str, tuple[FeatureCache, ...]]:
    """The levels of ``GraphDataModule(cache=...)``, nearest first, by the table's name. Raises CacheConfigError: no
    such setting."""
    by_name = cache if isinstance(cache, dict) else {} if cache is None else {"x": cache}
    return {name: _levels(settings) for name, settings in by_name.items()}


def cached_tables(cache: CacheSettings) -> list[str]:
    """Returns the names of the tables that ``GraphDataModule(cache=...)`` is about."""
    return [] if cache is None else [*cache] if isinstance(cache, dict) else ["x"]


def _check_names(levels: Iterable[str], data: GraphData) -> None:
    for name in levels:
        if name not in data.stores:
            raise CacheConfigError(
                f"the graph has no features {name!r} to be cached, but only {sorted(data.stores)}. Give "
                f"GraphDataModule(cache=None), or a cache by name: cache={{'paper': FeatureCache(...)}}."
            )


def _levels(cache: TableCache) -> tuple[FeatureCache, ...]:
    if cache == "auto":
        return (FeatureCache(),)
    levels = tuple(cache) if isinstance(cache, list | tuple) else (cache,)
    if not levels or not all(isinstance(level, FeatureCache) for level in levels):
        raise CacheConfigError(
            f"cache={cache!r}: give FeatureCache(policy=..., ratio=...), a list of these (nearest first), 'auto' or "
            f"None; or a dict of such, by the names of tables."
        )
    return levels


class ModuleCache:
    """The feature caches of a data module, from one ``setup`` to its ``teardown``."""

    def __init__(self, cache: CacheSettings, packing: Packing | None = None) -> None:
        self.levels = cache_levels(cache)
        self._packing = None if packing is None else ModulePacking(packing)
        self._stores: dict[str, DeferredStore] = {}
        self._waiting: dict[str, DeferredStore] = {}  # until a fit's first steps have shown how much memory they leave
        self._left: dict[str, Allowance] = {}  # for each of these, once that is known
        self._probing: CacheProbe | None = None
        self.phase = ""  # that they are filled for

    def stores(self, module: CachedModule, phase: str) -> tuple[dict[str, FeatureStore], bool]:
        """Returns the stores that a phase gathers from instead of the data's own, one cache for all phases; and whether
        the cache was filled for this phase, so that its mini-batches may be announced to it. Raises CacheConfigError:
        no such features, or a policy that cannot rank their rows.

        Without a cache, too, features that several ranks of a machine have in memory become one copy.
        """
        data, trainer = module.graph_data, _running(module.trainer)
        _check_names(self.levels, data)
        # By the first phase alone: a fit's validation is gathered from the cache of its training.
        if not self._stores:
            self.phase = "train" if (trainer is None or is_fit(trainer)) and module.has_seeds("train") else phase
        if self._packing is not None and self.phase == "train":
            if phase != "train":
                return {}, False
            if not self._stores:
                workload = module.workload("train")
                self._stores.update(self._packing.stores(data, workload, trainer, module.threads_of_rank))
            return dict(self._stores), True
        for name, store in data.stores.items():
            levels = fitting(self.levels.get(name, ()), data, name)
            if name not in self._stores and (levels or (trainer is not None and _is_worth_sharing(store))):
                self._stores[name] = self._deferred(name, store, module, trainer)
        return dict(self._stores), phase == self.phase

    def begin_step(self, module: CachedModule) -> None:
        """Opens the caches that waited for it, before a training step."""
        # What the device gathers is in no need of a cache here, and nobody asks for it.
        if not any(store.is_waiting for store in self._waiting.values()):
            return
        assert module.trainer is not None, "nothing waits without a Trainer"
        if self._probing is None:
            self._probing = CacheProbe(
                MachineMemory(module.graph_data.graph),
                self._fill,
                membership=GatherGroup.of(module.trainer).membership("memory"),
                progress=False,  # the cache says it all
                where="in memory",
                advice="Lower batch_size, or give the cache a limit.",
            )
        self._probing.begin_step(module.trainer.global_step)

    def _fill(self, allowed: Allowance, peers: PeerGroup | None) -> None:
        waiting = {name: store for name, store in self._waiting.items() if store.is_waiting}
        self._waiting = {}
        sizes = {name: store.shape[0] * store.row_bytes for name, store in waiting.items()}
        for name, store in waiting.items():
            # By size, so that each table has room for the same share of its rows.
            share = allowed.num_bytes * sizes[name] // max(sum(sizes.values()), 1)
            self._left[name] = replace(allowed, num_bytes=share)
            try:
                store.fill()
            except CacheTooSmallError as error:
                raise DeviceMemoryError(str(error)) from error

    def close(self) -> None:
        self._waiting, self._left, self._probing = {}, {}, None
        stores, self._stores = self._stores, {}
        for store in stores.values():
            store.close()
        if self._packing is not None:
            self._packing.close()

    def _deferred(
        self, name: str, store: FeatureStore, module: CachedModule, trainer: pl.Trainer | None
    ) -> DeferredStore:
        label = " in front of ".join(map(repr, self.levels.get(name, ()))) or "one copy a machine"
        levels = self.levels.get(name, ())
        # One level alone: none knows what the others would take.
        waits = len(levels) == 1 and levels[0].is_unlimited and not levels[0].evicts and self.phase == "train"
        waits = waits and not lies_in_memory(store) and _shows_its_need(trainer)
        deferred = DeferredStore(store, lambda: self._open(name, deferred, module, trainer), label, waits=waits)
        if waits:
            self._waiting[name] = deferred
        return deferred

    def opening(self, name: str, module: CachedModule, gather_group: GatherGroup) -> CacheArguments:
        """Collects the arguments of a table's caches in this rank; all ranks call it at the same time."""
        trainer, store = _running(module.trainer), module.graph_data.stores[name]
        if isinstance(store, MemoryFeatureStore) and _is_worth_sharing(store):
            store = _one_copy(store, gather_group, f"rows-{name}")
            module.graph_data.put(name, store)
        if name not in self.levels:
            return CacheArguments(store, gather_group)
        # One rank of a machine shows bars, and of these the first machine's.
        progress, epoch = gather_group.index == 0, 0
        if trainer is not None:
            progress = progress and trainer.node_rank == 0 and trainer.progress_bar_callback is not None
            epoch = trainer.current_epoch
        workload, levels = module.workload(self.phase), self.levels[name]
        if gather_group.trainer is not None:
            levels = module.module_partition.own_levels(
                levels, workload, self.phase, gather_group.trainer, progress=progress
            )
        levels = fitting(levels, module.graph_data, name, progress=progress)
        sharer_of, table = None, module.graph_data.tables.get(name)
        if name not in module.graph_data.edge_stores:
            first_node = table.nodes.start if isinstance(table, NodeTable) else 0
            sharer_of = module.module_partition.sharer_of(gather_group, first_node)
        return CacheArguments(store, gather_group, levels, workload, sharer_of, epoch, progress)

    def _open(
        self, name: str, deferred: DeferredStore, module: CachedModule, trainer: pl.Trainer | None
    ) -> FeatureStore:
        gather_group = GatherGroup.of(trainer)
        if not gather_group.is_here:
            return deferred.behind  # a trainer that samples in the place of lost samplers
        opening = self.opening(name, module, gather_group)
        store = deferred.behind = opening.store
        if opening.workload is None:
            return store
        # A device's cache is opened by its trainer; to come here means that the host gathers.
        if any(level.device == "cuda" for level in opening.levels):
            raise CacheConfigError(
                f"the cache of {name!r} must be on a device (device='cuda'), but these features are gathered on the "
                f"host; an earlier warning may say why. Give FeatureCache(device='auto')."
            )
        membership = gather_group.membership(f"cache-{name}")
        return open_all(
            opening.levels,
            store,
            opening.workload,
            membership=membership,
            sharer_of=opening.sharer_of,
            epoch=opening.epoch,
            progress=opening.progress,
            allowance=self._left.get(name),
        )


class CachedModule(Protocol):
    """A data module as its caches and devices see it, between ``setup`` and ``teardown``."""

    caching: ModuleCache
    sampler: Sampler
    eval_sampler: Sampler
    module_partition: ModulePartition

    @property
    def graph_data(self) -> GraphData: ...
    def has_seeds(self, phase: str) -> bool: ...
    @property
    def trainer(self) -> Any: ...  # Lightning's; None where mini-batches are read by hand
    @property
    def batch_format(self) -> str: ...
    @property
    def sampling_device(self) -> str: ...
    @property
    def threads_of_rank(self) -> int: ...
    def workload(self, phase: str) -> Workload: ...


@dataclass(frozen=True)
class CacheArguments:
    """The arguments by which all caches of a data module are opened."""

    store: FeatureStore  # of all rows
    gather_group: GatherGroup  # ranks that may share them
    levels: tuple[FeatureCache, ...] = ()  # nearest first
    workload: Workload | None = None  # the mini-batches to come; None without levels
    sharer_of: SharerOf | None = None  # the rank that caches each row; None: any
    epoch: int = 0  # that training begins with
    progress: bool = False


def _running(trainer: pl.Trainer | None) -> pl.Trainer | None:
    """The Trainer while it runs; None where mini-batches are read by hand, maybe by this rank alone."""
    return trainer if trainer is not None and trainer.state.status == TrainerStatus.RUNNING else None


def is_fit(trainer: pl.Trainer | None) -> bool:
    """Whether a Trainer is about to train, or does."""
    return trainer is not None and trainer.state.fn == TrainerFn.FITTING


def _shows_its_need(trainer: pl.Trainer | None) -> bool:
    """Whether this rank trains and gathers for itself, outside of a rehearsal, which times what comes later."""
    if not is_fit(trainer) or getattr(trainer.strategy, "is_rehearsal", False):  # type: ignore[union-attr]
        return False
    gather_group = GatherGroup.of(trainer)
    return gather_group.is_here and gather_group.trainer is not None


def _is_worth_sharing(store: FeatureStore) -> bool:
    """Whether features lie in this process's memory, and are so many that a copy in each rank matters."""
    return isinstance(store, MemoryFeatureStore) and store.rows.nbytes >= _WORTH_SHARING_BYTES


def _one_copy(store: MemoryFeatureStore, gather_group: GatherGroup, name: str) -> MemoryFeatureStore:
    """Moves rows to memory that the ranks share; each rank's former copy is freed once nothing refers to it."""
    membership = gather_group.membership(name, at_most_s=_WAIT_FOR_ROWS_S)
    if membership is None:
        return store
    try:
        return share_rows(store, membership)
    except CacheShareError as error:
        _log.warning("Each rank of this machine keeps its own copy of the features: %s", error)
        return store


def open_on_sampler(source: BatchSource, *, is_successor: bool, takeover: bool) -> BatchSource:
    """Opens a sampler's features, which takes long where a cache is filled.

    A successor of a killed process reads the store itself, as the cache was the other's. So does a sampler whose peer
    has failed, with ``takeover``; else it raises CacheShareError. CacheDisagreementError: a peer has other rows or
    settings.
    """
    for store in source.features.values():
        if isinstance(store, DeferredStore) and is_successor:
            store.close()
    try:
        source.open()
    except CacheShareError as error:
        if not takeover or isinstance(error, CacheDisagreementError):
            raise
        _log.warning("This sampler goes on without a cache of features: %s", error)
        close_caches(source)
    return source


def close_caches(source: BatchSource) -> None:
    """Frees the caches of a source. Its features can still be read, from their stores."""
    for store in source.features.values():
        if isinstance(store, DeferredStore):
            store.close()

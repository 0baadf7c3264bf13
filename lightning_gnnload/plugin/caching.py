"""How a data module's cache comes about: from its settings, by the ranks that gather, when the first batch is made."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Literal

from lightning_gnnload.cache.cache import FeatureCache, open_all
from lightning_gnnload.cache.deferred import DeferredStore
from lightning_gnnload.cache.shared import share_rows
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.errors import CacheConfigError, CacheShareError
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.compat import TrainerFn, TrainerStatus, pl
from lightning_gnnload.plugin.gathering import Gathering

if TYPE_CHECKING:
    from lightning_gnnload.plugin.datamodule import GraphDataModule

CacheSettings = FeatureCache | list[FeatureCache] | Literal["auto"] | None
_WORTH_SHARING_BYTES = 64 << 20
_WAIT_FOR_ROWS_S = 60.0
_log = logging.getLogger(__name__)


def cache_levels(cache: CacheSettings) -> tuple[FeatureCache, ...]:
    """The levels that ``GraphDataModule(cache=...)`` asks for, nearest first.

    Raises:
        CacheConfigError: it is neither settings nor ``"auto"``.
    """
    if cache is None:
        return ()
    if cache == "auto":
        return (FeatureCache(),)
    levels = tuple(cache) if isinstance(cache, list | tuple) else (cache,)
    if not levels or not all(isinstance(level, FeatureCache) for level in levels):
        raise CacheConfigError(
            f"cache={cache!r}: give FeatureCache(policy=..., ratio=...), a list of these (nearest first), 'auto' or "
            f"None."
        )
    return levels


class ModuleCache:
    """A data module's cache: of the features x, from one ``setup`` to ``teardown``.

    Args:
        cache: as :class:`GraphDataModule` takes it.

    Raises:
        CacheConfigError: it is neither settings nor ``"auto"``.
    """

    def __init__(self, cache: CacheSettings) -> None:
        self.levels = cache_levels(cache)
        self._store: DeferredStore | None = None

    def stores(self, module: GraphDataModule, phase: str) -> dict[str, FeatureStore]:
        """What a phase's mini-batches are gathered from instead of the data's own stores: one cache for all phases.

        Without a cache, features that several ranks of a machine hold in memory of their own are put together, too.

        Raises:
            CacheConfigError: there are no features to be cached.
        """
        if self._store is None:
            x, trainer = module.data.x, _running(module.trainer)
            if x is None and self.levels:
                raise CacheConfigError("the graph has no features x to be cached; give GraphDataModule(cache=None).")
            if x is None or not (self.levels or (trainer is not None and _is_worth_sharing(x))):
                return {}
            name = " in front of ".join(map(repr, self.levels)) or "one copy a machine"
            self._store = DeferredStore(x, partial(self._open, module, phase, trainer), name)
        return {"x": self._store}

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _open(self, module: GraphDataModule, phase: str, trainer: pl.Trainer | None) -> FeatureStore:
        assert self._store is not None
        store, gathering = self._store.behind, Gathering.of(trainer)
        if not gathering.is_here:
            return store  # a trainer that samples in the place of lost samplers
        if isinstance(store, MemoryFeatureStore) and _is_worth_sharing(store):
            store = module.data.x = self._store.behind = _one_copy(store, gathering)
        if not self.levels:
            return store
        is_fit = trainer is None or trainer.state.fn == TrainerFn.FITTING
        workload = module.workload("train" if is_fit and len(module.data.train) else phase)
        progress, epoch = gathering.index == 0, 0
        if trainer is not None:
            progress = progress and trainer.node_rank == 0 and trainer.progress_bar_callback is not None
            epoch = trainer.current_epoch
        sharers = gathering.sharers("cache")
        return open_all(self.levels, store, workload, sharers=sharers, epoch=epoch, progress=progress)


def _running(trainer: pl.Trainer | None) -> pl.Trainer | None:
    """None where mini-batches are read by hand: the other ranks may not read at all, and are not waited for."""
    return trainer if trainer is not None and trainer.state.status == TrainerStatus.RUNNING else None


def _is_worth_sharing(store: FeatureStore) -> bool:
    """Features in this process's memory, and enough of them that a copy in each rank matters."""
    return isinstance(store, MemoryFeatureStore) and store.rows.nbytes >= _WORTH_SHARING_BYTES


def _one_copy(store: MemoryFeatureStore, gathering: Gathering) -> MemoryFeatureStore:
    """The same rows, in memory that the ranks share; what each held before is free once nobody else holds it."""
    sharers = gathering.sharers("rows", at_most_s=_WAIT_FOR_ROWS_S)
    if sharers is None:
        return store
    try:
        return share_rows(store, sharers)
    except CacheShareError as error:
        _log.warning("Each rank of this machine keeps its own copy of the features: %s", error)
        return store


def open_on_sampler(source: BatchSource, *, is_successor: bool, takeover: bool) -> BatchSource:
    """Opens a sampler's features, which takes long where a cache is filled.

    A sampler in whose place another process served reads the store itself, as the cache was the other's. So does one
    that misses another sampler, where training goes on without that one.

    Raises:
        CacheShareError: another sampler failed to open the cache, without ``takeover``.
    """
    for store in source.features.values():
        if isinstance(store, DeferredStore) and is_successor:
            store.close()
    try:
        source.open()
    except CacheShareError as error:
        if not takeover:
            raise
        _log.warning("This sampler goes on without a cache of features: %s", error)
        close_caches(source)
    return source


def close_caches(source: BatchSource) -> None:
    """Gives back what opening a source took. Its features can be read still, from their stores."""
    for store in source.features.values():
        if isinstance(store, DeferredStore):
            store.close()

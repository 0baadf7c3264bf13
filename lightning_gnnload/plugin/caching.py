"""How a data module's cache comes about: from its settings, by the ranks that gather, when the first batch is made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.deferred import DeferredStore
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.errors import CacheConfigError, CacheShareError
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.compat import TrainerFn, TrainerStatus, pl
from lightning_gnnload.plugin.gathering import Gathering
from lightning_gnnload.sample.workload import Workload

if TYPE_CHECKING:
    from lightning_gnnload.plugin.datamodule import GraphDataModule

CacheSettings = FeatureCache | list[FeatureCache] | Literal["auto"] | None
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

        Raises:
            CacheConfigError: the graph has no features.
        """
        if not self.levels:
            return {}
        if self._store is None:
            self._store = self._deferred(module, phase)
        return {"x": self._store}

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _deferred(self, module: GraphDataModule, phase: str) -> DeferredStore:
        data, trainer = module.data, module.trainer
        if data.x is None:
            raise CacheConfigError("the graph has no features x to be cached; give GraphDataModule(cache=None).")
        if trainer is not None and trainer.state.status != TrainerStatus.RUNNING:
            trainer = None  # read by hand: the other ranks may not read at all, and are not waited for
        is_fit = trainer is None or trainer.state.fn == TrainerFn.FITTING
        chosen_for = "train" if is_fit and len(data.train) else phase
        name = " in front of ".join(map(repr, self.levels))
        return DeferredStore(data.x, partial(self._open, data.x, partial(module.workload, chosen_for), trainer), name)

    def _open(self, store: FeatureStore, workload: Callable[[], Workload], trainer: pl.Trainer | None) -> FeatureStore:
        gathering = Gathering.of(trainer)
        if not gathering.is_here:
            return store  # a trainer that samples in the place of lost samplers
        progress, epoch = gathering.index == 0, 0
        if trainer is not None:
            progress = progress and trainer.node_rank == 0 and trainer.progress_bar_callback is not None
            epoch = trainer.current_epoch
        front = store
        for number, level in reversed(list(enumerate(self.levels))):
            sharers = gathering.sharers(f"level-{number}")
            front = level.open(front, workload(), sharers=sharers, epoch=epoch, progress=progress)
        return front


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

"""How a data module's cache comes about: from its settings, by the ranks that gather, when the first batch is made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal

from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.deferred import DeferredStore
from lightning_gnnload.cache.sharers import Sharers
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.errors import CacheConfigError, CacheShareError
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.gathering import Gathering
from lightning_gnnload.sample.workload import Workload

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
            f"cache={cache!r}: give FeatureCache(policy=..., ratio=...), a list of these (nearest first), 'auto' or None."
        )
    return levels


def deferred_cache(
    levels: Sequence[FeatureCache], store: FeatureStore, workload: Callable[[], Workload], trainer: pl.Trainer | None
) -> DeferredStore:
    """The cache of one fit, say, not yet filled.

    Args:
        levels: nearest first.
        store: what lies behind.
        workload: what will be gathered; asked when it is opened.
        trainer: knows which ranks of this machine gather.
    """

    def open_levels() -> FeatureStore:
        gathering = Gathering.of(trainer)
        if not gathering.is_here:
            return store  # a trainer that samples in the place of lost samplers
        progress = gathering.index == 0
        if trainer is not None:
            progress = progress and trainer.node_rank == 0 and trainer.progress_bar_callback is not None
        front = store
        for number, level in reversed(list(enumerate(levels))):
            front = level.open(
                front,
                workload(),
                sharers=_sharers(gathering, number),
                epoch=0 if trainer is None else trainer.current_epoch,
                progress=progress,
            )
        return front

    return DeferredStore(store, open_levels, " in front of ".join(map(repr, levels)))


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


def _sharers(gathering: Gathering, level: int) -> Sharers | None:
    if gathering.count == 1:
        return None
    return Sharers(f"{gathering.name}-{level}", gathering.index, gathering.count, gathering.timeout_s)

"""Measures of a cache from the reads of gathers: hit rate, bytes, similarity of epochs; as functions and as metrics."""

from __future__ import annotations

import math
from typing import Any

import torch
from torchmetrics import Metric

from lightning_gnnload.cache.trace import similarity
from lightning_gnnload.data.features import Reads
from lightning_gnnload.errors import CacheConfigError

CACHE_TIERS = "cache"
"""Prefix of the tiers of all caches: ``"cache"``, ``"cache 2"``; stores have other names."""


def rows_read(reads: Reads, tier: str | None = None) -> int:
    """Counts the rows that came from a tier; None: from all tiers."""
    return sum(read.rows for read in reads if tier in (None, read.tier))


def bytes_read(reads: Reads, tier: str | None = None) -> int:
    """Counts the bytes read from a tier; None: from all tiers."""
    return sum(read.num_bytes for read in reads if tier in (None, read.tier))


def rows_hit(reads: Reads, tier: str | None = None) -> int:
    """Counts the rows that came from the cache of a tier; None: from all caches."""
    return sum(read.rows for read in reads if tier in (None, read.tier) and is_cache(read.tier))


def hit_rate(reads: Reads, tier: str | None = None) -> float:
    """Computes the share of all gathered rows that came from caches, or from one tier's; NaN where none was gathered.

    Example:
        >>> from lightning_gnnload.data.features import TierReads
        >>> hit_rate((TierReads("cache", 3, 24), TierReads("disk", 1, 512)))
        0.75
    """
    rows = rows_read(reads)
    return rows_hit(reads, tier) / rows if rows else math.nan


def is_cache(tier: str) -> bool:
    """Whether a tier of reads is a cache's."""
    return tier.startswith(CACHE_TIERS)


def has_cache(reads: Reads) -> bool:
    """Whether a cache is among the tiers, even if no row came from it."""
    return any(is_cache(read.tier) for read in reads)


class HitRate(Metric):
    """A metric: the share of gathered rows that a cache served (``hits / rows``), in [0, 1]; NaN before the first.
    ``tier``, such as ``"cache 2"``, counts the hits of one cache alone.

    Example:
        >>> from lightning_gnnload.data.features import TierReads
        >>> metric = HitRate()
        >>> metric.update((TierReads("cache", rows=3, num_bytes=48), TierReads("memory", rows=1, num_bytes=16)))
        >>> metric.update((TierReads("cache", rows=4, num_bytes=64),))
        >>> metric.compute()
        tensor(0.8750)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    hits: torch.Tensor
    rows: torch.Tensor

    def __init__(self, tier: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tier = tier
        self.add_state("hits", torch.tensor(0), dist_reduce_fx="sum", persistent=True)
        self.add_state("rows", torch.tensor(0), dist_reduce_fx="sum", persistent=True)

    def update(self, reads: Reads) -> None:
        """Counts the reads of one gather or of several."""
        self.hits += rows_hit(reads, self.tier)
        self.rows += rows_read(reads)

    def compute(self) -> torch.Tensor:
        return self.hits / self.rows


class BytesRead(Metric):
    """A metric: bytes of feature rows read from one tier, or from all; a disk reads whole sectors.

    Example:
        >>> from lightning_gnnload.data.features import TierReads
        >>> metric = BytesRead("disk")
        >>> metric.update((TierReads("cache", rows=3, num_bytes=48), TierReads("disk", rows=1, num_bytes=512)))
        >>> metric.compute()
        tensor(512)
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    num_bytes: torch.Tensor

    def __init__(self, tier: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tier = tier
        self.add_state("num_bytes", torch.tensor(0), dist_reduce_fx="sum", persistent=True)

    def update(self, reads: Reads) -> None:
        """Counts the reads of one gather or of several."""
        self.num_bytes += bytes_read(reads, self.tier)

    def compute(self) -> torch.Tensor:
        return self.num_bytes


class AccessSimilarity(Metric):
    """A metric: how well the previous epoch's visits predict this epoch's hottest nodes, in [0, 1]; NaN in the first.

    It is :func:`.trace.similarity` of both epochs' visits, with ``top`` as the share of nodes that count as hot, and
    takes 8 bytes a node. Where it is high, a cache that is filled by past or presampled visits works. Raises
    CacheConfigError for a ``top`` outside (0, 1].

    Source: GNNLab (EuroSys'22), section 6.2, Table 2.

    Example:
        >>> metric = AccessSimilarity(num_nodes=4, top=0.5)
        >>> for nodes in ([0, 1], [0, 1], [0], [0]):
        ...     metric.update(torch.tensor(nodes))
        >>> metric.next_epoch()
        >>> for nodes in ([0, 2], [0], [0]):
        ...     metric.update(torch.tensor(nodes))
        >>> metric.compute()
        tensor(0.7500)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = True
    earlier: torch.Tensor
    visits: torch.Tensor

    def __init__(self, num_nodes: int, top: float = 0.1, **kwargs: Any) -> None:
        if not 0 < top <= 1:
            raise CacheConfigError(f"top={top!r}: a share of the nodes above 0 and up to 1 is needed.")
        super().__init__(**kwargs)
        self.top = top
        for name in ("earlier", "visits"):
            self.add_state(name, torch.zeros(num_nodes, dtype=torch.int32), dist_reduce_fx="sum", persistent=True)

    def update(self, nodes: torch.Tensor) -> None:
        """Counts the input nodes of one mini-batch, int64 ``[V]``."""
        self.visits.index_add_(0, nodes, torch.ones_like(nodes, dtype=torch.int32))

    def next_epoch(self) -> None:
        """Begins an epoch, which is compared with what was counted since the last call."""
        self.earlier, self.visits = self.visits, torch.zeros_like(self.visits)
        self._computed = None  # torchmetrics drops a computed result in update() alone

    def compute(self) -> torch.Tensor:
        if not self.earlier.any():
            return torch.tensor(torch.nan)
        return torch.tensor(similarity(self.earlier.cpu().numpy(), self.visits.cpu().numpy(), self.top))

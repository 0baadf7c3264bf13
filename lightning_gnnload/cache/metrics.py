"""Measures of a cache from what was read: hit rate, bytes, how alike epochs are; as functions and as metrics."""

from __future__ import annotations

import math
from typing import Any

import torch
from torchmetrics import Metric

from lightning_gnnload.cache.trace import similarity
from lightning_gnnload.data.features import Reads
from lightning_gnnload.errors import CacheConfigError

CACHE_TIERS = "cache"
"""What the names of all caches' tiers begin with: ``"cache"``, ``"cache 2"``; those of stores do not."""


def rows_read(reads: Reads, tier: str | None = None) -> int:
    """Counts the rows that a tier gave; None: all tiers."""
    return sum(read.rows for read in reads if tier in (None, read.tier))


def bytes_read(reads: Reads, tier: str | None = None) -> int:
    """Counts the bytes read from a tier; None: from all tiers."""
    return sum(read.num_bytes for read in reads if tier in (None, read.tier))


def rows_hit(reads: Reads, tier: str | None = None) -> int:
    """Counts the rows that the cache of a tier gave; None: all caches."""
    return sum(read.rows for read in reads if tier in (None, read.tier) and is_cache(read.tier))


def hit_rate(reads: Reads, tier: str | None = None) -> float:
    """Computes the share of all gathered rows that caches gave, or the cache of one tier; NaN where none was gathered.

    Example:
        >>> from lightning_gnnload.data.features import TierReads
        >>> hit_rate((TierReads("cache", 3, 24), TierReads("disk", 1, 512)))
        0.75
    """
    rows = rows_read(reads)
    return rows_hit(reads, tier) / rows if rows else math.nan


def is_cache(tier: str) -> bool:
    return tier.startswith(CACHE_TIERS)


def has_cache(reads: Reads) -> bool:
    """Whether there is a cache among the tiers, though it may have given nothing."""
    return any(is_cache(read.tier) for read in reads)


class HitRate(Metric):
    """A metric: the share of gathered rows that a cache served (``hits / rows``), in [0, 1]; NaN before the first.

    Args:
        tier: of the caches, the one whose hits count, such as ``"cache 2"``; None: all.

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
        """Counts what one gather, or several, took from each tier."""
        self.hits += rows_hit(reads, self.tier)
        self.rows += rows_read(reads)

    def compute(self) -> torch.Tensor:
        return self.hits / self.rows


class BytesRead(Metric):
    """A metric: bytes of feature rows read from one tier; from a disk, whole sectors.

    Args:
        tier: ``"memory"``, ``"disk"``, ``"cache"`` and so on; None: all.

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
        """Counts what one gather, or several, took from each tier."""
        self.num_bytes += bytes_read(reads, self.tier)

    def compute(self) -> torch.Tensor:
        return self.num_bytes


class AccessSimilarity(Metric):
    """A metric: how well the previous epoch's visits predict those of this epoch's hottest nodes, in [0, 1]; NaN in the
    first.

    It is :func:`.trace.similarity` of both epochs' visits, which count the mini-batches that read each node. Where it
    is high, what was read, or sampled beforehand, says what is worth caching. Takes 8 bytes a node.

    Args:
        num_nodes: N, of the graph.
        top: share of the nodes, in (0, 1].

    Raises:
        CacheConfigError: ``top`` is not in (0, 1].

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
        """Begins an epoch, which will be compared with what was counted since the last call."""
        self.earlier, self.visits = self.visits, torch.zeros_like(self.visits)
        self._computed = None  # torchmetrics keeps a result until update(), which this is not

    def compute(self) -> torch.Tensor:
        if not self.earlier.any():
            return torch.tensor(torch.nan)
        return torch.tensor(similarity(self.earlier.cpu().numpy(), self.visits.cpu().numpy(), self.top))

"""Reads, counted: sums over many gathers, and what they say of a cache."""

from __future__ import annotations

import math

from lightning_gnnload.data.features import Reads, TierReads

CACHE_TIERS = "cache"
"""What the names of all caches' tiers begin with: ``"cache"``, ``"cache 2"``; those of stores do not."""


def add(*counted: Reads) -> Reads:
    """The sum by tier; in the order in which tiers come first.

    Example:
        >>> add((TierReads("cache", 3, 24), TierReads("disk", 1, 512)), (TierReads("cache", 1, 8),))
        (TierReads(tier='cache', rows=4, num_bytes=32), TierReads(tier='disk', rows=1, num_bytes=512))
    """
    sums: dict[str, TierReads] = {}
    for tier, rows, num_bytes in (read for reads in counted for read in reads):
        before = sums.get(tier)
        sums[tier] = (
            TierReads(tier, rows, num_bytes)
            if before is None
            else TierReads(tier, before.rows + rows, before.num_bytes + num_bytes)
        )
    return tuple(sums.values())


def subtract(after: Reads, before: Reads) -> Reads:
    """What was read in between, by tier."""
    return add(after, tuple(TierReads(tier, -rows, -num_bytes) for tier, rows, num_bytes in before))


def rows_read(reads: Reads, tier: str | None = None) -> int:
    """Rows that a tier gave; None: all tiers."""
    return sum(read.rows for read in reads if tier in (None, read.tier))


def bytes_read(reads: Reads, tier: str | None = None) -> int:
    """Bytes read from a tier; None: from all tiers."""
    return sum(read.num_bytes for read in reads if tier in (None, read.tier))


def rows_hit(reads: Reads, tier: str | None = None) -> int:
    """Rows that a cache gave: of that tier; None: of any."""
    return sum(read.rows for read in reads if tier in (None, read.tier) and is_cache(read.tier))


def hit_rate(reads: Reads, tier: str | None = None) -> float:
    """Of all rows gathered, the share that caches gave, or the cache of one tier; NaN where none was gathered.

    Example:
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

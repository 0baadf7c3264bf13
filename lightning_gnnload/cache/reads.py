"""What reads, of one gather or summed over many, say of a cache."""

from __future__ import annotations

import math

from lightning_gnnload.data.features import Reads

CACHE_TIERS = "cache"
"""What the names of all caches' tiers begin with: ``"cache"``, ``"cache 2"``; those of stores do not."""


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

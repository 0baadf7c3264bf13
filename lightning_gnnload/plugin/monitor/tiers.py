"""Where feature rows came from, as a table and a recommendation."""

from __future__ import annotations

from rich.table import Table

from lightning_gnnload.cache.reads import has_cache, hit_rate, rows_read
from lightning_gnnload.data.features import Reads

_LOW = 0.5
"""A hit rate under which a cache leaves most of the reading to what lies behind it."""


def tier_table(reads: Reads, num_batches: int) -> Table | None:
    """Rows and bytes by tier, nearest first, as a table for people; None where nothing was counted."""
    rows = rows_read(reads)
    if not rows:
        return None
    table = Table(title="Where the feature rows came from")
    table.add_column("tier")
    for heading in ("rows a batch", "share of the rows", "MB a batch"):
        table.add_column(heading, justify="right")
    for read in reads:
        megabytes = read.num_bytes / num_batches / 1e6
        table.add_row(read.tier, f"{read.rows / num_batches:,.0f}", f"{read.rows / rows:.1%}", f"{megabytes:.2f}")
    return table


def faster_gathering(reads: Reads) -> str:
    """What to change where gathering features is what takes the time."""
    if not has_cache(reads):
        return 'keep the features in memory, or in a smaller dtype, or give GraphDataModule(cache="auto")'
    rate = hit_rate(reads)
    if rate < _LOW:
        return (
            f"give the cache, which has {rate:.0%} of the rows that are read, more memory "
            f"(FeatureCache(ratio=...) or capacity_bytes=...), or another policy"
        )
    return f"keep the features in a smaller dtype, as the cache has {rate:.0%} of the rows that are read already"

"""The quality of a partition as text for people: a table of parts, what they add up to, and where time went."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table

from lightning_gnnload.partition.quality import Quality, imbalance


def parts_table(quality: Quality, title: str) -> Table:
    """Makes a table with a row for each part, and a last one for the largest over the mean."""
    columns = {
        "own nodes": quality.own_nodes,
        "nodes held": quality.held_nodes,
        "mirrors": quality.mirrors,
        "edges held": quality.held_edges,
        **{f"{phase} seeds": sizes for phase, sizes in quality.seeds.items()},
    }
    # 80 columns hold it, whatever the graph: counts have seven characters at most, and headings take two lines.
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("part")
    for name in columns:
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
    if quality.caches is not None:
        table.add_column("cache\nhits", justify="right", no_wrap=True)
    for part in range(quality.num_parts):
        rates = [] if quality.caches is None else [f"{quality.caches.by_part[part]:.1%}"]
        table.add_row(str(part), *(_count(sizes[part]) for sizes in columns.values()), *rates)
    table.add_section()
    table.add_row("max/mean", *(f"{imbalance(sizes):.3f}" for sizes in columns.values()))
    return table


def _count(number: int) -> str:
    """Writes all digits below a million, else four, and whether these are millions or milliards."""
    for unit, name in ((10**9, "G"), (10**6, "M")):
        if number >= unit:
            return f"{number / unit:.4g} {name}"
    return f"{number:,}"


def findings(quality: Quality, *, self_reliant: bool) -> Iterator[str]:
    """Yields sentences: what the parts hold, what they cut, and what their caches hit."""
    yield (
        f"A part holds {quality.node_share:.1%} of the nodes and {quality.edge_share:.1%} of the edges on average; "
        f"all parts together {quality.node_replication:.2f} times the nodes and {quality.edge_replication:.2f} times "
        f"the edges."
    )
    yield (
        f"Cross-part edges: {quality.cross_edges:,}, {quality.cross_share:.1%} of all; a random partition has "
        f"{quality.random_cross_share:.1%}."
    )
    if quality.sampled is not None:
        sampled = quality.sampled
        yield (
            f"Sampled, in {sampled.num_batches:,} mini-batches: {sampled.cross_share:.1%} of their edges are between "
            f"parts, and {sampled.foreign_share:.1%} of the lists drawn from are another part's than the trainer's"
            + (", which holds a copy, and asks nobody." if self_reliant else ".")
        )
    if quality.caches is not None:
        caches = quality.caches
        mean = sum(caches.by_part) / len(caches.by_part)
        yield (
            f"Cache of {caches.ratio:.3g} of the rows, by {caches.policy}: each part's own hits {mean:.1%} on average; "
            f"one for all, copied to each trainer, {caches.shared:.1%}."
        )


def stages_table(quality: Quality) -> Table:
    """Makes a table of the time and memory that each stage took."""
    table = Table(title="Where time and memory went")
    for name in ("step", "seconds", "most memory held, MiB"):
        table.add_column(name, justify="left" if name == "step" else "right")
    for stage in quality.stages:
        table.add_row(stage.name, f"{stage.seconds:.1f}", f"{stage.peak_bytes / 2**20:,.0f}")
    table.add_section()
    peak = max((stage.peak_bytes for stage in quality.stages), default=0)
    table.add_row("all", f"{sum(stage.seconds for stage in quality.stages):.1f}", f"{peak / 2**20:,.0f}")
    return table

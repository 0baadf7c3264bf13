"""The figure of ``gnnload partition``: what parts hold, how even they are, what they cut, and what caches hit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_gnnload.drawing import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PINK,
    SKY,
    SMALL,
    new_figure,
    save_figure,
    tidy,
)
from lightning_gnnload.partition.quality import Quality

_PHASES = {"train": ORANGE, "val": GREEN, "test": PINK}
_MOST_LABELS = 16  # more would overlap


def draw_quality(quality: Quality, title: str, file: Path) -> None:
    """Writes a PNG of four panels; the one of caches is left out where nothing was cached.

    Source: PaGraph (TPDS'21), figures 17a and 17b; BGL (NSDI'23), figure 15.
    """
    finding = (
        f"Each of {quality.num_parts} parts holds {quality.node_share:.0%} of the nodes; "
        f"{quality.cross_share:.0%} of the edges lie between parts"
    )
    figure = new_figure(finding, 6.9, title.replace("\n", "; "))
    panels = [_draw_nodes, _draw_balance, _draw_cut, *([_draw_caches] if quality.caches is not None else [])]
    for position, panel in enumerate(panels, 1):
        axes = figure.add_subplot(2, 2, position)
        tidy(axes, panel(axes, quality))
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, fontsize=SMALL, frameon=False)
    save_figure(figure, file)


def _draw_nodes(axes: Any, quality: Quality) -> str:
    """Draws stacked bars: a part's own nodes and its copies of other parts' nodes, as shares of the graph."""
    shares = [100 * nodes / max(quality.num_nodes, 1) for nodes in quality.held_nodes]
    mirrors = [100 * nodes / max(quality.num_nodes, 1) for nodes in quality.mirrors]
    own_shares = [whole - mirror for whole, mirror in zip(shares, mirrors, strict=True)]
    parts = range(quality.num_parts)
    axes.bar(parts, own_shares, color=BLUE, label="own nodes")
    axes.bar(parts, mirrors, bottom=own_shares, color=SKY, label="copies of others'")
    axes.axhline(100 / quality.num_parts, color=INK, linewidth=1, linestyle=":", label="an equal share")
    axes.set_ylabel("% of the graph's nodes")
    _number_parts(axes, quality.num_parts)
    return "What a part holds: its own nodes, and copies"


def _draw_balance(axes: Any, quality: Quality) -> str:
    """Draws markers: sizes of each part over their mean."""
    columns = [("nodes held", quality.held_nodes, INK, "s"), ("edges held", quality.held_edges, GREY, "D")]
    columns += [(f"{phase} seeds", values, _PHASES[phase], "o") for phase, values in quality.seeds.items()]
    for index, (name, values, color, marker) in enumerate(columns):
        shift = (index - (len(columns) - 1) / 2) * 0.12
        mean = sum(values) / len(values) or 1
        at = [part + shift for part in range(quality.num_parts)]
        axes.plot(at, [value / mean for value in values], marker, color=color, markersize=5, label=name)
    axes.axhline(1, color=INK, linewidth=1, linestyle=":")
    axes.set_ylabel("size, mean of the parts = 1")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.9), max(high, 1.1))
    _number_parts(axes, quality.num_parts)
    return "How even the parts are"


def _draw_cut(axes: Any, quality: Quality) -> str:
    """Draws bars: edges between parts, of the graph and of mini-batches, beside those of a random partition."""
    names, shares = ["random\nparts", "edges"], [quality.random_cross_share, quality.cross_share]
    if quality.sampled is not None:
        names += ["edges of\nmini-batches", "lists they\ndraw from"]
        shares += [quality.sampled.cross_share, quality.sampled.foreign_share]
    bars = axes.bar(range(len(names)), [100 * share for share in shares], 0.6, color=[PALE] + [BLUE] * len(names))
    axes.bar_label(bars, fmt="%.1f", fontsize=SMALL, padding=2)
    axes.set_ylim(0, 112 * max(*shares, 0.01))
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("% between two parts")
    return "What leads from a part to another"


def _draw_caches(axes: Any, quality: Quality) -> str:
    """Draws bars: hit rates of each part's own cache, and a line for the one that all would share."""
    assert quality.caches is not None
    rates = [100 * rate for rate in quality.caches.by_part]
    axes.bar(range(len(rates)), rates, color=BLUE, label="each part's own")
    axes.axhline(100 * quality.caches.shared, color=ORANGE, linewidth=2, label="one for all, copied")
    axes.set_ylim(0, 112 * max(*quality.caches.by_part, quality.caches.shared, 0.01))
    axes.set_ylabel("hit rate, %")
    _number_parts(axes, quality.num_parts)
    return f"What caches of {100 * quality.caches.ratio:.3g} % of the rows hit"


def _number_parts(axes: Any, num_parts: int) -> None:
    every = -(-num_parts // _MOST_LABELS)
    ticks: Sequence[int] = range(0, num_parts, every)
    axes.set_xticks(ticks, [str(part) for part in ticks])
    axes.set_xlim(-0.6, num_parts - 0.4)
    axes.set_xlabel("part")

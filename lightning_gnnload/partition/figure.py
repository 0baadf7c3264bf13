"""The figure of ``gnnload partition``: what parts hold, how even they are, what they cut, and what caches hit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_gnnload.partition.quality import Quality

_OWN, _MIRROR, _RANDOM, _SHARED = "#2a78d6", "#a9c8ee", "#9aa3ad", "#eda100"
_PHASES = {"train": "#2a78d6", "val": "#1baf7a", "test": "#eda100"}
_MOST_LABELS = 16  # more would overlap


def draw_quality(quality: Quality, title: str, file: Path) -> None:
    """Writes a PNG of four panels; the one of caches is left out where nothing was cached.

    Source: PaGraph (TPDS'21), figures 17a and 17b; BGL (NSDI'23), figure 15.
    """
    # Drawn on a canvas of its own, so that a user's pyplot state and backend stay as they are.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [_draw_nodes, _draw_balance, _draw_cut, *([_draw_caches] if quality.caches is not None else [])]
    figure = Figure(figsize=(10, 8), layout="constrained")
    FigureCanvasAgg(figure)
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(2, 2, place)
        panel(axes, quality)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, fontsize=9, frameon=False)
    figure.suptitle(title, fontsize=11)
    figure.savefig(file, dpi=130)


def _draw_nodes(axes: Any, quality: Quality) -> None:
    """Draws stacked bars: what a part holds of its own and of others' nodes, as shares of the graph."""
    held = [100 * nodes / max(quality.num_nodes, 1) for nodes in quality.held_nodes]
    mirrors = [100 * nodes / max(quality.num_nodes, 1) for nodes in quality.mirrors]
    own = [whole - mirror for whole, mirror in zip(held, mirrors, strict=True)]
    parts = range(quality.num_parts)
    axes.bar(parts, own, color=_OWN, label="own nodes")
    axes.bar(parts, mirrors, bottom=own, color=_MIRROR, label="mirrors")
    axes.axhline(100 / quality.num_parts, color="#222222", linewidth=1, linestyle=":", label="an equal share")
    axes.set_title(f"nodes held: {quality.node_share:.1%} of all on average", fontsize=10)
    axes.set_ylabel("% of the graph's nodes")
    _number_parts(axes, quality.num_parts)


def _draw_balance(axes: Any, quality: Quality) -> None:
    """Draws markers: sizes of each part over their mean."""
    sizes = {"nodes": quality.held_nodes, "edges": quality.held_edges}
    columns = [
        (name, values, color) for (name, values), color in zip(sizes.items(), ("#222222", "#9aa3ad"), strict=True)
    ]
    columns += [(f"{phase} seeds", values, _PHASES[phase]) for phase, values in quality.seeds.items()]
    for place, (name, values, color) in enumerate(columns):
        shift = (place - (len(columns) - 1) / 2) * 0.12
        mean = sum(values) / len(values) or 1
        at = [part + shift for part in range(quality.num_parts)]
        axes.plot(at, [value / mean for value in values], "o", color=color, markersize=5, label=name)
    axes.axhline(1, color="#222222", linewidth=1, linestyle=":")
    axes.set_title("balance", fontsize=10)
    axes.set_ylabel("size over the mean of all parts")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.9), max(high, 1.1))
    _number_parts(axes, quality.num_parts)


def _draw_cut(axes: Any, quality: Quality) -> None:
    """Draws bars: edges between parts, of the graph and of mini-batches, beside those of a random partition."""
    names, shares = ["edges"], [quality.cross_share]
    if quality.sampled is not None:
        names += ["sampled\nedges", "sampled\nlists"]
        shares += [quality.sampled.cross_share, quality.sampled.foreign_share]
    bars = axes.bar(range(len(names)), [100 * share for share in shares], width=0.6, color=_OWN, label="between parts")
    axes.bar_label(bars, fmt="%.1f", fontsize=9, padding=2)
    axes.axhline(
        100 * quality.random_cross_share, color=_RANDOM, linewidth=1.5, linestyle="--", label="edges, random parts"
    )
    axes.set_ylim(0, 112 * max(*shares, quality.random_cross_share, 0.01))
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_title("between parts", fontsize=10)
    axes.set_ylabel("%")


def _draw_caches(axes: Any, quality: Quality) -> None:
    """Draws bars: hit rates of each part's own cache, and a line for the one that all would share."""
    assert quality.caches is not None
    rates = [100 * rate for rate in quality.caches.by_part]
    axes.bar(range(len(rates)), rates, color=_OWN, label="each part's own")
    axes.axhline(100 * quality.caches.shared, color=_SHARED, linewidth=2, label="one for all, copied")
    axes.set_ylim(0, 112 * max(*quality.caches.by_part, quality.caches.shared, 0.01))
    axes.set_title(f"cache of {quality.caches.ratio:.3g} of the rows", fontsize=10)
    axes.set_ylabel("hit rate, %")
    _number_parts(axes, quality.num_parts)


def _number_parts(axes: Any, num_parts: int) -> None:
    every = -(-num_parts // _MOST_LABELS)
    ticks: Sequence[int] = range(0, num_parts, every)
    axes.set_xticks(ticks, [str(part) for part in ticks])
    axes.set_xlim(-0.6, num_parts - 0.4)
    axes.set_xlabel("part")

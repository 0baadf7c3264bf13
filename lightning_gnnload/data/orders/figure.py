"""The figure of ``gnnload order``: a cache's misses and how well labels are mixed, by the number of sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_gnnload.data.orders.reads import CacheReads
from lightning_gnnload.data.orders.shuffling import MOST_EXCESS, count
from lightning_gnnload.drawing import BLUE, GREEN, GREY, ORANGE, PALE, name_lines, new_figure, save_figure, tidy


@dataclass(frozen=True)
class OrderTrial:
    """The measurements of one order."""

    sequences: int | None  # None: a shuffle
    reads: CacheReads
    distance: float | None  # label_distance(), None where labels are no classes


def draw_orders(shuffled: OrderTrial, tried: Sequence[OrderTrial], chosen: int | None, note: str, file: Path) -> None:
    """Writes a PNG of misses and of labels against the number of sequences; without classes, of misses alone.

    ``tried`` ascends by sequences. ``chosen`` is the number that ``order="proximity"`` takes, None for a shuffle.

    Source: the trade-off of BGL (NSDI'23), section 3.2.2.
    """
    marked = "" if chosen is None else " The grey bar marks the default."
    figure = new_figure(_title(shuffled, tried, chosen), 4.4, f"{note}{marked}")
    panels = figure.subplots(1, 1 if shuffled.distance is None else 2, squeeze=False)[0]
    usual = max(shuffled.reads.missed, 1)
    missed = ("missed", BLUE, [100 * trial.reads.missed / usual for trial in tried], 100.0)
    hits = ("hits", ORANGE, [100 * trial.reads.hit_rate for trial in tried], 100 * shuffled.reads.hit_rate)
    _draw(panels[0], tried, chosen, [missed, hits])
    panels[0].set_ylabel("%")
    tidy(panels[0], "a cache's misses, % of a shuffle's; its hits, %")
    if shuffled.distance is not None:
        labels = ("this order", GREEN, [trial.distance or 0.0 for trial in tried], shuffled.distance)
        limit = shuffled.distance + MOST_EXCESS
        panels[1].axhline(limit, color=GREY, linewidth=1, linestyle="--")
        _draw(panels[1], tried, chosen, [labels], [(limit, "limit", GREY)])
        panels[1].set_ylabel("distance from the labels of all seeds")
        tidy(panels[1], "labels of a mini-batch")
    save_figure(figure, file)


def _draw(
    axes: Any,
    tried: Sequence[OrderTrial],
    chosen: int | None,
    lines: Sequence[tuple[str, str, Sequence[float], float]],
    names: Sequence[tuple[float, str, str]] = (),
) -> None:
    """Draws lines of (name, color, values, a shuffle's value), the latter dotted, and marks the chosen number."""
    from matplotlib.ticker import NullLocator

    numbers = [trial.sequences or 1 for trial in tried]
    for _, color, values, usual in lines:
        axes.plot(numbers, values, color=color, linewidth=1.8, marker="o", markersize=3.5)
        axes.axhline(usual, color=color, linewidth=1, linestyle=":")
    if chosen is not None:
        axes.axvline(chosen, color=PALE, linewidth=6, zorder=0)
    axes.set_xscale("log", base=2)
    powers = [number for number in numbers if number & (number - 1) == 0]
    axes.set_xticks(powers[::2], [str(number) for number in powers[::2]])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("sequences")
    axes.set_ylim(0, 1.06 * max(max(*values, usual) for _, _, values, usual in lines))
    axes.set_xlim(numbers[0], max(numbers[-1], numbers[0] + 1))
    labels = [(values[-1], name, color) for name, color, values, _ in lines]
    shuffles = [(usual, "shuffle", color) for _, color, _, usual in lines]
    name_lines(axes, [*labels, *shuffles, *names])


def _title(shuffled: OrderTrial, tried: Sequence[OrderTrial], chosen: int | None) -> str:
    """Returns a sentence on what the chosen number saves, and what the fewest would."""

    def saved(trial: OrderTrial) -> str:
        share = 1 - trial.reads.missed / max(shuffled.reads.missed, 1)
        return f"{abs(share):.0%} {'fewer' if share >= 0 else 'more'}"

    by_number = {trial.sequences: trial for trial in tried}
    if chosen in by_number and chosen is not None:
        saves = f"{count(chosen)}, the default: {saved(by_number[chosen])} rows missed than by a shuffle"
        return f"{saves}; {count(tried[0].sequences or 1)}: {saved(tried[0])}"
    return f"{count(tried[0].sequences or 1)}: {saved(tried[0])} rows missed than by a shuffle"

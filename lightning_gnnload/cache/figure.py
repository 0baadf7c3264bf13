"""The figure of ``gnnload cache``: hit rates against the size of the cache, by what decides which rows it holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_gnnload.cache.rules import RULES
from lightning_gnnload.cache.simulate import HitRateCurve
from lightning_gnnload.drawing import INK, name_lines, new_figure, save_figure, tidy

_TYPICAL = 0.1  # the share of rows that the title speaks of, or the nearest


def draw_curves(
    curves: Sequence[HitRateCurve], ratios: Sequence[float], row_bytes: int, title: str, file: Path
) -> None:
    """Writes a PNG of two panels: caches that are filled beforehand, and caches that admit and evict. Another order of
    seeds is dashed. ``ratios`` are the sizes of all curves.

    Source: GNNLab (EuroSys'22), figure 10.
    """
    orders = list(dict.fromkeys(curve.order for curve in curves))
    reads = [f"{_rows_read(curves, order) * row_bytes / 1e6:,.0f} MB in the order {order!r}" for order in orders]
    note = f"{title}. Without a cache, an epoch reads {' and '.join(reads)}."
    figure = new_figure(_headline(curves, ratios), 5.6, note)
    panels = figure.subplots(1, 2, sharey=True)
    x = [100 * ratio for ratio in ratios]
    for axes, admits, caption in zip(
        panels, (False, True), ("filled before the epoch", "rows come and go as they are read"), strict=True
    ):
        line_labels = []
        for curve in (curve for curve in curves if _admits(curve) == admits):
            rule, is_other = RULES.get(curve.name), curve.order != orders[0]  # the optimum has no rule
            color = INK if rule is None else rule.color
            rates = [100 * rate for rate in curve.hit_rates]
            axes.plot(x, rates, color=color, linewidth=1.8, linestyle="--" if is_other else "-")
            line_labels.append((rates[-1], f"{curve.name}, {curve.order}" if is_other else curve.name, color))
        _number_sizes(axes, x)
        axes.set_xlabel("rows cached, % of all")
        tidy(axes, caption)
        axes.set_ylim(0, 100)
        axes.set_xlim(x[0], x[-1])
        name_lines(axes, line_labels)
    panels[0].set_ylabel("rows served by the cache, %")
    save_figure(figure, file)


def _headline(curves: Sequence[HitRateCurve], ratios: Sequence[float]) -> str:
    """Says what a cache of a usual size serves, by the best policy that does not know the coming epochs."""
    typical = min(range(len(ratios)), key=lambda number: abs(ratios[number] - _TYPICAL))
    realistic = [curve for curve in curves if curve.name in RULES and not RULES[curve.name].looks_ahead]
    best = max(realistic, key=lambda curve: curve.hit_rates[typical])
    most = max(curve.hit_rates[typical] for curve in curves if curve.order == best.order)
    return (
        f"{best.name!r} lets a cache of {100 * ratios[typical]:.3g} % of the rows serve {best.hit_rates[typical]:.0%} "
        f"of what is read; no rule could serve more than {most:.0%}"
    )


def _admits(curve: HitRateCurve) -> bool:
    rule = RULES.get(curve.name)
    return rule is not None and rule.admit is not None


def _rows_read(curves: Sequence[HitRateCurve], order: str) -> float:
    """Returns the rows that an epoch in this order reads."""
    # From the misses of one size and its hit rate, as a curve does not carry the number itself.
    curve = next(curve for curve in curves if curve.order == order)
    return curve.missed_rows[0] / max(1 - curve.hit_rates[0], 1e-9)


def _number_sizes(axes: Any, x: Sequence[float]) -> None:
    from matplotlib.ticker import NullLocator

    # Sizes grow by factors: on a linear axis what small caches gain would vanish at its edge.
    axes.set_xscale("log")
    axes.set_xticks(x, [f"{value:.3g}" for value in x])
    axes.xaxis.set_minor_locator(NullLocator())

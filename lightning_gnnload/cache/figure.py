"""The figure of ``gnnload cache``: hit rate, and bytes that are moved, against the size of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_gnnload.cache.rules import RULES
from lightning_gnnload.cache.simulate import HitRateCurve

_OPTIMUM_COLOR = "#222222"
_MARKERS = "oxs^"


def draw_curves(
    curves: Sequence[HitRateCurve], ratios: Sequence[float], row_bytes: int, title: str, file: Path
) -> None:
    """Writes a PNG: full lines choose rows beforehand, dashed ones admit and evict; markers tell orders of seeds.

    Args:
        curves: of :mod:`.simulate`.
        ratios: the sizes of these.
        row_bytes: of a row that is missed.
        title: what graph and sampler they are of.
        file: to write.

    Source: GNNLab (EuroSys'22), figures 10 and 11.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullLocator

    figure, (rates, moved) = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    orders = list(dict.fromkeys(curve.order for curve in curves))
    scale, unit = _unit(max(max(curve.missed_rows) for curve in curves) * row_bytes)
    x = [100 * ratio for ratio in ratios]
    for curve in curves:
        label = curve.name if len(orders) == 1 else f"{curve.name}, {curve.order}"
        rule = RULES.get(curve.name)  # the optimum has none
        style = {
            "color": _OPTIMUM_COLOR if rule is None else rule.color,
            "linestyle": "-" if rule is None or rule.admit is None else "--",
            "linewidth": 2.2 if curve.name in ("optimum", "presample") else 1.3,
            "marker": _MARKERS[orders.index(curve.order) % len(_MARKERS)],
            "markersize": 4,
        }
        rates.plot(x, [100 * rate for rate in curve.hit_rates], label=label, **style)
        moved.plot(x, [rows * row_bytes / scale for rows in curve.missed_rows], label=label, **style)
    for axes, what in ((rates, "hit rate, %"), (moved, f"read behind the cache, {unit} an epoch")):
        axes.set_xscale("log")
        axes.set_xticks(x, [f"{value:.3g}" for value in x])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("rows cached, % of all")
        axes.set_ylabel(what)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = rates.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=9, frameon=False)
    figure.suptitle(title, fontsize=11)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)


def _unit(num_bytes: float) -> tuple[float, str]:
    for exponent, unit in ((4, "TB"), (3, "GB"), (2, "MB")):
        if num_bytes >= 1000**exponent:
            return 1000.0**exponent, unit
    return 1000.0, "kB"

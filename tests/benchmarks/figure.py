"""The figure: how many times better than the peer's best setting, one bar a contender of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.measure import Comparison, Role
from tests.benchmarks.report import number

_COLORS = {"Sampling": "#2a78d6", "Gather": "#1baf7a", "Loader": "#eda100", "Memory": "#4a3aa7"}


def draw(comparisons: Sequence[Comparison], file: Path) -> None:
    """Writes a PNG. Topics without a peer of another library have no bars."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [
        (comparison.topic, comparison.setting, contender.name, comparison.ratio(contender))
        for comparison in comparisons
        if comparison.topic in _COLORS
        for contender in comparison.contenders
        if contender.role is Role.OURS
    ]
    bars = [bar for bar in bars if bar[3] is not None]
    if not bars:
        return
    rows, places, titles = _places(bars)
    figure, axes = pyplot.subplots(figsize=(9, 0.27 * rows + 1.2), layout="constrained")
    for (topic, _, _, ratio), place in zip(bars, places, strict=True):
        axes.barh(place, ratio - 1, left=1, color=_COLORS[topic], height=0.7)
        axes.annotate(
            number(ratio), (max(ratio, 1), place), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_xscale("log")
    axes.set_xlim(right=1.35 * max(bar[3] for bar in bars))
    axes.axvline(1, color="#555555", linewidth=1)
    axes.set_yticks(places, [bar[2] for bar in bars], fontsize=8)
    for place, title in titles:
        axes.annotate(
            title,
            (0, place),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            weight="bold",
        )
    axes.set_ylim(rows - 0.3, -0.7)
    axes.set_xlabel("times better than the peer's best setting (logarithmic)")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)


def _places(bars: Sequence[tuple]) -> tuple[float, list[float], list[tuple[float, str]]]:
    """Where the bars stand, and a title above each group of one topic and setting."""
    places: list[float] = []
    titles: list[tuple[float, str]] = []
    row, group = 0.0, None
    for topic, setting, *_ in bars:
        if (topic, setting) != group:
            group = (topic, setting)
            titles.append((row, f"{topic}: {setting}"))
            row += 1
        places.append(row)
        row += 1
    return row, places, titles

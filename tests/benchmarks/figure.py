"""The figure: how many times better than the peer's best setting, one bar a contender of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.measure import Comparison, Role
from tests.benchmarks.report import number

# One colour a topic; topics without a peer of another library have no bars.
_COLORS = {"Sampling": "#2a78d6", "Gather": "#1baf7a", "Loader": "#eda100", "Memory": "#4a3aa7"}
_ROW_INCHES = 0.25


def draw(comparisons: Sequence[Comparison], file: Path) -> bool:
    """Writes a PNG; returns False, and writes none, where there is nothing to show."""
    groups = [(comparison, _bars(comparison)) for comparison in comparisons if comparison.topic in _COLORS]
    groups = [(comparison, bars) for comparison, bars in groups if bars]
    if not groups:
        return False

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    num_rows = sum(len(bars) + 1 for _, bars in groups)
    figure, axes = pyplot.subplots(figsize=(9, _ROW_INCHES * num_rows + 1), layout="constrained")
    ticks: dict[int, str] = {}
    row = 0
    for comparison, bars in groups:
        best = comparison.best_peer
        assert best is not None
        title = f"{comparison.topic}: {comparison.setting}; 1 is {best.name}"
        axes.annotate(
            title,
            (0, row),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
            weight="bold",
            backgroundcolor="white",
        )
        for row, (name, ratio) in enumerate(bars, row + 1):  # noqa: B020  counts on
            ticks[row] = name
            axes.barh(row, ratio - 1, left=1, color=_COLORS[comparison.topic], height=0.7)
            axes.annotate(
                number(ratio),
                (max(ratio, 1), row),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        row += 1
    ratios = [ratio for _, bars in groups for _, ratio in bars]
    axes.set_xscale("log")
    axes.set_xlim(0.8 * min(1, *ratios), 1.4 * max(1, *ratios))
    axes.set_ylim(num_rows - 0.4, -0.8)
    axes.axvline(1, color="#555555", linewidth=1, zorder=0)
    for every in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        every(lambda value, _: f"{value:g}")
    axes.tick_params(axis="x", which="both", labelsize=8)
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("times better than the peer's best setting (logarithmic)", fontsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)
    return True


def _bars(comparison: Comparison) -> list[tuple[str, float]]:
    ours = [contender for contender in comparison.contenders if contender.role is Role.OURS]
    ratios = [(contender.name, comparison.ratio(contender)) for contender in ours]
    return [(name, ratio) for name, ratio in ratios if ratio is not None]

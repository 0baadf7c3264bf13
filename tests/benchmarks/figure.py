"""The figure: how many times better than each peer's best setting, with marks where it was asked to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.goals import Goal
from tests.benchmarks.measure import Comparison, Contender, Role
from tests.benchmarks.report import number

# One colour a topic; topics without a peer of another library have no bars.
_COLORS = {"Sampling": "#2a78d6", "Samplers": "#d6552a", "Gather": "#1baf7a", "Loader": "#eda100", "Memory": "#4a3aa7"}
_COLORS |= {
    "By type": "#2a78d6",
    "By time": "#d6552a",
    "Links": "#1baf7a",
    "Link loader": "#eda100",
    "PyG's loaders": "#2a78d6",
}
_LINEAR = {"PyG's loaders"}  # the others' figures span more than a power of ten
_ROW_INCHES = 0.25


@dataclass(frozen=True)
class Bar:
    """One contender of ours beside one peer.

    Attributes:
        ratio: how many times better.
        goal: the figure that was asked for, if this bar has to show one.
    """

    name: str
    ratio: float
    goal: Goal | None


def bars(comparison: Comparison) -> list[Bar]:
    """Of pairs, where goals name one contender each; else of every peer, and of those of ours that have to show
    something, or of all of ours where none has."""
    peers = {contender.name for contender in comparison.measured if contender.role is Role.PEER}
    pairs = [(goal, goal.judge(comparison)) for goal in comparison.goals if goal.at_least and goal.against in peers]
    if pairs:
        return [
            Bar(f"{verdict.ours.name} / {goal.against}", verdict.figure, goal)
            for goal, verdict in pairs
            if verdict.figure is not None and verdict.ours is not None
        ]
    ours = [contender for contender in comparison.measured if contender.role is Role.OURS]
    return [
        Bar(
            _name(contender, comparison, family),
            comparison.ratio(contender, family),
            _goal(comparison, contender, family),
        )
        for family in comparison.families
        for contender in ours
        if _is_shown(comparison, contender, family)
    ]


def draw(comparisons: Sequence[Comparison], file: Path) -> bool:
    """Writes a PNG; returns False, and writes none, where there is nothing to show."""
    groups = [(comparison, bars(comparison)) for comparison in comparisons if comparison.topic in _COLORS]
    groups = [(comparison, shown) for comparison, shown in groups if shown]
    if not groups:
        return False

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    num_rows = sum(len(shown) + 1 for _, shown in groups)
    figure, axes = pyplot.subplots(figsize=(10, _ROW_INCHES * num_rows + 1), layout="constrained")
    ticks: dict[int, str] = {}
    is_linear = {comparison.topic for comparison, _ in groups} <= _LINEAR
    left, row = int(not is_linear), 0
    for comparison, shown in groups:
        title = f"{comparison.topic}: {comparison.setting}"
        in_margin = ("axes fraction", "data")
        axes.annotate(
            title, (0, row), xycoords=in_margin, weight="bold", backgroundcolor="white", va="center", fontsize=8
        )
        for row, bar in enumerate(shown, row + 1):  # noqa: B020  counts on
            ticks[row] = bar.name
            axes.barh(row, bar.ratio - left, left=left, color=_COLORS[comparison.topic], height=0.7)
            end = (max(bar.ratio, 1, *_asked(bar)), row)
            axes.annotate(number(bar.ratio), end, (4, 0), textcoords="offset points", va="center", fontsize=8)
            axes.vlines(_asked(bar), row - 0.45, row + 0.45, color="#222222", linewidth=1.2)
        row += 1
    ends = [end for _, shown in groups for bar in shown for end in (bar.ratio, *_asked(bar))]
    axes.set_xscale("linear" if is_linear else "log")
    axes.set_xlim(*((0, 1.1 * max(1, *ends)) if is_linear else (0.8 * min(1, *ends), 1.4 * max(1, *ends))))
    axes.set_ylim(num_rows - 0.4, -0.8)
    axes.axvline(1, color="#555555", linewidth=1, zorder=0)
    for every in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        every(lambda value, _: f"{value:g}")
    axes.tick_params(axis="x", which="both", labelsize=8)
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
    axes.tick_params(axis="y", length=0)
    than = "than the other" if is_linear else "than the peer's best setting (logarithmic)"
    axes.set_xlabel(f"times better {than}; black: least and aim", fontsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)
    return True


def _asked(bar: Bar) -> list[float]:
    """What the bar has to reach, and what it should."""
    wanted = (bar.goal.at_least, bar.goal.aim) if bar.goal is not None else ()
    return [figure for figure in wanted if figure is not None]


def _goal(comparison: Comparison, contender: Contender, family: str) -> Goal | None:
    wanted = [goal for goal in comparison.goals if goal.against == family and contender.name in goal.ours]
    return wanted[0] if wanted else None


def _is_shown(comparison: Comparison, contender: Contender, family: str) -> bool:
    has_goals = any(goal.against == family for goal in comparison.goals)
    return not has_goals or _goal(comparison, contender, family) is not None


def _name(contender: Contender, comparison: Comparison, family: str) -> str:
    return f"{contender.name} / {family or comparison.best_peer(family).name}"

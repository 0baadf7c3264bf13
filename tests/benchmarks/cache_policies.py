"""Which rows to cache: every policy against the optimum, in GNNLab's twelve cases and in others.

    python -m tests.benchmarks.cache_policies --figure docs/cache_policies.png

Caches hold a tenth of all rows; see tests/benchmarks/policy_cases.py for the graphs. Five minutes. ``presample 1``
samples a single epoch; ``PreSC#1`` is GNNLab's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from lightning_gnnload.drawing import BLUE, GREEN, GREY, INK, PINK, SMALL, YELLOW, apart, new_figure, save_figure, tidy
from tests.benchmarks import machine
from tests.benchmarks.policy_cases import NUM_EPOCHS, QUICK, SETTINGS, THE_TWELVE, Result, measure

SHOWN = ("presample", "presample 1", "PreSC#1", "expected", "degree", "degree-ratio", "random", "clairvoyant")
ASKED = 0.95  # of the optimum
_DRAWN = {
    "random": (GREY, "x"),
    "degree": (YELLOW, "s"),
    "expected": (GREEN, "D"),
    "clairvoyant": (PINK, "^"),
    "presample": (BLUE, "o"),
}


def shares(results: Sequence[Result]) -> str:
    """Hit rates as a share of the optimum."""
    lines = [
        f"| graph | sampler | optimum's hit rate | {' | '.join(SHOWN)} | presample, later epochs | similarity |",
        "|" + "---|" * (len(SHOWN) + 5),
    ]
    for result in results:
        cells = [result.optimum, *map(result.share, SHOWN), result.later, result.similar]
        lines.append(f"| {result.graph} | {result.sampler} | {' | '.join(f'{cell:.1%}' for cell in cells)} |")
    return "\n".join(lines)


def costs(results: Sequence[Result]) -> str:
    """What a ranking takes, in shares of an epoch that samples and gathers, without a model: processor time of both."""
    shown = ("presample", "presample 1", "expected", "degree", "clairvoyant")
    lines = [f"| | {' | '.join(shown)} |", "|" + "---|" * (len(shown) + 1)]
    for name, of in (("median", statistics.median), ("most", max)):
        cells = [of(result.rank_s[policy] / result.epoch_s for result in results) for policy in shown]
        lines.append(f"| {name} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    return "\n".join(lines)


def findings(results: Sequence[Result]) -> list[str]:
    """What was to be shown, in words, of the twelve cases and of the others by name."""
    twelve = [result for result in results if result.graph in THE_TWELVE] or results
    least = min(results, key=lambda result: result.share("presample"))
    after = min(results, key=lambda result: result.later)
    lines = [
        f"presample reaches at least {least.share('presample'):.1%} of the optimum ({_name(least)}) in all cases, of "
        f"{ASKED:.0%} asked; in ten later epochs, which it has not counted, {after.later:.1%} ({_name(after)})"
    ]
    for policy in ("presample", "presample 1", "PreSC#1", "expected"):
        worst = min(twelve, key=lambda result: result.share(policy))
        average = np.mean([result.share(policy) for result in twelve])
        below = {_name(result): result.share("degree") - result.share(policy) for result in twelve}
        below = {name: points for name, points in below.items() if points > 0}
        lines.append(
            f"{policy}: at least {worst.share(policy):.1%} of the optimum ({_name(worst)}), on average {average:.1%}; "
            f"below degree in {len(below)} cases, by at most {100 * max(below.values(), default=0):.2f} points"
            + (f" ({', '.join(below)})" if below else "")
        )
    better = [result for result in results if result.share("expected") > result.share("presample")]
    lines.append(f"expected beats presample in {len(better)} of {len(results)}")
    lines.append(
        f"clairvoyant, window of one epoch: {min(result.on_window for result in results):.4%} of what was possible in "
        f"each window, for {np.median([result.rank_s['clairvoyant'] / result.epoch_s for result in results]):.2f} of "
        "an epoch without a model (median)"
    )
    return lines


def draw(shares: Mapping[str, Mapping[str, float]], file: Path) -> None:
    """Writes a PNG: a row a case, a mark a policy.

    Args:
        shares: by graph and sampler, then by policy: hit rates as shares of the optimum's.
        file: where to.
    """
    least = min(case["presample"] for case in shares.values())
    title = f"A few sampled epochs choose a cache's rows: presample reaches {least:.0%} to 100% of what is possible"
    note = (
        "Caches of 10 % of the rows, filled once, over ten epochs. The line is the best that such a cache can do; "
        "clairvoyant passes it, being filled anew for each epoch that it has seen beforehand."
    )
    rows = {case: {policy: 100 * share for policy, share in by_policy.items()} for case, by_policy in shares.items()}
    figure, axes = mark_rows(rows, _DRAWN, title, note)
    axes.axvline(100, color=INK, linewidth=1, zorder=1)
    axes.set_xlabel("hit rate, % of the best that a cache can do")
    save_figure(figure, file)


def mark_rows(
    rows: Mapping[str, Mapping[str, float]], marks: Mapping[str, tuple[str, str]], title: str, note: str
) -> tuple[Any, Any]:
    """Draws a row a case, and in it a mark of each name, color and shape; returns the figure and its axes."""
    figure = new_figure(title, 0.3 * len(rows) + 1.7, note)
    axes, places = figure.subplots(), range(len(rows))
    nearest = 0.014 * max(value for case in rows.values() for value in case.values())
    shifts = [dict(zip(case, apart(list(case.values()), nearest), strict=True)) for case in rows.values()]
    for name, (color, marker) in marks.items():
        heights = [row + shift[name] for row, shift in zip(places, shifts, strict=True)]
        axes.plot([case[name] for case in rows.values()], heights, marker, color=color, markersize=5, label=name)
    axes.set_yticks(places, list(rows))
    axes.set_ylim(len(rows) - 0.5, -0.6)
    axes.set_xlim(left=0)
    tidy(axes, grid="x")
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(marks), fontsize=SMALL, frameon=False)
    return figure, axes


def _name(result: Result) -> str:
    return f"{result.graph} x {result.sampler}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cache_policies", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: one small graph, seconds")
    parser.add_argument("--graph", nargs="+", choices=tuple(SETTINGS), default=tuple(SETTINGS), help="by default all")
    parser.add_argument("--figure", type=Path, metavar="PNG", help="draw hit rates as well")
    options = parser.parse_args(arguments)
    progress, neighbours = Console(stderr=True), machine.Neighbours()
    results = []
    settings = QUICK if options.quick else {graph: SETTINGS[graph] for graph in options.graph}
    for graph, setting in settings.items():
        for result in measure(graph, setting, 3 if options.quick else NUM_EPOCHS):
            progress.print(f"{_name(result)}: optimum {result.optimum:.1%}, presample {result.share('presample'):.1%}")
            results.append(result)
    print(f"{shares(results)}\n\n{costs(results)}\n")
    print("\n".join(f"- {line}" for line in [*findings(results), *machine.describe(), neighbours.describe()]))
    if options.figure is not None:
        shown = {f"{case.graph}, {case.sampler}": {name: case.share(name) for name in _DRAWN} for case in results}
        draw(shown, options.figure)


if __name__ == "__main__":
    main(sys.argv[1:])

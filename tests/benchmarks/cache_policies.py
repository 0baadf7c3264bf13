"""Which rows to cache: every policy against the optimum, in GNNLab's twelve cases.

    python -m tests.benchmarks.cache_policies --figure docs/cache_policies.png

Caches hold a tenth of all rows; see tests/benchmarks/policy_cases.py for the graphs. Three minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from tests.benchmarks import machine
from tests.benchmarks.policy_cases import NUM_EPOCHS, QUICK, SETTINGS, THE_TWELVE, Result, measure

SHOWN = ("presample", "PreSC#1", "PreSC#2", "expected", "degree", "degree-ratio", "random", "clairvoyant")
_DRAWN = {
    "presample": "#2a78d6",
    "expected": "#1baf7a",
    "degree": "#eda100",
    "random": "#9aa3ad",
    "clairvoyant": "#4a3aa7",
}


def shares(results: Sequence[Result]) -> str:
    """Hit rates as a share of the optimum."""
    lines = [
        "| graph | sampler | optimum's hit rate | " + " | ".join(SHOWN) + " | similarity of epochs |",
        "|" + "---|" * (len(SHOWN) + 4),
    ]
    for result in results:
        cells = [f"{result.optimum:.1%}", *(f"{result.share(policy):.1%}" for policy in SHOWN), f"{result.similar:.1%}"]
        lines.append(f"| {result.graph} | {result.sampler} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def costs(results: Sequence[Result]) -> str:
    """What a ranking takes, in shares of an epoch that samples and gathers, without a model: processor time of both."""
    shown = ("presample", "expected", "degree", "clairvoyant")
    lines = ["| graph | sampler | epoch, CPU s | " + " | ".join(shown) + " |", "|" + "---|" * (len(shown) + 3)]
    for result in results:
        cells = " | ".join(f"{result.rank_s[policy] / result.epoch_s:.2f}" for policy in shown)
        lines.append(f"| {result.graph} | {result.sampler} | {result.epoch_s:.2f} | {cells} |")
    return "\n".join(lines)


def findings(results: Sequence[Result]) -> list[str]:
    """What was to be shown, in words, of the twelve cases and of the others by name."""
    twelve = [result for result in results if result.graph in THE_TWELVE] or results
    lines = []
    for policy in ("presample", "PreSC#1", "expected"):
        worst = min(twelve, key=lambda result: result.share(policy))
        average = np.mean([result.share(policy) for result in twelve])
        below = {_name(result): result.share("degree") - result.share(policy) for result in twelve}
        below = {name: points for name, points in below.items() if points > 0}
        lines.append(
            f"{policy}: at least {worst.share(policy):.1%} of the optimum ({_name(worst)}), on average {average:.1%}; "
            f"below degree in {len(below)} cases, by at most {100 * max(below.values(), default=0):.2f} points"
            + (f" ({', '.join(below)})" if below else "")
        )
    better = [_name(result) for result in results if result.share("expected") > result.share("presample")]
    lines.append(f"expected beats presample in {len(better)} of {len(results)}: {', '.join(better) or 'none'}")
    lines.append(
        f"clairvoyant, window of one epoch: {min(result.on_window for result in results):.4%} of what was possible in "
        f"each window, for {np.median([result.rank_s['clairvoyant'] / result.epoch_s for result in results]):.2f} of "
        "an epoch without a model (median)"
    )
    return lines


def draw(results: Sequence[Result], file: Path) -> None:
    """Writes a PNG: a panel a graph, groups of bars a sampler, and the optimum of each as a line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    graphs = list(dict.fromkeys(result.graph for result in results))
    columns = min(3, len(graphs))
    figure, grid = pyplot.subplots(
        -(-len(graphs) // columns), columns, figsize=(10, 6), sharey=True, layout="constrained", squeeze=False
    )
    panels = list(grid.flat)
    for empty in panels[len(graphs) :]:
        empty.remove()
    width = 0.8 / len(_DRAWN)
    for graph, axes in zip(graphs, panels, strict=False):
        cases = [result for result in results if result.graph == graph]
        for place, (policy, color) in enumerate(_DRAWN.items()):
            x = [number - 0.4 + (place + 0.5) * width for number in range(len(cases))]
            axes.bar(x, [100 * case.hit_rates[policy] for case in cases], width, color=color, label=policy)
        for number, case in enumerate(cases):
            axes.hlines(100 * case.optimum, number - 0.42, number + 0.42, color="black", linewidth=1, label="optimum")
        axes.set_title(graph, fontsize=10)
        axes.set_xticks(range(len(cases)), [case.sampler.replace(" ", "\n") for case in cases], fontsize=8)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    figure.supylabel("hit rate of a cache of 10 % of the rows, %", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=len(named), fontsize=9, frameon=False)
    figure.savefig(file, dpi=150)


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
        draw(results, options.figure)


if __name__ == "__main__":
    main(sys.argv[1:])

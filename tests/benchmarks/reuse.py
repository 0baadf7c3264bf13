"""What a mini-batch shares with the one before it, and whether to keep these rows or to reorder mini-batches for more.

    python -m tests.benchmarks.reuse --figure docs/reuse.png

FastGL (ASPLOS'24) keeps a mini-batch's rows on the device for the next one (Match), and orders the mini-batches of a
window so that neighbours share many (Reorder). Beside it: what as much memory saves in a larger cache, or in a level
that evicts. Two epochs of each case are sampled: the first warms caches up, the second counts. Pure arithmetic over
node ids, but for the last table: rows that a loader reads from a disk. Ten minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lightning_gnnload.cache.reuse import LARGER, LAST
from lightning_gnnload.drawing import BLUE, GREEN, ORANGE, YELLOW, save_figure
from tests.benchmarks import machine
from tests.benchmarks.cache_policies import mark_rows
from tests.benchmarks.fifo import grid
from tests.benchmarks.reuse_cases import (
    ALONE,
    GRAPHS,
    HOPS,
    LEVEL,
    RATIOS,
    RULES,
    TYPICAL,
    WINDOWS,
    Result,
    bytes_from_disk,
    cases,
    measure,
)

_REORDERED = f"reordered, {WINDOWS[-1]}"
_SMALL_BATCH = 0.05
_DRAWN = {LAST: (ORANGE, "o"), _REORDERED: (YELLOW, "x"), LARGER: (BLUE, "s"), LEVEL.format("s3fifo"): (GREEN, "D")}


def shares(results: Sequence[Result]) -> str:
    """Markdown: rows that a mini-batch shares with the one before, and what caches of as many rows hit."""
    # Of the windows, the largest: the last in FastGL's order, and the last of which all orders were tried.
    orders = [list(results[0].reordered)[number] for number in (len(WINDOWS) - 1, -1)]
    header = ["", "rows", "of the table", "shared", *(f"window {each}" for each in orders), *results[0].same_memory]
    lines = []
    for one in results:
        cells = [one.batch, one.shared, *(one.reordered[order] for order in orders), *one.same_memory.values()]
        lines.append([one.case.name, f"{one.rows:,}", *map(_percent, cells)])
    return grid(header, lines)


def behind(results: Sequence[Result], ratio: float, rules: Sequence[str]) -> str:
    """Markdown: what the memory of the rows that a cache misses saves behind it, in percent of them."""
    uses = [LARGER, *(form.format(rule) for rule in rules for form in (LEVEL, ALONE))]
    header = ["", "missed", "memory, of the table", LAST, _REORDERED, *uses]
    lines = []
    for one in results:
        reuse = one.behind[ratio]
        cells = [reuse.missed, reuse.more, reuse.saved[LAST], one.reordered_behind[ratio]]
        lines.append([one.case.name, *map(_percent, [*cells, *(reuse.saved[use] for use in uses)])])
    return grid(header, lines)


def from_disk(progress: Console) -> str:
    """Markdown: mebibytes that a loader reads in an epoch, and how much less than with the first cache."""
    lines, header = [], [""]
    with progress.status("reading from a disk"):
        for order, more, read in bytes_from_disk():
            before = next(iter(read.values()))
            cells = [f"{count / 2**20:,.0f} ({_percent(1 - count / before)} less)" for count in read.values()]
            lines.append([order, _percent(more), *cells])
            header = ["", "memory, % of the table", *read]
    return grid(header, lines)


def findings(results: Sequence[Result]) -> list[str]:
    """What was to be decided, in words."""
    lines = []
    for ratio in RATIOS:
        every = [one.behind[ratio].saved[LAST] for one in results]
        small = [
            one.behind[ratio].saved[LAST]
            for one in results
            if one.case.order == "shuffled" and one.behind[ratio].more < _SMALL_BATCH
        ]
        lines.append(
            f"behind a cache of {ratio:.0%} of the rows, {LAST} are {min(every):.1%} to {max(every):.1%} of what it "
            f"misses; with shuffled seeds and mini-batches that miss less than {_SMALL_BATCH:.0%} of the table, at "
            f"most {max(small, default=0):.1%}"
        )
    gains = {one.case.name: 100 * _gain(one) for one in results}
    most = max(gains, key=lambda name: gains[name])
    lines.append(
        f"windows of {WINDOWS[-1]} mini-batches in FastGL's order change that share by {min(gains.values()):+.1f} to "
        f"{gains[most]:+.1f} points behind {TYPICAL:.0%} ({most})"
    )
    return [*lines, _against_others(results)]


def _against_others(results: Sequence[Result]) -> str:
    """In which cases no other use of as much memory saves as much, and how much less the best of them saves."""
    ahead = {one.case.name: lead for one in results if (lead := _lead(one)) > 0}
    names = f": {'; '.join(ahead)}" if ahead else ""
    return (
        f"behind {TYPICAL:.0%}, {LAST} save more than every other use of as much memory in {len(ahead)} of "
        f"{len(results)} cases, by at most {100 * max(ahead.values(), default=0):.1f} points of all rows{names}"
    )


def _lead(one: Result) -> float:
    """By how much the last mini-batch's rows save more than the best other use of the memory, of all rows."""
    reuse = one.behind[TYPICAL]
    return (reuse.saved[LAST] - max(saved for use, saved in reuse.saved.items() if use != LAST)) * reuse.missed


def _gain(one: Result) -> float:
    return one.reordered_behind[TYPICAL] - one.behind[TYPICAL].saved[LAST]


def draw(results: Sequence[Result], file: Path) -> None:
    """Writes a PNG: a row a case, a mark a use of the memory."""
    shown = [one for one in results if one.case.sampler in (HOPS, "10, 5")]
    larger = sum(one.behind[TYPICAL].saved[LARGER] > one.behind[TYPICAL].saved[LAST] for one in shown)
    title = (
        f"A larger cache saves more than the last mini-batch's rows in {larger} of {len(shown)} cases; reordering adds "
        f"{100 * max(map(_gain, shown)):.1f} points at most"
    )
    note = (
        f"Share of the rows that a cache of {TYPICAL:.0%}, filled beforehand, misses. Each use takes as much memory as "
        "the rows that one mini-batch misses. By graph, fanouts and order of seeds."
    )
    rows = {}
    for one in shown:
        saved = one.behind[TYPICAL].saved | {_REORDERED: one.reordered_behind[TYPICAL]}
        rows[one.case.name] = {use: 100 * saved[use] for use in _DRAWN}
    figure, axes = mark_rows(rows, _DRAWN, title, note)
    axes.set_xlabel("saved of what the cache misses, %")
    save_figure(figure, file)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.reuse", description=__doc__)
    parser.add_argument("--graph", nargs="+", choices=GRAPHS, default=GRAPHS, help="by default all")
    parser.add_argument("--all", action="store_true", help="print every case and cache, not those of the figure alone")
    parser.add_argument("--figure", type=Path, metavar="PNG", help="draw what is saved as well")
    options = parser.parse_args(arguments)
    progress, results = Console(stderr=True), list[Result]()
    for graph in options.graph:
        for case in cases(graph):
            results.append(measure(case))
            progress.print(f"{case.name}: {results[-1].shared:.1%} shared", highlight=False)
    printed = results if options.all else [one for one in results if one.case.sampler == HOPS]
    print(f"{shares(printed)}\n")
    for ratio in RATIOS if options.all else [TYPICAL]:
        print(f"Behind a cache of {ratio:.0%} of the rows, % of the rows that it misses:\n")
        print(f"{behind(printed, ratio, RULES if options.all and ratio == TYPICAL else RULES[-1:])}\n")
    print(f"{from_disk(progress)}\n")
    print("\n".join(f"- {line}" for line in [*findings(results), *machine.describe()]))
    if options.figure is not None:
        draw(results, options.figure)


if __name__ == "__main__":
    main(sys.argv[1:])

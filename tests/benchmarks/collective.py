"""Collective sampling: bytes and time of pushed tasks against pulled lists: ``python -m tests.benchmarks.collective``.

A rank samples its own part's training nodes, as DSP (PPoPP'23) deals them out. Bytes go to other ranks and back, heads
of messages included; they do not depend on the machine. Pulled lists carry what the sampler reads: weights, where it
draws by them; they are pulled anew at each hop (of [15, 10, 5], nine nodes of ten are asked about at the last one, so
to keep lists would save no more than a tenth). LADIES reads all lists of a layer, and pulls in any case. Times are of
two processes over gloo, both of which sample at once, on graphs that lie in memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from lightning_gnnload.data.partition import Partition
from lightning_gnnload.drawing import BLUE, INK, ORANGE, SMALL, new_figure, save_figure, tidy
from lightning_gnnload.sample.group.exchange import ThreadExchange
from lightning_gnnload.sample.parts.collective import open_colleagues
from tests.benchmarks import collective_cases as cases
from tests.benchmarks.collective_cases import Measured
from tests.benchmarks.errors import BenchmarkError

METHODS = ("random", "ldg", "bgl", "metis")
KINDS = {
    "chung-lu": "Power-law graph, half of its edges within 16 communities",
    "web": "Web graph, most links within a host",
}
GOAL = 0.5  # of the bytes that pulling moves, for weighted sampling
TIME_LIMIT_S = 600

Rows = dict[tuple[str, int], dict[str, dict[str, Measured]]]
"""By method and number of parts, by sampler, by paradigm."""
_PANEL_CHARACTERS = 26


def bytes_of(made: Partition, num_batches: int) -> dict[str, dict[str, Measured]]:
    """Of rank 0's batches, by sampler and paradigm, while the other ranks, threads of this process, serve."""
    measured: dict[str, dict[str, Measured]] = {}
    done = threading.Event()

    def serve(exchange: ThreadExchange) -> None:
        with open_colleagues(made, exchange):
            done.wait()

    first, *others = ThreadExchange.connect(made.num_parts, timeout_s=TIME_LIMIT_S)
    threads = [threading.Thread(target=serve, args=(exchange,), daemon=True) for exchange in others]
    for thread in threads:
        thread.start()
    seeds = cases.seeds_of(made, 0, num_batches)
    with open_colleagues(made, first) as colleagues:
        try:
            for name, sampler in cases.SAMPLERS.items():
                measured[name] = {each: cases.measure(sampler, colleagues, each, seeds) for each in cases.PARADIGMS}
        finally:
            done.set()
    for thread in threads:
        thread.join()
    return measured


def over_gloo(folder: Path, kind: str, quick: bool, num_batches: int) -> list[dict[str, dict]]:
    """What both of two processes measured, over the partition in ``folder / "parts"``."""
    (folder / "store").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.benchmarks.collective_job"]
    arguments = [str(folder), kind, str(int(quick)), str(num_batches)]
    ranks = [subprocess.Popen([*command, str(rank), *arguments]) for rank in range(2)]
    try:
        statuses = [rank.wait(TIME_LIMIT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(statuses):
        raise BenchmarkError(f"the ranks of the benchmark ended with {statuses}; see their output above.")
    return [json.loads((folder / f"measured-{rank}.json").read_text()) for rank in range(2)]


def table_of_bytes(rows: Rows) -> str:
    """Markdown: megabytes pushed, and their share in those that pulling moves over the same parts."""
    methods = list(dict.fromkeys(method for method, _ in rows))
    lines = [
        f"| sampler | parts | remote nodes | drawn | pulled | {' | '.join(f'pushed, {each}' for each in methods)} |",
        f"| --- | --: | --: | --: | --: |{' --: |' * len(methods)}",
    ]
    for name in cases.SAMPLERS:
        for num_parts in dict.fromkeys(parts for _, parts in rows):
            by_method = [rows[method, num_parts][name] for method in methods]
            first = by_method[0]
            cells = [f"{_mb(one['push'])} ({_share(one):.1%})" for one in by_method]
            lines.append(
                f"| {name} | {num_parts} | {first['push'].remote_share:.0%} | {first['push'].drawn_mb:.3f} | "
                f"{_mb(first['pull'])} | {' | '.join(cells)} |"
            )
    return "\n".join(lines)


def _mb(measured: Measured) -> str:
    return f"{measured.mega_bytes:.3f}"


def _share(measured: dict[str, Measured]) -> float:
    return measured["push"].mega_bytes / measured["pull"].mega_bytes


def table_of_times(ranks: list[dict[str, dict]]) -> str:
    """Markdown: means of both ranks."""
    lines = [
        "| sampler | pushed, ms a batch | pulled, ms | whole graph in each process, ms | pushed of pulled | of whole |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for name in cases.SAMPLERS:
        push, pull = (sum(rank[name][each]["took_ms"] for rank in ranks) / 2 for each in cases.PARADIGMS)
        alone = sum(rank[name]["alone_ms"] for rank in ranks) / 2
        lines.append(
            f"| {name} | {push:.1f} | {pull:.1f} | {alone:.1f} | {push / pull:.2f} times | {push / alone:.1f} times |"
        )
    return "\n".join(lines)


def draw_figure(rows: Rows, title: str, file: Path) -> None:
    """Bytes as shares of those of the neighbours drawn, a panel a sampler, as in DSP, figure 1."""
    note = f"{title}. At the line at 1, what is moved is what was drawn; the axis is logarithmic. Parts by each method."
    moved = [_share(one[name]) for one in rows.values() for name in one]
    heading = f"Pushing tasks to where lists lie moves {min(moved):.0%} to {max(moved):.0%} of what pulling lists moves"
    figure = new_figure(heading, 0.22 * len(rows) * -(-len(cases.SAMPLERS) // 3) + 2.6, note)
    panels = figure.subplots(-(-len(cases.SAMPLERS) // 3), 3, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(cases.SAMPLERS) :]:
        axes.set_axis_off()
    for name, axes in zip(cases.SAMPLERS, panels.flat, strict=False):
        for paradigm, color, marker in zip(cases.PARADIGMS, (BLUE, ORANGE), "os", strict=True):
            shares = [one[name][paradigm].mega_bytes / one[name][paradigm].drawn_mb for one in rows.values()]
            axes.plot(shares, range(len(rows)), marker, color=color, markersize=6, label=f"{paradigm}ed")
        axes.axvline(1, color=INK, linewidth=1)
        axes.set_xscale("log")
        axes.set_yticks(range(len(rows)), [f"{method}, {parts} parts" for method, parts in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        tidy(axes, fill(name, _PANEL_CHARACTERS), grid="x")
    panels.flat[-1].legend(*panels[0, 0].get_legend_handles_labels(), fontsize=SMALL, frameon=False)
    save_figure(figure, file)


def run(kind: str, methods: Sequence[str], parts: Sequence[int], quick: bool, figure: Path | None) -> None:
    """Measures one graph, and prints its tables."""
    num_batches = 3 if quick else 9
    data = cases.load(kind, quick)
    print(f"{KINDS[kind]}: {data.graph}.\n")
    rows: Rows = {}
    times = ""
    for method in methods:
        for num_parts in parts:
            with tempfile.TemporaryDirectory() as name:
                made = cases.partition(data, method, num_parts, Path(name) / "parts")
                if made is None:
                    print(f"No parts by {method}: its package is not installed.\n")
                    break
                rows[method, num_parts] = bytes_of(made, num_batches)
                if num_parts == 2 and not times:
                    times = table_of_times(over_gloo(Path(name), kind, quick, num_batches))
    weighted = max(_share(one[name]) for one in rows.values() for name in one if name.startswith("weighted"))
    print(
        f"MB a batch of {cases.BATCH_SIZE} seeds, of rank 0, and in brackets the share in what pulling moves over the "
        f"same parts; remote, drawn and pulled over parts by {next(iter(rows))[0]}; drawn: 4 bytes for each neighbour, "
        f"the ideal of DSP's figure 1:\n\n{table_of_bytes(rows)}\n"
    )
    print(f"Pushing weighted tasks moves at most {weighted:.1%} of what pulling moves; asked for: {GOAL:.0%}.\n")
    if times:
        print(f"Two processes over gloo, parts by {next(iter(rows))[0]}:\n\n{times}\n", flush=True)
    if figure is not None:
        draw_figure(rows, KINDS[kind], figure.with_stem(f"{figure.stem}-{kind}"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.collective", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs, 2 random parts; half a minute")
    parser.add_argument("--graph", nargs="+", choices=tuple(KINDS), default=tuple(KINDS), help="both by default")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, help="of cutting; all by default")
    parser.add_argument("--parts", nargs="+", type=int, default=(2, 4, 8), help="how many; 2 4 8 by default")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="also draw bars, to FILE with the graph's name")
    options = parser.parse_args()
    for kind in options.graph:
        methods, parts = (("random",), (2,)) if options.quick else (options.methods, options.parts)
        run(kind, methods, parts, options.quick, options.figure)

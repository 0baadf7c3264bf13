"""``python -m tests.benchmarks``: measures, prints tables, and on request writes them into a page."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.status import Status

from tests.benchmarks import figure, machine, report
from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.measure import Comparison
from tests.benchmarks.suites import HAS_DGL, QUICK, Scale, suites
from tests.benchmarks.workers import Worker, Workers

TOPICS = tuple(suites([]))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a smoke test: Debian only, few turns, small table; under a minute",
    )
    parser.add_argument(
        "--graph",
        choices=("debian", "synthetic", "all"),
        default="debian",
        help="synthetic: 2.4 M nodes, 124 M edges; ten minutes, 12 GB of memory, 3 GB of disk",
    )
    parser.add_argument(
        "--topics", nargs="+", choices=TOPICS, default=TOPICS, help="what to measure; everything by default"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the tables between the marks of this page, and a figure beside it",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    graphs = ["debian", "synthetic"] if options.graph == "all" else [options.graph]
    if options.quick:
        graphs = ["debian"]
    if options.out is not None:
        report.around_results(options.out)  # a page that cannot take them should say so now
    progress = Console(stderr=True)
    if not HAS_DGL:
        progress.print(
            "DGL is not installed, so there is nothing to compare with: pip install 'lightning-gnnload[dgl]'"
        )
    for graph in graphs:
        with Worker("graphs", show_output=True) as worker:
            progress.print(f"{graph}: {worker.call('prepare', graph=graph)}")
    neighbours = machine.Neighbours()
    comparisons = _measure(graphs, options.topics, QUICK if options.quick else Scale(), progress)
    described = [*machine.describe(), f"other processes used {neighbours.share():.0%} of the processor during the run"]
    _deliver(comparisons, described, " ".join(["python -m tests.benchmarks", *arguments]), options.out)


def _measure(graphs: list[str], topics: list[str], scale: Scale, progress: Console) -> list[Comparison]:
    comparisons: list[Comparison] = []
    with Workers() as workers, Status("starting", console=progress) as status:
        for topic in topics:
            for suite in suites(graphs)[topic]:
                for comparison in suite(scale, workers, status.update):
                    comparisons.append(comparison)
                    progress.print(f"{comparison.topic}, {comparison.setting}: done", soft_wrap=True)
    return comparisons


def _deliver(comparisons: list[Comparison], described: list[str], command: str, page: Path | None) -> None:
    picture = None if page is None else page.with_suffix(".png")
    has_picture = picture is not None and figure.draw(comparisons, picture)
    text = report.markdown(
        comparisons, command, described, picture.name if picture is not None and has_picture else None
    )
    if page is not None:
        before, after = report.around_results(page)
        page.write_text(f"{before}\n\n{text}\n\n{after}")
    # On a terminal, tables; in a file or a pipe, their source.
    Console().print(Markdown(text)) if sys.stdout.isatty() else print(text)


if __name__ == "__main__":
    os.environ.pop("GLIBC_TUNABLES", None)  # each worker gets its own settings, and no others
    try:
        main(sys.argv[1:])
    except BenchmarkError as error:
        sys.exit(f"benchmark: {error}")
    except KeyboardInterrupt:
        sys.exit("benchmark: interrupted")

"""``python -m tests.benchmarks``: measures, prints tables, and on request writes them into a page."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.status import Status

from tests.benchmarks import figure, machine, peers, report
from tests.benchmarks.contenders import GROWTH, TITLES, TYPED_TITLES
from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.measure import Comparison
from tests.benchmarks.scale import QUICK, Scale
from tests.benchmarks.suites import DEFAULT_TOPICS, TOPICS, suites
from tests.benchmarks.workers import Worker, Workers

_DEFAULT_GRAPHS = tuple(graph for graph in TITLES if graph not in ("g3", GROWTH, *TYPED_TITLES))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a smoke test: Debian only, few turns, small table; a minute or two",
    )
    parser.add_argument(
        "--graph",
        nargs="+",
        choices=tuple(TITLES),
        default=_DEFAULT_GRAPHS,
        help=f"by default {', '.join(_DEFAULT_GRAPHS)}: twelve minutes, 12 GB of memory, 3 GB of disk; growth has "
        "111 M nodes and 1.6 G edges and takes 12 GB of memory and 8 GB of disk; those with types have topics of their "
        "own",
    )
    parser.add_argument(
        "--topics",
        nargs="+",
        choices=TOPICS,
        default=DEFAULT_TOPICS,
        help="what to measure; by default everything but pyg_loaders, which needs PyG with pyg-lib, and has a page of "
        "its own",
    )
    for option, peer in (("--pyg-python", "PyG with pyg-lib or torch-sparse"), ("--graphbolt-python", "GraphBolt")):
        parser.add_argument(
            option, metavar="PATH", default=sys.executable, help=f"the interpreter that has {peer}; by default this one"
        )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the tables between the marks of this page, and a figure beside it",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Returns the exit status: 1 where some contender failed."""
    options = parse(arguments)
    graphs = ["debian"] if options.quick else [graph for graph in TITLES if graph in options.graph]
    if options.out is not None:
        report.around_results(options.out)  # a page that cannot take them should say so now
    progress = Console(stderr=True)
    found = peers.find({"peer_pyg": options.pyg_python, "peer_graphbolt": options.graphbolt_python})
    for peer in found:
        progress.print(str(peer), soft_wrap=True)
    _prepare(graphs, progress)
    neighbours, scale = machine.Neighbours(), QUICK if options.quick else Scale()
    comparisons = [
        comparison
        for topic, comparison in sorted(
            _measure(graphs, options.topics, scale, found, progress), key=lambda measured: TOPICS.index(measured[0])
        )
    ]
    described = [*machine.describe(), *map(str, found), machine.allocator(), neighbours.describe()]
    _deliver(comparisons, described, " ".join(["python -m tests.benchmarks", *arguments]), options.out)
    return int(any(one.failure is not None for comparison in comparisons for one in comparison.contenders))


def _prepare(graphs: Sequence[str], progress: Console) -> None:
    # What grows is compared with G1.
    for graph in dict.fromkeys([*(["g1"] if GROWTH in graphs else []), *graphs]):
        with Worker("graphs", show_output=True) as worker:
            progress.print(f"{TITLES[graph]}: {worker.call('prepare', graph=graph)}")


def _measure(
    graphs: Sequence[str], topics: Sequence[str], scale: Scale, found: Sequence[peers.Found], progress: Console
) -> Iterator[tuple[str, Comparison]]:
    """(topic, comparison), graph by graph: the workers of one end before those of the next begin."""
    largest = [graph for graph in graphs if graph not in (GROWTH, *TYPED_TITLES)][-1:]
    for graph in graphs:
        with Workers(found) as workers, Status("starting", console=progress) as status:
            for topic, planned in suites(graph, is_largest=[graph] == largest).items():
                for suite in planned if topic in topics else ():
                    began = time.monotonic()
                    for comparison in suite(scale, workers, status.update):
                        yield topic, comparison
                        _tell(comparison, time.monotonic() - began, progress)
                        began = time.monotonic()


def _tell(comparison: Comparison, took_s: float, progress: Console) -> None:
    progress.print(f"{comparison.topic}, {comparison.setting}: {took_s:.0f} s", soft_wrap=True)
    for contender in comparison.contenders:
        if contender.failure is not None:
            progress.print(f"{contender.name} failed:\n{contender.failure}", soft_wrap=True, markup=False)


def _deliver(comparisons: list[Comparison], described: list[str], command: str, page: Path | None) -> None:
    text = report.markdown(comparisons, command, described, None)
    if page is not None and figure.draw(text, picture := page.with_suffix(".png")):
        text = report.markdown(comparisons, command, described, picture.name)
    if page is not None:
        before, after = report.around_results(page)
        page.write_text(f"{before}\n\n{text}\n\n{after}")
    # On a terminal, tables; in a file or a pipe, their source.
    Console().print(Markdown(text)) if sys.stdout.isatty() else print(text)


if __name__ == "__main__":
    os.environ.pop("GLIBC_TUNABLES", None)  # each worker gets its own settings, and no others
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchmarkError as error:
        sys.exit(f"benchmark: {error}")
    except KeyboardInterrupt:
        sys.exit("benchmark: interrupted")

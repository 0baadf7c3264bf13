"""How BGL's partition grows with the graph, in time and memory.

    python -m tests.benchmarks.block_growth

Random power-law graphs, in which no two neighbours are near in memory: the worst case. The largest has 1.6 G edges, in
a file of 6.4 GB; it takes minutes to make, once. Each is cut in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console

from lightning_gnnload.partition.bgl import Bgl
from lightning_gnnload.partition.stages import StageClock, used_bytes
from tests.benchmarks import machine
from tests.benchmarks.growth_graph import GrowthGraph

GRAPHS = {
    "1 M": GrowthGraph(70_000, 1_000_000, 5_000),
    "10 M": GrowthGraph(700_000, 10_000_000, 50_000),
    "100 M": GrowthGraph(7_000_000, 100_000_000, 500_000),
    "1.6 G": GrowthGraph(),
}
NUM_PARTS = 4


@dataclass(frozen=True)
class Result:
    """Of one graph. ``seconds`` by stage; memory without the graph's mapped pages and what the process had before."""

    num_nodes: int
    num_edges: int
    seconds: dict[str, float]
    peak_bytes: int
    train_imbalance: float
    node_imbalance: float

    @property
    def ns_an_edge(self) -> float:
        return sum(self.seconds.values()) / self.num_edges * 1e9


def measure(name: str, streams: int) -> Result:
    dataset = GRAPHS[name]
    dataset.prepare()
    data = dataset.load()
    train = np.sort(np.asarray(data.train))
    before = used_bytes()
    with StageClock() as clock:
        part = Bgl(streams=streams).assign(
            data.graph, {"train": train}, NUM_PARTS, hops=0, seed=0, advance=lambda what, share: clock.enter(what)
        )
    return Result(
        data.graph.num_nodes,
        data.graph.num_edges,
        {stage.name: stage.seconds for stage in clock.stages},
        max(stage.peak_bytes for stage in clock.stages) - before,
        np.bincount(part[train], minlength=NUM_PARTS).max() * NUM_PARTS / len(train),
        np.bincount(part, minlength=NUM_PARTS).max() * NUM_PARTS / len(part),
    )


def table(results: list[Result]) -> str:
    stages = list(results[0].seconds)
    head = ["nodes", "edges", *(f"{stage.lower()}, s" for stage in stages), "all, ns an edge", "peak memory, GB"]
    head += ["bytes a node", "train nodes, max / mean", "nodes, max / mean"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for result in results:
        cells = [f"{result.num_nodes:,}", f"{result.num_edges:,}"]
        cells += [f"{result.seconds.get(stage, 0):.1f}" for stage in stages]
        cells += [f"{result.ns_an_edge:.0f}", f"{result.peak_bytes / 1e9:.2f}"]
        cells += [f"{result.peak_bytes / result.num_nodes:.0f}", f"{result.train_imbalance:.3f}"]
        lines.append(f"| {' | '.join(cells)} | {result.node_imbalance:.3f} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.block_growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: the smallest graph")
    parser.add_argument("--graph", nargs="+", choices=tuple(GRAPHS), default=tuple(GRAPHS), help="by default all")
    parser.add_argument("--streams", type=int, default=1, help="restreams of single nodes after all")
    parser.add_argument("--one", choices=tuple(GRAPHS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(asdict(measure(options.one, options.streams))))
        return
    progress, neighbours = Console(stderr=True), machine.Neighbours()
    results = []
    for name in ["1 M"] if options.quick else options.graph:
        command = [sys.executable, "-m", "tests.benchmarks.block_growth", "--streams", str(options.streams)]
        done = subprocess.run([*command, "--one", name], stdout=subprocess.PIPE, text=True, check=True)
        results.append(Result(**json.loads(done.stdout)))
        progress.print(f"{name} edges: {results[-1].ns_an_edge:.0f} ns an edge")
    print(f"{table(results)}\n")
    print("\n".join(f"- {line}" for line in [*machine.describe(), neighbours.describe()]))


if __name__ == "__main__":
    main(sys.argv[1:])

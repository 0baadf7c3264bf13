"""How much sampling crosses parts, by the way a graph was cut into them: what BGL's Fig. 15 counts.

    python -m tests.benchmarks.cross_parts

Parts are disjoint: each list lies with its owner alone. An edge of a mini-batch crosses where its two ends have
different owners; a list is foreign where its owner is not the trainer's own part. Fifteen minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from rich.console import Console

from lightning_gnnload import Debian, Graph, NeighborSampler, Synthetic
from lightning_gnnload.datasets.stored import StoredDataset
from lightning_gnnload.errors import MissingExtraError
from lightning_gnnload.partition.bgl import Bgl
from lightning_gnnload.partition.cut import count_cross_edges, count_sampled_cross_edges
from lightning_gnnload.partition.ldg import Ldg
from lightning_gnnload.partition.metis import Metis
from lightning_gnnload.partition.partitioner import OPEN, Partitioner
from lightning_gnnload.partition.quality import imbalance
from lightning_gnnload.partition.random import RandomParts
from lightning_gnnload.partition.selfreliant import SelfReliant
from lightning_gnnload.partition.settle import settle
from tests.benchmarks import machine

GOAL = 0.25
_PLAIN: dict[str, Any] = {"num_features": 0, "val_fraction": 0, "max_test": 0}
GRAPHS: dict[str, StoredDataset] = {
    "Debian": Debian(),
    "web": Synthetic("web", 300_000, 6_000_000, homophily=0.8, train_fraction=0.02, **_PLAIN),
    "web, one way": Synthetic("web", 300_000, 6_000_000, homophily=0.8, train_fraction=0.02, symmetric=False, **_PLAIN),
    "communities": Synthetic(
        "chung-lu", 300_000, 4_800_000, num_classes=3000, homophily=0.95, train_fraction=0.02, **_PLAIN
    ),
    "co-purchase": Synthetic("chung-lu", 100_000, 5_000_000, homophily=0.8, train_fraction=0.08, **_PLAIN),
    "citation": Synthetic(
        "citation", 300_000, 4_800_000, num_classes=1000, homophily=0.9, train_fraction=0.02, **_PLAIN
    ),
}
QUICK = {"web": Synthetic("web", 20_000, 300_000, homophily=0.8, train_fraction=0.1, **_PLAIN)}
METHODS: dict[str, Partitioner] = {
    "random": RandomParts(),
    "ldg": Ldg(),
    "ldg, 4 streams": Ldg(streams=4, slack=0.03),
    "bgl": Bgl(),
    "bgl, 3 streams": Bgl(streams=3),
    "metis": Metis(),
    "self-reliant": SelfReliant(),
}
SAMPLERS = {"10,10,10": NeighborSampler([10, 10, 10]), "15,10,5": NeighborSampler([15, 10, 5])}
_MAX_BATCHES = 4  # of each part: shares change by a thousandth or so from batch to batch


@dataclass(frozen=True)
class Result:
    """Of one way to cut one graph. Shares in [0, 1]; ``crossing`` by sampler."""

    graph: str
    num_parts: int
    method: str
    cut: float
    crossing: dict[str, float]
    foreign: float
    train_imbalance: float
    node_imbalance: float
    seconds: float

    def saved(self, random: Result, sampler: str) -> float:
        """Share of random parts' crossing edges that do not cross here."""
        return 1 - self.crossing[sampler] / random.crossing[sampler]


def measure(name: str, graph: Graph, train: np.ndarray, num_parts: int, method: str) -> Result:
    began = time.perf_counter()
    part = METHODS[method].assign(graph, {"train": train}, num_parts, hops=0, seed=0, advance=lambda what, share: None)
    seconds = time.perf_counter() - began
    if (part == OPEN).any():
        part = settle(graph, part, None, num_parts, lambda what, share: None)
    cuts = {
        fanouts: count_sampled_cross_edges(graph, part, train, sampler, batch_size=1000, max_batches=_MAX_BATCHES)
        for fanouts, sampler in SAMPLERS.items()
    }
    return Result(
        name,
        num_parts,
        method,
        cut=count_cross_edges(graph, part) / graph.num_edges,
        crossing={fanouts: cut.cross_share for fanouts, cut in cuts.items()},
        foreign=cuts["10,10,10"].foreign_share,
        train_imbalance=imbalance(np.bincount(part[train], minlength=num_parts).tolist()),
        node_imbalance=imbalance(np.bincount(part, minlength=num_parts).tolist()),
        seconds=seconds,
    )


def measure_all(
    graphs: dict[str, StoredDataset], numbers: Sequence[int], methods: Sequence[str], progress: Console
) -> Iterator[Result]:
    for name, dataset in graphs.items():
        dataset.prepare()
        data = dataset.load()
        for num_parts in numbers:
            for method in methods:
                try:
                    result = measure(name, data.graph, np.sort(np.asarray(data.train)), num_parts, method)
                except MissingExtraError as error:
                    progress.print(f"{method} is left out: {error}")
                    continue
                crossing = " / ".join(f"{share:.1%}" for share in result.crossing.values())
                progress.print(f"{name}, {num_parts} parts, {method}: {crossing} cross, {result.seconds:.1f} s")
                yield result


def table(results: Sequence[Result]) -> str:
    """A row a way, with what it saves of random parts' crossing edges in brackets. The fanouts hardly matter: by the
    first."""
    fanouts = next(iter(SAMPLERS))
    head = ["graph", "parts", "method", "edges cut", f"crossing, {fanouts}"]
    head += ["foreign lists", "train nodes, max / mean", "nodes, max / mean", "s"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for result, random in _beside_random(results):
        cells = [result.graph, str(result.num_parts), result.method, f"{result.cut:.1%}"]
        saved = f" (-{result.saved(random, fanouts):.0%})" if result is not random else ""
        cells.append(f"{result.crossing[fanouts]:.1%}{saved}")
        cells += [f"{result.foreign:.1%}", f"{result.train_imbalance:.3f}", f"{result.node_imbalance:.3f}"]
        lines.append(f"| {' | '.join(cells)} | {result.seconds:.1f} |")
    return "\n".join(lines)


def findings(results: Sequence[Result]) -> list[str]:
    """What each way saves at least, and whether BGL meets its goal."""
    saved: dict[str, list[tuple[float, Result]]] = {}
    for result, random in _beside_random(results):
        if result is not random:
            least = min(result.saved(random, fanouts) for fanouts in SAMPLERS)
            saved.setdefault(result.method, []).append((least, result))
    lines = []
    for method, cases in saved.items():
        least, where = min(cases, key=lambda case: case[0])
        line = f"{method}: at least {least:.0%} fewer crossing edges than random ({where.graph}, {where.num_parts})"
        mean, train = np.mean([share for share, _ in cases]), max(case.train_imbalance for _, case in cases)
        line += f", {mean:.0%} on average; training nodes at most {train - 1:.1%} above the mean"
        if method == "bgl":
            line += f". Goal: {GOAL:.0%} fewer, {'met' if least >= GOAL else 'missed'}"
        lines.append(line)
    return lines


def _beside_random(results: Sequence[Result]) -> Iterator[tuple[Result, Result]]:
    for _, group in groupby(results, key=lambda result: (result.graph, result.num_parts)):
        cases = list(group)
        random = next(case for case in cases if case.method == "random")
        yield from ((case, random) for case in cases)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cross_parts", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: one small graph, seconds")
    parser.add_argument("--graph", nargs="+", choices=tuple(GRAPHS), default=tuple(GRAPHS), help="by default all")
    parser.add_argument("--parts", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--method", nargs="+", choices=tuple(METHODS), default=tuple(METHODS), help="random is added")
    options = parser.parse_args(arguments)
    progress, neighbours = Console(stderr=True), machine.Neighbours()
    graphs = QUICK if options.quick else {name: GRAPHS[name] for name in options.graph}
    numbers = [4] if options.quick else options.parts
    methods = ["random", *(method for method in options.method if method != "random")]
    results = list(measure_all(graphs, numbers, methods, progress))
    print(f"{table(results)}\n")
    print("\n".join(f"- {line}" for line in [*findings(results), *machine.describe(), neighbours.describe()]))


if __name__ == "__main__":
    main(sys.argv[1:])

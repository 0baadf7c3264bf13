"""Does it pay to number nodes anew when a graph is stored, so that those that are met together lie together?

    python -m tests.benchmarks.node_order                 # G1, about a minute; 6 GB of memory
    python -m tests.benchmarks.node_order --graph g2

Uniform sampling of the same graph, in turns: nodes as they are stored (shuffled), by falling out-degree, and in the
order of a breadth-first search; the topology in memory on 2 MB pages, or mapped from files.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from lightning_gnnload import Graph, GraphData, NeighborSampler
from lightning_gnnload.ops import breadth_first
from lightning_gnnload.pipeline.slots import Slot
from tests.benchmarks import machine
from tests.benchmarks.graphs import GRAPHS
from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.ours import sample_into_slot

FANOUTS = ([15, 10, 5], [10, 25])
TURNS, BATCHES = 9, 5


def numbered(data: GraphData, order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``indptr``, ``indices`` and the train nodes; node ``order[i]`` becomes node i."""
    rank = np.empty(data.num_nodes, np.int64)
    rank[order] = np.arange(data.num_nodes)
    old = np.asarray(data.graph.indptr)
    degrees = np.diff(old)[order]
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    positions = np.repeat(old[:-1][order] - indptr[:-1], degrees) + np.arange(indptr[-1])
    indices = rank[data.graph.indices[positions]].astype(data.graph.indices.dtype)
    return indptr, indices, rank[data.train]


def orders(data: GraphData) -> dict[str, np.ndarray]:
    by_degree = np.argsort(-np.bincount(data.graph.indices, minlength=data.num_nodes), kind="stable")
    position = np.arange(data.num_nodes, dtype=np.int32)
    found, _ = breadth_first(data.graph.indptr, data.graph.indices, position, by_degree, data.num_nodes)
    return {"as stored": np.arange(data.num_nodes), "out-degree": by_degree, "breadth-first": found.astype(np.int64)}


def compare(data: GraphData, place: Callable[[np.ndarray], np.ndarray]) -> None:
    graphs = {}
    for name, order in orders(data).items():
        indptr, indices, train = numbered(data, order)
        graphs[name] = GraphData(Graph(place(indptr), place(indices)), train=train)
    slot = Slot()
    for fanouts in FANOUTS:
        turns: dict[str, list[float]] = {name: [] for name in graphs}
        for turn in range(TURNS):
            for name, graph in graphs.items():
                values = sample_into_slot(graph, NeighborSampler(fanouts), slot, turn, BATCHES)["values"]
                if turn > 0:
                    turns[name].append(median(values))
        for name, values in turns.items():
            gain = median(before / after for before, after in zip(turns["as stored"], values, strict=True))
            print(f"| {fanouts} | {name} | {median(values):.3f} | {gain:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="g1", choices=["debian", "g2", "g1"])
    graph = GRAPHS[parser.parse_args().graph]
    graph.prepare()
    print("\n".join(f"- {line}" for line in machine.describe()))
    with tempfile.TemporaryDirectory() as folder:
        number = iter(range(100))

        def mapped(array: np.ndarray) -> np.ndarray:
            file = Path(folder, f"{next(number)}.npy")
            np.save(file, array)
            return np.load(file, mmap_mode="r")

        for title, place in (("in memory on 2 MB pages", on_huge_pages), ("mapped", mapped)):
            print(f"\n{title}; ms a batch\n\n| fanouts | nodes | median | times better |\n| --- | --- | ---: | ---: |")
            compare(graph.load(), place)


if __name__ == "__main__":
    main()

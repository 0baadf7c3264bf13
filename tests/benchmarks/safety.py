"""``python -m tests.benchmarks.safety [--quick]``: what it costs that a graph cannot change, and that damage is found.

The same folder is loaded and sampled in turns: mapped as it was before leases, with leases, and copied as where the
system gives none. Then epochs of a fit with and without the check of its folder, of which nothing is in memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from unittest import mock

import numpy as np

from lightning_gnnload import (
    Graph,
    GraphData,
    GraphDataModule,
    NeighborSampler,
    load_graph_data,
    save_graph_data,
)
from lightning_gnnload.data import graph as graph_module
from lightning_gnnload.host import leases
from lightning_gnnload.storage.background import BackgroundCheck
from tests.benchmarks import machine

BATCH, FANOUTS, WIDTH = 1024, [15, 10, 5], 64
_SAFE, _BARE, _COPIED = "leases", "none", "copies"


def write(folder: Path, num_nodes: int, num_edges: int) -> None:
    rng = np.random.default_rng(0)
    # A power law of in-degrees, and sources of which a few have most of the edges.
    degree = rng.zipf(1.8, num_nodes).clip(1, 5000)
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum((degree * (num_edges / degree.sum())).astype(np.int64).clip(1), out=indptr[1:])
    indices = (rng.random(indptr[-1]) ** 2 * num_nodes).astype(np.int32)
    x = rng.standard_normal((num_nodes, WIDTH), np.float32)
    save_graph_data(GraphData(Graph(indptr, indices), x, train=np.arange(num_nodes // 20)), folder)


def load(folder: Path, way: str) -> tuple[Graph, float]:
    """The folder's graph, and the seconds that loading it took."""
    patches: dict[str, AbstractContextManager[object]] = {
        _SAFE: nullcontext(),
        _BARE: mock.patch.object(graph_module, "protect_mapped"),
        _COPIED: mock.patch.object(leases, "_LOCAL", set()),  # no file system has leases
    }
    began = time.perf_counter()
    with patches[way]:
        graph = load_graph_data(folder).graph
    return graph, time.perf_counter() - began


def compare(folder: Path, num_batches: int, num_turns: int) -> None:
    sampler, rng = NeighborSampler(FANOUTS), np.random.default_rng(1)
    ways = (_BARE, _SAFE, _COPIED)
    loads = {way: [load(folder, way)[1] for _ in range(num_turns + 1)][1:] for way in ways}
    graphs = {way: load(folder, way)[0] for way in ways}
    sampled: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(num_turns + 1):
        seeds = [rng.choice(graphs[_BARE].num_nodes, BATCH, replace=False) for _ in range(num_batches)]
        for way in rng.permutation(ways):
            began = time.thread_time()
            for step, each in enumerate(seeds):
                sampler.sample(graphs[way], each, seed=1, epoch=turn, step=step)
            sampled[way].append(time.thread_time() - began)
    print("| what keeps the graph as it is | loading, s | sampling, in times of none |")
    print("| --- | ---: | ---: |")
    for way in ways:
        ratio = statistics.median(one / other for one, other in zip(sampled[way][1:], sampled[_BARE][1:], strict=True))
        print(f"| {way} | {statistics.median(loads[way]):.3f} | {ratio:.3f} |")


def check(folder: Path, num_turns: int) -> None:
    """Times epochs beside a check that begins when they do, and epochs alone, in turns."""
    data = load_graph_data(folder)
    loader = GraphDataModule(data, NeighborSampler(FANOUTS), batch_size=BATCH, num_threads=1).train_dataloader()
    took: dict[bool, list[float]] = {True: [], False: []}
    checked_s = []
    for turn in range(2 * num_turns + 2):
        checks = turn % 2 == 1
        drop_pages(folder)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as notes:
            beside = BackgroundCheck(folder, str(data.folder_fingerprint), Path(notes)) if checks else None
            for _ in loader:
                pass
            took[checks].append(time.perf_counter() - began)
            if beside is not None:
                beside.wait()
                beside.raise_damage()
                checked_s.append(time.perf_counter() - began)
    ratio = statistics.median(one / other for one, other in zip(took[True][1:], took[False][1:], strict=True))
    size_bytes = sum(file.stat().st_size for file in folder.iterdir())
    print(
        f"\nAn epoch beside the check of its folder, of which no file is in memory: {ratio:.2f} times as long as alone "
        f"(medians of {num_turns} turns). The check of {size_bytes / 2**30:.2f} GiB took "
        f"{statistics.median(checked_s):.1f} s, the epochs {statistics.median(took[False]):.1f} s."
    )


def drop_pages(folder: Path) -> None:
    for file in folder.iterdir():
        fd = os.open(file, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.safety", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: a small graph, few turns")
    options = parser.parse_args(arguments)
    num_nodes, num_edges, num_batches, num_turns = 4_000_000, 100_000_000, 20, 15
    if options.quick:
        num_nodes, num_edges, num_batches, num_turns = 20_000, 200_000, 2, 3
    others = machine.Neighbours()
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "graph"
        write(folder, num_nodes, num_edges)
        print(f"{num_nodes:,} nodes, some {num_edges:,} edges, batches of {BATCH} seeds, fanouts {FANOUTS}.\n")
        compare(folder, num_batches, num_turns)
        check(folder, max(num_turns // 3, 1))
    print("\n" + "\n".join(f"- {line}" for line in [*machine.describe(), others.describe()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The ceiling of sampling: our own batches' memory accesses, replayed by native code that decides nothing."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lightning_gnnload import Graph, NeighborSampler
from tests.benchmarks.errors import BenchmarkError, Unavailable
from tests.benchmarks.graphs import GRAPHS
from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.seeds import seeds_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import timed

_SOURCE = Path(__file__).parent / "native" / "replay.cpp"
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC")
_PARTS = ("indptr", "adjacency", "dedup")
_NUM_BATCH_NUMBERS = 1 << 10


@dataclass(frozen=True)
class Recorded:
    """What one batch reads at random, uint32, in order: which nodes' ``indptr``, which positions of
    ``indices``, and the nodes to number, seeds first."""

    destinations: np.ndarray
    positions: np.ndarray
    numbered: np.ndarray
    num_nodes: int


def record(graph: Graph, seeds: np.ndarray, fanouts: list[int], expand: Literal["all", "new"], **key: int) -> Recorded:
    """The accesses of ``NeighborSampler(fanouts, expand=expand)`` for these seeds."""
    batch = NeighborSampler(fanouts, expand=expand, edge_ids=True).sample(graph, seeds, **key)
    # With expand="new" a hop's block holds all earlier hops' edges: the outermost one is the whole batch.
    blocks = batch.blocks[:1] if expand == "new" else batch.blocks[::-1]
    nodes = batch.nodes.numpy()
    edge_ids = [block.edge_ids.numpy() for block in blocks if block.edge_ids is not None]
    return Recorded(
        np.concatenate([nodes[: block.num_dst] for block in blocks]).astype(np.uint32),
        np.concatenate(edge_ids).astype(np.uint32),
        np.concatenate([seeds, *(nodes[block.indices.numpy()] for block in blocks)]).astype(np.uint32),
        batch.num_nodes,
    )


class Replay:
    """Over a copy of the graph on 2 MB pages.

    Args:
        graph: name of a graph of int32 indices, with fewer than 2**32 edges.

    Raises:
        Unavailable: there is no C++ compiler, or it cannot compile the source.
    """

    def __init__(self, graph: str) -> None:
        self._native = _compiled()
        data = GRAPHS[graph].load()
        self.train = data.train
        self.graph = Graph(on_huge_pages(data.graph.indptr), on_huge_pages(data.graph.indices))
        self._stamps = on_huge_pages(np.zeros(data.num_nodes, np.uint32))
        self._batch_number = 0
        self._out = on_huge_pages(np.zeros((4, 0), np.uint32))

    def replay(
        self, turn: int, num_batches: int, fanouts: list[int], expand: Literal["all", "new"] = "all"
    ) -> dict[str, Any]:
        """Milliseconds of each batch, and the medians of its three parts."""
        batches = [
            record(self.graph, seeds, fanouts, expand, epoch=turn, step=step)
            for step, seeds in enumerate(seeds_of_turn(self.train, turn, num_batches))
        ]
        self._make_room(batches)
        parts_ms: list[list[float]] = []
        reply = timed(lambda batch: parts_ms.append(self._one(batch)), batches)
        return {
            **reply,
            "edges": float(np.mean([len(batch.positions) for batch in batches])),
            **dict(zip(_PARTS, np.median(parts_ms, axis=0).tolist(), strict=True)),
        }

    def _make_room(self, batches: list[Recorded]) -> None:
        """For what the replay writes, touched before: page faults are no part of the ceiling."""
        longest = max(max(map(len, (batch.destinations, batch.positions, batch.numbered))) for batch in batches)
        if longest >= self._out.shape[1]:
            self._out = on_huge_pages(np.zeros((4, longest * 5 // 4 + 1), np.uint32))

    def _one(self, batch: Recorded) -> list[float]:
        """Milliseconds of the three parts.

        Raises:
            BenchmarkError: the replay found other nodes than the sampler did.
        """
        degrees, neighbors, listed, local_ids = map(_address, self._out)
        number = self._next_number()
        marks = [time.perf_counter()]
        self._native.replay_indptr(_address(self.graph.indptr), *_run(batch.destinations), degrees)
        marks.append(time.perf_counter())
        self._native.replay_indices(_address(self.graph.indices), *_run(batch.positions), neighbors)
        marks.append(time.perf_counter())
        num_nodes = self._native.replay_stamps(_address(self._stamps), number, *_run(batch.numbered), listed, local_ids)
        marks.append(time.perf_counter())
        if num_nodes != batch.num_nodes:
            raise BenchmarkError(f"the replay found {num_nodes} nodes, but the sampler found {batch.num_nodes}.")
        return (np.diff(marks) * 1e3).tolist()

    def _next_number(self) -> int:
        self._batch_number = (self._batch_number + 1) % _NUM_BATCH_NUMBERS
        if self._batch_number == 0:
            self._stamps[:] = 0
            self._batch_number = 1
        return self._batch_number


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _run(ids: np.ndarray) -> tuple[ctypes.c_void_p, ctypes.c_int64]:
    return _address(ids), ctypes.c_int64(len(ids))


def _compiled() -> ctypes.CDLL:
    """The native code, compiled for this machine, in a folder that is gone once it is loaded."""
    compiler = next(
        (found for name in (os.environ.get("CXX"), "c++", "g++", "clang++") if name and (found := shutil.which(name))),
        None,
    )
    if compiler is None:
        raise Unavailable("there is no C++ compiler: set CXX, or install g++ or clang++")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "replay.so"
        done = subprocess.run([compiler, *_FLAGS, str(_SOURCE), "-o", str(library)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"{compiler} cannot compile {_SOURCE.name}: {done.stderr.strip()[-300:]}")
        native = ctypes.CDLL(str(library))
    native.replay_stamps.restype = ctypes.c_int64
    return native


if __name__ == "__main__":
    serve(Replay)

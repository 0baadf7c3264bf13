"""The ceiling of sampling: our own batches' memory accesses, replayed by native code that decides nothing."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lightning_gnnload import Block, Graph, MiniBatch, NeighborSampler, WeightedNeighborSampler
from lightning_gnnload.sample.base import Sampler
from tests.benchmarks.errors import BenchmarkError, Unavailable
from tests.benchmarks.graphs import GRAPHS, edge_weights
from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.seeds import seeds_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import timed

_SOURCE = Path(__file__).parent / "native" / "replay.cpp"
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC")
_NUM_BATCH_NUMBERS = 1 << 10

Expand = Literal["all", "new"]


@dataclass(frozen=True)
class Recorded:
    """What one batch reads at random.

    Attributes:
        reads: by the name of what is read: a table of 4 or 8 bytes an entry, and positions in it, uint32, in order.
        numbered: uint32, the nodes to number, seeds first; empty where the kernel numbers in its cache.
        num_nodes: how many of them differ.
        num_edges: of the batch.
    """

    reads: dict[str, tuple[np.ndarray, np.ndarray]]
    numbered: np.ndarray
    num_nodes: int
    num_edges: int


def expanded(batch: MiniBatch, expand: Expand) -> list[Block]:
    """The blocks that hold each sampled edge once, nearest hop first."""
    # With expand="new" a hop's block holds all earlier hops' edges: the outermost one is the whole batch.
    return batch.blocks[:1] if expand == "new" else batch.blocks[::-1]


def positions_of(blocks: list[Block]) -> np.ndarray:
    """Where in the graph's lists the edges of blocks with edge ids are, uint32."""
    return np.concatenate([block.edge_ids.numpy() for block in blocks if block.edge_ids is not None]).astype(np.uint32)


def numbered_by(batch: MiniBatch, blocks: list[Block]) -> np.ndarray:
    """The nodes that a batch numbers, uint32, in order: its seeds, and what each edge leads to."""
    nodes = batch.nodes.numpy()
    return np.concatenate([batch.seeds.numpy(), *(nodes[block.indices.numpy()] for block in blocks)]).astype(np.uint32)


class Accesses:
    """Repeats what batches read.

    Args:
        num_nodes: of the graph.

    Raises:
        Unavailable: there is no C++ compiler, or it cannot compile the source.
    """

    def __init__(self, num_nodes: int) -> None:
        self._native = _compiled()
        self._stamps = on_huge_pages(np.zeros(num_nodes, np.uint32))
        self._batch_number = 0
        self._out = np.zeros((0, 0), np.int64)  # a row for each pass, and one more for numbering

    def replay(self, batches: list[Recorded]) -> dict[str, Any]:
        """Milliseconds of each batch, and the medians of its passes by their names; "dedup" is numbering."""
        self._make_room(batches)
        passes_ms: list[list[float]] = []
        reply = timed(lambda batch: passes_ms.append(self._one(batch)), batches)
        names = [*batches[0].reads, *(["dedup"] if len(batches[0].numbered) else [])]
        return {
            **reply,
            "edges": float(np.mean([batch.num_edges for batch in batches])),
            **dict(zip(names, np.median(passes_ms, axis=0).tolist(), strict=True)),
        }

    def _make_room(self, batches: list[Recorded]) -> None:
        """For what the replay writes, touched before: page faults are no part of the ceiling."""
        lengths = [len(at) for batch in batches for _table, at in batch.reads.values()]
        longest, num_rows = max(*lengths, *(len(batch.numbered) for batch in batches)), len(batches[0].reads) + 2
        if num_rows > len(self._out) or longest >= self._out.shape[1]:
            self._out = on_huge_pages(np.zeros((num_rows, longest * 5 // 4 + 1), np.int64))

    def _one(self, batch: Recorded) -> list[float]:
        """Milliseconds of the passes.

        Raises:
            BenchmarkError: the replay found other nodes than the sampler did.
        """
        marks = [time.perf_counter()]
        for (table, at), out in zip(batch.reads.values(), self._out, strict=False):
            read = self._native.replay_reads_8 if table.itemsize == 8 else self._native.replay_reads_4
            read(_address(table), *_run(at), _address(out))
            marks.append(time.perf_counter())
        if len(batch.numbered):
            listed, local_ids = map(_address, self._out[-2:])
            number = self._next_number()
            num_nodes = self._native.replay_stamps(
                _address(self._stamps), number, *_run(batch.numbered), listed, local_ids
            )
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


class Replay:
    """Over a copy of the graph on 2 MB pages.

    Args:
        graph: name of a graph of int32 indices, with fewer than 2**32 edges.

    Raises:
        Unavailable: as :class:`Accesses`.
    """

    def __init__(self, graph: str) -> None:
        data = GRAPHS[graph].load()
        self.train = data.train
        self.graph = Graph(on_huge_pages(data.graph.indptr), on_huge_pages(data.graph.indices))
        self._accesses = Accesses(data.num_nodes)

    def replay(self, turn: int, num_batches: int, fanouts: list[int], expand: Expand = "all") -> dict[str, Any]:
        """What uniform sampling reads."""
        sampler = NeighborSampler(fanouts, expand=expand, edge_ids=True)
        return self._replay(sampler, self.graph, expand, turn, num_batches)

    def replay_weighted(
        self, turn: int, num_batches: int, fanouts: list[int], expand: Expand = "all"
    ) -> dict[str, Any]:
        """What sampling by weight reads, with one trial for each edge that is drawn: more are the kernel's own cost."""
        sampler = WeightedNeighborSampler(fanouts, expand=expand, edge_ids=True)
        return self._replay(sampler, self._weighted, expand, turn, num_batches)

    @cached_property
    def _weighted(self) -> Graph:
        graph = self.graph
        return Graph(graph.indptr, graph.indices, edge_weight=edge_weights(graph.num_edges))

    @cached_property
    def _alias(self) -> np.ndarray:
        """In the place of the alias tables, which have 8 bytes an edge."""
        return on_huge_pages(np.ones(self.graph.num_edges, np.int64))

    def _replay(self, sampler: Sampler, graph: Graph, expand: Expand, turn: int, num_batches: int) -> dict[str, Any]:
        seeds = seeds_of_turn(self.train, turn, num_batches)
        return self._accesses.replay(
            [self._record(sampler, graph, expand, each, epoch=turn, step=step) for step, each in enumerate(seeds)]
        )

    def _record(self, sampler: Sampler, graph: Graph, expand: Expand, seeds: np.ndarray, **key: int) -> Recorded:
        batch = sampler.sample(graph, seeds, **key)
        blocks = expanded(batch, expand)
        nodes, positions = batch.nodes.numpy(), positions_of(blocks)
        destinations = np.concatenate([nodes[: block.num_dst] for block in blocks])
        reads = {"indptr": (graph.indptr, both_ends(destinations, 1))}
        if graph.edge_weight is not None:
            reads["alias"] = (self._alias, positions)
        reads["adjacency"] = (graph.indices, positions)
        return Recorded(reads, numbered_by(batch, blocks), batch.num_nodes, len(positions))


def both_ends(begin: np.ndarray, length: Any) -> np.ndarray:
    """Positions ``begin`` and ``begin + length`` in turns, uint32 ``[2 n]``."""
    return np.stack([begin, begin + length], axis=1).ravel().astype(np.uint32)


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

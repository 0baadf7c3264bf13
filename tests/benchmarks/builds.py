"""How long it takes to build a graph with types and times from edge lists, and how much memory it takes then."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lightning_gnnload import Graph
from tests.benchmarks.memory import private_bytes
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import PROCESSOR_MS
from tests.benchmarks.typed_graph import TYPED_GRAPHS

AT_REST = "bytes an edge"


class Builds:
    """One graph's edge lists, as they are given; a process builds one thing once.

    Args:
        graph: its name.
    """

    def __init__(self, graph: str) -> None:
        self.arrays = TYPED_GRAPHS[graph].arrays
        self.numbers = range(len(self.arrays.edge_types))
        self.num_edges = sum(map(self.arrays.num_edges, self.numbers))

    def build(self, way: str, **settings: Any) -> dict[str, Any]:
        """``way``: one of the methods below, over arrays in memory; seconds, and the bytes an edge that then stay."""
        make: Callable[[], Any] = getattr(self, way)(**settings)
        _trim()
        before = private_bytes()
        began, began_using = time.perf_counter(), time.process_time()
        made = make()
        took_s, used_s = time.perf_counter() - began, time.process_time() - began_using
        _trim()
        kept = private_bytes() - before
        del made
        return {"values": [took_s], PROCESSOR_MS: used_s * 1e3, AT_REST: kept / self.num_edges}

    def ours(self, timed: bool, keep_order: bool = False) -> Callable[[], Any]:
        arrays = self.arrays
        edges = {arrays.edge_types[k]: tuple(map(np.array, arrays.pairs(k))) for k in self.numbers}
        times = {arrays.edge_types[k]: np.array(arrays.time_given(k)) for k in self.numbers} if timed else None
        num_nodes = dict(zip(arrays.node_types, arrays.num_nodes, strict=True))
        return lambda: Graph.from_hetero(num_nodes, edges, edge_time=times, keep_order=keep_order)

    def torch_sort(self, timed: bool) -> Callable[[], Any]:
        """Edges of all types by where they end, by one stable sort; by time before, where there are times."""
        first = np.concatenate([[0], np.cumsum(self.arrays.num_nodes)])
        ends = [self.arrays.type_number(dst) for _, _, dst in self.arrays.edge_types]
        targets = torch.from_numpy(
            np.concatenate([self.arrays.pairs(k)[1].astype(np.int64) + first[ends[k]] for k in self.numbers])
        )
        if not timed:
            return lambda: torch.sort(targets, stable=True)
        times = torch.from_numpy(np.concatenate([self.arrays.time_given(k) for k in self.numbers]))

        def sort() -> Any:
            by_time = torch.sort(times, stable=True).indices
            return by_time[torch.sort(targets[by_time], stable=True).indices]

        return sort

    def dgl(self) -> Callable[[], Any]:
        import dgl

        pairs = self._wide()
        num_nodes = dict(zip(self.arrays.node_types, self.arrays.num_nodes, strict=True))

        def make() -> Any:
            graph = dgl.heterograph(pairs, num_nodes).formats(["csc", "coo"])
            graph.create_formats_()
            return graph.formats("csc")

        return make

    def pyg(self) -> Callable[[], Any]:
        """What its sampler does with edges and their times when it is made, type by type."""
        from torch_geometric.index import index2ptr
        from torch_geometric.sampler.utils import sort_csc

        pairs = self._wide()
        times = {self.arrays.edge_types[k]: torch.from_numpy(np.array(self.arrays.time_given(k))) for k in self.numbers}
        count = dict(zip(self.arrays.node_types, self.arrays.num_nodes, strict=True))

        def make() -> Any:
            made = []
            for kind, (src, dst) in pairs.items():
                row, col, perm = sort_csc(src, dst, None, times[kind])
                made.append((index2ptr(col, count[kind[2]]), row, perm, times[kind][perm]))
            return made

        return make

    def _wide(self) -> dict[tuple[str, str, str], tuple[torch.Tensor, torch.Tensor]]:
        return {
            self.arrays.edge_types[k]: tuple(torch.from_numpy(ends.astype(np.int64)) for ends in self.arrays.pairs(k))
            for k in self.numbers
        }


def _trim() -> None:
    """Gives back what malloc keeps of what is free."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    serve(Builds)

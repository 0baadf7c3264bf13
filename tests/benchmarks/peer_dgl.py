"""What DGL is told to do, in the way its documentation advises."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import dgl
import numpy as np
import torch

from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.features import MemoryFeatureStore
from tests.benchmarks.graphs import GRAPHS, wide_indices
from tests.benchmarks.memory import MemoryWatch, on_huge_pages
from tests.benchmarks.seeds import BATCH_SIZE, seeds_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import steady_ms, timed


class PeerDGL:
    """Over a graph in CSC form; its arrays and features are mapped from files, as ours are.

    Args:
        graph: its name.
        in_memory: with the topology in private memory on 2 MB pages.
        int32: half the memory, but then its fused sampler returns corrupt blocks: the plain one is taken.
    """

    def __init__(self, graph: str, in_memory: bool = False, int32: bool = False) -> None:
        self.memory = MemoryWatch()
        warnings.filterwarnings("ignore", module="dgl")
        data = GRAPHS[graph].load()
        indptr = data.graph.indptr
        indices = data.graph.indices if int32 else np.load(wide_indices(graph), mmap_mode="r")
        if int32:
            indptr = indptr.astype(np.int32)
        if in_memory:
            indptr, indices = on_huge_pages(indptr), on_huge_pages(indices)
        self.dtype, self.fused = torch.int32 if int32 else torch.int64, not int32
        # It numbers the edges where none are given.
        self.arrays = (tensor_view(indptr), tensor_view(indices), torch.empty(0, dtype=self.dtype))
        # Only "csc": else its DataLoader would make and keep two more forms of the graph.
        self.topology = dgl.graph(("csc", self.arrays), num_nodes=data.num_nodes, idtype=self.dtype).formats("csc")
        self.graph = self.topology.local_var()
        assert isinstance(data.x, MemoryFeatureStore)
        self.graph.ndata["feat"] = data.x.rows
        self.graph.ndata["label"] = data.y
        self.train = data.train

    def sample(self, turn: int, num_batches: int, fanouts: list[int]) -> dict[str, Any]:
        batches = [torch.from_numpy(seeds).to(self.dtype) for seeds in seeds_of_turn(self.train, turn, num_batches)]
        sampler, num_edges = _sampler(tuple(fanouts), prefetch=False, fused=self.fused), 0

        def sample(seeds: torch.Tensor) -> None:
            nonlocal num_edges
            _, _, blocks = sampler.sample(self.topology, seeds)
            num_edges += sum(block.num_edges() for block in blocks)

        return timed(sample, batches) | {"edges": num_edges / num_batches}

    def load(self, turn: int, num_batches: int, fanouts: list[int], num_workers: int) -> dict[str, Any]:
        torch.manual_seed(turn)
        loader = dgl.dataloading.DataLoader(
            self.graph,
            torch.from_numpy(self.train).to(self.dtype),
            _sampler(tuple(fanouts), prefetch=True, fused=self.fused),
            batch_size=BATCH_SIZE,
            shuffle=True,
            drop_last=True,
            num_workers=num_workers,
        )
        return steady_ms(loader, num_batches, self.memory.look, num_workers=num_workers)

    def peak(self) -> dict[str, Any]:
        return self.memory.report()


@cache
def _sampler(fanouts: tuple[int, ...], prefetch: bool, fused: bool) -> Any:
    """One for all turns, as it keeps its deduplication table. DGL lists the outermost hop first."""
    wanted = {"prefetch_node_feats": ["feat"], "prefetch_labels": ["label"]} if prefetch else {}
    return dgl.dataloading.NeighborSampler(list(reversed(fanouts)), fused=fused, **wanted)


if __name__ == "__main__":
    serve(PeerDGL)

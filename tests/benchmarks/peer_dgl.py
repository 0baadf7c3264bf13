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
from tests.benchmarks.graphs import BATCH_SIZE, dataset, seeds_of_turn, wide_indices
from tests.benchmarks.memory import MemoryWatch
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import each_batch_ms, steady_ms


class PeerDGL:
    """Over an int64 graph in CSC form; its arrays and features are mapped from files, as ours are."""

    def __init__(self, graph: str) -> None:
        self.memory = MemoryWatch()
        warnings.filterwarnings("ignore", module="dgl")
        data = dataset(graph).load()
        indices = tensor_view(np.load(wide_indices(graph), mmap_mode="r"))
        indptr = tensor_view(data.graph.indptr)
        no_edge_ids = torch.empty(0, dtype=torch.int64)  # DGL then numbers edges as they lie
        # Only "csc": else its DataLoader would make and keep two more forms of the graph.
        self.graph = dgl.graph(("csc", (indptr, indices, no_edge_ids)), num_nodes=data.num_nodes).formats("csc")
        assert isinstance(data.x, MemoryFeatureStore)
        self.graph.ndata["feat"] = data.x.rows
        self.graph.ndata["label"] = data.y
        self.train = data.train

    def sample(self, turn: int, num_batches: int, fanouts: list[int]) -> dict[str, Any]:
        batches = [torch.from_numpy(seeds) for seeds in seeds_of_turn(self.train, turn, num_batches)]
        sampler, num_edges = _sampler(tuple(fanouts), prefetch=False), 0

        def sample(seeds: torch.Tensor) -> None:
            nonlocal num_edges
            _, _, blocks = sampler.sample(self.graph, seeds)
            num_edges += sum(block.num_edges() for block in blocks)

        return {"values": each_batch_ms(sample, batches), "edges": num_edges / num_batches}

    def load(self, turn: int, num_batches: int, fanouts: list[int], num_workers: int) -> dict[str, Any]:
        torch.manual_seed(turn)
        loader = dgl.dataloading.DataLoader(
            self.graph,
            torch.from_numpy(self.train),
            _sampler(tuple(fanouts), prefetch=True),
            batch_size=BATCH_SIZE,
            shuffle=True,
            drop_last=True,
            num_workers=num_workers,
        )
        return {"values": steady_ms(loader, num_batches, self.memory.look)}

    def peak(self) -> dict[str, Any]:
        return self.memory.report()


@cache
def _sampler(fanouts: tuple[int, ...], prefetch: bool) -> Any:
    """One for all turns, as it keeps its deduplication table. DGL lists the outermost hop first."""
    wanted = {"prefetch_node_feats": ["feat"], "prefetch_labels": ["label"]} if prefetch else {}
    return dgl.dataloading.NeighborSampler(list(reversed(fanouts)), **wanted)


if __name__ == "__main__":
    serve(PeerDGL)

"""What DGL is told to do besides uniform sampling, as its documentation and its examples do it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import dgl
import torch

from tests.benchmarks.graphs import edge_weights
from tests.benchmarks.peer_dgl import PeerDGL
from tests.benchmarks.seeds import seeds_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import timed

Sample = Callable[[torch.Tensor], int]  # seeds -> number of edges


class PeerDGLSamplers(PeerDGL):
    """Over an int64 graph, its topology in memory on 2 MB pages."""

    def __init__(self, graph: str) -> None:
        super().__init__(graph, in_memory=True)
        self._samplers: dict[str, Sample] = {}

    def sample_by(self, turn: int, num_batches: int, way: str, settings: dict[str, Any]) -> dict[str, Any]:
        """``way``: one of the methods below, which makes a sampler once; ``settings``: its arguments."""
        kind = repr((way, settings))
        if kind not in self._samplers:
            self._samplers[kind] = getattr(self, way)(**settings)
        make, num_edges = self._samplers[kind], 0

        def sample(seeds: torch.Tensor) -> None:
            nonlocal num_edges
            num_edges += make(seeds)

        batches = [torch.from_numpy(seeds) for seeds in seeds_of_turn(self.train, turn, num_batches)]
        return timed(sample, batches) | {"edges": num_edges / num_batches}

    def weighted(self, fanouts: list[int], fused: bool) -> Sample:
        return _blocks(dgl.dataloading.NeighborSampler(fanouts[::-1], prob="weight", fused=fused), self._weighted)

    def labor(self, fanouts: list[int]) -> Sample:
        return _blocks(dgl.dataloading.LaborSampler(fanouts[::-1]), self.topology)

    def shadow(self, fanouts: list[int]) -> Sample:
        sampler = dgl.dataloading.ShaDowKHopSampler(fanouts[::-1])
        return lambda seeds: sampler.sample(self.topology, seeds)[2].num_edges()

    def pinsage(
        self, num_neighbors: int, num_layers: int, num_walks: int, walk_length: int, termination_prob: float
    ) -> Sample:
        """A graph a layer, as in DGL's example of PinSAGE."""
        walk = dgl.sampling.RandomWalkNeighborSampler(
            self._turned, walk_length, termination_prob, num_walks, num_neighbors
        )

        def sample(nodes: torch.Tensor) -> int:
            num_edges = 0
            for _ in range(num_layers):
                block = dgl.to_block(walk(nodes), nodes)
                num_edges += block.num_edges()
                nodes = block.srcdata[dgl.NID]
            return num_edges

        return sample

    def walks(self, num_walks: int, length: int) -> Sample:
        """Counts steps."""

        def sample(nodes: torch.Tensor) -> int:
            paths, _ = dgl.sampling.random_walk(self._turned, nodes.repeat_interleave(num_walks), length=length)
            return paths[:, 1:].numel()

        return sample

    @cached_property
    def _turned(self) -> dgl.DGLGraph:
        """All edges turned round: DGL walks along edges, and ours from a node to its in-neighbours."""
        return dgl.graph(("csr", self.arrays), num_nodes=self.topology.num_nodes(), idtype=self.dtype).formats("csr")

    @cached_property
    def _weighted(self) -> dgl.DGLGraph:
        graph = self.topology.local_var()
        graph.edata["weight"] = torch.from_numpy(edge_weights(graph.num_edges()))
        return graph


def _blocks(sampler: Any, graph: dgl.DGLGraph) -> Sample:
    return lambda seeds: sum(block.num_edges() for block in sampler.sample(graph, seeds)[2])


if __name__ == "__main__":
    serve(PeerDGLSamplers)

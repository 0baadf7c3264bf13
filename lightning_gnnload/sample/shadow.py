"""ShadowSampler: the subgraph around the seeds, for models deeper than its scope."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import DrawKey, SampleLayout
from lightning_gnnload.ops.shadow import check_num_layers
from lightning_gnnload.sample.base import Sampler, sampler_input
from lightning_gnnload.sample.fanouts import plain_fanouts


class ShadowSampler(Sampler):
    """Draws a scope of a few hops around the seeds, and gives models of any depth all edges within it (ShaDow).

    The scope is what :class:`.NeighborSampler` with ``expand="new"`` finds, by the same draws. Each node keeps
    those in-neighbours that lie in the scope, in adjacency order; repeated edges and loops stay.
    ``ShadowSampler([-1] * k, ...)`` takes the subgraph of all nodes within k hops.

    The ``num_layers`` blocks are parts of one subgraph and share its memory. The last one, whose destinations are
    the seeds, has the edges into the seeds; in all others, every node of the scope is a destination. So models
    that consume blocks run unchanged, and ``batch_format="pyg"`` gives the subgraph as one ``Data``.

    The scopes of a batch's seeds are merged, as in DGL: nodes of a batch are distinct, so seeds whose scopes
    meet see each other's neighbours. For a subgraph of its own for each seed, as in the paper and in PyG, use
    batches of one seed.

    Args:
        fanouts: neighbours drawn per node to find the scope, nearest hop first; -1 takes all. An empty list: the
            scope is the seeds.
        num_layers: number of blocks, at least 1, whatever the depth of the scope.
        edge_ids: blocks carry ``edge_ids``, positions in ``Graph.indices``.

    It looks up every in-neighbour of every node of the scope: a hub costs its degree.

    Raises:
        SamplerConfigError: a fanout that is neither positive nor -1, or no layers.

    Source: Zeng et al., "Decoupling the Depth and Scope of Graph Neural Networks" (NeurIPS'21), section 3.

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 3, 4, 0, 2], dst=[0, 1, 1, 2, 1, 0])
        >>> batch = ShadowSampler([-1], num_layers=3).sample(graph, [0])
        >>> batch.nodes.tolist(), [(block.num_dst, block.num_edges) for block in batch.blocks]
        ([0, 1, 2], [(3, 4), (3, 4), (1, 2)])
    """

    def __init__(self, fanouts: Sequence[int], num_layers: int, edge_ids: bool = False) -> None:
        self.fanouts = plain_fanouts(fanouts)
        self._num_layers = check_num_layers(num_layers)
        self.edge_ids = edge_ids

    @property
    def num_layers(self) -> int:
        return self._num_layers

    @property
    def reach(self) -> int:
        return len(self.fanouts) + 1  # the last nodes found keep their edges, too

    def sample_into(self, graph: Graph, seeds: np.ndarray, key: DrawKey, arena: np.ndarray) -> SampleLayout:
        return ops.sample_shadow(
            sampler_input(graph, seeds, key, arena),
            self.fanouts,
            num_layers=self.num_layers,
            edge_ids=self.edge_ids,
        )

    def __repr__(self) -> str:
        edge_ids = ", edge_ids=True" if self.edge_ids else ""
        return f"ShadowSampler({self.fanouts}, num_layers={self.num_layers}{edge_ids})"

"""NeighborSampler: uniform neighbourhood sampling, node by node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import DrawKey, SampleLayout
from lightning_gnnload.sample.base import Sampler, thread_workspace


class NeighborSampler(Sampler):
    """Draws up to ``fanout`` in-neighbours of every node, hop by hop, each subset of neighbours equally likely.

    Args:
        fanouts: neighbours drawn per node, nearest hop first; -1 takes all. An empty list draws no neighbours,
            for a model without a graph.
        replace: draw with replacement (a neighbour may come twice).
        expand: ``"all"``: every node seen so far is a destination again in the next hop, with fresh draws (DGL);
            ``"new"``: only the nodes that the last hop found (PyG).
        edge_ids: blocks carry ``edge_ids``, positions in ``Graph.indices``.

    Raises:
        SamplerConfigError: a fanout that is neither positive nor -1, or an unknown ``expand``.

    Source: GraphSAGE neighbourhood sampling, as in GNNLab (EuroSys'22), section 2; Floyd's algorithm for the draw.

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 3, 0], dst=[0, 0, 0, 3])
        >>> batch = NeighborSampler([2, -1]).sample(graph, [0])
        >>> batch.seeds.tolist(), [block.num_dst for block in batch.blocks]
        ([0], [3, 1])
    """

    def __init__(
        self,
        fanouts: Sequence[int],
        replace: bool = False,
        expand: Literal["all", "new"] = "all",
        edge_ids: bool = False,
    ) -> None:
        fanouts = list(fanouts) if isinstance(fanouts, Iterable) else fanouts
        if not isinstance(fanouts, list) or not all(isinstance(fanout, int | np.integer) for fanout in fanouts):
            raise SamplerConfigError(
                f"fanouts={fanouts!r}: a list of whole numbers is needed, one a hop, for example [15, 10, 5]."
            )
        if any(fanout == 0 or fanout < -1 for fanout in fanouts):
            raise SamplerConfigError(f"fanouts={fanouts}: each must be positive, or -1 to take all neighbours.")
        if expand not in ("all", "new"):
            raise SamplerConfigError(
                f"expand={expand!r} is not known; give 'all' (every node seen) or 'new' (new nodes only)."
            )
        self.fanouts = [int(fanout) for fanout in fanouts]
        self.replace = replace
        self.expand = expand
        self.edge_ids = edge_ids

    @property
    def num_layers(self) -> int:
        return len(self.fanouts)

    def sample_into(self, graph: Graph, seeds: np.ndarray, key: DrawKey, arena: np.ndarray) -> SampleLayout:
        return ops.sample_neighbors(
            thread_workspace(graph.num_nodes),
            graph.indptr,
            graph.indices,
            seeds,
            self.fanouts,
            key,
            arena,
            replace=self.replace,
            expand=self.expand,
            edge_ids=self.edge_ids,
        )

    def __repr__(self) -> str:
        settings = "".join(
            f", {name}={value!r}" for name, value in (("replace", self.replace), ("edge_ids", self.edge_ids)) if value
        )
        return f"NeighborSampler({self.fanouts}, expand={self.expand!r}{settings})"

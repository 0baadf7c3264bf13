"""NeighborSampler: uniform neighbourhood sampling, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import DrawKey, SampleLayout
from lightning_gnnload.sample.base import Sampler, sampler_input
from lightning_gnnload.sample.fanouts import check_expand, typed_fanouts


class NeighborSampler(Sampler):
    """Draws up to ``fanout`` in-neighbours of every node, hop by hop, each subset of neighbours equally likely.

    Args:
        fanouts: neighbours drawn per node, nearest hop first; -1 takes all. An empty list draws no neighbours,
            for a model without a graph. A hop given as ``{type: fanout}`` draws from each edge type by itself;
            types left out draw nothing. If any hop is given so, a number means as many of every type, edges come
            in ascending order of type, and blocks carry ``edge_type``.
        replace: draw with replacement (a neighbour may come twice).
        expand: ``"all"``: every node seen so far is a destination again in the next hop, with fresh draws (DGL);
            ``"new"``: only the nodes that the last hop found (PyG).
        edge_ids: blocks carry ``edge_ids``, positions in ``Graph.indices``.

    Raises:
        SamplerConfigError: a fanout that is neither positive nor -1, or an unknown ``expand``; on sampling, a type
            that the graph does not have.
        GraphFormatError: on sampling by type, a graph without edge types.

    Source: GraphSAGE neighbourhood sampling, as in GNNLab (EuroSys'22), section 2; Floyd's algorithm for the draw.

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 3, 0], dst=[0, 0, 0, 3])
        >>> batch = NeighborSampler([2, -1]).sample(graph, [0])
        >>> batch.seeds.tolist(), [block.num_dst for block in batch.blocks]
        ([0], [3, 1])
        >>> typed = Graph.from_coo(src=[1, 2, 3], dst=[0, 0, 0], edge_type=[5, 7, 5])
        >>> [block] = NeighborSampler([{5: 1, 7: -1}]).sample(typed, [0]).blocks
        >>> block.edge_type.tolist()
        [5, 7]
    """

    def __init__(
        self,
        fanouts: Sequence[int | Mapping[int, int]],
        replace: bool = False,
        expand: Literal["all", "new"] = "all",
        edge_ids: bool = False,
    ) -> None:
        self.fanouts = typed_fanouts(fanouts)
        self.replace = replace
        self.expand = check_expand(expand)
        self.edge_ids = edge_ids

    @property
    def num_layers(self) -> int:
        return len(self.fanouts)

    @property
    def reach(self) -> int:
        return len(self.fanouts)

    def sample_into(self, graph: Graph, seeds: np.ndarray, key: DrawKey, arena: np.ndarray) -> SampleLayout:
        inputs, fanouts = sampler_input(graph, seeds, key, arena), self.fanouts
        options: dict[str, Any] = {"replace": self.replace, "expand": self.expand, "edge_ids": self.edge_ids}
        if any(isinstance(fanout, dict) for fanout in fanouts):
            types = graph.edge_type_index
            if graph.origin is not None:
                fanouts = [_of_types_in(hop, types.num_types) for hop in fanouts]
            return ops.sample_typed_neighbors(inputs, types, fanouts, **options)
        return ops.sample_neighbors(inputs, fanouts, **options)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        settings = "".join(
            f", {name}={value!r}" for name, value in (("replace", self.replace), ("edge_ids", self.edge_ids)) if value
        )
        return f"NeighborSampler({self.fanouts}, expand={self.expand!r}{settings})"


def _of_types_in(fanouts: int | dict[int, int], num_types: int) -> int | dict[int, int]:
    """Those of edge types that a part has; others are of edges elsewhere."""
    if not isinstance(fanouts, dict):
        return fanouts
    return {kind: fanout for kind, fanout in fanouts.items() if kind < num_types}

"""LaborSampler: layer-neighbour sampling, where nodes that share neighbours draw the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import CudaUnavailableError, SamplerConfigError
from lightning_gnnload.ops import Draw, SampleLayout, TypedLists
from lightning_gnnload.ops.labor import check_importance
from lightning_gnnload.sample.base import LayBatch, Paradigm, Sampler, columns_that, sampler_input
from lightning_gnnload.sample.fanouts import check_expand, fanouts_by_type, hop_from_json, hop_to_json, typed_fanouts
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.parts.hops import check_types, lay_hops, node_wise

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.sampling.sample import DeviceSample
    from lightning_gnnload.ops.cuda.sampling.topology import Topology
    from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace


class LaborSampler(Sampler):
    """Draws about ``fanout`` in-neighbours of every node, the same ones for nodes that share them (LABOR).

    Every node has one random number a hop, which all destinations compare with ``fanout / degree``: of the
    neighbours they share, destinations of one degree take the same, and one of higher degree takes some of these. So
    a batch needs fewer input nodes than :class:`.NeighborSampler` draws with these fanouts, while the mean over each
    destination's neighbours varies as much. A neighbour is taken with probability ``fanout / degree``, hence ``fanout``
    of them on average (none of a long list: with probability below exp(-fanout)), and all of up to ``fanout``. Edges
    come in adjacency order; repeated edges are taken together.

    In a graph with types, each edge type has a fanout, and a degree counts within it. A node has one random number for
    each edge type and hop: nodes share draws within a type, and types are independent of each other. Blocks then carry
    ``edge_type``.

    Args:
        fanouts: expected neighbours per node, nearest hop first; -1 takes all. In a graph with types, as many of every
            edge type; or by type, as :class:`.NeighborSampler` takes them.
        importance: iterations that raise the probability of neighbours which many destinations share, and lower
            that of others, at equal variance of the means (the paper's LABOR-i); -1: until the expected number of
            nodes falls by less than 1 part in 10,000 (LABOR-*). 0 is the cheapest by far. Otherwise blocks carry
            ``edge_weight``. Not for graphs with types.
        layer_dependency: a node has one random number (one an edge type) for all hops of the batch, so that nodes met
            again take the same neighbours again: fewer input nodes, but the layers' errors are no longer independent.
        fixed_count: take exactly ``min(fanout, degree)``: those with the smallest numbers (sequential Poisson
            sampling); only with ``importance=0``. Not for graphs with repeated edges, which it takes one by one,
            although they share a number: that would be biased.
        estimate: what ``edge_weight``, from each edge's probability p, is for. ``"mean"``: 1 / p, scaled to an
            average of 1 over a destination's edges (Hajek's estimator): the weighted sum, divided by the number of
            edges taken, estimates the mean over all in-neighbours. It is None with ``importance=0``, where all
            count alike. ``"sum"``: 1 / p, so that the weighted sum is an unbiased estimate of the sum over all
            in-neighbours (Horvitz and Thompson).
        expand: ``"all"``: every node seen so far is a destination again in the next hop (DGL); ``"new"``: only
            the nodes that the last hop found (PyG). None: ``"new"`` where a GraphDataModule's ``batch_format`` needs
            it, else ``"all"``.
        edge_ids: blocks carry ``edge_ids``, positions in ``Graph.indices``.

    It looks at every in-neighbour of every destination: time grows with degrees, memory does not, but for
    ``importance`` (4 bytes for each of these edges, 40 for each distinct neighbour).

    Raises:
        SamplerConfigError: a fanout that is neither positive nor -1, an unknown option, or options that exclude
            each other.

    Source: Balin and Catalyurek, "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs" (NeurIPS'23),
    section 3; ``fixed_count``: appendix A.3.

    Example:
        >>> graph = Graph.from_coo(src=[3, 4, 5, 3, 4, 5, 3, 4, 5], dst=[0, 0, 0, 1, 1, 1, 2, 2, 2])
        >>> block = LaborSampler([1], fixed_count=True).sample(graph, [0, 1, 2]).blocks[0]
        >>> block.num_edges, block.num_src  # three nodes take the same neighbour
        (3, 4)
    """

    def __init__(
        self,
        fanouts: Sequence[int | Mapping[Any, int]] | Mapping[Any, Sequence[int]],
        importance: int = 0,
        layer_dependency: bool = False,
        fixed_count: bool = False,
        estimate: Literal["mean", "sum"] = "mean",
        expand: Literal["all", "new"] | None = None,
        edge_ids: bool = False,
    ) -> None:
        if estimate not in ("mean", "sum"):
            raise SamplerConfigError(
                f"estimate={estimate!r} is not known; give 'mean' (weights average to 1) or 'sum' (1 / probability)."
            )
        self.fanouts = typed_fanouts(fanouts)
        self.importance = check_importance(importance, fixed_count)
        self.layer_dependency = layer_dependency
        self.fixed_count = fixed_count
        self.estimate = estimate
        self.expand, self.is_expand_open = check_expand(expand), expand is None
        self.edge_ids = edge_ids

    @property
    def num_layers(self) -> int:
        return len(self.fanouts)

    @property
    def reach(self) -> int:
        return len(self.fanouts)

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_that(
            edge_ids=self.edge_ids,
            edge_weight=self.importance or self.estimate == "sum",
            edge_type=self._is_typed,
        )

    def columns_of(self, graph: Graph) -> tuple[str, ...]:
        is_cut = graph.types is not None and "edge_type" not in self.columns
        return (*self.columns, *(["edge_type"] if is_cut else []))

    @property
    def _is_typed(self) -> bool:
        return any(isinstance(fanout, dict) for fanout in self.fanouts)

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        lists: TypedLists | None = None
        fanouts: Any = self.fanouts
        if graph.types is not None or self._is_typed:
            lists, is_part = graph.lists_by_number, graph.origin is not None
            fanouts = fanouts_by_type(self.fanouts, graph.types, lists.num_edge_types, is_part=is_part)
        return ops.sample_labor(
            sampler_input(graph, draw, memory),
            fanouts,
            lists=lists,
            importance=self.importance,
            layer_dependency=self.layer_dependency,
            fixed_count=self.fixed_count,
            estimate=self.estimate,
            expand=self.expand,
            edge_ids=self.edge_ids,
        )

    def needs_host(self, graph: Graph) -> str | None:
        if self.importance:
            return (
                f"importance={self.importance} is solved in float64 for all edges into a hop, again and again, in an "
                "order that a device's threads do not keep"
            )
        if self.fixed_count:
            return "fixed_count=True takes the smallest draws of a list, for which devices would have to order them"
        return None

    def draw_on(self, workspace: DeviceWorkspace, topology: Topology, draw: Draw) -> DeviceSample:
        from lightning_gnnload.ops.cuda.sampling.labor import sample_labor

        types = topology.types
        if self._is_typed and types is None:
            raise CudaUnavailableError(
                f"{self!r} draws by the edge_type of Graph.from_coo, for which there are no kernels on a device. Build "
                "the graph with Graph.from_hetero, or give sampling_device='cpu'."
            )
        if self.importance or self.fixed_count:
            raise CudaUnavailableError(
                f"{self!r} has no kernels on a device: only importance=0 without fixed_count has. Give "
                "sampling_device='cpu'."
            )
        fanouts: Any = self.fanouts
        if types is not None:
            fanouts = fanouts_by_type(self.fanouts, types, len(types.edge_types))
        return sample_labor(
            workspace,
            topology,
            draw.seeds,
            fanouts,
            draw.key,
            layer_dependency=self.layer_dependency,
            estimate=self.estimate,
            expand=self.expand,
            edge_ids=self.edge_ids,
        )

    def collective(self, group: SamplingGroup, paradigm: Paradigm) -> LayBatch:
        check_types(self.fanouts, group)
        # Importance is solved for all lists of a hop together, so they are pulled in any case.
        return lay_hops(self, group, node_wise(self, group, "pull" if self.importance else paradigm))

    def hop_settings(self, hop: int) -> dict[str, Any]:
        names = ("importance", "layer_dependency", "fixed_count", "estimate", "edge_ids")
        fanouts = [hop_to_json(self.fanouts[hop], by_type=self._is_typed)]
        return {"fanouts": fanouts, **{name: getattr(self, name) for name in names}}

    @classmethod
    def of_hop(cls, settings: Mapping[str, Any], graph: Graph) -> Sampler:
        [hop] = settings["fanouts"]
        lists = graph.lists_by_number if isinstance(hop, list) else None
        return cls(**{**settings, "fanouts": [hop_from_json(hop, lists)]})

    def __repr__(self) -> str:
        settings = "".join(
            f", {name}={getattr(self, name)!r}"
            for name in ("importance", "layer_dependency", "fixed_count", "edge_ids")
            if getattr(self, name)
        )
        return f"LaborSampler({self.fanouts}{settings}, estimate={self.estimate!r}, expand={self.expand!r})"

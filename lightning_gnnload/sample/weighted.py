"""WeightedNeighborSampler: neighbourhood sampling by edge weight, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import CudaUnavailableError, SamplerConfigError, warn
from lightning_gnnload.ops import Draw, SampleLayout
from lightning_gnnload.sample.base import LayBatch, Paradigm, sampler_input
from lightning_gnnload.sample.fanouts import fanouts_by_type, plain_fanouts
from lightning_gnnload.sample.neighbor import NeighborSampler

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.sampling.sample import DeviceSample
    from lightning_gnnload.ops.cuda.sampling.topology import Topology
    from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
    from lightning_gnnload.sample.group.group import SamplingGroup


class WeightedNeighborSampler(NeighborSampler):
    """Draws up to ``fanout`` in-neighbours of every node, hop by hop, in proportion to ``Graph.edge_weight``.

    Without replacement a node draws by weight, removes what it drew, and draws again. Edges of weight zero are never
    taken; a node takes all others where they are no more than its fanout. Weights count within a node: only their
    ratios matter. In a graph with types, they count within a node and edge type: each edge type has a fanout and is
    drawn from by itself, as :class:`.NeighborSampler` does it, and blocks carry ``edge_type``.

    The first batch of a graph makes its alias table (8 bytes an edge, about a second for 100 million edges), once in
    each process. From then on a draw's cost does not depend on the degree, unless few neighbours have almost all of
    the weight.

    Blocks carry no ``edge_weight``: a mean over neighbours drawn by weight is a weighted mean already. With
    ``edge_ids``, ``graph.edge_weight[block.edge_ids]`` gives the weights.

    Args:
        fanouts: neighbours drawn per node, nearest hop first, up to 2**24; -1 takes all of positive weight. In a graph
            with types, as many of every edge type; or by type, as :class:`.NeighborSampler` takes them.
        replace: draw with replacement (a neighbour may come twice).
        expand: ``"all"``: every node seen so far is a destination again in the next hop, with fresh draws (DGL);
            ``"new"``: only the nodes that the last hop found (PyG). None: ``"new"`` where a GraphDataModule's
            ``batch_format`` needs it, else ``"all"``.
        edge_ids: blocks carry ``edge_ids``, positions in ``Graph.indices``.
        sharing: which seeds share the nodes that they find: ``"plain"``: all; ``"disjoint"``: none, each seed row has
            nodes of its own and draws by its row's number. None is ``"plain"``.
        on_zero: what to do about a graph with nodes that have in-neighbours but only weights of zero, and so draw
            nothing: ``"ignore"``, ``"warn"`` or ``"error"``. ``graph.alias_table.zero_nodes`` lists them. In a graph
            with types, nodes for which this is so of any edge type.

    Raises:
        SamplerConfigError: a fanout that is neither positive nor -1, an unknown ``expand`` or ``on_zero``; on
            sampling, a graph without edge weights, with times, or with nodes as above and ``on_zero="error"``.

    Source: neighbourhood sampling by edge weight as in GNNLab (EuroSys'22), section 2; Walker's alias method
    (TOMS 3(3), 1977) for the draw.

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 3], dst=[0, 0, 0], edge_weight=[0.5, 0.0, 8.0])
        >>> batch = WeightedNeighborSampler([2]).sample(graph, [0])
        >>> sorted(batch.nodes.tolist())
        [0, 1, 3]
        >>> buys = ("user", "buys", "item")
        >>> typed = Graph.from_hetero(None, {buys: ([0, 1, 2], [0, 0, 0])}, edge_weight={buys: np.array([0.5, 0, 8])})
        >>> [block] = WeightedNeighborSampler([{"buys": 2}]).sample(typed, typed.types.range_of("item")).blocks
        >>> block.edge_type.tolist()
        [0, 0]
    """

    def __init__(
        self,
        fanouts: Sequence[int | Mapping[Any, int]] | Mapping[Any, Sequence[int]],
        replace: bool = False,
        expand: Literal["all", "new"] | None = None,
        edge_ids: bool = False,
        on_zero: Literal["ignore", "warn", "error"] = "ignore",
        *,
        sharing: Literal["plain", "disjoint"] | None = None,
    ) -> None:
        super().__init__(fanouts, replace, expand, edge_ids, sharing=sharing)
        if on_zero not in ("ignore", "warn", "error"):
            raise SamplerConfigError(f"on_zero={on_zero!r} is not known; give 'ignore', 'warn' or 'error'.")
        self.on_zero = on_zero

    @property
    def weighting(self) -> Literal["always"]:
        return "always"

    @property
    def heeds(self) -> frozenset[str]:
        return frozenset({"rows"})

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        self._refuse_times(graph.edge_time is not None)
        self.check_graph(graph)
        inputs, options = sampler_input(graph, draw, memory), {**self._options, "queries": draw.queries}
        if graph.types is not None or self._is_typed:
            lists, is_part = graph.lists_by_number, graph.origin is not None
            fanouts = fanouts_by_type(self.fanouts, graph.types, lists.num_edge_types, is_part=is_part)
            return ops.sample_weighted(inputs, graph.run_alias_table, fanouts, lists=lists, **options)
        return ops.sample_weighted(inputs, graph.alias_table, plain_fanouts(self.fanouts), **options)

    def _refuse_times(self, has_times: bool) -> None:
        if has_times:
            raise SamplerConfigError(
                f"{self!r} ignores times, but the graph has them: it would draw from a seed's future. Take "
                "NeighborSampler, which draws uniformly, or build the graph without times."
            )

    def check_graph(self, graph: Graph) -> None:
        if self.on_zero == "ignore":
            return
        nodes = graph.zero_weight_nodes(by_type=graph.types is not None or self._is_typed)
        self._tell_zero(graph.names_of(nodes))

    def draw_on(self, workspace: DeviceWorkspace, topology: Topology, draw: Draw) -> DeviceSample:
        from lightning_gnnload.ops.cuda.sampling.weighted import sample_weighted_neighbors

        self._refuse_times(topology.edge_time is not None)
        if draw.queries is not None:  # kernels of a device draw by weight for all seeds together
            raise CudaUnavailableError(
                f"{self!r} has no kernels on a device for rows with nodes of their own. Give sampling_device='cpu'."
            )
        types = topology.types
        by_type = None if types is None else fanouts_by_type(self.fanouts, types, len(types.edge_types))
        fanouts = plain_fanouts(self.fanouts) if by_type is None else by_type
        return sample_weighted_neighbors(workspace, topology, draw.seeds, fanouts, draw.key, **self._options)

    def collective(self, group: SamplingGroup, paradigm: Paradigm) -> LayBatch:
        part = group.owned.graph
        self._refuse_times(part.clock is not None)
        by_type = part.types is not None or self._is_typed
        if part.has_lists or not part.has("edge_weight"):  # without which the table is an error
            _ = part.run_alias_table if by_type else part.alias_table  # made now, before others wait for it
        if self.on_zero != "ignore":
            num_nodes, answers = group.partition.num_nodes, group.ask_all("zero_nodes", {"by_type": by_type})
            self._tell_zero(np.sort(np.concatenate([answer.numbers("nodes", num_nodes) for answer in answers])))
        return super().collective(group, paradigm)

    def hop_settings(self, hop: int) -> dict[str, Any]:
        settings = super().hop_settings(hop)
        return {name: settings[name] for name in ("fanouts", "replace", "edge_ids")}

    def _tell_zero(self, zero_nodes: np.ndarray) -> None:
        """Does what ``on_zero`` says about these nodes, if there are any."""
        if not len(zero_nodes):
            return
        some = ", ".join(map(str, zero_nodes[:5])) + (", ..." if len(zero_nodes) > 5 else "")
        message = (
            f"{len(zero_nodes)} nodes ({some}) have in-neighbours, but only edges of weight zero: they draw nothing. "
            "Give some of these edges a positive edge_weight, or accept it with on_zero='ignore'."
        )
        if self.on_zero == "error":
            raise SamplerConfigError(message)
        warn(message)  # Python shows it once

    def __repr__(self) -> str:
        on_zero = f", on_zero={self.on_zero!r}" if self.on_zero != "ignore" else ""
        return f"Weighted{super().__repr__().removesuffix(')')}{on_zero})"

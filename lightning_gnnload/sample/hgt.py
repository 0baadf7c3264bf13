"""HGTSampler: the budget sampling of the Heterogeneous Graph Transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import Draw, DrawKey, SampleLayout
from lightning_gnnload.ops.hgt import MAX_NEIGHBORS, check_max_neighbors
from lightning_gnnload.ops.shadow import check_num_layers
from lightning_gnnload.sample.base import LayBatch, Paradigm, Sampler, columns_that, nodes_of, sampler_input
from lightning_gnnload.sample.naming import name_batch

if TYPE_CHECKING:
    from lightning_gnnload.sample.group.group import SamplingGroup


class HGTSampler(Sampler):
    """Draws so many nodes of each type a hop, by how many edges lead from them into the mini-batch (HGT).

    So a mini-batch is as large as these numbers say, has as many nodes of a rare type as of a common one, and its nodes
    are joined by many edges. It is for graphs of :meth:`.Graph.from_hetero`.

    A node that comes into the mini-batch, a seed at first, gives each of its in-neighbours outside ``1 / d`` by edges
    of each type, where ``d`` edges of the type lead into it. What a node has been given is its budget. A hop draws,
    among the nodes of a type that have a budget, without replacement and each in proportion to its squared budget;
    where there are no more than it asks for, it takes them all. What was drawn gives budgets for the next hop.

    All edges among the nodes make up the subgraph, which the ``num_layers`` blocks share as those of
    :class:`.ShadowSampler` do: the last one has the edges into the seeds, in all others every node is a destination.
    ``batch_format="pyg"`` gives the subgraph as one ``HeteroData``; with one layer, that part of it which has the edges
    into the seeds. Blocks carry ``edge_type``. Nodes are the seeds, then those of each hop, in ascending order of id.

    Whether a node is drawn depends on its budget alone, and on a number of its own in the seed, epoch, step and hop,
    but not on the order of seeds; a budget depends on all of the mini-batch.

    Args:
        num_samples: nodes drawn of every type at each hop, nearest first; or ``{node type: [nodes by hop]}``, as PyG
            has it, with all types of the graph and as many hops for each. 0 draws none.
        edge_ids: blocks carry ``edge_ids``, positions in ``Graph.indices``.
        num_layers: number of blocks, at least 1. None: as many as hops.
        max_neighbors: where more edges of a type lead into a node, so many of them are drawn, uniformly, and their
            sources alone get budgets, ``1 / max_neighbors`` each: a hub would give very many nodes next to nothing. -1:
            no bound. torch-sparse bounds the edges of the subgraph so, too, which here are all there.

    It looks up every in-neighbour of every node of the mini-batch, as :class:`.ShadowSampler` does for its scope.

    Raises:
        SamplerConfigError: a number that is negative, no hops or differently many, or a bound that is none; on
            sampling, a graph without types, node types that it does not have or that are not said, or more than 16
            hops.

    Source: Hu et al., "Heterogeneous Graph Transformer" (WWW'20), section 4.2, algorithms 1 and 2.

    Example:
        >>> wrote, cites = ("author", "wrote", "paper"), ("paper", "cites", "paper")
        >>> edges = {wrote: ([0, 1, 1], [0, 0, 2]), cites: ([1, 2, 1], [0, 0, 2])}
        >>> graph = Graph.from_hetero({"author": 2, "paper": 3}, edges)
        >>> batch = HGTSampler({"author": [0, 5], "paper": [1, 0]}).sample(graph, [2])  # paper 0
        >>> batch.nodes.tolist(), batch.blocks[0].num_edges  # paper 0 and one that it is cited by; their authors
        ([2, 4, 0, 1], 4)
    """

    def __init__(
        self,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        edge_ids: bool = False,
        *,
        num_layers: int | None = None,
        max_neighbors: int = MAX_NEIGHBORS,
    ) -> None:
        self.num_samples = _as_num_samples(num_samples)
        self.edge_ids = edge_ids
        self._num_layers = self.num_hops if num_layers is None else check_num_layers(num_layers)
        self.max_neighbors = check_max_neighbors(max_neighbors)

    expand = "new"  # of a node, all blocks have the same edges

    @property
    def num_hops(self) -> int:
        """Returns how many times it draws, which need not be as many as there are blocks."""
        hops = self.num_samples
        return len(next(iter(hops.values())) if isinstance(hops, dict) else hops)

    @property
    def num_layers(self) -> int:
        return self._num_layers

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_that(edge_ids=self.edge_ids, edge_type=True)

    def check_graph(self, graph: Graph) -> None:
        self._table(graph.types)

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        table = self._table(graph.types)
        return ops.sample_hgt(
            sampler_input(graph, draw, memory),
            graph.typed_lists,  # type: ignore[arg-type]  # dense, as in whole graphs and pulled lists: no other part serves a sampler without reach
            table,
            num_layers=self.num_layers,
            max_neighbors=self.max_neighbors,
            edge_ids=self.edge_ids,
        )

    def collective(self, group: SamplingGroup, paradigm: Paradigm) -> LayBatch:
        """Does what :meth:`.Sampler.collective` does: budgets are of all lists together, so these are pulled, those of
        each hop's nodes before the next is drawn."""
        from lightning_gnnload.sample.parts.pulled import PulledLists

        types = group.owned.graph.types
        self._table(types)
        assert types is not None
        node_ids, new_ids = np.asarray(group.partition.node_ids), np.asarray(group.partition.new_ids)
        # The last hop's nodes have lists in the subgraph, but where it is of the edges into the seeds alone.
        begins = [self._first(hops) for hops in range(1, self.num_hops + (self.num_layers > 1))]

        def lay(seeds: np.ndarray, key: DrawKey, arena: np.ndarray) -> SampleLayout:
            pulled, names = PulledLists(group, types), node_ids[seeds]
            pulled.pull(names)
            for begin in begins:
                graph = pulled.graph()
                nodes = nodes_of(begin, graph, Draw(graph.local_ids(names), key), aside=True)
                pulled.pull(graph.names_of(nodes))
            graph = pulled.graph()
            layout = self.draw(graph, Draw(graph.local_ids(names), key), arena)
            name_batch(graph, layout, arena)
            nodes = arena[: 8 * layout.num_nodes].view(np.int64)
            nodes[:] = new_ids[nodes]
            return layout

        return lay

    def _first(self, hops: int) -> HGTSampler:
        """Returns the sampler of its first hops, of which the nodes alone are wanted."""
        counts = self.num_samples
        first = {name: by_hop[:hops] for name, by_hop in counts.items()} if isinstance(counts, dict) else counts[:hops]
        return HGTSampler(first, num_layers=1, max_neighbors=self.max_neighbors)

    def _table(self, types: GraphTypes | None) -> np.ndarray:
        """Returns the numbers of samples by hop and node type, int64 ``[L, T]``.

        Raises:
            SamplerConfigError: they do not fit the graph.
        """
        if types is None:
            raise SamplerConfigError(
                "HGTSampler draws a number of nodes of each type, but the graph has no types. Build it with "
                "Graph.from_hetero({'paper': N, ...}, {('author', 'writes', 'paper'): (src, dst), ...}), or take "
                "LayerSampler, which draws a number of nodes at each hop."
            )
        if not isinstance(self.num_samples, dict):
            return np.repeat(np.array(self.num_samples, np.int64)[:, None], len(types.node_types), axis=1)
        table = np.empty((self.num_hops, len(types.node_types)), np.int64)
        for name, counts in self.num_samples.items():
            table[:, types.node_type_number(name)] = counts
        if missing := [name for name in types.node_types if name not in self.num_samples]:
            raise SamplerConfigError(
                f"num_samples={self.num_samples} lacks {', '.join(map(repr, missing))}, of the graph's node types. "
                f"Give each a list; {{{missing[0]!r}: {[0] * self.num_hops}}} draws none."
            )
        return table

    def __repr__(self) -> str:
        settings = ", edge_ids=True" if self.edge_ids else ""
        settings += f", num_layers={self.num_layers}" if self.num_layers != self.num_hops else ""
        settings += f", max_neighbors={self.max_neighbors}" if self.max_neighbors != MAX_NEIGHBORS else ""
        return f"HGTSampler({self.num_samples}{settings})"


def _as_num_samples(num_samples: Any) -> list[int] | dict[str, list[int]]:
    if not isinstance(num_samples, Mapping):
        return _counts(num_samples, num_samples)
    if not num_samples or not all(isinstance(name, str) for name in num_samples):
        raise _no_counts(num_samples)
    by_type = {str(name): _counts(counts, num_samples) for name, counts in num_samples.items()}
    if len({len(counts) for counts in by_type.values()}) > 1:
        lengths = ", ".join(f"{name!r} {len(counts)}" for name, counts in by_type.items())
        raise SamplerConfigError(
            f"num_samples={num_samples!r} has a number of hops that differs by type: {lengths}. Give each type as "
            "many; 0 draws none at a hop."
        )
    return by_type


def _counts(counts: Any, num_samples: Any) -> list[int]:
    if isinstance(counts, str) or not isinstance(counts, Sequence | np.ndarray) or not np.ndim(counts):
        raise _no_counts(num_samples)
    if not all(isinstance(count, int | np.integer) and not isinstance(count, bool) for count in counts):
        raise _no_counts(num_samples)
    if len(counts) == 0 or min(counts) < 0:
        raise SamplerConfigError(
            f"num_samples={num_samples!r}: one number a hop is needed, of at least one hop, and each must be 0 or "
            "more. A number as large as the graph takes all nodes that have a budget."
        )
    return [int(count) for count in counts]


def _no_counts(num_samples: Any) -> SamplerConfigError:
    return SamplerConfigError(
        f"num_samples={num_samples!r}: a list of whole numbers is needed, one a hop, for example [512, 512]; or one "
        "of each node type, for example {'paper': [512, 512], 'author': [256, 256]}."
    )

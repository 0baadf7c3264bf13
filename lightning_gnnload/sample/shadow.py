"""ShadowSampler: the subgraph around the seeds, for models deeper than its scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import Draw, DrawKey, SampleLayout
from lightning_gnnload.ops.shadow import check_num_layers
from lightning_gnnload.sample.base import LayBatch, Paradigm, Sampler, columns_that, sampler_input
from lightning_gnnload.sample.build import ArenaBuilder
from lightning_gnnload.sample.fanouts import plain_fanouts
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.group.messages import narrow
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.parts.hops import HopDrawer, edges_of, node_wise, pull_lists, relabel
from lightning_gnnload.sample.parts.lists import HopEdges, edges_within
from lightning_gnnload.sample.presence import presence_by_fanouts


class ShadowSampler(Sampler):
    """Draws a scope of a few hops around the seeds, and gives models of any depth all edges within it (ShaDow).

    The scope is what :class:`.NeighborSampler` with ``expand="new"`` finds, by the same draws. Each node keeps
    those in-neighbours that lie in the scope, in adjacency order; repeated edges and loops stay.
    ``ShadowSampler([-1] * k, ...)`` takes the subgraph of all nodes within k hops.

    The ``num_layers`` blocks are parts of one subgraph and share its memory. The last one, whose destinations are
    the seeds, has the edges into the seeds; in all others, every node of the scope is a destination. So models
    that consume blocks run unchanged, and ``batch_format="pyg"`` gives the subgraph as one ``Data``: with
    one layer, that part of it which has the edges into the seeds.

    The scopes of a batch's seeds are merged, as in DGL: nodes of a batch are distinct, so seeds whose scopes
    meet see each other's neighbours. For a subgraph of its own for each seed, as in the paper and in PyG, use
    batches of one seed.

    Args:
        fanouts: neighbours drawn per node to find the scope, nearest hop first; -1 takes all. An empty list: the
            scope is the seeds.
        num_layers: number of blocks, at least 1, whatever the depth of the scope.
        edge_ids: blocks carry ``edge_ids``, positions in ``Graph.indices``.

    It looks up every in-neighbour of every node of the scope: a hub costs its degree; but where its list is much longer
    than the scope and ascends, the scope is searched for in it.

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

    expand = "new"  # to find the scope; of a node, all blocks have the same edges

    @property
    def num_layers(self) -> int:
        return self._num_layers

    @property
    def reach(self) -> int:
        return len(self.fanouts) + 1  # the last nodes found keep their edges, too

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_that(edge_ids=self.edge_ids)

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        return ops.sample_shadow(
            sampler_input(graph, draw, memory),
            self.fanouts,
            num_layers=self.num_layers,
            edge_ids=self.edge_ids,
        )

    def presence(self, graph: Graph, seeds: np.ndarray) -> np.ndarray:
        return presence_by_fanouts(graph, seeds, self.fanouts, again=False)

    def collective(self, group: SamplingGroup, paradigm: Paradigm) -> LayBatch:
        """Does what :meth:`.Sampler.collective` does: finds the scope hop by hop, then asks for the edges within it.

        Pushed, the scope goes to the owners of its lists, who send the edges within it; pulled, they send the lists.
        """
        draw = node_wise(ScopeSampler(self.fanouts, expand="new"), group, paradigm)

        def lay(seeds: np.ndarray, key: DrawKey, arena: np.ndarray) -> SampleLayout:
            scope = _find_scope(draw, len(self.fanouts), group, seeds, key)
            # A single layer has the edges into the seeds alone, so no other lists are asked for.
            num_dst = len(seeds) if self.num_layers == 1 else len(scope)
            ask = _push if paradigm == "push" else _pull
            edges = ask(group, scope, num_dst, self.edge_ids)
            build = ArenaBuilder(group.partition, scope, arena)
            build.add_hop(**edges.arrays())
            layout = build.layout()
            # All layers are parts of one subgraph; the nearest has the edges into the seeds.
            every = replace(layout.hops[0], num_dst=num_dst)
            nearest = replace(every, num_dst=len(seeds), num_edges=int(edges.counts[: len(seeds)].sum()))
            return replace(layout, hops=(nearest, *[every] * (self.num_layers - 1)))

        return lay

    def __repr__(self) -> str:
        edge_ids = ", edge_ids=True" if self.edge_ids else ""
        return f"ShadowSampler({self.fanouts}, num_layers={self.num_layers}{edge_ids})"


class ScopeSampler(NeighborSampler):
    """Draws neighbours whatever the types and times of their edges, as the scope of a :class:`.ShadowSampler` is
    found."""

    def columns_of(self, graph: Graph) -> tuple[str, ...]:
        return ()

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        return ops.sample_neighbors(sampler_input(graph, draw, memory), plain_fanouts(self.fanouts), expand="new")


def _find_scope(draw: HopDrawer, num_hops: int, group: SamplingGroup, seeds: np.ndarray, key: DrawKey) -> np.ndarray:
    """Finds all nodes that some hops reach, by their new ids, int64 ``[V]``, seeds first."""
    nodes, first = seeds, 0
    for hop in range(num_hops):
        edges = draw(hop, nodes, first, replace(key, hop=key.hop + hop))
        hop_edges = HopEdges(np.concatenate([np.zeros(first, np.int64), edges.counts]), edges.neighbors)
        first, (nodes, _) = len(nodes), relabel(group.partition, nodes, hop_edges)
    return nodes


def _push(group: SamplingGroup, scope: np.ndarray, num_dst: int, edge_ids: bool) -> HopEdges:
    shared = {"scope": narrow(np.sort(scope), group.partition.num_nodes)}
    answers = group.ask("within", scope[:num_dst], {"edge_ids": edge_ids}, shared=shared)
    return edges_of(group, answers, len(scope), ["edge_ids"] if edge_ids else [])


def _pull(group: SamplingGroup, scope: np.ndarray, num_dst: int, edge_ids: bool) -> HopEdges:
    graph, new_ids = pull_lists(group, scope[:num_dst], ["edge_starts"] if edge_ids else [])
    inner = edges_within(graph, np.arange(num_dst), new_ids, np.sort(scope), edge_ids)
    counts = np.concatenate([inner.counts, np.zeros(len(scope) - num_dst, np.int64)])
    return HopEdges(counts, new_ids[inner.neighbors], inner.edge_ids)

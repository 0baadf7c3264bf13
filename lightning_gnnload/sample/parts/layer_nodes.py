"""Nodes of the whole graph that a layer draws, where its lists lie with several ranks: who samples draws them by their
importance to all lists, and owners keep the edges from them.

The importance of a node is a sum over lists, so owners tell what theirs add, once; 8 bytes a node are then kept.

Shapes: N nodes of the whole graph, D nodes of the frontier, n draws.

Source: FastGCN (ICLR'18), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import ExchangeError
from lightning_gnnload.ops import Draw, DrawKey, SampleLayout
from lightning_gnnload.sample.base import Paradigm, Sampler, columns_that, sampler_input
from lightning_gnnload.sample.group.group import OwnedLists, SamplingGroup, operation
from lightning_gnnload.sample.group.messages import MOST, Message, narrow
from lightning_gnnload.sample.parts.edges import HopEdges
from lightning_gnnload.sample.parts.hops import edges_of, pull_lists
from lightning_gnnload.sample.parts.lists import draw_hop, on_wire


@dataclass(frozen=True)
class LayerNodes:
    """How nodes are drawn for layers, and which edges are kept: settings of :class:`.LayerSampler`, with ``weighted``
    where the graph has weights to go by. Draws are those of :func:`.ops.sample_layers` with ``"fastgcn"``, bit by
    bit."""

    group: SamplingGroup
    replace: bool
    normalize: bool
    keep_known: bool
    edge_ids: bool
    weighted: bool

    def draw(self, nodes: np.ndarray, first: int, budget: int, key: DrawKey, paradigm: Paradigm) -> HopEdges | None:
        """Draws nodes for the frontier, which begins at ``first`` in the new ids int64 ``nodes``, and returns its edges
        from them; None where the budget takes every node, for which lists are pulled. ExchangeError: a rank cannot
        answer."""
        tree = self._tree()
        if not self.replace and budget >= tree[0]:
            return None
        names = np.asarray(self.group.partition.node_ids)[nodes]
        chosen, factors = np.empty(0, np.int64), np.empty(0)
        if tree[0]:
            chosen, factors = ops.draw_nodes(tree, budget, key, int(names[0]), replace=self.replace)
        if self.keep_known:
            is_new = ~np.isin(chosen, names)
            chosen = np.concatenate([chosen[is_new], names])
            factors = np.concatenate([factors[is_new], np.ones(len(names))])
        settings = {name: getattr(self, name) for name in ("normalize", "edge_ids", "weighted")}
        frontier, weights = nodes[first:], ["edge_weight"] if self.weighted else []
        if paradigm == "pull":
            graph, new_ids = pull_lists(self.group, frontier, [*weights, *(["edge_starts"] if self.edge_ids else [])])
            edges = _kept_edges(graph, np.arange(len(frontier)), chosen, factors, **settings)
            return replace(edges, neighbors=new_ids[edges.neighbors])
        shared = {"drawn": narrow(chosen, self.group.partition.num_nodes), "factors": factors}
        answers = self.group.ask("edges_from", frontier, settings, shared=shared)
        return edges_of(self.group, answers, len(frontier), columns_that(edge_weight=True, edge_ids=self.edge_ids))

    def _tree(self) -> np.ndarray:
        """Returns the importances of all nodes as a tree, int64 ``[N + 1]``."""

        def ask() -> np.ndarray:
            num_nodes = self.group.partition.num_nodes
            totals = np.zeros(num_nodes, np.int64)
            for answer in self.group.ask_all("importance_sums", {"weighted": self.weighted}):
                nodes = answer.numbers("nodes", num_nodes)
                totals[nodes] += answer.numbers("sums", MOST, len(nodes))
            return ops.tree_of(totals)

        return self.group.once(f"importance tree, weighted={self.weighted}", ask)


class _KeptEdges(Sampler):
    """Keeps the edges from nodes of a part that were drawn already, by their factors."""

    num_layers = 1

    def __init__(
        self, sources: np.ndarray, factors: np.ndarray, *, normalize: bool, edge_ids: bool, weighted: bool
    ) -> None:
        self.sources, self.factors = sources, factors
        self.normalize, self.edge_ids, self.weighted = normalize, edge_ids, weighted

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        return ops.sample_layers(
            sampler_input(graph, draw, memory),
            [ops.WHOLE_LAYER],
            "fastgcn",
            normalize=self.normalize,
            edge_ids=self.edge_ids,
            weights=graph.weight_drawn_by if self.weighted else None,
            draws=(self.sources, self.factors),
        )


def _kept_edges(graph: Graph, rows: np.ndarray, names: np.ndarray, factors: np.ndarray, **settings: bool) -> HopEdges:
    """Returns the edges from drawn nodes to some of a part, which does not have all that were drawn."""
    nodes = graph.held_ids(names)
    sampler = _KeptEdges(nodes[nodes >= 0], factors[nodes >= 0], **settings)
    return draw_hop(sampler, graph, rows, DrawKey(0, 0, 0))  # no draw is left to be named


@operation
def importance_sums(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Tells what the part's lists add to the importance of nodes, by their ids in the whole graph."""
    graph = owned.graph
    weights = graph.weight_drawn_by if task.about["weighted"] else None
    sums = ops.importances(graph.indptr, graph.indices, owned.num_nodes, weights)
    nodes = np.flatnonzero(sums)
    return {"nodes": narrow(graph.names_of(nodes), owned.num_nodes), "sums": narrow(sums[nodes])}


@operation
def edges_from(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Keeps the edges from nodes that were drawn elsewhere."""
    names, factors = task.numbers("drawn", owned.num_nodes).astype(np.int64), task.arrays["factors"]
    if factors.dtype != np.float64 or len(factors) != len(names):
        raise ExchangeError(f"a rank sent {len(names)} drawn nodes, but {factors.dtype} [{len(factors)}] as factors.")
    settings = {name: bool(task.about[name]) for name in ("normalize", "edge_ids", "weighted")}
    return on_wire(owned, _kept_edges(owned.graph, rows, names, factors, **settings))

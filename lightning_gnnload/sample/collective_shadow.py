"""ShaDow over lists that lie with several ranks: a scope is found hop by hop, then the edges within it are asked for.

Shapes: V nodes of a scope, E edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import DrawKey, SampleLayout
from lightning_gnnload.sample.build import ArenaBuilder
from lightning_gnnload.sample.group.group import Holding, SamplingGroup
from lightning_gnnload.sample.group.messages import Message, narrow
from lightning_gnnload.sample.hops import HopEdges
from lightning_gnnload.sample.naming import edge_names
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.nodewise import (
    HopDrawer,
    Paradigm,
    edges_of,
    node_wise,
    on_wire,
    places_of,
    pull_lists,
    relabel,
)
from lightning_gnnload.sample.shadow import ShadowSampler

Laying = Callable[[np.ndarray, DrawKey, np.ndarray], SampleLayout]
"""Lays a mini-batch: ``(seeds, key, arena) -> layout``, seeds and nodes by their new ids."""


def scope_wise(sampler: ShadowSampler, group: SamplingGroup, paradigm: Paradigm) -> Laying:
    """How ShadowSampler's mini-batches are laid.

    Pushed, the scope goes to the owners of its lists, who send the edges within it; pulled, they send the lists.
    """
    draw = node_wise(NeighborSampler(sampler.fanouts, expand="new"), group, paradigm)

    def lay(seeds: np.ndarray, key: DrawKey, arena: np.ndarray) -> SampleLayout:
        scope = _find_scope(draw, len(sampler.fanouts), group, seeds, key)
        num_dst = len(seeds) if sampler.num_layers == 1 else len(scope)
        ask = _push if paradigm == "push" else _pull
        edges = ask(group, scope, num_dst, sampler.edge_ids)
        build = ArenaBuilder(group.partition, scope, arena)
        build.add_hop(**edges.arrays())
        layout = build.layout()
        # All layers are parts of one subgraph; the nearest has the edges into the seeds.
        every = replace(layout.hops[0], num_dst=num_dst)
        nearest = replace(every, num_dst=len(seeds), num_edges=int(edges.counts[: len(seeds)].sum()))
        return replace(layout, hops=(nearest, *[every] * (sampler.num_layers - 1)))

    return lay


def _find_scope(draw: HopDrawer, num_hops: int, group: SamplingGroup, seeds: np.ndarray, key: DrawKey) -> np.ndarray:
    """All nodes that some hops find, by their new ids, int64 ``[V]``, seeds first."""
    nodes, first = seeds, 0
    for hop in range(num_hops):
        edges = draw(hop, nodes, first, replace(key, hop=key.hop + hop))
        drawn = HopEdges(np.concatenate([np.zeros(first, np.int64), edges.counts]), edges.neighbors)
        first, (nodes, _) = len(nodes), relabel(group.partition, nodes, drawn)
    return nodes


def _push(group: SamplingGroup, scope: np.ndarray, num_dst: int, edge_ids: bool) -> HopEdges:
    shared = {"scope": narrow(np.sort(scope), group.partition.num_nodes)}
    answers = group.ask("within", scope[:num_dst], {"edge_ids": edge_ids}, shared=shared)
    return edges_of(group, answers, len(scope), ["edge_ids"] if edge_ids else [])


def _pull(group: SamplingGroup, scope: np.ndarray, num_dst: int, edge_ids: bool) -> HopEdges:
    graph, new_ids = pull_lists(group, scope[:num_dst], ["edge_starts"] if edge_ids else [])
    kept = _within(graph, np.arange(num_dst), new_ids, np.sort(scope), edge_ids)
    counts = np.concatenate([kept.counts, np.zeros(len(scope) - num_dst, np.int64)])
    return HopEdges(counts, new_ids[kept.neighbors], kept.edge_ids)


def _within(graph: Graph, rows: np.ndarray, new_ids: np.ndarray, scope: np.ndarray, edge_ids: bool) -> HopEdges:
    """Of some nodes' lists, the edges whose sources lie in a scope.

    Args:
        graph: n nodes of the whole graph.
        rows: int64, those whose lists it holds and we want.
        new_ids: int64 ``[n]``, of its nodes.
        scope: new ids, ascending.
        edge_ids: whether they are asked for.
    """
    counts, edges = places_of(graph, rows)
    sources = graph.indices[edges]
    at = np.searchsorted(scope, new_ids[sources])
    kept = np.append(scope, -1)[at] == new_ids[sources]
    ends = np.append(0, np.cumsum(kept))[np.cumsum(counts)]
    destinations = np.repeat(rows, counts)[kept]
    ids = edge_names(graph, destinations, edges[kept]) if edge_ids else None
    return HopEdges(np.diff(ends, prepend=0), sources[kept], ids)


# What owners do.


def within(holding: Holding, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Operation ``"within"``: of lists, the edges whose sources lie in a scope."""
    scope = task.arrays["scope"].astype(np.int64)
    return on_wire(holding, _within(holding.graph, rows, holding.new_ids, scope, task.about["edge_ids"]))


OPERATIONS = {"within": within}

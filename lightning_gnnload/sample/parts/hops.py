"""Collective sampling, hop by hop: what one rank asks the others for, and how it lays what they answer.

Two paradigms make the same batches (DSP, PPoPP'23, section 4.1): tasks are pushed to the lists' owners, who draw; or
lists are pulled by who samples, who draws.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.origin import Origin
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.host.pages import buffer_memory
from lightning_gnnload.ops import ARENA_ALIGNMENT, DrawKey, Queries, SampleLayout
from lightning_gnnload.sample.base import LayBatch, Paradigm, Sampler
from lightning_gnnload.sample.build import ArenaBuilder
from lightning_gnnload.sample.fanouts import HopFanouts, numbered_fanouts
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.group.messages import MOST, Answer
from lightning_gnnload.sample.parts.edges import HopEdges
from lightning_gnnload.sample.parts.lists import class_named, describe, draw_task, name_of
from lightning_gnnload.sample.parts.queries import PairNumbers, as_task

HopDrawer = Callable[..., HopEdges]
"""Draws one hop: ``(hop, nodes known so far, where the frontier begins in them, key) -> edges of the frontier``. Nodes
are new ids, seeds first; ``key.hop`` counts from where the batch's own key does. Of a sampler that heeds queries, those
of the frontier's nodes come last."""

MOST_TYPES = 2**31  # blocks have them as int32


def node_wise(sampler: Sampler, group: SamplingGroup, paradigm: Paradigm) -> HopDrawer:
    """Returns the drawer of hops where each node draws for itself; pulled, nodes may also draw by one another's lists.

    Raises:
        SamplerConfigError: other ranks cannot know the sampler, or what comes with the edges that it draws.
    """
    columns = sampler.columns_of(group.owned.graph)
    if columns is None:
        raise SamplerConfigError(f"{sampler!r} must declare its columns to be sampled collectively.")
    # Refuses here what the owners could not find: an error while they serve ends the rounds of all ranks.
    class_named(name_of(type(sampler)))

    def task_of(hop: int, key: DrawKey) -> dict[str, Any]:
        return {"sampler": describe(sampler, hop), "key": astuple(key), "edge_ids": "edge_ids" in columns}

    def push(hop: int, nodes: np.ndarray, first: int, key: DrawKey, queries: Queries | None = None) -> HopEdges:
        about, by_node, shared = ({}, {}, {}) if queries is None else as_task(queries)
        answers = group.ask("draw", nodes[first:], {**task_of(hop, key), **about}, by_node, shared)
        return edges_of(group, answers, len(nodes) - first, {*columns, *_until(queries)})

    def pull(hop: int, nodes: np.ndarray, first: int, key: DrawKey, queries: Queries | None = None) -> HopEdges:
        # A node of several queries has one list.
        distinct, rows = nodes[first:], np.arange(len(nodes) - first)
        if queries is not None:
            distinct, rows = np.unique(distinct, return_inverse=True)
        graph, new_ids = pull_lists(group, distinct, list_columns(sampler, group, queries))
        edges = draw_task(task_of(hop, key), graph, rows, queries)
        return replace(edges, neighbors=new_ids[edges.neighbors])

    return push if paradigm == "push" else pull


def check_types(fanouts: Sequence[HopFanouts], group: SamplingGroup) -> None:
    """Raises SamplerConfigError: no part has edges of a type that has a fanout; GraphFormatError: the graph has no edge
    types."""
    named = [edge_type for fanout in fanouts if isinstance(fanout, dict) for edge_type in fanout]
    if group.owned.graph.types is not None:
        numbered_fanouts(fanouts, group.owned.graph.types)
    elif any(isinstance(fanout, dict) for fanout in fanouts):
        # No rank knows all types, and owners skip those that they lack: a mistake would go unnoticed.
        answers = group.ask_all("num_types")
        num_types = max(int(answer.numbers("num_types", MOST_TYPES + 1, 1)[0]) for answer in answers)
        if bad := [edge_type for edge_type in named if not 0 <= edge_type < max(num_types, 1)]:
            raise SamplerConfigError(
                f"fanouts name edge type {bad[0]}, but the graph's edge types lie in [0, {num_types}), in all parts."
            )


def lay_hops(sampler: Sampler, group: SamplingGroup, draw: HopDrawer) -> LayBatch:
    """Returns what lays a mini-batch that is drawn hop by hop, of seeds with queries where ``draw`` takes them."""

    def lay(seeds: np.ndarray, key: DrawKey, arena: np.ndarray, queries: Queries | None = None) -> SampleLayout:
        if queries is None:
            return _lay(sampler, ArenaBuilder(group.partition, seeds, arena), key, draw).layout()
        # Nodes of a batch are pairs, each of a query and a node, until all are there.
        pairs = PairNumbers(queries, seeds, group.partition.num_nodes)

        def draw_pairs(hop: int, nodes: np.ndarray, first: int, key: DrawKey) -> HopEdges:
            frontier = nodes[first:]
            hop_queries = pairs.asked_by(frontier, key)
            return pairs.find(frontier, draw(hop, pairs.nodes_of(frontier), 0, key, hop_queries))

        build = _lay(sampler, ArenaBuilder(pairs, pairs.seeds, arena), key, draw_pairs)
        # Of one query that all share, to leave edges out, no node need say that it is its.
        layout = build.layout(None if queries.name is None else pairs.queries_of(build.nodes))
        build.nodes[:] = pairs.nodes_of(build.nodes)
        return layout

    return lay


def _lay(sampler: Sampler, build: ArenaBuilder, key: DrawKey, draw: HopDrawer) -> ArenaBuilder:
    first, before = 0, None
    for hop in range(sampler.num_layers):
        nodes = build.nodes
        edges = draw(hop, nodes, first, replace(key, hop=key.hop + hop))
        # Nodes of earlier hops are destinations of each later block too, with the edges that they drew then.
        if sampler.expand == "new":
            edges, first = edges.after(before), len(nodes)
            before = edges
        build.add_hop(**edges.arrays())
    return build


def pull_lists(
    group: SamplingGroup, nodes: np.ndarray, columns: list[str], *, num_drawn: int = 0
) -> tuple[Graph, np.ndarray]:
    """Fetches the lists of distinct ``nodes``, new ids int64 ``[D]``, from their owners as a small graph, with the
    columns out of ``edge_weight``, ``edge_type`` and ``edge_starts``; the first ``num_drawn`` come without theirs.

    Its first D nodes are these, its others their neighbours in order of first occurrence. The new ids of all come with
    it.
    """
    part = group.owned.graph
    edges, starts = fetch_lists(group, nodes, columns, num_drawn=num_drawn)
    types = part.types if "edge_type" in columns else None
    clock = part.clock if "edge_time" in columns else None
    new_ids, indices = relabel(group.partition, nodes, edges)
    # Neighbours that are not among the nodes come after them, with empty lists.
    indptr = np.full(len(new_ids) + 1, len(edges.neighbors), np.int64)
    indptr[0] = 0
    np.cumsum(edges.counts, out=indptr[1 : len(nodes) + 1])
    reach = np.zeros(len(new_ids), np.uint8)
    reach[num_drawn : len(nodes)] = 1
    origin = Origin(
        np.asarray(group.partition.node_ids)[new_ids],
        reach,
        np.concatenate([starts, np.zeros(len(new_ids) - len(nodes), np.int64)]),
    )
    columns_of_edges = {name: getattr(edges, name) for name in ("edge_weight", "edge_type", "edge_time")}
    return Graph(indptr, indices, **columns_of_edges, origin=origin, types=types, clock=clock), new_ids


def fetch_lists(
    group: SamplingGroup, nodes: np.ndarray, columns: list[str], *, num_drawn: int = 0
) -> tuple[HopEdges, np.ndarray]:
    """Fetches lists as :func:`pull_lists` does; returns them by new ids, and where each begins in the whole graph's
    ``indices``, int64 ``[D]``, where ``edge_starts`` are among the columns."""
    starts = np.zeros(len(nodes), np.int64)
    sent = group.ask("lists", nodes[num_drawn:], {"columns": columns})
    answers = [replace(answer, positions=num_drawn + answer.positions) for answer in sent]
    if "edge_starts" in columns:
        for answer in answers:
            starts[answer.positions] = answer.numbers("edge_starts", MOST, len(answer.positions))
    return edges_of(group, answers, len(nodes), set(columns) - {"edge_starts"}), starts


def list_columns(sampler: Sampler, group: SamplingGroup, queries: Queries | None = None) -> list[str]:
    """Returns the columns that have to come with lists for the sampler to draw from them, by these queries."""
    carried = sampler.columns_of(group.owned.graph) or ()
    columns = ["edge_weight"] if sampler.weighting == "always" else weight_columns(group, sampler.weighting != "never")
    by_time = sampler.reads_times or (queries is not None and queries.until is not None)
    by_place = "edge_ids" in carried or (queries is not None and queries.excluded is not None)
    needed = {"edge_type": "edge_type" in carried, "edge_time": by_time, "edge_starts": by_place}
    return columns + [name for name, is_needed in needed.items() if is_needed]


def weight_columns(group: SamplingGroup, weighted: bool) -> list[str]:
    """Returns the columns that have to come with lists that are drawn from by weight where the graph has weights."""
    return ["edge_weight"] if weighted and group.owned.graph.has("edge_weight") else []


def join_lists(positions: Sequence[np.ndarray], parts: Sequence[HopEdges], num_nodes: int) -> HopEdges:
    """Joins the edges that several ranks drew, in the order of a frontier of ``num_nodes``; ``positions`` int64 say
    where in it each rank's nodes are."""
    counts = np.zeros(num_nodes, np.int64)
    for at, edges in zip(positions, parts, strict=True):
        counts[at] = edges.counts
    begins = np.cumsum(counts) - counts
    targets = [
        np.repeat(begins[at] - (np.cumsum(counts[at]) - counts[at]), counts[at]) + np.arange(len(edges.neighbors))
        for at, edges in zip(positions, parts, strict=True)
    ]
    joined = {"counts": counts, "neighbors": np.empty(0, np.int64)}
    columns = [edges.arrays() for edges in parts]
    for name in columns[0] if columns else ():
        if name != "counts":
            # Each rank sends whole numbers in the smallest dtype that holds its own.
            joined[name] = np.empty(int(counts.sum()), np.result_type(*(column[name] for column in columns)))
            for target, column in zip(targets, columns, strict=True):
                joined[name][target] = column[name]
    return HopEdges(**joined)


def relabel(partition: Partition, nodes: np.ndarray, edges: HopEdges) -> tuple[np.ndarray, np.ndarray]:
    """Returns all nodes in the order of first occurrence, int64, and the neighbours as places in it, int32."""
    # 8 bytes a node and 4 an offset, were all neighbours distinct; 4 an edge; and room to align: it always fits.
    num_bytes = 12 * (len(nodes) + len(edges.neighbors)) + 8 * ARENA_ALIGNMENT
    arena = np.frombuffer(buffer_memory(num_bytes), np.uint8)
    build = ArenaBuilder(partition, nodes, arena)
    build.add_hop(edges.counts, edges.neighbors)
    [hop] = build.layout().hops
    return build.nodes, arena[hop.indices_offset : hop.indices_offset + 4 * hop.num_edges].view(np.int32)


_NO_EDGES: dict[str, np.ndarray] = {
    **{name: np.empty(0, np.int64) for name in ("counts", "neighbors", "edge_ids", "edge_type")},
    **{name: np.empty(0, np.uint32) for name in ("edge_time", "until")},
    "edge_weight": np.empty(0, np.float32),
}


def edges_of(group: SamplingGroup, answers: list[Answer], num_nodes: int, columns: Collection[str]) -> HopEdges:
    """Reads and checks the edges that the owners drew, one answer each, none where the frontier is empty, and puts them
    in the frontier's order; ``columns`` are those that were asked for beside neighbors."""
    answers = answers or [Answer(group.rank, np.empty(0, np.int64), _NO_EDGES)]
    edges = [_edges(answer, group.partition.num_nodes, columns) for answer in answers]
    return join_lists([answer.positions for answer in answers], edges, num_nodes)


def _edges(answer: Answer, num_graph_nodes: int, columns: Collection[str]) -> HopEdges:
    """Reads and checks the edges that one owner drew."""
    num_edges = len(answer.arrays.get("neighbors", ()))
    counts = answer.numbers("counts", num_edges + 1, len(answer.positions))
    if counts.sum(dtype=np.int64) != num_edges:
        answer.refuse("counts", f"numbers that add up to {num_edges} neighbors")
    return HopEdges(
        counts,
        answer.numbers("neighbors", num_graph_nodes, num_edges),
        answer.numbers("edge_ids", MOST, num_edges) if "edge_ids" in columns else None,
        answer.fractions("edge_weight", num_edges) if "edge_weight" in columns else None,
        answer.numbers("edge_type", MOST_TYPES, num_edges) if "edge_type" in columns else None,
        *(answer.numbers(name, 2**32, num_edges) if name in columns else None for name in ("edge_time", "until")),
    )


def _until(queries: Queries | None) -> list[str]:
    return ["until"] if queries is not None and queries.along_path else []

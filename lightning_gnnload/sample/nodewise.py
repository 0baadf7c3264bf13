"""Collective sampling where each node draws for itself, or all draw by what is in their lists.

Two paradigms make the same batches (DSP, PPoPP'23, section 4.1): tasks are pushed to the lists' owners, who draw; or
lists are pulled by who samples, who draws.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple, replace
from typing import Any, Literal

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.origin import Origin
from lightning_gnnload.data.pages import buffer_memory
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import ARENA_ALIGNMENT, DrawKey
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.build import ArenaBuilder
from lightning_gnnload.sample.group.group import Holding, SamplingGroup
from lightning_gnnload.sample.group.messages import MOST, Answer, Message, narrow
from lightning_gnnload.sample.hops import HopEdges, draw_hop, join_lists
from lightning_gnnload.sample.labor import LaborSampler
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.weighted import WeightedNeighborSampler

Paradigm = Literal["push", "pull"]
HopDrawer = Callable[[int, np.ndarray, int, DrawKey], HopEdges]
"""Draws one hop: ``(hop, nodes known so far, where the frontier begins in them, key) -> edges of the frontier``. Nodes
are new ids, seeds first; ``key.hop`` counts from where the batch's own key does."""

EVERY_TYPE = "every type"
MOST_TYPES = 2**31  # blocks have them as int32


def node_wise(sampler: Sampler, group: SamplingGroup, paradigm: Paradigm) -> HopDrawer:
    """How a hop of NeighborSampler, WeightedNeighborSampler or LaborSampler is drawn.

    LABOR with ``importance`` solves for all lists of a hop together, so they are pulled in any case.

    Raises:
        SamplerConfigError: the graph lacks what the sampler draws by.
    """
    check(sampler, group)
    if paradigm == "push" and not getattr(sampler, "importance", 0):

        def draw(hop: int, nodes: np.ndarray, first: int, key: DrawKey) -> HopEdges:
            task = {"sampler": describe(sampler, hop), "key": astuple(key)}
            answers = group.ask("draw", nodes[first:], task)
            return edges_of(group, answers, len(nodes) - first, drawn_columns(sampler))
    else:

        def draw(hop: int, nodes: np.ndarray, first: int, key: DrawKey) -> HopEdges:
            graph, new_ids = pull_lists(group, nodes[first:], columns_of(sampler))
            drawn = draw_hop(one_hop(describe(sampler, hop), graph), graph, np.arange(len(nodes) - first), key)
            return HopEdges(**{**drawn.arrays(), "neighbors": new_ids[drawn.neighbors]})

    return draw


def pull_lists(
    group: SamplingGroup, nodes: np.ndarray, columns: list[str], *, num_drawn: int = 0
) -> tuple[Graph, np.ndarray]:
    """The adjacency lists of some nodes, as a small graph here.

    Args:
        group: the ranks that hold them.
        nodes: new ids, int64 ``[D]``, distinct.
        columns: ``"edge_weight"``, ``"edge_type"``, ``"edge_starts"``, as far as they are needed.
        num_drawn: of so many of the first nodes the lists are left out.

    Returns:
        A graph whose first D nodes are these, its others their neighbours in order of first occurrence; and the new
        ids of all of them.
    """
    starts = np.zeros(len(nodes), np.int64)
    asked = group.ask("lists", nodes[num_drawn:], {"columns": columns})
    answers = [replace(answer, places=num_drawn + answer.places) for answer in asked]
    if "edge_starts" in columns:
        for answer in answers:
            starts[answer.places] = answer.numbers("edge_starts", MOST, len(answer.places))
    edges = edges_of(group, answers, len(nodes), set(columns) - {"edge_starts"})
    new_ids, indices = relabel(group.partition, nodes, edges)
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
    return Graph(indptr, indices, edges.edge_weight, edges.edge_type, origin=origin), new_ids


def weight_columns(group: SamplingGroup, weighted: bool) -> list[str]:
    """What has to come with lists that are drawn from by weight where the graph has weights."""
    return ["edge_weight"] if weighted and group.holding.graph.edge_weight is not None else []


def relabel(partition: Partition, nodes: np.ndarray, edges: HopEdges) -> tuple[np.ndarray, np.ndarray]:
    """All nodes in the order of first occurrence, int64, and the neighbours by where they stand there, int32."""
    num_bytes = 12 * (len(nodes) + len(edges.neighbors)) + 8 * ARENA_ALIGNMENT
    arena = np.frombuffer(buffer_memory(num_bytes), np.uint8)
    build = ArenaBuilder(partition, nodes, arena)
    build.add_hop(edges.counts, edges.neighbors)
    [hop] = build.layout().hops
    return build.nodes, arena[hop.indices_offset : hop.indices_offset + 4 * hop.num_edges].view(np.int32)


_NO_EDGES: dict[str, np.ndarray] = {
    **{name: np.empty(0, np.int64) for name in ("counts", "neighbors", "edge_ids", "edge_type")},
    "edge_weight": np.empty(0, np.float32),
}


def edges_of(group: SamplingGroup, answers: list[Answer], num_nodes: int, columns: Collection[str]) -> HopEdges:
    """What the owners drew, in the frontier's order.

    Args:
        group: of which they are.
        answers: of none of them where the frontier is empty.
        num_nodes: of the frontier.
        columns: ``"edge_ids"``, ``"edge_weight"``, ``"edge_type"``, as far as they were asked for.

    Raises:
        ExchangeError: one of them sent no edges of this graph.
    """
    answers = answers or [Answer(group.rank, np.empty(0, np.int64), _NO_EDGES)]
    edges = [_edges(answer, group.partition.num_nodes, columns) for answer in answers]
    return join_lists([answer.places for answer in answers], edges, num_nodes)


def _edges(answer: Answer, num_graph_nodes: int, columns: Collection[str]) -> HopEdges:
    """What one owner drew."""
    num_edges = len(answer.arrays.get("neighbors", ()))
    counts = answer.numbers("counts", num_edges + 1, len(answer.places))
    if counts.sum(dtype=np.int64) != num_edges:
        answer.refuse("counts", f"numbers that add up to {num_edges} neighbors")
    return HopEdges(
        counts,
        answer.numbers("neighbors", num_graph_nodes, num_edges),
        answer.numbers("edge_ids", MOST, num_edges) if "edge_ids" in columns else None,
        answer.fractions("edge_weight", num_edges) if "edge_weight" in columns else None,
        answer.numbers("edge_type", MOST_TYPES, num_edges) if "edge_type" in columns else None,
    )


# What owners do.


def draw(holding: Holding, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Operation ``"draw"``: the one hop that a sampler draws, as the task describes it."""
    sampler = one_hop(task.about["sampler"], holding.graph)
    return on_wire(holding, draw_hop(sampler, holding.graph, rows, DrawKey(*task.about["key"])))


def lists(holding: Holding, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Operation ``"lists"``: adjacency lists, with the columns that the task names."""
    graph, columns = holding.graph, task.about["columns"]
    counts, edges = places_of(graph, rows)
    found = HopEdges(
        counts,
        graph.indices[edges],
        None,
        *(getattr(graph, name)[edges] if name in columns else None for name in ("edge_weight", "edge_type")),
    )
    starts = {"edge_starts": graph.origin.edge_starts[rows]} if "edge_starts" in columns and graph.origin else {}
    return {**on_wire(holding, found), **starts}


def num_types(holding: Holding, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Operation ``"num_types"``: how many edge types the part has, by the largest."""
    return {"num_types": np.array([holding.graph.edge_type_index.num_types])}


def zero_nodes(holding: Holding, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Operation ``"zero_nodes"``: the nodes whose edges all weigh zero, by their ids in the whole graph."""
    return {"nodes": holding.graph.names_of(holding.graph.alias_table.zero_nodes)}


OPERATIONS = {"draw": draw, "lists": lists, "num_types": num_types, "zero_nodes": zero_nodes}


def places_of(graph: Graph, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of some nodes' lists, and the positions of their edges in ``graph.indices``: int64 both."""
    counts = graph.indptr[rows + 1] - graph.indptr[rows]
    return counts, np.repeat(graph.indptr[rows] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def on_wire(holding: Holding, edges: HopEdges) -> dict[str, np.ndarray]:
    """Edges of a part as others know them, in as few bytes as hold them."""
    arrays = edges.arrays()
    arrays |= {
        "counts": narrow(edges.counts),
        "neighbors": narrow(holding.new_ids[edges.neighbors], holding.num_nodes),
    }
    if edges.edge_ids is not None:
        arrays["edge_ids"] = narrow(edges.edge_ids)
    if edges.edge_type is not None:
        arrays["edge_type"] = narrow(edges.edge_type)
    return arrays


# Samplers as tasks describe them.

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (NeighborSampler, WeightedNeighborSampler, LaborSampler)}


def check(sampler: Sampler, group: SamplingGroup) -> None:
    """That the parts have what the sampler draws by.

    Raises:
        SamplerConfigError: no part has edges of a type that has a fanout, or the part has no weights.
        GraphFormatError: it has no edge types.
    """
    if isinstance(sampler, WeightedNeighborSampler):
        _ = group.holding.graph.alias_table  # made now, before others wait for it
        if sampler.on_zero != "ignore":
            num_nodes, answers = group.partition.num_nodes, group.ask_all("zero_nodes")
            nodes = np.concatenate([answer.numbers("nodes", num_nodes) for answer in answers])
            if len(nodes):
                sampler.tell_zero(np.sort(nodes))
    assert isinstance(sampler, NeighborSampler | LaborSampler)
    if any(isinstance(fanout, dict) for fanout in sampler.fanouts):
        answers = group.ask_all("num_types")
        known = max(int(answer.numbers("num_types", MOST_TYPES + 1, 1)[0]) for answer in answers)
        named = [kind for fanout in sampler.fanouts if isinstance(fanout, dict) for kind in fanout]
        if bad := [kind for kind in named if not 0 <= kind < max(known, 1)]:
            raise SamplerConfigError(
                f"fanouts name edge type {bad[0]}, but the graph's edge types lie in [0, {known}), in all parts."
            )


def columns_of(sampler: Sampler) -> list[str]:
    """What has to come with lists, for the sampler to draw from them."""
    columns = {
        "edge_weight": isinstance(sampler, WeightedNeighborSampler),
        "edge_type": any(isinstance(fanout, dict) for fanout in getattr(sampler, "fanouts", [])),
        "edge_starts": bool(getattr(sampler, "edge_ids", False)),
    }
    return [name for name, needed in columns.items() if needed]


def drawn_columns(sampler: Sampler) -> list[str]:
    """What comes with the edges that it draws."""
    columns = {
        "edge_ids": bool(getattr(sampler, "edge_ids", False)),
        "edge_weight": isinstance(sampler, LaborSampler) and bool(sampler.importance or sampler.estimate == "sum"),
        "edge_type": any(isinstance(fanout, dict) for fanout in getattr(sampler, "fanouts", [])),
    }
    return [name for name, needed in columns.items() if needed]


def describe(sampler: Sampler, hop: int) -> dict[str, Any]:
    """The sampler of one hop alone, as JSON values."""
    assert isinstance(sampler, NeighborSampler | LaborSampler)
    fanout: Any = sampler.fanouts[hop]
    is_typed = any(isinstance(each, dict) for each in sampler.fanouts)
    if is_typed:
        fanout = list(fanout.items()) if isinstance(fanout, dict) else [[EVERY_TYPE, fanout]]
    names = ("replace", "layer_dependency", "fixed_count", "importance", "estimate")
    options = {name: getattr(sampler, name) for name in names if hasattr(sampler, name)}
    return {"kind": type(sampler).__name__, "fanout": fanout, "edge_ids": sampler.edge_ids, **options}


def one_hop(described: Mapping[str, Any], graph: Graph) -> Sampler:
    """The sampler that :func:`describe` described, for a part: of types that only others have it draws nothing."""
    options = dict(described)
    kind, fanout = _KINDS[options.pop("kind")], options.pop("fanout")
    if isinstance(fanout, list):
        types = range(graph.edge_type_index.num_types)
        if fanout and fanout[0][0] == EVERY_TYPE:
            fanout = dict.fromkeys(types, fanout[0][1])
        else:
            fanout = {int(type_): count for type_, count in fanout if type_ in types}
    return kind([fanout], **options)

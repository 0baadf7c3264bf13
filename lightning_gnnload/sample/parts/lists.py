"""What a rank does with the adjacency lists that it holds, for itself and, where one asks, for others.

Operations are what ranks can ask each other for, by name. Each reads the rank's own part alone.

Shapes: D nodes, E edges.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import Draw, DrawKey, Queries, Walks
from lightning_gnnload.sample.base import Sampler, draw_here
from lightning_gnnload.sample.group.group import OwnedLists, operation
from lightning_gnnload.sample.group.messages import Message, narrow
from lightning_gnnload.sample.naming import edge_names
from lightning_gnnload.sample.parts.edges import HopEdges
from lightning_gnnload.sample.parts.queries import bounds_along, from_task, here

_COLUMNS = ("edge_weight", "edge_type", "edge_time")  # that may come with lists
FATE_BITS = 2
"""A step of a walk is sent as one number: these low bits are its fate, the others the node that it reached."""


def draw_hop(
    sampler: Sampler, graph: Graph, rows: np.ndarray, key: DrawKey, queries: Queries | None = None
) -> HopEdges:
    """Draws, by a sampler of one hop, for some nodes of a part, int64 ``[D]``, whose lists it holds: distinct ones, or
    distinct in each of the ``queries``, whose excluded edges are positions in the whole graph's ``indices``.
    ``neighbors`` are ids of the part, ``edge_ids`` of the whole graph."""
    # Aside: the batch that needs this hop is being laid, perhaps in this thread's first arena.
    local = None if queries is None else here(queries, graph, rows)
    arena, layout = draw_here(sampler, graph, Draw(rows, key, local), aside=True)
    batch = MiniBatch.view(arena, layout, len(rows))
    [block] = batch.blocks
    counts = np.diff(block.indptr.numpy())
    # Copies of everything, as the next hop is drawn into the same arena.
    edge_weight, edge_type = (
        None if column is None else column.numpy().copy() for column in (block.edge_weight, block.edge_type)
    )
    edge_ids = until = None
    if block.edge_ids is not None:
        edges = block.edge_ids.numpy()
        edge_ids = edge_names(graph, np.repeat(rows, counts), edges)
        if queries is not None and queries.along_path:
            until = bounds_along(queries, graph, counts, edges, edge_type)
    return HopEdges(counts, batch.nodes.numpy()[block.indices.numpy()], edge_ids, edge_weight, edge_type, until=until)


def draw_task(about: Mapping[str, Any], graph: Graph, rows: np.ndarray, queries: Queries | None) -> HopEdges:
    """Draws one hop by the sampler that a task describes, without ids of edges where the task asks for none."""
    edges = draw_hop(described(about["sampler"], graph), graph, rows, DrawKey(*about["key"]), queries)
    return edges if about["edge_ids"] else replace(edges, edge_ids=None)


def describe(sampler: Sampler, hop: int) -> dict[str, Any]:
    """Describes the sampler of one hop alone in JSON values: its class by name, and its settings."""
    return {"kind": name_of(type(sampler)), "settings": sampler.hop_settings(hop)}


def described(about: Mapping[str, Any], graph: Graph) -> Sampler:
    """Makes the sampler that :func:`describe` described, for a part."""
    return class_named(about["kind"]).of_hop(about["settings"], graph)


def name_of(sampler_class: type[Sampler]) -> str:
    """Returns the name by which other ranks find the class."""
    return f"{sampler_class.__module__}:{sampler_class.__qualname__}"


def class_named(name: str) -> type[Sampler]:
    """Finds a class of this package, or one that has been imported: a name from another rank loads no other code."""
    module, _, path = name.partition(":")
    if module.startswith("lightning_gnnload.sample."):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    target: Any = sys.modules.get(module)
    for attribute in path.split("."):
        target = getattr(target, attribute, None)
    if not (isinstance(target, type) and issubclass(target, Sampler)):
        raise SamplerConfigError(
            f"{name} is no sampler that this process has imported. Ranks that sample together find its class by that "
            f"name: define it in a module, not in a function, and import that in every rank."
        )
    return target


def take_steps(
    graph: Graph,
    rows: np.ndarray,
    names: np.ndarray,
    numbers: np.ndarray,
    about: Mapping[str, Any],
) -> tuple[np.ndarray, np.ndarray]:
    """Takes a step of walks that stand on ``rows`` of a part, int64 ``[M]``, as :func:`.ops.step_walks` does, by the
    walks, key, step ``t`` and weights that the task names; along edges of one type, where it names one."""
    walks, key, edge_type = Walks(*about["walks"]), DrawKey(*about["key"]), about["edge_type"]
    table = walk_table(graph, about["weighted"], edge_type is not None)
    lists, indptr = rows, graph.indptr
    if edge_type is not None:
        # Runs that walks leave by, as lists: from the end of one to the begin of the next is one, too, and the last of
        # all is empty.
        begins, run_ends = graph.typed_lists.bounds(rows, edge_type)
        is_run = begins < run_ends
        at, which = np.unique(begins[is_run], return_inverse=True)
        stops = np.zeros_like(at)
        stops[which] = run_ends[is_run]
        indptr = np.concatenate([[0], np.stack([at, stops], 1).reshape(-1), np.repeat(graph.num_edges, 2)])
        lists = np.full(len(rows), len(indptr) - 2)
        lists[is_run] = 1 + 2 * which
        table = None if table is None else ops.AliasTable(indptr, table.entries)
    return ops.step_walks(indptr, graph.indices, lists, names, numbers, walks, key, about["t"], table=table)


def walk_table(graph: Graph, weighted: bool, by_run: bool = False) -> ops.AliasTable | None:
    """Returns the alias table by which walks choose, of nodes or of runs; None where they choose uniformly."""
    if not weighted or graph.edge_weight is None:
        return None
    return graph.run_alias_table if by_run else graph.alias_table


def places_of(graph: Graph, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lengths of some nodes' lists, and the positions of their edges in ``graph.indices``: int64 both."""
    counts = graph.indptr[rows + 1] - graph.indptr[rows]
    return counts, np.repeat(graph.indptr[rows] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def edges_within(graph: Graph, rows: np.ndarray, new_ids: np.ndarray, scope: np.ndarray, edge_ids: bool) -> HopEdges:
    """Selects from the lists of ``rows`` the edges whose sources lie in a scope of new ids, ascending; ``new_ids``
    int64 ``[n]`` are those of the graph's nodes."""
    counts, edges = places_of(graph, rows)
    sources = graph.indices[edges]
    at = np.searchsorted(scope, new_ids[sources])
    # The -1, which is no id, stands for sources above all of the scope.
    is_within = np.append(scope, -1)[at] == new_ids[sources]
    list_ends = np.append(0, np.cumsum(is_within))[np.cumsum(counts)]
    destinations = np.repeat(rows, counts)[is_within]
    ids = edge_names(graph, destinations, edges[is_within]) if edge_ids else None
    return HopEdges(np.diff(list_ends, prepend=0), sources[is_within], ids)


def on_wire(owned: OwnedLists, edges: HopEdges) -> dict[str, np.ndarray]:
    """Turns a part's edges into arrays for other ranks: by new ids, and in the smallest dtypes."""
    arrays = edges.arrays()
    arrays |= {
        "counts": narrow(edges.counts),
        "neighbors": narrow(owned.new_ids[edges.neighbors], owned.num_nodes),
    }
    if edges.edge_ids is not None:
        arrays["edge_ids"] = narrow(edges.edge_ids)
    if edges.edge_type is not None:
        arrays["edge_type"] = narrow(edges.edge_type)
    return arrays


@operation
def draw(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Draws one hop by the sampler that the task describes, of a query for each node where it has queries."""
    return on_wire(owned, draw_task(task.about, owned.graph, rows, from_task(task, len(rows))))


@operation
def lists(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Sends adjacency lists, with the columns that the task names."""
    graph, columns = owned.graph, task.about["columns"]
    counts, edges = places_of(graph, rows)
    selected = HopEdges(
        counts,
        graph.indices[edges],
        None,
        *(_column(graph, name, edges) if name in columns else None for name in _COLUMNS),
    )
    starts = {"edge_starts": graph.origin.edge_starts[rows]} if "edge_starts" in columns and graph.origin else {}
    return {**on_wire(owned, selected), **starts}


@operation
def num_types(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Tells how many edge types the part has, counted up to its largest."""
    return {"num_types": np.array([owned.graph.lists_by_number.num_edge_types])}


@operation
def zero_nodes(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Lists the nodes whose edges, or those of any one type, all weigh zero, by their ids in the whole graph."""
    return {"nodes": owned.graph.names_of(owned.graph.zero_weight_nodes(by_type=bool(task.about["by_type"])))}


@operation
def degrees(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Tells the lengths of lists, and, if asked, how far all their weights span."""
    indptr = owned.graph.indptr
    answer = {"degrees": narrow(indptr[rows + 1] - indptr[rows])}
    if task.about["weighted"]:
        weights = _weights(owned.graph)[places_of(owned.graph, rows)[1]]
        answer["span"] = np.array([weights.min(initial=np.inf), weights.max(initial=0)])
    return answer


@operation
def lengths(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Tells what lists weigh, as lengths on the line of a layer, and how many of their edges weigh anything."""
    units = ops.LineUnits(*task.about["units"])
    stretches, num_positive = ops.measure_lists(owned.graph.indptr, _weights(owned.graph), rows, units)
    return {"lengths": narrow(stretches), "num_positive": np.array([num_positive])}


@operation
def on_line(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Finds edges by their positions on the line of a layer."""
    line_positions = task.arrays["places"].astype(np.int64)
    units = ops.LineUnits(*task.about["units"])
    items = ops.find_on_line(owned.graph.indptr, _weights(owned.graph), rows, units, line_positions)
    return {
        "begins": narrow(items.begins),
        "lengths": narrow(items.lengths),
        "weights": items.weights,
        "wholes": items.wholes,
        **_edges_at(owned, rows, items.numbers, task.about["edge_ids"]),
    }


@operation
def edges(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Looks single edges up by their positions in the lists."""
    offsets = task.arrays["places"].astype(np.int64)
    lengths = owned.graph.indptr[rows + 1] - owned.graph.indptr[rows]
    if len(bad := np.flatnonzero((offsets < 0) | (offsets >= lengths))):
        raise SamplerConfigError(f"places[{bad[0]}] is {offsets[bad[0]]}, beyond the list of row {rows[bad[0]]}.")
    return _edges_at(owned, rows, offsets, task.about["edge_ids"])


def _column(graph: Graph, name: str, edges: np.ndarray) -> np.ndarray:
    if (column := getattr(graph, name)) is None:
        raise SamplerConfigError(f"lists are to come with their {name}, but this part has none.")
    return column[edges]


def _weights(graph: Graph) -> np.ndarray:
    if (weights := graph.weight_drawn_by) is None:
        raise SamplerConfigError("edges are to be drawn by weight, but this part has no edge_weight.")
    return weights


def _edges_at(owned: OwnedLists, rows: np.ndarray, offsets: np.ndarray, edge_ids: bool) -> dict[str, np.ndarray]:
    graph = owned.graph
    columns = {"neighbors": narrow(owned.new_ids[graph.indices[graph.indptr[rows] + offsets]], owned.num_nodes)}
    if edge_ids and graph.origin is not None:
        columns["edge_ids"] = narrow(graph.origin.edge_starts[rows] + offsets)
    return columns


@operation
def within(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Selects the edges whose sources lie in a scope."""
    scope = task.arrays["scope"].astype(np.int64)
    return on_wire(owned, edges_within(owned.graph, rows, owned.new_ids, scope, task.about["edge_ids"]))


@operation
def step(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Takes a step of each walk; the node that it reaches and its fate are sent as one number."""
    edge_type, types = task.about["edge_type"], owned.graph.types
    if edge_type is not None and not (types and type(edge_type) is int and 0 <= edge_type < len(types.edge_types)):
        raise SamplerConfigError(f"walks go along edge type {edge_type!r:.20}, which this part does not have.")
    names, numbers = (task.arrays[name].astype(np.int64) for name in ("names", "numbers"))
    nodes, fates = take_steps(owned.graph, rows, names, numbers, task.about)
    # A stuck walk has node -1, which cannot go on the wire; who asked does not read it.
    reached = np.where(fates == ops.STUCK, 0, owned.new_ids[nodes])
    return {"steps": narrow(reached << FATE_BITS | fates, owned.num_nodes << FATE_BITS)}

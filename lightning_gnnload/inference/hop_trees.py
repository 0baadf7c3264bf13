"""Which hops to sum of which tables: along the metapaths of a graph with types, or along its edges."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any
from zlib import crc32

import numpy as np

from lightning_gnnload.data.aggregates import Aggr, Aggregate
from lightning_gnnload.data.clock import as_times
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.metapaths import Metapath, ends_of, metapaths, numbers_of
from lightning_gnnload.data.tables import NodeTable, check_name
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.inference.aggregation import InEdges
from lightning_gnnload.inference.hop_tables import Hop

MOST_TABLES = 256
_LONGEST = 120  # of a metapath in the name of a table, and so of a file


def sources_of(
    data: GraphData, table: str, hops: int, aggr: Aggr, node_type: str | None, merged: bool
) -> dict[str, tuple[FeatureStore, list[Metapath]]]:
    """Returns the tables to sum, by the names of their stores, and the metapaths along which; of a graph without types,
    these are as many empty steps."""
    types = data.graph.types
    nodes: dict[str, Any] = {**({} if data.x is None else {"x": data.x}), **data.tables}
    if types is None:
        if node_type is not None or merged:
            raise GraphDataError("node_type= and merge_relations= are of graphs with types, but this one has none.")
        if table not in nodes:
            raise GraphDataError(
                f"there is no table {table!r} of nodes; there are {', '.join(nodes) or 'none at all'}."
            )
        if isinstance(nodes[table], NodeTable):
            raise GraphDataError(
                f"table {table!r} has rows for {nodes[table]!r} alone, but each node's in-neighbours need one. Give "
                "the types to the graph: Graph.from_hetero."
            )
        return {table: (nodes[table], [("",) * hop for hop in range(1, hops + 1)])}
    if aggr in ("gcn", "both"):
        raise GraphDataError(
            f"in a graph with types, tables are summed by mean or sum, as {aggr!r} would count degrees of several "
            'types for one. Give aggr="mean".'
        )
    columns = {name: data.tables_of(name) for name in types.node_types}
    there = sorted({column for tables in columns.values() for column in tables})
    if table not in there:
        raise GraphDataError(f"no node type has a table {table!r}; there are {', '.join(there) or 'none at all'}.")
    origins = [name for name, tables in columns.items() if table in tables]
    targets = types.node_types if node_type is None else [types.node_types[types.node_type_number(node_type)]]
    every = (
        path
        for hop in range(1, hops + 1)
        for end in targets
        for path in metapaths(types, end, hop, origins=origins, merged=merged)
    )
    paths = list(islice(every, MOST_TABLES + 1)) if hops > 1 else list(every)
    if hops > 1 and len(paths) > MOST_TABLES:
        raise GraphDataError(
            f"{hops} hops lead along more than {MOST_TABLES} metapaths, of a table each. Give node_type=, whose tables "
            "are all that a model without a graph needs; or merge_relations=True, by which relations between the same "
            "two types count together; or fewer hops."
        )
    by_source: dict[str, tuple[FeatureStore, list[Metapath]]] = {}
    for path in paths:
        source = ends_of(types, path[0])[0]
        by_source.setdefault(f"{table}.{source}", (columns[source][table].store, []))[1].append(path)
    return by_source


def hops_of(
    data: GraphData, source: str, before: Metapath, names: Mapping[Metapath, str], settings: Mapping[str, Any]
) -> tuple[Hop, ...]:
    """Returns the hops that go on from a metapath, as far as those that have names lead."""
    steps = dict.fromkeys(
        path[len(before)] for path in names if len(path) > len(before) and path[: len(before)] == before
    )
    return tuple(_hop(data, source, (*before, step), names, settings) for step in steps)


def _hop(
    data: GraphData, source: str, path: Metapath, names: Mapping[Metapath, str], settings: Mapping[str, Any]
) -> Hop:
    edges, aggregate = _edges(data, source, path, **settings)
    return Hop(edges, aggregate, names.get(path), hops_of(data, source, path, names, settings))


def bounded(hops: tuple[Hop, ...], bounds: Mapping[str, Any]) -> tuple[Hop, ...]:
    """Returns hops whose blocks are bounded so."""
    return tuple(replace(hop, edges=replace(hop.edges, **bounds), further=bounded(hop.further, bounds)) for hop in hops)


def _edges(
    data: GraphData,
    source: str,
    path: Metapath,
    *,
    aggr: Aggr,
    self_loops: bool | None,
    weighted: bool | None,
    as_of: Any,
) -> tuple[InEdges, Aggregate]:
    """Returns the edges of a metapath's last step, and what the sums by them are."""
    graph = data.graph
    types, numbers, is_homogeneous = graph.types, None, True
    nodes = sources = range(graph.num_nodes)
    if types is not None:
        numbers = numbers_of(types, path[-1])
        src, dst = ends_of(types, path[-1])
        sources, nodes, is_homogeneous = types.range_of(src), types.range_of(dst), src == dst
    loops = aggr == "gcn" if self_loops is None else self_loops
    if loops and not is_homogeneous:
        raise GraphDataError(f"edges of {path[-1]} lead from one type to another, so that they cannot be loops.")
    by_weight = graph.edge_weight is not None if weighted is None else weighted
    if by_weight and graph.edge_weight is None:
        raise GraphDataError("weighted=True, but the graph has no edge weights. Give it some, or leave that out.")
    time, until = _bound_of_time(data, as_of, numbers or (0,))
    edges = InEdges(graph, nodes, sources, numbers, loops, by_weight, until)
    return edges, Aggregate(source, aggr, len(path), loops, by_weight, time, path if types is not None else ())


def _bound_of_time(data: GraphData, as_of: Any, numbers: tuple[int, ...]) -> tuple[int | float | None, int | None]:
    """Returns the time up to which edges count, and the code below which theirs lie; None for all."""
    clock = data.graph.clock
    if clock is None or data.graph.edge_time is None:
        if as_of is not None:
            raise GraphDataError(f"as_of={as_of!r}, but the graph has no times of edges. Leave it out.")
        return None, None
    if as_of is None:
        raise GraphDataError(
            "the graph has times: a mini-batch has the edges that were there at its seeds' times, but a sum over all "
            "would tell of those that came later. Give as_of=, a time before all seeds; or sample all hops."
        )
    try:
        values = np.array([np.datetime64(as_of) if isinstance(as_of, str) else as_of])
    except ValueError:
        raise GraphDataError(f"as_of={as_of!r} is no time. Give a number, or a date: 2024-12-31.") from None
    times = as_times(values, name="as_of", error=GraphDataError)
    until = int(clock.until(times, "<=")[0]) if clock.timed[list(numbers)].any() else None
    return times[0].item(), until


def table_names(data: GraphData, paths: list[Metapath], prefix: str) -> dict[Metapath, str]:
    """Returns the names of the tables, by metapath. Raises GraphDataError: one is taken."""
    types = data.graph.types
    names = {path: f"{prefix}_{len(path)}" for path in paths}
    if types is not None:
        spelled = {path: _spelled(types, path) for path in paths}
        counts = Counter((names[path], ends_of(types, path[-1])[1], text) for path, text in spelled.items())
        for path, text in spelled.items():
            end = ends_of(types, path[-1])[1]
            # Names of types may be any text: those that are spelled alike are told apart by number.
            is_double = counts[names[path], end, text] > 1
            suffix = "".join(f"_{numbers_of(types, step)[0]}" for step in path) if is_double else ""
            names[path] = f"{names[path]}_{text}{suffix}.{end}"
    for name in names.values():
        check_name(name.partition(".")[0])
        if name in data.tables and name not in data.aggregates:
            raise GraphDataError(f"there is a table {name!r}, which is no aggregate. Give another name=, --name.")
    return names


def _spelled(types: GraphTypes, path: Metapath) -> str:
    """Returns a metapath as a part of a table's name, which is one of a file."""
    names = [path[0], *(step.removeprefix(f"{ends_of(types, step)[0]}__") for step in path[1:])]
    text = re.sub(r"\W", "_", "__".join(names).replace("__*__", "__all__"), flags=re.ASCII)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 9]}_{crc32(text.encode()):08x}"

"""preaggregate: sums over the in-neighbours of all nodes, once, as tables that take the place of a hop."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.aggregates import AGGRS, Aggr, Aggregate
from lightning_gnnload.data.clock import as_times
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.tables import NodeTable, check_name
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.datasets.folder import GraphFolder
from lightning_gnnload.errors import GraphDataError, LoaderConfigError, StaleTableError
from lightning_gnnload.host.memory import free_bytes, in_units
from lightning_gnnload.host.progress import progress as shown
from lightning_gnnload.inference.aggregation import InEdges
from lightning_gnnload.inference.hop_tables import HopTables, in_memory, on_disk
from lightning_gnnload.settings import check_one_of
from lightning_gnnload.storage.aggregates import AddedTable, add_tables, check_fresh, checksums, source_arrays
from lightning_gnnload.storage.graphs import load_graph_data, open_graph, write_graph
from lightning_gnnload.storage.open_folder import OpenFolder
from lightning_gnnload.storage.targets import check_target

_LANE = 16  # columns: a line of a cache, which fewer do not use whole
_CHUNK_BYTES = 1 << 24
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def preaggregate(
    data: Any,
    *,
    aggr: Aggr = "mean",
    hops: int = 1,
    table: str = "x",
    name: str | None = None,
    self_loops: bool | None = None,
    weighted: bool | None = None,
    as_of: Any = None,
    dtype: torch.dtype | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    memory: int | None = None,
    progress: bool = True,
) -> GraphData:
    """Sums a table over all in-neighbours of every node, and adds the sums to the data as further tables of features.

    A model whose first layer takes the mean of its in-neighbours' features finds it there, so that the sampler draws a
    hop less: :class:`.SAGE` with ``first_layer="preaggregated"``. Sums of sums, ``hops`` of them, are what
    :class:`.SIGN` trains on, without a sampler.

    Each table is read in turn, as many columns at a time as memory holds. Sums have float32's precision (float64's of a
    table of float64), whatever the table's dtype, and the same bits for any ``memory`` and number of threads.

    Args:
        data: a GraphData; or the folder of a graph, to which the tables are added, atomically; or a data set.
        aggr: ``"mean"``; ``"sum"``; ``"gcn"``, ``D^-1/2 A D^-1/2 x`` with in-degrees ``D`` and self-loops, as
            ``gcn_norm`` of PyG has it; ``"both"``, the same with the sources' out-degrees and without self-loops, as
            DGL's ``GraphConv(norm="both")``. A node without in-neighbours gets zeros.
        hops: K; the table of hop ``k`` is the sum of that of hop ``k - 1``, which is not rounded to ``dtype`` before.
        table: whose rows are summed; in a graph with types the name of a column, which is summed for each edge type
            whose source has it.
        name: of the new tables, ``<name>_1`` to ``<name>_K``; None: ``"<table>_<aggr>"``. In a graph with types, the
            edge type follows.
        self_loops: each node is among its in-neighbours, once; None: for ``"gcn"``.
        weighted: neighbours count by the graph's edge weights, of which ``"mean"`` takes shares, and norms take the
            sums as degrees; None: where the graph has weights.
        as_of: in a graph with times, edges later than this do not count. It should not be later than the seeds' times.
        dtype: of the new tables; None: of the table, float32 for whole numbers.
        out: a folder for the data with the new tables; None: the folder that ``data`` is, or memory.
        overwrite: replace the folder ``out``.
        memory: bytes to take, beside 4 MB where the table is on disk; None: half of what is free. A column of all nodes
            has to fit twice, of several hops four times; 16 of them are worth having.
        progress: show a bar.

    Returns:
        The data with the new tables, which :attr:`.GraphData.aggregates` describes. Those that are there already, of
        the same settings, are not made again.

    Raises:
        GraphDataError: no such table, one that has rows for some nodes alone, a name that is taken, numbers beyond
            ``dtype``, too little ``memory``; a graph with times, without ``as_of``: a mini-batch sees what was there
            before its seeds, but such a sum would have all that came later.
        StoreFormatError, FeatureFileError: the folder cannot be written; it stays as it was.

    Sources: PaGraph (TPDS'21), section 5.1, "DGL+PP"; SIGN (Frasca et al., 2020).

    Example:
        >>> from lightning_gnnload import Graph, GraphData
        >>> data = GraphData(Graph.from_coo([1, 2, 0], [0, 0, 1]), x=torch.tensor([[1.0], [2.0], [4.0]]))
        >>> preaggregate(data, hops=2, progress=False).tables["x_mean_1"].rows.tolist()
        [[3.0], [1.0], [0.0]]
    """
    check_one_of("aggr", aggr, AGGRS, LoaderConfigError)
    if type(hops) is not int or hops < 1:
        raise LoaderConfigError(f"hops={hops!r}: a whole number of at least 1 is needed.")
    if dtype is not None and dtype not in _DTYPES:
        raise LoaderConfigError(f"dtype={dtype!r}: give one of {', '.join(map(str, _DTYPES))}.")
    settings: dict[str, Any] = {"aggr": aggr, "hops": hops, "table": table, "name": name, "self_loops": self_loops}
    settings |= {"weighted": weighted, "as_of": as_of, "dtype": dtype}
    settings["memory"] = free_bytes() // 2 if memory is None else memory
    if isinstance(data, str | os.PathLike):
        data = GraphFolder(data)
    if out is not None:
        check_target(Path(out), "graph", overwrite=overwrite)  # before hours of work
    if isinstance(data, GraphFolder) and out is None:
        return _in_folder(data, settings, progress)
    if isinstance(data, Dataset):
        data.prepare()
        data = data.load()
    graph_data = data if isinstance(data, GraphData) else data.known_data()
    tables = _tables(graph_data, **settings)
    with shown("Aggregating", sum(table.work for table in tables), show=progress) as advance:
        if out is None:
            return in_memory(graph_data, tables, advance)

        def add(folder: Path) -> Mapping[str, AddedTable]:
            return on_disk(tables, folder, advance, partial(checksums, graph_data))

        write_graph(graph_data, out, {}, overwrite=overwrite, add=add)
    return load_graph_data(out)


def _in_folder(folder: GraphFolder, settings: dict[str, Any], progress: bool) -> GraphData:
    """Adds the tables to a graph's folder, and loads it."""
    folder.prepare()
    with OpenFolder(folder.folder) as opened:
        # By direct reads: pages of a table that is read in turn would drive others out of memory.
        data = open_graph(opened, features="disk", check_aggregates=False)
        tables = _tables(data, **settings)

        def known(aggregate: Aggregate) -> dict[str, int]:
            return {name: opened.manifest["arrays"][name]["crc32"] for name in source_arrays(data, aggregate)}

        if tables:
            with shown("Aggregating", sum(table.work for table in tables), show=progress) as advance:
                add_tables(opened, lambda new: on_disk(tables, new, advance, known))
    return folder.load()


def _tables(
    data: GraphData, *, hops: int, memory: int, table: str, dtype: torch.dtype | None, **settings: Any
) -> list[HopTables]:
    """Checks what is to be made, and returns the tables that are not there yet."""
    if data.graph.origin is not None:
        raise GraphDataError("this graph is a part of another, and lacks some in-neighbours. Give the whole graph.")
    tables = []
    for source, store, number in _sources(data, table, hops, settings["aggr"]):
        edges, aggregate = _edges(data, source, number, **settings)
        names = _names(data, aggregate, hops, settings["name"] or f"{table}_{settings['aggr']}")
        table_dtype = dtype or (store.dtype if store.dtype.is_floating_point else torch.float32)
        if all(
            _is_there(data, name, replace(aggregate, hop=hop), table_dtype) for hop, name in enumerate(names, start=1)
        ):
            continue
        first = None if number is None else edges.nodes.start
        width, chunk_bytes = _columns_at_once(store, edges, hops, aggregate, memory)
        edges = replace(edges, max_nodes=max(chunk_bytes // (4 * width), 1), max_edges=max(chunk_bytes // 16, 1))
        tables.append(HopTables(store, edges, aggregate, names, first, table_dtype, width, chunk_bytes))
    return tables


def _sources(data: GraphData, table: str, hops: int, aggr: Aggr) -> Iterator[tuple[str, FeatureStore, int | None]]:
    """Yields the tables to sum, by the names of their stores, and the number of the edge type."""
    types = data.graph.types
    nodes: dict[str, Any] = {**({} if data.x is None else {"x": data.x}), **data.tables}
    if types is None:
        if table not in nodes:
            raise GraphDataError(
                f"there is no table {table!r} of nodes; there are {', '.join(nodes) or 'none at all'}."
            )
        if isinstance(nodes[table], NodeTable):
            raise GraphDataError(
                f"table {table!r} has rows for {nodes[table]!r} alone, but each node's in-neighbours need one. Give "
                "the types to the graph: Graph.from_hetero."
            )
        yield table, nodes[table], None
        return
    if hops > 1 or aggr in ("gcn", "both"):
        raise GraphDataError(
            f"in a graph with types, tables are summed over one hop of each edge type, by mean or sum: {hops} hops "
            f"would lead along paths of several types, and {aggr!r} would count degrees of several. Give hops=1 and "
            'aggr="mean".'
        )
    columns = {name: data.tables_of(name) for name in types.node_types}
    there = sorted({column for tables in columns.values() for column in tables})
    if table not in there:
        raise GraphDataError(f"no node type has a table {table!r}; there are {', '.join(there) or 'none at all'}.")
    for number, (source, _, _) in enumerate(types.edge_types):
        if table in columns[source]:
            yield f"{table}.{source}", columns[source][table].store, number


def _edges(
    data: GraphData,
    source: str,
    number: int | None,
    *,
    aggr: Aggr,
    self_loops: bool | None,
    weighted: bool | None,
    as_of: Any,
    name: str | None,
) -> tuple[InEdges, Aggregate]:
    graph = data.graph
    types, is_homogeneous = graph.types, True
    nodes = sources = range(graph.num_nodes)
    edge_type = None
    if number is not None:
        assert types is not None
        triple = types.edge_types[number]
        sources, nodes = types.range_of(triple[0]), types.range_of(triple[2])
        edge_type, is_homogeneous = "__".join(triple), triple[0] == triple[2]
    loops = aggr == "gcn" if self_loops is None else self_loops
    if loops and not is_homogeneous:
        raise GraphDataError(f"edges of {edge_type} lead from one type to another, so that they cannot be loops.")
    by_weight = graph.edge_weight is not None if weighted is None else weighted
    if by_weight and graph.edge_weight is None:
        raise GraphDataError("weighted=True, but the graph has no edge weights. Give it some, or leave that out.")
    time, until = _bound_of_time(data, as_of, number or 0)
    edges = InEdges(graph, nodes, sources, number, loops, by_weight, until)
    return edges, Aggregate(source, aggr, 1, loops, by_weight, time, edge_type)


def _bound_of_time(data: GraphData, as_of: Any, number: int) -> tuple[int | float | None, int | None]:
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
    until = int(clock.until(times, "<=")[0]) if clock.timed[number] else None
    return times[0].item(), until


def _names(data: GraphData, aggregate: Aggregate, hops: int, prefix: str) -> list[str]:
    """Returns the names of the tables, by hop. Raises GraphDataError: one is taken."""
    names = [f"{prefix}_{hop}" for hop in range(1, hops + 1)]
    if aggregate.edge_type is not None:
        assert data.graph.types is not None
        joined = ["__".join(edge_type) for edge_type in data.graph.types.edge_types]
        spelled = [re.sub(r"\W", "_", text, flags=re.ASCII) for text in joined]
        number = joined.index(aggregate.edge_type)
        # Names of types may be any text: those that are spelled alike are told apart by number.
        suffix = f"_{number}" if spelled.count(spelled[number]) > 1 else ""
        names = [f"{name}_{spelled[number]}{suffix}" for name in names]
    for name in names:
        check_name(name)
    if aggregate.edge_type is not None:
        names = [f"{name}.{data.graph.types.edge_types[number][2]}" for name in names]  # type: ignore[union-attr]
    for name in names:
        if name in data.tables and name not in data.aggregates:
            raise GraphDataError(f"there is a table {name!r}, which is no aggregate. Give another name=, --name.")
    return names


def _is_there(data: GraphData, name: str, aggregate: Aggregate, dtype: torch.dtype) -> bool:
    """Whether the data have this table, and it is not stale."""
    present = data.aggregates.get(name)
    if present is None or present.settings != aggregate.settings or data.stores[name].dtype != dtype:
        return False
    try:
        check_fresh(data, name)
    except StaleTableError:
        return False
    return True


def _columns_at_once(
    store: FeatureStore, edges: InEdges, hops: int, aggregate: Aggregate, memory: int
) -> tuple[int, int]:
    """Returns how many columns to sum at a time, and the bytes of reads and blocks."""
    num_rows, width = store.shape
    item = 8 if store.dtype is torch.float64 else 4
    a_column = max((num_rows + (hops > 1) * len(edges.nodes)) * item, 1)
    norms = 40 * (num_rows + len(edges.nodes)) if aggregate.aggr in ("gcn", "both") else 0
    # The other half is for what is read and written at a time.
    columns = max(memory // 2 - norms, 0) // a_column
    if columns < min(width, 1):
        needed = 2 * (norms + a_column)
        raise GraphDataError(
            f"memory={memory}: {in_units(memory)} cannot hold a column of all nodes, which takes {in_units(needed)}. "
            f"Give memory={16 * needed}, --memory {16 * needed}, for 16 of them, or at least {needed}."
        )
    columns = width if columns >= width else columns // _LANE * _LANE if columns >= _LANE else columns
    return max(columns, 1), min(max(memory // 32, 1 << 16), _CHUNK_BYTES)

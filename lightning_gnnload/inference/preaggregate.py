"""preaggregate: sums over the in-neighbours of all nodes, once, as tables that take the place of a hop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lightning_gnnload.data.aggregates import AGGRS, Aggr, Aggregate
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.datasets.folder import GraphFolder
from lightning_gnnload.errors import GraphDataError, LoaderConfigError, StaleTableError
from lightning_gnnload.host.memory import free_bytes, in_units
from lightning_gnnload.host.progress import progress as shown
from lightning_gnnload.inference.hop_tables import HopTables, in_memory, on_disk, rows_at_once
from lightning_gnnload.inference.hop_trees import bounded, hops_of, sources_of, table_names
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
    node_type: str | None = None,
    merge_relations: bool = False,
    dtype: torch.dtype | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    memory: int | None = None,
    progress: bool = True,
) -> GraphData:
    """Sums a table over all in-neighbours of every node, and adds the sums to the data as further tables of features.

    A model whose first layer takes the mean of its in-neighbours' features finds it there, so that the sampler draws a
    hop less: :class:`.SAGE` with ``first_layer="preaggregated"``. Sums of sums, ``hops`` of them, are what
    :class:`.SIGN` trains on, without a sampler. In a graph with types there is a table for each metapath, the edge
    types along which rows come to a node in 1 to ``hops`` hops, as SeHGNN has them.

    Each table is read in turn, as many columns at a time as memory holds. Sums have float32's precision (float64's of a
    table of float64), whatever the table's dtype, and the same bits for any ``memory`` and number of threads.

    Args:
        data: a GraphData; or the folder of a graph, to which the tables are added, atomically; or a data set.
        aggr: ``"mean"``; ``"sum"``; ``"gcn"``, ``D^-1/2 A D^-1/2 x`` with in-degrees ``D`` and self-loops, as
            ``gcn_norm`` of PyG has it; ``"both"``, the same with the sources' out-degrees and without self-loops, as
            DGL's ``GraphConv(norm="both")``. A node without in-neighbours gets zeros.
        hops: K; the table of hop ``k`` is the sum of that of hop ``k - 1``, which is not rounded to ``dtype`` before.
        table: whose rows are summed; in a graph with types the name of a column, which is summed along each metapath
            that begins at nodes that have it.
        name: of the new tables, ``<name>_1`` to ``<name>_K``; None: ``"<table>_<aggr>"``. In a graph with types, the
            metapath follows.
        self_loops: each node is among its in-neighbours, once; None: for ``"gcn"``.
        weighted: neighbours count by the graph's edge weights, of which ``"mean"`` takes shares, and norms take the
            sums as degrees; None: where the graph has weights.
        as_of: in a graph with times, edges later than this do not count. It should not be later than the seeds' times.
        node_type: in a graph with types, make tables of this type's nodes alone: SIGN needs those of its seeds.
        merge_relations: edges between the same two node types count together, whatever their relation; or each relation
            has tables of its own.
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
            ``dtype``, too little ``memory``, too many metapaths; a graph with times, without ``as_of``: a mini-batch
            sees what was there before its seeds, but such a sum would have all that came later.
        StoreFormatError, FeatureFileError: the folder cannot be written; it stays as it was.

    Sources: PaGraph (TPDS'21), section 5.1, "DGL+PP"; SIGN (Frasca et al., 2020); for metapaths, SeHGNN (Yang et al.,
    AAAI'23), section 4.1.

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
    settings |= {"node_type": node_type, "merged": merge_relations}
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
    data: GraphData,
    *,
    hops: int,
    memory: int,
    table: str,
    name: str | None,
    dtype: torch.dtype | None,
    node_type: str | None,
    merged: bool,
    **settings: Any,
) -> list[HopTables]:
    """Checks what is to be made, and returns the tables that are not there yet."""
    if data.graph.origin is not None:
        raise GraphDataError("this graph is a part of another, and lacks some in-neighbours. Give the whole graph.")
    tables = []
    prefix = name or f"{table}_{settings['aggr']}"
    for source, (store, paths) in sources_of(data, table, hops, settings["aggr"], node_type, merged).items():
        names = table_names(data, paths, prefix)
        tree = hops_of(data, source, (), names, settings)
        table_dtype = dtype or (store.dtype if store.dtype.is_floating_point else torch.float32)
        hop_tables = HopTables(store, tree, table_dtype, 1, 1)
        if all(_is_there(data, name, hop.aggregate, table_dtype) for name, hop in hop_tables.kept.items()):
            continue
        width, chunk_bytes = _columns_at_once(hop_tables, memory)
        bounds: Any = {"max_nodes": max(chunk_bytes // (4 * width), 1), "max_edges": max(chunk_bytes // 16, 1)}
        tables.append(replace(hop_tables, hops=bounded(tree, bounds), width=width, chunk_bytes=chunk_bytes))
    return tables


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


def _columns_at_once(table: HopTables, memory: int) -> tuple[int, int]:
    """Returns how many columns to sum at a time, and the bytes of reads and blocks."""
    num_rows, width = table.store.shape
    a_column = max(rows_at_once(table.hops, num_rows) * table.sum_dtype.itemsize, 1)
    has_norms = table.hops[0].aggregate.aggr in ("gcn", "both")
    norms = 40 * (num_rows + len(table.hops[0].edges.nodes)) if has_norms else 0
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

"""Writing a partition's folder: the numbering, features in the order of new ids, and one graph folder a part.

Parts are made and written one at a time, and no edge is kept in memory: 4 or 8 bytes a node, and some megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.derived import run_bounds
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.data.selected import SelectedFeatureStore
from lightning_gnnload.data.tables import EDGE_PREFIX, EdgeTable, NodeTable
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.partition.closure import Holdings
from lightning_gnnload.partition.lists import edge_chunks, list_degrees
from lightning_gnnload.partition.numbering import Numbering
from lightning_gnnload.partition.partitioner import Advance
from lightning_gnnload.storage.folders import (
    CHUNK_BYTES,
    array_entry,
    array_file,
    byte_chunks,
    raw_bytes,
    write_chunks,
    write_manifest,
)
from lightning_gnnload.storage.graphs import RANKED, data_arrays, described_data, first_nodes, stores_by_array
from lightning_gnnload.storage.manifest import part_folder
from lightning_gnnload.storage.open_folder import OpenFolder
from lightning_gnnload.storage.parts import LIST_STARTS, RUN_STARTS, manifest_checksum
from lightning_gnnload.storage.tables import quantized_dtypes, raw_stores, table_name

Column = Callable[[np.ndarray], np.ndarray]
"""Gives what a part keeps of edges, by their place in the whole graph."""
Seeds = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By phase: node ids, and the part of each."""


def write_parts(
    folder: Path,
    graph: Graph,
    holdings: Holdings,
    seeds: Seeds,
    numbering: Numbering,
    rows: OwnRows | None,
    advance: Advance,
) -> list[int]:
    """Writes each part as a graph folder, with the ``rows`` of what it owns. Returns the checksum of each one's
    manifest."""
    num_parts = len(numbering.starts) - 1
    local = np.empty(graph.num_nodes, _index_dtype(graph.num_nodes))
    checksums = []
    for part in range(num_parts):
        advance("Writing parts", part / num_parts)
        checksums.append(write_one_part(folder, graph, holdings, seeds, numbering, rows, part, local))
    advance("Writing parts", 1.0)
    return checksums


def write_one_part(
    folder: Path,
    graph: Graph,
    holdings: Holdings,
    seeds: Seeds,
    numbering: Numbering,
    rows: OwnRows | None,
    part: int,
    local: np.ndarray | None = None,
) -> int:
    """Writes one part, as :func:`write_parts` does; ``local`` is memory for a number a node, which may hold what other
    parts have left."""
    if local is None:
        local = np.empty(graph.num_nodes, _index_dtype(graph.num_nodes))
    nodes, reach = holdings.of(part)
    new_ids = numbering.new_ids[nodes]
    is_own = (new_ids >= numbering.starts[part]) & (new_ids < numbering.starts[part + 1])
    order = np.concatenate([np.flatnonzero(is_own), np.flatnonzero(~is_own)])
    nodes, reach = nodes[order], reach[order]
    # What the part before has left elsewhere is never read: lists that a part keeps name only nodes that it holds.
    local[nodes] = np.arange(len(nodes))
    part_seeds = {phase: ids[parts == part] for phase, (ids, parts) in seeds.items()}
    part_path = folder / part_folder(part)
    part_path.mkdir(mode=0o700)
    more = {} if rows is None else rows.write(part_path, nodes[: int(is_own.sum())])
    _write_part(part_path, graph, nodes, reach, local, part_seeds, more, keeps_order=rows is not None)
    with OpenFolder(part_path) as written:
        return manifest_checksum(written)


def write_features(folder: Path, data: GraphData, node_ids: np.ndarray, advance: Advance) -> dict[str, Any]:
    """Writes features and labels in the order of ``node_ids``; tables of one node type are left out. Returns what
    :func:`.write_manifest` is to be told: ``arrays``, ``quantized``, ``tables``."""
    tables = {name: table for name, table in data.tables.items() if not isinstance(table, NodeTable)}
    stores = {"x": data.x, **{table_name(name): table for name, table in tables.items()}}
    present = {name: store for name, store in stores.items() if store is not None}
    per_node: dict[str, torch.Tensor | FeatureStore] = {**raw_stores(present)}
    shapes = {name: _whole_shape(array) for name, array in per_node.items()}
    if data.y is not None:
        # A store's rows have two dimensions; the manifest keeps the labels' own shape.
        per_node["y"], shapes["y"] = MemoryFeatureStore(data.y.reshape(len(node_ids), -1)), data.y.shape
    entries, total = {}, sum(map(_num_bytes, per_node.values()))
    written_bytes = 0
    for name, array in per_node.items():

        def note(chunk_bytes: int) -> None:
            nonlocal written_bytes
            written_bytes += chunk_bytes
            advance("Writing features", written_bytes / max(total, 1))

        rows = SelectedFeatureStore(array, node_ids) if isinstance(array, FeatureStore) else array
        entries[name] = _write(folder, name, rows.dtype, shapes[name], _noted(byte_chunks(rows), note))
    return {"arrays": entries, "quantized": quantized_dtypes(present), "tables": dict.fromkeys(tables)}


class OwnRows:
    """Writes the rows of features that each part owns: of its own nodes, in their order, and of the edges of their
    lists, likewise. Of a quantised table, rows are its codes. ``names`` are those of arrays, if not all are meant."""

    def __init__(self, data: GraphData, names: Collection[str] | None = None) -> None:
        self._graph = data.graph
        self._stores = {
            name: store.codes if isinstance(store, QuantizedFeatureStore) else store
            for name, store in stores_by_array(data).items()
            if names is None or name in names
        }
        self._firsts = {table_name(name): first for name, first in first_nodes(data).items()}
        self._of_edges = data.edge_stores.keys()
        self._types_of_edges = {
            EDGE_PREFIX + name: table.edge_type
            for name, table in data.edge_tables.items()
            if isinstance(table, EdgeTable)
        }

    def described(self) -> dict[str, Any]:
        """Returns what the manifest says of the whole tables: the dtype and shape of each, by its array's name."""
        return {
            name: {"dtype": str(store.dtype).removeprefix("torch."), "shape": [store.shape[0], *store.row_shape]}
            for name, store in self._stores.items()
        }

    def write(self, folder: Path, own_nodes: np.ndarray) -> dict[str, Any]:
        """Writes the rows of one part, by its own nodes, ascending, to its folder. Returns their entries."""
        entries = {}
        for name, store in self._stores.items():
            if name in self._of_edges:
                num_rows, chunks = self._own_edges(store, own_nodes, self._types_of_edges.get(name))
            else:
                first = self._firsts.get(name) or 0
                low, high = np.searchsorted(own_nodes, (first, first + store.shape[0]))
                rows = SelectedFeatureStore(store, own_nodes[low:high] - first)
                num_rows, chunks = rows.shape[0], byte_chunks(rows)
            entries[name] = _write(folder, name, store.dtype, (num_rows, *store.row_shape), chunks)
        return entries

    def _own_edges(
        self, store: FeatureStore, own_nodes: np.ndarray, edge_type: EdgeType | None
    ) -> tuple[int, Iterator[memoryview]]:
        """Returns the number of rows, and the rows, of the edges of own nodes' lists: all, or those of one type."""
        graph, number = self._graph, None
        begins, stops = graph.indptr[:-1], graph.indptr[1:]
        if edge_type is not None:
            types, run_ptr = graph.types, graph.run_ptr
            assert types is not None
            assert run_ptr is not None
            number, targets = types.edge_type_number(edge_type), types.range_of(edge_type[2])
            begins, stops = (bounds.astype(np.int64) for bounds in run_bounds(types, run_ptr, number))
            low, high = np.searchsorted(own_nodes, (targets.start, targets.stop))
            own_nodes = own_nodes[low:high] - targets.start
        degrees = stops[own_nodes] - begins[own_nodes]

        def chunks() -> Iterator[memoryview]:
            chunk_edges = max(CHUNK_BYTES // max(store.row_bytes, 8), 1)
            for edges, _ in edge_chunks(begins, own_nodes, degrees, chunk_edges):
                out = torch.empty(len(edges), store.shape[1], dtype=store.dtype)
                store.gather(tensor_view(graph.edge_rows(edges, number)), out)
                yield raw_bytes(out)

        return int(degrees.sum()), chunks()


def write_head(folder: Path, data: GraphData) -> dict[str, Any]:
    """Writes what a trainer needs beside lists and rows of features, in the order of the whole graph: labels, splits,
    seed tables, tasks and ids. Returns what :func:`.write_manifest` is to be told."""
    graph, arrays = data.graph, data_arrays(data)
    arrays.pop(RANKED, None)  # which is written with the numbering, whatever parts hold
    arrays["out_degrees"] = tensor_view(graph.out_degrees().astype(_index_dtype(graph.num_edges)))
    if graph.run_ptr is not None:  # by which the types of edges are known, too
        arrays[RUN_STARTS] = tensor_view(graph.run_ptr)
    elif data.edge_stores:
        arrays[LIST_STARTS] = tensor_view(graph.indptr)
    for name, array in raw_stores(stores_by_array(data)).items():
        if isinstance(array, torch.Tensor):  # the scale and offset of a quantised table
            arrays[name] = array
    entries = {
        name: _write(folder, name, array.dtype, array.shape, byte_chunks(array)) for name, array in arrays.items()
    }
    return {"arrays": entries, "tables": first_nodes(data), **described_data(data)}


def write_numbering(folder: Path, numbering: Numbering, graph: Graph) -> dict[str, Any]:
    """Writes the numbering's arrays, the times of all nodes, and those of the graph's clock where these are numbered by
    rank; returns their entries."""
    arrays = numbering._asdict()
    if graph.node_time is not None:
        arrays["node_time"] = graph.node_time
    if graph.clock is not None and graph.clock.ranked is not None:
        arrays[RANKED] = graph.clock.ranked
    return {name: _write_array(folder, name, array) for name, array in arrays.items()}


def _write_part(
    folder: Path,
    graph: Graph,
    nodes: np.ndarray,
    reach: np.ndarray,
    local: np.ndarray,
    seeds: Mapping[str, np.ndarray],
    more: Mapping[str, Any],
    *,
    keeps_order: bool,
) -> None:
    """Writes one part's graph and seeds; ``nodes`` in its own order, ``local`` the place of each in it. ``more`` has
    the entries of what was written before."""
    degrees = list_degrees(graph.indptr, nodes, reach > 0)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    num_edges = int(indptr[-1])
    arrays = {
        "indptr": indptr,
        "node_ids": nodes,
        "reach": reach,
        "edge_starts": graph.indptr[nodes],
        **{phase: np.sort(local[ids]).astype(np.int64) for phase, ids in seeds.items()},
    }
    if graph.node_time is not None:
        arrays["node_time"] = graph.node_time[nodes]
    entries = {name: _write_array(folder, name, array) for name, array in arrays.items()}
    narrow = _index_dtype(len(nodes))
    columns: dict[str, Column] = {"indices": lambda edges: local[graph.indices[edges]].astype(narrow, copy=False)}
    # By the ids of the user's edges, owners look links up; parts that sample alone take none.
    for name in ("edge_weight", "edge_type", "edge_time", *(["edge_order"] if keeps_order else [])):
        if getattr(graph, name) is not None:
            columns[name] = getattr(graph, name).__getitem__
    if graph.types is not None:
        number = np.min_scalar_type(len(graph.types.edge_types))
        columns["edge_type"] = lambda edges: graph.edge_types_of(edges).astype(number)
    for name, column in columns.items():
        # A column of no edges tells the dtype of what will be written, before any is read.
        dtype = tensor_view(column(np.empty(0, np.int64))).dtype
        chunks = (raw_bytes(tensor_view(column(edges))) for edges, _ in edge_chunks(graph.indptr, nodes, degrees))
        entries[name] = _write(folder, name, dtype, [num_edges], chunks)
    write_manifest(folder, {**entries, **more}, num_nodes=len(nodes), lost_order=graph.lost_order)


def _write(
    folder: Path, name: str, dtype: torch.dtype, shape: Iterable[int], chunks: Iterable[memoryview]
) -> dict[str, Any]:
    shape, file = list(shape), folder / array_file(name)
    return array_entry(file, dtype, shape, write_chunks(file, chunks, math.prod(shape) * dtype.itemsize))


def _write_array(folder: Path, name: str, array: np.ndarray) -> dict[str, Any]:
    rows = tensor_view(np.ascontiguousarray(array))
    return _write(folder, name, rows.dtype, rows.shape, byte_chunks(rows))


def _noted(chunks: Iterator[memoryview], note: Callable[[int], None]) -> Iterator[memoryview]:
    for chunk in chunks:
        yield chunk
        note(len(chunk))


def _whole_shape(array: torch.Tensor | FeatureStore) -> tuple[int, ...]:
    return (array.shape[0], *array.row_shape) if isinstance(array, FeatureStore) else tuple(array.shape)


def _num_bytes(array: torch.Tensor | FeatureStore) -> int:
    return math.prod(array.shape) * array.dtype.itemsize


def _index_dtype(count: int) -> type[np.int32] | type[np.int64]:
    return np.int32 if count <= 2**31 else np.int64

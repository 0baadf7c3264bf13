"""A partition's head: the data of the whole graph but for its lists and its rows of features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.data.derived import run_bounds
from lightning_gnnload.data.edge_lists import list_begins
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.parted import PartedTable
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.data.remote_graph import RemoteGraph
from lightning_gnnload.data.row_places import EdgePlaces, Places, RowPlaces
from lightning_gnnload.data.tables import EDGE_PREFIX
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import GraphDataError, GraphFormatError
from lightning_gnnload.storage.graphs import OpenedStores, open_data, open_types
from lightning_gnnload.storage.manifest import array_shape
from lightning_gnnload.storage.parts import LIST_STARTS, RUN_STARTS
from lightning_gnnload.storage.tables import table_name


@dataclass(frozen=True, eq=False)
class Head:
    """Holds what was read of a partition's folder beside its parts: the manifest, arrays, and stores of rows."""

    manifest: Mapping[str, Any]
    arrays: Mapping[str, torch.Tensor]
    stores: OpenedStores

    def open(self, partition: Partition) -> GraphData:
        """Makes the data of the graph, which has no lists here.

        Raises:
            GraphDataError, GraphFormatError, SamplerConfigError: arrays and manifest make no data.
        """
        return open_data(self.manifest, self.arrays, partition.outline, self.stores)

    def outline(self, partition: Partition) -> RemoteGraph:
        """Makes what is known of the graph without its lists. GraphFormatError: arrays and manifest make none."""
        described = self.manifest["attributes"]["partition"]
        columns = described.get("columns")
        if not isinstance(columns, list) or not set(columns) <= set(Graph.ARRAYS):
            raise GraphFormatError(f"columns are {columns!r}, but must be of {', '.join(Graph.ARRAYS)}.")
        out_degrees = None if "out_degrees" not in self.arrays else as_array(self.arrays["out_degrees"], name="degrees")
        if out_degrees is not None and out_degrees.shape != (partition.num_nodes,):
            raise GraphFormatError(f"out_degrees are {list(out_degrees.shape)}, but one a node is needed.")
        order_checksum = described.get("order_checksum")
        return RemoteGraph(
            partition.num_nodes,
            described["num_edges"],
            partition.fingerprint,
            columns,
            types=partition.types,
            clock=partition.clock,
            node_time=partition.node_time,
            order_checksum=order_checksum if type(order_checksum) is int else None,
            out_degrees=out_degrees,
            run_ptr=_run_ptr(partition.types, self.arrays, described["num_edges"]),
        )


def parted_tables(
    path: Path,
    described: Mapping[str, Any],
    manifest: Mapping[str, Any],
    numbering: Mapping[str, np.ndarray],
    arrays: Mapping[str, torch.Tensor],
) -> dict[str, PartedTable]:
    """Reads out of a partition's description which tables lie with parts, by the name of the array that holds their
    rows; none in folders of self-reliant parts, and of earlier releases.

    Raises:
        StoreFormatError, GraphFormatError: the description is malformed, or is of rows that the graph does not have.
    """
    rows, num_edges = described.get("rows", {}), described["num_edges"]
    if not isinstance(rows, dict):
        raise GraphFormatError("the rows that the partition describes are no tables by name.")
    nodes, edges = _node_rows(manifest, numbering), _edge_places(open_types(manifest), numbering, arrays, num_edges)
    tables = {}
    for name, entry in rows.items():
        dtype, shape = array_shape(path, name, entry)
        row_places: Places
        if name == "edge_x" or name.startswith(EDGE_PREFIX):
            row_places = edges(name)
            if shape[:1] != [num_rows := int(row_places.list_starts[-1])]:
                raise GraphFormatError(f"{name} must have a row for each of {num_rows} edges.")
        else:
            row_places = nodes(name, shape)
        tables[name] = PartedTable(shape[0], tuple(shape[1:]), dtype, row_places)
    return tables


def _node_rows(
    manifest: Mapping[str, Any], numbering: Mapping[str, np.ndarray]
) -> Callable[[str, Sequence[int]], RowPlaces]:
    """Returns what tells where the rows of a table of nodes lie, by its name and shape."""
    firsts = {table_name(name): first for name, first in manifest.get("tables", {}).items()}

    def of(name: str, shape: Sequence[int]) -> RowPlaces:
        first = firsts.get(name)
        most = manifest["num_nodes"] - (first or 0)
        if shape[0] > most or (first is None and shape[0] != most):
            raise GraphFormatError(f"{name} is {shape}, but the graph has {manifest['num_nodes']} nodes.")
        return RowPlaces.over(**numbering, nodes=range(first or 0, (first or 0) + shape[0]))

    return of


def _edge_places(
    types: GraphTypes | None, numbering: Mapping[str, np.ndarray], arrays: Mapping[str, torch.Tensor], num_edges: int
) -> Callable[[str], EdgePlaces]:
    """Returns what tells where the rows of a table of edges lie, by its name; tables of one type share theirs."""

    @cache
    def of_type(number: int | None) -> EdgePlaces:
        run_ptr, nodes = _run_ptr(types, arrays, num_edges), range(len(numbering["new_ids"]))
        if types is None or run_ptr is None:
            list_starts = _starts(arrays, LIST_STARTS, len(nodes), num_edges, np.int64)
        elif number is None:
            list_starts = list_begins(types, run_ptr)
        else:
            begins, stops = run_bounds(types, run_ptr, number)
            nodes = types.range_of(types.edge_types[number][2])
            list_starts = np.append(0, np.cumsum(stops - begins, dtype=np.int64))
        return EdgePlaces.over(RowPlaces.over(**numbering, nodes=nodes), list_starts)

    def of(name: str) -> EdgePlaces:
        _, _, type_key = name.removeprefix(EDGE_PREFIX).partition(".")
        return of_type(types.edge_type_number(type_key) if types is not None and type_key else None)

    return of


def _run_ptr(types: GraphTypes | None, arrays: Mapping[str, torch.Tensor], num_edges: int) -> np.ndarray | None:
    """Returns where runs begin in the whole graph; None where the head does not say."""
    if types is None or RUN_STARTS not in arrays:
        return None
    return _starts(arrays, RUN_STARTS, int(types.first_run[-1]), num_edges, np.uint32, np.int64)


def _starts(arrays: Mapping[str, torch.Tensor], name: str, count: int, num_edges: int, *dtypes: type) -> np.ndarray:
    if name not in arrays:
        raise GraphFormatError(f"{name} are not there, by which rows of edges are found.")
    starts = as_array(arrays[name], name=name)
    is_sound = starts.dtype in dtypes and starts.shape == (count + 1,)
    if not (is_sound and starts[0] == 0 and starts[-1] == num_edges and (starts[1:] >= starts[:-1]).all()):
        raise GraphDataError(f"{name} must ascend from 0 to {num_edges}, the number of edges, but do not.")
    return starts

"""A partition's head: the data of the whole graph but for its lists and its rows of features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.parted import PartedTable
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.data.remote_graph import RemoteGraph
from lightning_gnnload.data.row_places import EdgePlaces, Places, RowPlaces
from lightning_gnnload.errors import GraphDataError, GraphFormatError
from lightning_gnnload.storage.graphs import OpenedStores, open_clock, open_data, open_types
from lightning_gnnload.storage.manifest import array_shape
from lightning_gnnload.storage.parts import LIST_STARTS
from lightning_gnnload.storage.tables import table_name

PER_NODE = ("node_time", "out_degrees")
"""Arrays of the whole graph, one number a node, that a trainer reads without its lists."""


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
        described = self.manifest["attributes"]["partition"]
        columns = described.get("columns")
        if not isinstance(columns, list) or not set(columns) <= set(Graph.ARRAYS):
            raise GraphFormatError(f"columns are {columns!r}, but must be of {', '.join(Graph.ARRAYS)}.")
        per_node = {name: as_array(self.arrays[name], name=name) for name in PER_NODE if name in self.arrays}
        for name, array in per_node.items():
            if array.shape != (partition.num_nodes,):
                raise GraphFormatError(f"{name} is {list(array.shape)}, but one a node is needed.")
        order_checksum = described.get("order_checksum")
        graph = RemoteGraph(
            partition.num_nodes,
            described["num_edges"],
            partition.fingerprint,
            columns,
            types=open_types(self.manifest),
            clock=open_clock(self.manifest, self.arrays),
            order_checksum=order_checksum if type(order_checksum) is int else None,
            **per_node,
        )
        return open_data(self.manifest, self.arrays, graph, self.stores)


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
    rows = described.get("rows", {})
    if not isinstance(rows, dict):
        raise GraphFormatError("the rows that the partition describes are no tables by name.")
    firsts = {table_name(name): first for name, first in manifest.get("tables", {}).items()}
    edges = _edge_places(numbering, arrays, described["num_edges"]) if LIST_STARTS in arrays else None
    tables = {}
    for name, entry in rows.items():
        dtype, shape = array_shape(path, name, entry)
        row_places: Places
        if name == "edge_x" or name.startswith("edge."):
            if edges is None or shape[:1] != [described["num_edges"]]:
                raise GraphFormatError(f"{name} must have a row for each of {described['num_edges']} edges.")
            row_places = edges
        else:
            first = firsts.get(name)
            most = manifest["num_nodes"] - (first or 0)
            if shape[0] > most or (first is None and shape[0] != most):
                raise GraphFormatError(f"{name} is {shape}, but the graph has {manifest['num_nodes']} nodes.")
            row_places = _node_places(numbering, first or 0)
        tables[name] = PartedTable(shape[0], tuple(shape[1:]), dtype, row_places)
    return tables


def _node_places(numbering: Mapping[str, np.ndarray], first: int) -> RowPlaces:
    starts, node_ids = numbering["starts"], numbering["node_ids"]
    # Within a part, new ids ascend by id, so that the nodes of a type are one stretch.
    begins = [low + np.searchsorted(node_ids[low:high], first) for low, high in pairwise(starts)]
    return RowPlaces(starts, numbering["new_ids"], first, np.array(begins, np.int64))


def _edge_places(numbering: Mapping[str, np.ndarray], arrays: Mapping[str, torch.Tensor], num_edges: int) -> EdgePlaces:
    list_starts = as_array(arrays[LIST_STARTS], name=LIST_STARTS)
    is_sound = list_starts.dtype == np.int64 and list_starts.shape == (len(numbering["new_ids"]) + 1,)
    if not (is_sound and list_starts[0] == 0 and list_starts[-1] == num_edges and (np.diff(list_starts) >= 0).all()):
        raise GraphDataError(f"{LIST_STARTS} must ascend from 0 to {num_edges}, the number of edges, but does not.")
    return EdgePlaces.over(numbering["starts"], numbering["node_ids"], numbering["new_ids"], list_starts)

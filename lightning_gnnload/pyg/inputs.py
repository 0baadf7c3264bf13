"""Checks of what PyG's loaders are asked to begin at, which PyG makes only where it breaks, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

from lightning_gnnload.errors import SeedError


def check_nodes(data: Any, input_nodes: Any) -> None:
    """Raises SeedError: a type that is not there, none where one is needed, or a mask that is not of the nodes."""
    kind, nodes = None, input_nodes
    if isinstance(data, HeteroData):
        is_typed = isinstance(input_nodes, list | tuple) and len(input_nodes) == 2 and isinstance(input_nodes[0], str)
        kind, nodes = (input_nodes, None) if isinstance(input_nodes, str) else input_nodes if is_typed else (None, None)
        if kind not in data.node_types:
            given = f"there are no nodes of type {kind!r}" if kind is not None else f"{input_nodes!r:.100} was given"
            raise SeedError(
                f"input_nodes must name the type of the seeds, 'type' or ('type', ids), but {given}. The types are "
                f"{', '.join(data.node_types)}."
            )
    if isinstance(data, Data | HeteroData) and isinstance(nodes, torch.Tensor) and nodes.dtype is torch.bool:
        count = data.num_nodes if kind is None else data[kind].num_nodes
        if nodes.shape != (count,):
            raise SeedError(
                f"input_nodes: the mask has {len(nodes)} entries, but there are {count} nodes"
                f"{'' if kind is None else f' of type {kind!r}'}; one each is needed."
            )


def check_links(data: Any, edge_label_index: Any) -> None:
    """Raises SeedError: links without a type in a graph with types, of a type that is not there, or no ``[2, R]``."""
    ends = edge_label_index
    if isinstance(data, HeteroData):
        is_type = isinstance(ends, list | tuple) and len(ends) > 1 and all(isinstance(name, str) for name in ends)
        is_pair = isinstance(ends, list | tuple) and len(ends) == 2 and isinstance(ends[0], list | tuple)
        if not is_type and not is_pair:
            raise SeedError(
                "edge_label_index must name the type of the links, edge_type or (edge_type, ends), but "
                f"{edge_label_index!r:.100} was given. The types are {', '.join(map(str, data.edge_types))}."
            )
        kind, ends = (ends, None) if is_type else ends
        kind = data._to_canonical(*kind)
        if ends is None and kind not in data.edge_types:
            raise SeedError(
                f"edge_label_index: there are no edges of type {kind}. Those that there are: "
                f"{', '.join(map(str, data.edge_types))}; or give the ends of the links: (edge_type, ends)."
            )
    if isinstance(ends, torch.Tensor) and (ends.ndim != 2 or len(ends) != 2):
        raise SeedError(f"edge_label_index must be [2, R], sources above destinations, but is {list(ends.shape)}.")


def check_rows(num_rows: int, **columns: Any) -> None:
    """Raises SeedError: a column has not one entry for each of the loader's rows."""
    for name, values in columns.items():
        if values is not None and (values.ndim < 1 or len(values) != num_rows):
            count = len(values) if values.ndim else "no"
            raise SeedError(f"{name} has {count} entries for {num_rows} rows; one each is needed.")


def check_ids(ids: torch.Tensor, num_nodes: int, kind: str | None) -> np.ndarray:
    """Returns ids as int64 ``[B]``. Raises SeedError: one is no node of this type."""
    if ids.ndim != 1 or (ids.is_floating_point() and ids.numel()) or ids.is_complex() or ids.dtype is torch.bool:
        raise SeedError(f"seeds must be whole numbers [B], but they are {ids.dtype} {list(ids.shape)}.")
    nodes: np.ndarray = ids.numpy().astype(np.int64, copy=False)
    if nodes.size and not 0 <= nodes.min() <= nodes.max() < num_nodes:
        bad = int(np.flatnonzero((nodes < 0) | (nodes >= num_nodes))[0])
        what = "nodes" if kind is None else f"nodes of type {kind!r}"
        raise SeedError(f"seed {bad} is {nodes[bad]}, but {what} are numbered from 0 to {num_nodes - 1}.")
    return nodes

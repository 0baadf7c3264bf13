"""Checks of what PyG's loaders are asked to begin at, which PyG makes only where it breaks, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch_geometric.typing
from torch.utils.data import DistributedSampler
from torch_geometric.data import Data, HeteroData

from lightning_gnnload.errors import LoaderConfigError, SeedError


def checked_nodes(num_nodes: Any, input_nodes: Any) -> Any:
    """Returns what a loader begins at as PyG reads it: a tensor of ids or a mask, with its type where there are types.

    Args:
        num_nodes: the sampler's, by type where there are types; None: of a sampler that does not say, for which PyG's
            own rules hold alone.
        input_nodes: None for all nodes, ids, a slice or a mask, or in a graph with types a type or ``(type, those)``.

    Raises:
        SeedError: a type that is not there, none where one is needed, what are neither ids nor a mask, or a mask that
            is not of the nodes.
    """
    if num_nodes is None:
        return input_nodes
    if not isinstance(num_nodes, dict):
        return _nodes(input_nodes, num_nodes, "")
    is_typed = isinstance(input_nodes, list | tuple) and len(input_nodes) == 2 and isinstance(input_nodes[0], str)
    kind, nodes = (input_nodes, None) if isinstance(input_nodes, str) else input_nodes if is_typed else (None, None)
    if kind not in num_nodes:
        given = f"there are no nodes of type {kind!r}" if kind is not None else f"{input_nodes!r:.100} was given"
        raise SeedError(
            f"input_nodes must name the type of the seeds, 'type' or ('type', ids), but {given}. The types are "
            f"{', '.join(num_nodes)}."
        )
    return kind, _nodes(nodes, num_nodes[kind], f" of type {kind!r}")


def _nodes(given: Any, num_nodes: int, of_type: str) -> torch.Tensor:
    if given is None or isinstance(given, slice):
        return torch.arange(num_nodes)[given or slice(None)]
    is_tensor = isinstance(given, torch.Tensor)
    try:
        nodes = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        nodes = torch.empty(())
    if not is_tensor and not nodes.numel():
        nodes = nodes.long()  # an empty list has no dtype of its own
    # PyG takes a mask that is no tensor for the ids 0 and 1, and cuts fractions off.
    if (
        nodes.ndim != 1
        or nodes.is_floating_point()
        or nodes.is_complex()
        or (nodes.dtype is torch.bool and not is_tensor)
    ):
        what = f"{nodes.dtype} {list(nodes.shape)}" if is_tensor else f"{given!r:.100}"
        raise SeedError(
            f"input_nodes must be ids of nodes{of_type}, a slice, a mask that is a torch.Tensor, or None for all, but "
            f"{what} was given."
        )
    if nodes.dtype is torch.bool and len(nodes) != num_nodes:
        raise SeedError(
            f"input_nodes: the mask has {len(nodes)} entries, but there are {num_nodes} nodes{of_type}; one each is "
            "needed."
        )
    return nodes if is_tensor else nodes.long()


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
    elif not isinstance(data, Data):
        if not isinstance(ends, list | tuple) or len(ends) < 2:
            raise SeedError(
                "edge_label_index must name the type of the links of a FeatureStore and a GraphStore, edge_type or "
                f"(edge_type, ends), where edge_type is None in a graph without types, but {ends!r:.100} was given."
            )
        if ends[0] is None and ends[1] is None:
            raise SeedError(
                "edge_label_index is (None, None), but links of stores without types need ends: (None, ends)."
            )
        ends = None if isinstance(ends[0], str) else ends[1]
    elif ends is None and data.get("edge_index") is None:
        raise SeedError(
            "edge_label_index is None, which means the edges of the Data, but it has no edge_index. Give the ends of "
            "the links, [2, R]."
        )
    if ends is not None and not isinstance(ends, torch.Tensor):
        raise SeedError(f"edge_label_index must be a torch.Tensor [2, R], but a {type(ends).__name__} was given.")
    if isinstance(ends, torch.Tensor) and (ends.ndim != 2 or len(ends) != 2):
        raise SeedError(f"edge_label_index must be [2, R], sources above destinations, but is {list(ends.shape)}.")


def check_structure(data: Any) -> None:
    """Raises LoaderConfigError: the edges are a sparse tensor of torch, of which PyG makes no mini-batches."""
    for store in data.stores if isinstance(data, Data | HeteroData) else ():
        # Where torch-sparse is missing, PyG's class of this name cannot be made.
        if not isinstance(store.get("adj_t"), torch_geometric.typing.SparseTensor | None):
            raise LoaderConfigError(
                f"data.adj_t is a {type(store.adj_t).__name__}, but mini-batches with adj_t have a SparseTensor of "
                "torch-sparse. Give data.edge_index, as torch_geometric.utils.to_edge_index(data.adj_t)[0].flip(0), "
                "instead."
            )


def check_listed(sampler: Any, num_rows: int) -> None:
    """Checks a sampler of torch's, where it says what it lists rows of.

    Raises:
        SeedError: these are not the rows of the loader.
    """
    if (indices := getattr(sampler, "indices", None)) is not None and len(indices):
        check_range(torch.as_tensor(indices), num_rows)
    of_ranks = ("dataset",) if type(sampler) is DistributedSampler else ()  # Lightning's counts what another one lists
    for name in ("data_source", "weights", *of_ranks):
        of: Any = getattr(sampler, name, None)
        if hasattr(of, "__len__") and len(of) != num_rows:
            raise SeedError(
                f"the {type(sampler).__name__} lists rows of {len(of)}, but the loader has {num_rows}, one for each of "
                f"{_OF_ROWS}: make the sampler of these."
            )


def check_range(rows: torch.Tensor, num_rows: int) -> None:
    """Raises SeedError: a sampler lists what is no row of the loader."""
    bad = rows.view(-1)[((rows < 0) | (rows >= num_rows)).view(-1)]
    if len(bad):
        raise SeedError(
            f"the sampler lists row {int(bad[0])}, but the loader has rows 0 to {num_rows - 1}, one for each of "
            f"{_OF_ROWS}: these are places in that list, not ids of nodes."
        )


_OF_ROWS = "input_nodes= (edge_label_index= of links)"


def check_columns(**columns: Any) -> None:
    """Raises SeedError: a column of rows is no tensor."""
    for name, values in columns.items():
        if values is not None and not isinstance(values, torch.Tensor):
            raise SeedError(
                f"{name} is a {type(values).__name__}, but must be a torch.Tensor: give torch.as_tensor({name})."
            )


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

"""Checks of PyG's loaders' inputs, which PyG makes only where something breaks, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch_geometric.typing
from torch.utils.data import DistributedSampler
from torch_geometric.data import Data, HeteroData

from lightning_gnnload.errors import LoaderConfigError, SeedError

_SEVERAL_TYPES = (
    "Seeds of several types in one mini-batch: GraphDataModule.from_pyg(data, sampler=NeighborSampler([...]), "
    "train={type: ids}); in mini-batches that come together: ZipLoader([NeighborLoader(...), NeighborLoader(...)])."
)


def checked_nodes(num_nodes: Any, input_nodes: Any) -> Any:
    """Returns the seeds as PyG reads them: a tensor of ids or a mask, with its type where there are types.

    ``num_nodes`` is the sampler's, by type where there are types; None for a sampler that does not say, for which PyG's
    own rules hold alone. ``input_nodes`` may be None for all nodes, ids, a slice or a mask, or in a graph with types a
    type or ``(type, nodes)``; anything else raises SeedError.
    """
    if num_nodes is None:
        return input_nodes
    if not isinstance(num_nodes, dict):
        return _nodes(input_nodes, num_nodes, "")
    is_typed = isinstance(input_nodes, list | tuple) and len(input_nodes) == 2 and isinstance(input_nodes[0], str)
    node_type, nodes = input_nodes if is_typed else (None, None)
    if isinstance(input_nodes, str):
        node_type = input_nodes
    if node_type not in num_nodes:
        problem = f"{input_nodes!r:.100} was given"
        if node_type is not None:
            problem = f"there are no nodes of type {node_type!r}"
        raise SeedError(
            f"input_nodes must name the type of the seeds, 'type' or ('type', ids), but {problem}. The types are "
            f"{', '.join(num_nodes)}. {_SEVERAL_TYPES if isinstance(input_nodes, dict) else ''}".rstrip()
        )
    return node_type, _nodes(nodes, num_nodes[node_type], f" of type {node_type!r}")


def _nodes(input_nodes: Any, num_nodes: int, with_type: str) -> torch.Tensor:
    if input_nodes is None or isinstance(input_nodes, slice):
        return torch.arange(num_nodes)[input_nodes or slice(None)]
    is_tensor = isinstance(input_nodes, torch.Tensor)
    try:
        nodes = torch.as_tensor(input_nodes)
    except (TypeError, ValueError, RuntimeError):
        nodes = torch.empty(())
    if not is_tensor and not nodes.numel():
        nodes = nodes.long()  # an empty list has no dtype of its own
    is_mask = nodes.dtype is torch.bool
    # PyG takes a mask that is no tensor for the ids 0 and 1, and cuts fractions off.
    if nodes.ndim != 1 or nodes.is_floating_point() or nodes.is_complex() or (is_mask and not is_tensor):
        value = f"{nodes.dtype} {list(nodes.shape)}" if is_tensor else f"{input_nodes!r:.100}"
        raise SeedError(
            f"input_nodes must be ids of nodes{with_type}, a slice, a mask that is a torch.Tensor, or None for all, "
            f"but {value} was given."
        )
    if is_mask and len(nodes) != num_nodes:
        raise SeedError(
            f"input_nodes: the mask has {len(nodes)} entries, but there are {num_nodes} nodes{with_type}; one each "
            "is needed."
        )
    return nodes if is_tensor else nodes.long()


def check_links(data: Any, edge_label_index: Any) -> None:
    """Raises SeedError: links without a type in a graph with types, of a type that is not there, or no ``[2, R]``."""
    if isinstance(data, HeteroData):
        links = _typed_links(data, edge_label_index)
    elif not isinstance(data, Data):
        links = _links_of_stores(edge_label_index)
    elif (links := edge_label_index) is None and data.get("edge_index") is None:
        raise SeedError(
            "edge_label_index is None, which means the edges of the Data, but it has no edge_index. Give the ends of "
            "the links, [2, R]."
        )
    if links is None:
        return
    if not isinstance(links, torch.Tensor):
        raise SeedError(f"edge_label_index must be a torch.Tensor [2, R], but a {type(links).__name__} was given.")
    if links.ndim != 2 or len(links) != 2:
        raise SeedError(f"edge_label_index must be [2, R], sources above destinations, but is {list(links.shape)}.")


def _typed_links(data: HeteroData, links: Any) -> Any:
    """Returns the endpoints of links that name their type; None for all edges of the type."""
    is_type = isinstance(links, list | tuple) and len(links) > 1 and all(isinstance(name, str) for name in links)
    is_pair = isinstance(links, list | tuple) and len(links) == 2 and isinstance(links[0], list | tuple)
    if not is_type and not is_pair:
        raise SeedError(
            "edge_label_index must name the type of the links, edge_type or (edge_type, ends), but "
            f"{links!r:.100} was given. The types are {', '.join(map(str, data.edge_types))}."
        )
    edge_type, endpoints = (links, None) if is_type else links
    edge_type = data._to_canonical(*edge_type)
    if endpoints is None and edge_type not in data.edge_types:
        raise SeedError(
            f"edge_label_index: there are no edges of type {edge_type}. Those that there are: "
            f"{', '.join(map(str, data.edge_types))}; or give the ends of the links: (edge_type, ends)."
        )
    return endpoints


def _links_of_stores(links: Any) -> Any:
    """Likewise, of a FeatureStore and a GraphStore, which may be without types."""
    if not isinstance(links, list | tuple) or len(links) < 2:
        raise SeedError(
            "edge_label_index must name the type of the links of a FeatureStore and a GraphStore, edge_type or "
            f"(edge_type, ends), where edge_type is None in a graph without types, but {links!r:.100} was given."
        )
    if links[0] is None and links[1] is None:
        raise SeedError("edge_label_index is (None, None), but links of stores without types need ends: (None, ends).")
    return None if isinstance(links[0], str) else links[1]


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
    """Raises SeedError: a sampler of torch's says that it lists other rows than the loader's."""
    if (indices := getattr(sampler, "indices", None)) is not None and len(indices):
        check_range(torch.as_tensor(indices), num_rows)
    names = ["data_source", "weights"]
    # The dataset of Lightning's subclass is another sampler, which may list each row several times.
    if type(sampler) is DistributedSampler:
        names.append("dataset")
    for name in names:
        source: Any = getattr(sampler, name, None)
        if hasattr(source, "__len__") and len(source) != num_rows:
            raise SeedError(
                f"the {type(sampler).__name__} lists rows of {len(source)}, but the loader has {num_rows}, one for "
                f"each of {_INPUTS}: make the sampler of these."
            )


def check_range(rows: torch.Tensor, num_rows: int) -> None:
    """Raises SeedError: a sampler lists a row that the loader does not have."""
    bad = rows.view(-1)[((rows < 0) | (rows >= num_rows)).view(-1)]
    if len(bad):
        raise SeedError(
            f"the sampler lists row {int(bad[0])}, but the loader has rows 0 to {num_rows - 1}, one for each of "
            f"{_INPUTS}: these are places in that list, not ids of nodes."
        )


_INPUTS = "input_nodes= (edge_label_index= of links)"


def check_tensors(**columns: Any) -> None:
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


def check_ids(ids: torch.Tensor, num_nodes: int, node_type: str | None) -> np.ndarray:
    """Returns ids as int64 ``[B]``; raises SeedError for one that is no node of this type."""
    # A tensor of an empty list has floats, but no fractions.
    if ids.ndim != 1 or (ids.is_floating_point() and ids.numel()) or ids.is_complex() or ids.dtype is torch.bool:
        raise SeedError(f"seeds must be whole numbers [B], but they are {ids.dtype} {list(ids.shape)}.")
    nodes: np.ndarray = ids.numpy().astype(np.int64, copy=False)
    if nodes.size and not 0 <= nodes.min() <= nodes.max() < num_nodes:
        bad = int(np.flatnonzero((nodes < 0) | (nodes >= num_nodes))[0])
        nodes_of_type = "nodes" if node_type is None else f"nodes of type {node_type!r}"
        raise SeedError(f"seed {bad} is {nodes[bad]}, but {nodes_of_type} are numbered from 0 to {num_nodes - 1}.")
    return nodes

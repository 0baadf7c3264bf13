"""The stores of PyG's Data and HeteroData: what is read of them, and how those of mini-batches are filled."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.columns import UNTYPED
from lightning_gnnload.errors import GraphDataError, MissingExtraError

_STRUCTURE = ("edge_index", "adj_t", "num_nodes")  # of a Data, what says which graph it is


def attributes(store: Any) -> list[str]:
    """Returns the names of a store's attributes, but for those that say which graph it is, or number its nodes."""
    excluded = (*_STRUCTURE, *numbers_of_nodes(store))
    return [key for key in store.keys() if key not in excluded and store[key] is not None]  # noqa: SIM118


def numbers_of_nodes(store: Any) -> list[str]:
    """Returns the names of a store's attributes that number the nodes of the whole graph, which have other numbers in a
    mini-batch: ``edge_label_index`` of RandomLinkSplit, lists of seeds (``train_idx``), a ``face``, a ``ptr``,
    adjacency matrices; and of what stands beside such a list, as ``edge_label``.

    PyG's rule, that ``index`` in a name means numbers of nodes, says which, save for what has a row for each node or
    edge, or numbers that no node has, such as years. A list of pairs has no rows, however many there are of them.
    """
    names = [key for key, value in store.items() if key not in _STRUCTURE and _numbers_nodes(store, key, value)]
    stems = [key.removesuffix("_index") for key in names if key.endswith("_index")]
    counts = {stem: store[f"{stem}_index"].shape[-1] for stem in stems}
    return names + [
        key
        for stem, count in counts.items()
        for key in (stem, f"{stem}_attr", f"{stem}_time")
        if key in store and key not in names and len(getattr(store[key], "shape", ())) and len(store[key]) == count
    ]


def _numbers_nodes(store: Any, name: str, value: Any) -> bool:
    shape = _shape(value)
    if "adj" in name.split("_"):
        return len(shape) == 2 and (shape[0] == shape[1] or isinstance(store._key, tuple))
    if not ("index" in name or name.endswith("idx") or name in ("face", "ptr")) or not shape or not _are_whole(value):
        return False
    is_pairs = "edge" in name and len(shape) == 2 and shape[0] == 2
    return is_pairs or not (is_by_row(store, name) or _is_beyond_nodes(store, value))


def _is_beyond_nodes(store: Any, value: Any) -> bool:
    """Whether a number is above those of nodes of all types, and is no end of a list of all of them."""
    # As large as a count is no node, but the end of a list that counts all: still a number of nodes.
    counts = [nodes.num_nodes for nodes in store._parent().node_stores]
    return bool(len(value.reshape(-1))) and None not in counts and int(value.max()) > max(counts)


def _shape(value: Any) -> tuple[int, ...]:
    if hasattr(value, "sparse_sizes"):  # PyG's SparseTensor
        return tuple(value.sparse_sizes())
    return tuple(value.shape) if isinstance(value, torch.Tensor | np.ndarray) else ()


def _are_whole(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iu"
    return not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool)


def stores_of(data: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Returns the stores of nodes and those of edges, by type; a Data has one store, which is both."""
    if isinstance(data, import_pyg("Reading a PyG graph").data.HeteroData):
        return dict(data.node_items()), dict(data.edge_items())
    return {UNTYPED: data._store}, {UNTYPED: data._store}


def count_nodes(store: Any) -> int:
    """Returns how many nodes there are of a type; raises GraphDataError where the store does not say."""
    if (count := store.num_nodes) is None and store._key is not None:
        raise GraphDataError(
            f"how many nodes of type {store._key!r} the PyG graph has is not known. Set data[{store._key!r}].num_nodes."
        )
    return count


def is_by_row(store: Any, name: str) -> bool:
    """Whether an attribute has a row for each node or edge."""
    return any(getattr(store, rule)(name) for rule in ("is_node_attr", "is_edge_attr") if hasattr(store, rule))


def type_of(store: Any) -> str:
    """Returns the words that say which type a store is of; of a Data none."""
    return "" if store._key is None else f" of {store._key}"


def edges_of_store(store: Any) -> tuple[Any, Any, Any]:
    """Returns the sources and the targets of a store's edges and, of ``adj_t``, its values, in the order of edge ids;
    raises GraphDataError for a store without either, or an ``edge_index`` that is no ``[2, E]``."""
    if (edge_index := store.get("edge_index")) is not None:
        if not isinstance(edge_index, torch.Tensor | np.ndarray) or edge_index.ndim != 2 or len(edge_index) != 2:
            shape = list(edge_index.shape) if hasattr(edge_index, "shape") else f"a {type(edge_index).__name__}"
            raise GraphDataError(f"edge_index of the PyG graph must be a tensor [2, E], but is {shape}.")
        return edge_index[0], edge_index[1], None
    if store.get("adj_t") is None:
        raise GraphDataError(f"the PyG graph has neither edge_index nor adj_t, but only {sorted(store.keys())}.")
    (dst, src), values = import_pyg("Reading a PyG graph").utils.to_edge_index(store["adj_t"])
    return src, dst, values


def fill_store(store: Any, columns: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Sets the attributes of a mini-batch's store: columns of rows under their names and PyG's own fields, of which
    ``n_id`` and ``e_id`` give way to columns of their names."""
    for name, value in columns.items():
        store[name] = value
    for name, value in fields.items():
        if name not in ("n_id", "e_id") or name not in store:
            store[name] = value


def links_by_store(fields: Mapping[str, Any], edge_type: Any) -> dict[Any, dict[str, Any]]:
    """Returns the fields of links by store: indices of triplets and their masks in those of their endpoints,
    ``seed_time`` in both, all else in that of their type; in a Data, all in its one store."""
    if edge_type is UNTYPED:
        return {UNTYPED: dict(fields)}
    src, _, dst = edge_type
    by_store: dict[Any, dict[str, Any]] = {key: {} for key in (src, dst, edge_type)}
    for name, value in fields.items():
        end, _, rest = name.partition("_")
        if name == "seed_time":  # of triplets, as PyG has it
            by_store[src][name] = by_store[dst][name] = value
        else:
            node_type = {"src": src, "dst": dst}.get(end) if rest.endswith(("index", "mask")) else None
            by_store[node_type or edge_type][name] = value
    return by_store


def steps(totals: list[int]) -> list[int]:
    """Returns how much each total is more than the one before."""
    return [after - before for before, after in pairwise(totals)]


def import_pyg(purpose: str) -> ModuleType:
    """Imports PyG; raises MissingExtraError where it cannot be imported."""
    try:
        import torch_geometric
        import torch_geometric.data
        import torch_geometric.utils
    except ImportError as error:
        raise MissingExtraError("torch_geometric", "pyg", purpose, error) from error
    return torch_geometric

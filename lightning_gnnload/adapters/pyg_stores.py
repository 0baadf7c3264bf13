"""What PyG's Data and the stores of its HeteroData have in common: attributes by node and by edge, hops in one list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.columns import UNTYPED, as_names, chosen
from lightning_gnnload.data.block import Block
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.userids import UserIds
from lightning_gnnload.errors import GraphDataError, MissingExtraError, SamplerConfigError, warn

_STRUCTURE = ("edge_index", "adj_t", "num_nodes")
"""Of a Data, what says which graph it is."""
_BY_ROW = ("x", "edge_attr", "edge_weight", "edge_type", "train_mask", "val_mask", "test_mask")
"""What has a row for each node or edge wherever PyG speaks of it."""


def check_graph(data: Any) -> None:
    """Raises GraphDataError: it is neither a Data nor a HeteroData."""
    kinds = import_pyg("Reading a PyG graph").data
    if not isinstance(data, kinds.Data | kinds.HeteroData):
        raise GraphDataError(
            f"a Data or HeteroData of torch_geometric is needed, but a {type(data).__name__} was given."
        )


def parted(data: Any, user_ids: str | None = None) -> tuple[Any, Any]:
    """Returns a copy of a PyG ``Data`` or ``HeteroData`` without the attributes of the graph, or of a type, as a whole,
    and a copy that keeps only these.

    Args:
        data: the graph.
        user_ids: the attribute that holds the user's ids of nodes, none of the latter.
    """
    by_row, template = copy(data), copy(data)
    for rows, whole in zip(by_row.stores, template.stores, strict=True):
        names = [name for name in whole_of(rows) if name != user_ids]
        for name in [key for key in whole.keys() if key not in names]:  # noqa: SIM118
            del whole[name]
        for name in names:
            del rows[name]
    return by_row, template


def whole_of(store: Any) -> list[str]:
    """Returns the names of a store's attributes that have no row for each node or edge.

    Raises:
        GraphDataError: an attribute that by its name has, but has not.
    """
    names = [name for name in attributes(store) if not _is_by_row(store, name)]
    for name in names:
        if name in _BY_ROW and getattr(store[name], "ndim", 1) > 0:
            raise GraphDataError(
                f"{name!r} of the PyG graph{type_of(store)} has {len(store[name])} rows, but {_sizes(store)}: one row "
                f"each is needed. Correct it, or leave it out: without=[{name!r}]."
            )
    return names


def attributes(store: Any) -> list[str]:
    """Returns the names under which something is set, beside what says which graph it is, or which of its nodes are
    meant."""
    others = (*_STRUCTURE, *numbers_of_nodes(store))
    return [key for key in store.keys() if key not in others and store[key] is not None]  # noqa: SIM118


def by_row(store: Any, has_rows: Callable[[str], bool]) -> dict[str, Any]:
    """Returns the attributes that have rows by PyG's ``is_node_attr`` or ``is_edge_attr``, by name."""
    return {key: store[key] for key in attributes(store) if has_rows(key)}


def numbers_of_nodes(store: Any) -> list[str]:
    """Returns the names of a store's attributes that number the nodes of the whole graph, as in a mini-batch nodes have
    other numbers: links to be asked about (``edge_label_index`` of RandomLinkSplit), lists of seeds (``train_idx``), a
    ``face``, a ``ptr``, adjacency matrices; and of what stands beside such a list, as ``edge_label``.

    PyG's rule, that ``index`` in a name means numbers of nodes, says which, save for what has a row for each node or
    edge, or numbers that no node has, such as years. A list of pairs has no rows, however many there are of them.
    """
    found = [key for key, value in store.items() if key not in _STRUCTURE and _numbers_nodes(store, key, value)]
    stems = [key.removesuffix("_index") for key in found if key.endswith("_index")]
    counts = {stem: store[f"{stem}_index"].shape[-1] for stem in stems}
    return found + [
        key
        for stem, count in counts.items()
        for key in (stem, f"{stem}_attr", f"{stem}_time")
        if key in store and key not in found and len(getattr(store[key], "shape", ())) and len(store[key]) == count
    ]


def _numbers_nodes(store: Any, name: str, value: Any) -> bool:
    shape = _shape(value)
    if "adj" in name.split("_"):
        return len(shape) == 2 and (shape[0] == shape[1] or isinstance(store._key, tuple))
    if not ("index" in name or name.endswith("idx") or name in ("face", "ptr")) or not shape or not _are_whole(value):
        return False
    is_pairs = "edge" in name and len(shape) == 2 and shape[0] == 2
    return is_pairs or not (_is_by_row(store, name) or _is_beyond_nodes(store, value))


def _is_beyond_nodes(store: Any, value: Any) -> bool:
    """Whether a number is none of a node, of whatever type, and no end of a list of all of them."""
    counts = [each.num_nodes for each in store._parent().node_stores]
    return bool(len(value.reshape(-1))) and None not in counts and int(value.max()) > max(counts)


def _shape(value: Any) -> tuple[int, ...]:
    if hasattr(value, "sparse_sizes"):  # PyG's SparseTensor
        return tuple(value.sparse_sizes())
    return tuple(value.shape) if isinstance(value, torch.Tensor | np.ndarray) else ()


def _are_whole(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iu"
    return not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool)


def set_apart(data: Any, user_ids: str | None, without: Iterable[str]) -> tuple[Any, dict[Any, UserIds]]:
    """Returns the graph less the attributes ``without`` and that of the user's ids of nodes, and these by node type;
    those of a Data under None.

    Raises:
        GraphDataError: there is no attribute of such a name.
    """
    gone = [*(as_names(without) or ()), *([] if user_ids is None else [user_ids])]
    if not gone:
        return data, {}
    less, ids = copy(data), {}  # the caller's own keeps its attributes
    chosen({name: None for store in less.stores for name in store}, gone, "without", "the PyG graph")
    for store in less.stores:
        if hasattr(store, "is_node_attr") and not isinstance(store._key, tuple):
            store.num_nodes = store.num_nodes  # which may be known by what goes
            if user_ids in store:
                ids[store._key] = UserIds.of(store[user_ids], column=str(user_ids))
        for name in gone:
            if name in store:
                del store[name]
    return less, ids


def warn_of_rest(data: Any, splits: Mapping[str, Any]) -> None:
    """Warns of what a PyG graph says that GraphData has no place for.

    Args:
        data: a Data or HeteroData.
        splits: as they were given; tables are what became of links to be asked about.

    Raises:
        GraphDataError: as :func:`whole_of`.
    """
    if whole := [f"{name!r}{type_of(store)}" for store in data.stores for name in whole_of(store)]:
        warn(
            f"{', '.join(whole)} of the PyG graph: no attribute of nodes or edges, but of all together, which "
            f"GraphData does not carry. GraphDataModule.from_pyg(data, ...) repeats it in every mini-batch of PyG's "
            f"format; without=[...] leaves it out."
        )
    numbers = {name for store in data.stores for name in numbers_of_nodes(store)}
    if "edge_label_index" in numbers and not any(isinstance(split, SeedTable) for split in splits.values()):
        warn(
            "'edge_label_index' of the PyG graph: links to be asked about are not read. Give them as a table: "
            "train=SeedTable(src=data.edge_label_index[0], dst=data.edge_label_index[1], y=data.edge_label)."
        )
    told = {f"{name}_{kind}" for name, ids in splits.items() if ids is not None for kind in ("idx", "index")}
    told |= {name.replace("val_", "valid_") for name in told}
    if others := sorted(name for name in numbers - told if not name.startswith("edge_label")):
        warn(
            f"{', '.join(map(repr, others))} of the PyG graph: by their names, these number the nodes of the whole "
            "graph, which have other numbers in a mini-batch, and are not read. Give lists of seeds as train=, val=, "
            "test=; rename what numbers no nodes."
        )
    if any(store.get("edge_index") is not None and store.get("adj_t") is not None for store in data.stores):
        warn("'adj_t' of the PyG graph is not read, as there is an edge_index.")


def stores_of(data: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Returns the stores of nodes and those of edges, by type; a Data has one store, which is both."""
    if isinstance(data, import_pyg("Reading a PyG graph").data.HeteroData):
        return dict(data.node_items()), dict(data.edge_items())
    return {UNTYPED: data._store}, {UNTYPED: data._store}


def count_nodes(store: Any) -> int:
    """Returns how many nodes there are of a type.

    Raises:
        GraphDataError: the store does not say.
    """
    if (count := store.num_nodes) is None and store._key is not None:
        raise GraphDataError(
            f"how many nodes of type {store._key!r} the PyG graph has is not known. Set data[{store._key!r}].num_nodes."
        )
    return count


def _is_by_row(store: Any, name: str) -> bool:
    return any(getattr(store, each)(name) for each in ("is_node_attr", "is_edge_attr") if hasattr(store, each))


def type_of(store: Any) -> str:
    """Returns the words that say which type a store is of; none, of a Data."""
    return "" if store._key is None else f" of {store._key}"


def _sizes(store: Any) -> str:
    counts = {"nodes": getattr(store, "num_nodes", None), "edges": getattr(store, "num_edges", None)}
    return "there are " + " and ".join(f"{count} {what}" for what, count in counts.items() if count is not None)


def edge_list(
    store: Any, of_edges: Mapping[str, Any], edge_x: Any, carried: dict[str, Any], *, adds_weight: bool
) -> tuple[Any, Any, Any]:
    """Returns the sources, the targets and, where there are any, the weights of a store's edges.

    Args:
        store: with ``edge_index`` or, without it, ``adj_t``, whose values then are the weights.
        of_edges: its attributes of edges.
        edge_x: features of edges that mini-batches are to carry, or None.
        carried: the others, to which weights that are values of ``adj_t`` are added, if ``adds_weight``.

    Raises:
        GraphDataError: neither is there, or attributes of edges beside ``adj_t``.
    """
    src, dst, values = edge_ends(store)
    if store.get("edge_index") is not None:
        return src, dst, of_edges.get("edge_weight")
    if carried or edge_x is not None:
        raise GraphDataError(
            f"{min(of_edges)!r}: which row belongs to which entry of adj_t is not known. Give the PyG graph an "
            f"edge_index, in the order of these rows, or leave them out: edge_tables=[]."
        )
    if adds_weight:
        carried["edge_weight"] = values
    return src, dst, values


def edge_ends(store: Any) -> tuple[Any, Any, Any]:
    """Returns the sources and the targets of a store's edges and, of ``adj_t``, its values, in the order of edge ids.

    Raises:
        GraphDataError: the store has neither ``edge_index`` nor ``adj_t``, or what is no ``[2, E]``.
    """
    if (edge_index := store.get("edge_index")) is not None:
        if not isinstance(edge_index, torch.Tensor | np.ndarray) or edge_index.ndim != 2 or len(edge_index) != 2:
            what = list(edge_index.shape) if hasattr(edge_index, "shape") else f"a {type(edge_index).__name__}"
            raise GraphDataError(f"edge_index of the PyG graph must be a tensor [2, E], but is {what}.")
        return edge_index[0], edge_index[1], None
    if store.get("adj_t") is None:
        raise GraphDataError(f"the PyG graph has neither edge_index nor adj_t, but only {sorted(store.keys())}.")
    (dst, src), values = import_pyg("Reading a PyG graph").utils.to_edge_index(store["adj_t"])
    return src, dst, values


def check_rows(data: Any, store: Any, columns: Mapping[str, Any]) -> None:
    """Raises GraphDataError: what PyG takes for rows of a store's nodes or edges is no table of them."""
    for key, rows in columns.items():
        if not isinstance(rows, torch.Tensor | np.ndarray):
            what = f"a {type(rows).__name__}, but a tensor or an array is needed"
        elif data.__cat_dim__(key, rows, store) != 0:
            what = f"{list(rows.shape)} with its entries in another dimension than the first"
        else:
            continue
        raise GraphDataError(
            f"{key!r} of the PyG graph is {what}: mini-batches cannot carry it. Leave it out: without=[{key!r}]; or, "
            f"if it is what you call the nodes: user_ids={key!r}."
        )


def check_nested(blocks: Sequence[Block]) -> None:
    """Raises SamplerConfigError: a hop is not the beginning of the one outside it."""
    for hop, (outer, inner) in enumerate(pairwise(blocks)):
        if not _begins_with(outer.indptr, inner.indptr) or not _begins_with(outer.indices, inner.indices):
            raise SamplerConfigError(
                f"batch_format='pyg' needs hops that draw for new nodes only, but blocks[{hop}] draws afresh "
                f"for the nodes of blocks[{hop + 1}]. Give NeighborSampler(..., expand='new')."
            )


def _begins_with(outer: torch.Tensor, inner: torch.Tensor) -> bool:
    # Samplers let such hops share memory; to compare what a GPU holds, the host would have to wait for it.
    return outer.data_ptr() == inner.data_ptr() or torch.equal(outer[: len(inner)], inner)


def together(*columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns columns of nodes, of edges and of seeds as attributes of one store.

    Raises:
        GraphDataError: two have one name.
    """
    found: dict[str, Any] = {}
    for each in columns:
        if twice := found.keys() & each.keys():
            raise GraphDataError(
                f"{min(twice)!r} names two columns, of nodes, edges or seeds, which a mini-batch of PyG cannot tell "
                "apart. Name one of them anew."
            )
        found |= each
    return found


def fill(store: Any, columns: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Sets the attributes of a mini-batch's store: columns of rows under their names and PyG's own fields, of which
    ``n_id`` and ``e_id`` give way to what has their names."""
    for name, value in columns.items():
        store[name] = value
    for name, value in fields.items():
        if name not in ("n_id", "e_id") or name not in store:
            store[name] = value


def links_by_store(fields: Mapping[str, Any], edge_type: Any) -> dict[Any, dict[str, Any]]:
    """Returns the fields of links by store: indices of triplets and their masks in those of their ends, ``seed_time``
    in both, all else in that of their type; in a Data, all in its one store."""
    if edge_type is UNTYPED:
        return {UNTYPED: dict(fields)}
    src, _, dst = edge_type
    found: dict[Any, dict[str, Any]] = {kind: {} for kind in (src, dst, edge_type)}
    for name, value in fields.items():
        end, _, rest = name.partition("_")
        if name == "seed_time":  # of triplets, as PyG has it
            found[src][name] = found[dst][name] = value
        else:
            of_end = {"src": src, "dst": dst}.get(end) if rest.endswith(("index", "mask")) else None
            found[of_end or edge_type][name] = value
    return found


def steps(totals: list[int]) -> list[int]:
    """Returns how much each total is more than the one before."""
    return [after - before for before, after in pairwise(totals)]


def import_pyg(purpose: str) -> ModuleType:
    """Raises MissingExtraError: PyG cannot be imported."""
    try:
        import torch_geometric
        import torch_geometric.data
        import torch_geometric.utils
    except ImportError as error:
        raise MissingExtraError("torch_geometric", "pyg", purpose, error) from error
    return torch_geometric

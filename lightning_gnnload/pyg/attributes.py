"""Attributes: which columns of a Data or HeteroData mini-batches carry, how each gets there, and the mini-batches.

PyG's own rules say which attributes have a row for each node or edge. Dense ones in the host's memory are tables that
kernels gather. All others (ragged columns of a TensorFrame, sparse or transposed tensors, those of a GPU, those that
are learned) PyG itself indexes, in the thread that makes the mini-batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.sampler import HeteroSamplerOutput, NegativeSampling, SamplerOutput

from lightning_gnnload.adapters.columns import UNTYPED
from lightning_gnnload.adapters.pyg.stores import fill_store, links_by_store, numbers_of_nodes, stores_of, type_of
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.slab import view_of
from lightning_gnnload.data.tables import EDGE_PREFIX, RESERVED
from lightning_gnnload.errors import GraphDataError, warn
from lightning_gnnload.pipeline.packing import aligned
from lightning_gnnload.pyg.compat import TensorFrame, index_select
from lightning_gnnload.pyg.outputs import Room, joined

_TABLE_DTYPES = frozenset(
    (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
)
"""What kernels gather; PyG indexes numbers of other dtypes."""
# A table whose rows take less than an eighth of the largest table's gets memory of its own: a user who keeps the labels
# of all mini-batches is not to keep their features.
_SMALL = 8
_STRUCTURE = ("edge_index", "adj_t", "num_nodes")
_OF_LINKS = ("edge_label_index", "edge_label", "edge_label_time")  # which a loader of links sets in each mini-batch
_SEED_LISTS = frozenset(
    f"{split}_{suffix}" for split in ("train", "val", "valid", "test", "pred") for suffix in ("idx", "index")
)
"""PyG's names for lists of seeds, which loaders take, or data modules read."""
_NO_IDS = torch.empty(0, dtype=torch.long)

# The warning, once, where mini-batches have attributes of edges, and edges without any.
_GAPS = (
    "subgraph_type='bidirectional' has added edges that the graph does not have: batch.e_id is negative there, and "
    "attributes of edges are NaN, -1 or False. Have the graph hold its edges both ways, as "
    "torch_geometric.transforms.ToUndirected() makes it, or give these edges values in transform=."
)

Rebuild = Callable[[list[torch.Tensor], torch.Tensor], Any]


class Attribute(NamedTuple):
    """An attribute that has a row for each node, or each edge, of a store.

    Its parts are gathered from ``tables``, whose names :data:`.EDGE_PREFIX` begins where they are of edges. ``rebuild``
    makes the mini-batch's value of the parts' rows and the ids of all rows; None: it is the one part.
    """

    name: str
    by_edge: bool
    tables: tuple[str, ...]
    rebuild: Rebuild | None

    def of(self, rows: Mapping[str, torch.Tensor], ids: torch.Tensor | None) -> Any:
        """Returns the mini-batch's value for its nodes or edges ``ids``, whose rows are in the tables; None without
        ids."""
        if ids is None:
            return None
        if self.rebuild is None:
            return rows[self.tables[0]]
        return self.rebuild([rows[name] for name in self.tables], ids)


class Attributes:
    """The attributes of a graph as they are when this is made, and the tables that kernels gather from.

    ``by_type`` has them by node or edge type, of a ``Data`` under None; ``tables`` is GraphData with the tables;
    ``data`` is what mini-batches repeat: :func:`repeated`. ``edges`` says whether kernels gather rows of edges, too:
    not where PyG adds edges to those that were drawn. A store that has grown or shrunk since the sampler was made
    raises GraphDataError.
    """

    def __init__(self, data: Any, graph: Graph, *, edges: bool) -> None:
        self.data = data = repeated(data)
        self.by_type: dict[Any, list[Attribute]] = {}
        node_tables: dict[str, Any] = {}
        edge_tables: dict[str, Any] = {}
        node_stores, edge_stores = stores_of(data)
        for key, store in {**node_stores, **edge_stores}.items():
            attributes = self.by_type[key] = []
            for name, value in store.items():
                if name in _STRUCTURE or (rows := self.rows_in(store, name, value)) is None:
                    continue
                by_edge, dim = rows
                _check_value(name, value, dim)
                tables = edge_tables if by_edge else node_tables
                parts, rebuild = _parts(value, dim) if edges or not by_edge else ([], _indexed(value, dim))
                names = [_add_table(tables, name, part, key, by_edge=by_edge) for part in parts]
                prefix = EDGE_PREFIX if by_edge else ""
                attributes.append(Attribute(name, by_edge, tuple(prefix + table for table in names), rebuild))
        # "x" of a Data is what this package calls features, and caches hold; GraphData checks all lengths.
        try:
            self.tables = GraphData(graph, node_tables.pop("x", None), tables=node_tables, edge_tables=edge_tables)
        except GraphDataError as error:
            raise GraphDataError(f"the attributes do not fit the sampler's graph: {error}") from error

    def rows_in(self, store: Any, name: str, value: Any) -> tuple[bool, int] | None:
        """Returns whether an attribute's rows are those of edges, and not of nodes, and the dimension that they lie in;
        None where it has none."""
        by_node = hasattr(store, "is_node_attr") and store.is_node_attr(name)
        if not by_node and not (hasattr(store, "is_edge_attr") and store.is_edge_attr(name)):
            return None
        return not by_node, self.data.__cat_dim__(name, value, store)

    def gathered(self, output: Any, room: Room, separate: Room) -> dict[str, torch.Tensor]:
        """Gathers the rows for a SamplerOutput or a HeteroSamplerOutput, and returns them by the tables' names.

        ``room`` gives memory for the rows of large tables, together; ``separate`` for each table that is small beside
        them.
        """
        stores, reads = self.tables.stores, []
        for key, attributes in self.by_type.items():
            for attribute in attributes:
                ids = output.edge if attribute.by_edge else output.node
                ids = ids if key is None else ids.get(key, _NO_IDS)
                for name in attribute.tables:
                    reads.append((name, ids, stores[name], len(ids) * stores[name].row_bytes))
        small = max((num_bytes for *_, num_bytes in reads), default=0) // _SMALL
        memory = room(sum(aligned(num_bytes) for *_, num_bytes in reads if num_bytes > small))
        rows, begin = dict[str, torch.Tensor](), 0
        for name, ids, store, num_bytes in reads:
            shape = (len(ids), *store.row_shape)
            if num_bytes > small:
                rows[name] = view_of(memory, begin, shape, store.dtype)
                begin += aligned(num_bytes)
            else:
                rows[name] = view_of(separate(num_bytes), 0, shape, store.dtype)
            store.gather(ids, rows[name].view(len(ids), store.shape[1]))
        return rows

    def rows_of(self, batch: MiniBatch) -> dict[str, torch.Tensor]:
        """Returns the rows that kernels gathered while they sampled, by the tables' names."""
        edges = {name: _no_rows(store) for name, store in self.tables.edge_stores.items()}
        if batch.blocks:
            edges = {EDGE_PREFIX + name: rows for name, rows in batch.blocks[0].tables.items()}
        x = {} if batch.x is None else {"x": batch.x}
        return {**x, **batch.tables, **edges}


def describe_omitted(data: Any, input_type: Any, *, links: bool) -> str | None:
    """Says which attributes :func:`repeated` leaves out, but for lists of seeds and what a loader of ``links`` of this
    type sets anew; None where there are none."""
    names = [
        f"{name!r}{type_of(store)}"
        for store in data.stores
        for name in numbers_of_nodes(store)
        if name not in _SEED_LISTS and not (links and store._key == input_type and name in _OF_LINKS)
    ]
    if not names:
        return None
    return (
        f"mini-batches leave out {', '.join(names)}: by their names, these number the nodes of the whole graph, "
        "which have other numbers in a mini-batch, or stand beside such numbers. batch.n_id says which nodes a "
        "mini-batch has; rename what numbers no nodes."
    )


def repeated(data: Any) -> Any:
    """Returns the data without what numbers the nodes of the whole graph, which have other numbers in a mini-batch;
    itself where there is no such attribute."""
    if not any(numbers_of_nodes(store) for store in data.stores):
        return data
    reduced = copy(data)
    for store in reduced.stores:
        for name in numbers_of_nodes(store):
            del store[name]
    return reduced


def _no_rows(store: FeatureStore) -> torch.Tensor:
    return torch.empty((0, *store.row_shape), dtype=store.dtype)


def _check_value(name: str, value: Any, dim: int) -> None:
    """Raises GraphDataError: an attribute has an entry for each node or edge, but mini-batches cannot have it."""
    problem = f"a {type(value).__name__}"
    if isinstance(value, torch.Tensor | TensorFrame):
        if _is_table(value):
            return
        try:
            index_select(value[:0] if isinstance(value, TensorFrame) else value, _NO_IDS, dim)
            return
        except (RuntimeError, NotImplementedError):  # as of compressed sparse ones, of which torch takes no rows
            assert isinstance(value, torch.Tensor), "frames have rows"
            problem = f"a tensor of layout {value.layout}"
    if isinstance(value, np.ndarray):
        try:
            torch.from_numpy(np.empty(0, value.dtype))
            return
        except (TypeError, ValueError):
            problem = f"an array of {value.dtype}"
    raise GraphDataError(
        f"{name!r} is {problem} with an entry for each node or edge. Mini-batches have rows of tensors that are dense "
        "or sparse COO, of arrays of numbers, and of TensorFrames: make it one of these, as by .to_dense(), or leave "
        f"it out: del data[...][{name!r}]."
    )


def _parts(value: Any, dim: int) -> tuple[list[Any], Rebuild | None]:
    """Returns the tables of an attribute, and what makes it of their rows."""
    if isinstance(value, TensorFrame):
        return _frame_parts(value)
    if _is_table(value) and (dim == 0 or value.ndim == 1):
        return [value], None
    return [], _indexed(value, dim)


def _indexed(value: Any, dim: int) -> Rebuild:
    """Returns a function that indexes an attribute as PyG does; rows of edges that the graph does not have get no
    value."""

    def index(_: list[torch.Tensor], ids: torch.Tensor) -> Any:
        exists = ids >= 0
        existing = ids if bool(exists.all()) else ids[exists]
        rows = index_select(value, existing.to(value.device) if isinstance(value, torch.Tensor) else existing, dim=dim)
        return rows if existing is ids else _with_gaps(rows, exists, dim)

    return index


def _with_gaps(rows: Any, exists: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns the rows of existing edges, and for each other edge what says that there is none."""
    warn(_GAPS)
    if not isinstance(rows, torch.Tensor):
        raise GraphDataError(f"a {type(rows).__name__} of edges cannot have rows without a value. {_GAPS}")
    shape = list(rows.shape)
    shape[dim] = len(exists)
    no_value = math.nan if rows.is_floating_point() or rows.is_complex() else 0 if rows.dtype is torch.bool else -1
    gaps = rows.new_full((), no_value).expand(shape)
    return gaps.index_copy(dim, exists.nonzero().view(-1).to(rows.device), rows)


def _is_table(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        # Kernels read rows one after the other; torch has no longdouble, and no bytes in another order.
        is_number = value.dtype.isnative and value.dtype.kind in "ifb" and value.dtype != np.longdouble
        return value.ndim > 0 and value.flags.c_contiguous and (is_number or value.dtype == np.uint8)
    # Subclasses of Tensor (PyG's Index and EdgeIndex) know more than their rows do.
    is_dense = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu"
    is_as_stored = is_dense and value.is_contiguous() and not value.is_conj() and not value.is_neg()
    # Gradients flow through PyG's rows to a tensor that asks for them.
    return is_as_stored and value.ndim > 0 and value.dtype in _TABLE_DTYPES and not value.requires_grad


def _frame_parts(frame: Any) -> tuple[list[Any], Rebuild]:
    """Returns the dense parts of a TensorFrame, a tensor by stype, embeddings side by side, and what makes a frame of
    their rows, which indexes the other parts itself."""
    from torch_frame.data import MultiEmbeddingTensor

    values = {
        stype: feat.values if isinstance(feat, MultiEmbeddingTensor) else feat
        for stype, feat in frame.feat_dict.items()
    }
    dense = {stype: rows for stype, rows in values.items() if _is_table(rows)}
    has_y = _is_table(frame.y)

    def row_of(stype: Any, rows: dict[Any, torch.Tensor], ids: torch.Tensor) -> Any:
        feat, part = frame.feat_dict[stype], rows.get(stype)
        if part is None:
            return {key: column[ids] for key, column in feat.items()} if isinstance(feat, dict) else feat[ids]
        is_embedding = isinstance(feat, MultiEmbeddingTensor)
        return MultiEmbeddingTensor(len(part), feat.num_cols, part, feat.offset) if is_embedding else part

    def rebuild(parts: list[torch.Tensor], ids: torch.Tensor) -> Any:
        # The part of y comes last, where there is one: the first ones are the columns'.
        rows = dict(zip(dense, parts, strict=False))
        result = copy(frame)
        result.feat_dict = {stype: row_of(stype, rows, ids) for stype in frame.feat_dict}
        result.y = parts[-1] if has_y else None if frame.y is None else frame.y[ids]
        result._num_rows = None if frame._num_rows is None else len(ids)
        return result

    return [*dense.values(), *([frame.y] if has_y else [])], rebuild


def _add_table(tables: dict[str, Any], name: str, rows: Any, key: Any, *, by_edge: bool) -> str:
    """Adds a table under a new name: the attribute's where it can be one; with types, one that ends in the type."""
    stem, suffix = name if name.isascii() and name.isidentifier() else "column", ""
    if key is not None:
        suffix = f".{key if isinstance(key, str) else '__'.join(key)}"
    elif stem in RESERVED and (stem != "x" or by_edge or rows.ndim < 2):
        stem = f"{stem}_"
    new = next(new for number in count() if (new := f"{stem}{number or ''}{suffix}") not in tables)
    tables[new] = rows
    return new


def as_data(
    output: SamplerOutput | HeteroSamplerOutput,
    rows: dict[str, torch.Tensor],
    attributes: Attributes,
    input_type: Any = None,
    neg_sampling: NegativeSampling | None = None,
) -> Any:
    """Returns the ``Data`` or ``HeteroData`` that PyG's NodeLoader or LinkLoader makes of a sampler's output.

    ``rows`` are what kernels have gathered, by the tables' names. ``input_type`` is the node type of the seeds or the
    edge type of the links, None without types; ``neg_sampling`` is None for seeds that are nodes.
    """
    data = copy(attributes.data)
    is_hetero = isinstance(output, HeteroSamplerOutput)
    # A SamplerOutput is one of a single type, so that both come by type; what is left out is None for all types.
    parts = vars(output) if is_hetero else {name: {UNTYPED: part} for name, part in vars(output).items()}
    seed_fields = _seed_fields(output.metadata, input_type, neg_sampling)
    for key, columns in attributes.by_type.items():
        store, fields = data[key] if is_hetero else data._store, {}
        node: Any = None
        edge: Any = None
        if not isinstance(key, tuple):
            fields["n_id"] = node = parts["node"].get(key, _NO_IDS)
            if "num_nodes" in store:
                fields["num_nodes"] = len(node)
        if not isinstance(key, str):
            names = ("row", "col", "edge")
            lists: list[Any] = [None if parts[name] is None else parts[name].get(key, _NO_IDS) for name in names]
            row, col, edge = lists

            fields["e_id"] = edge
            if "edge_index" in store:
                fields["edge_index"] = joined(row, col).to(store.edge_index.device)
            if output.orig_row is not None:
                fields["_orig_edge_index"] = torch.stack([parts["orig_row"][key], parts["orig_col"][key]])
        for name in ("batch", "num_sampled_nodes", "num_sampled_edges"):
            if parts[name] is not None and key in parts[name]:
                fields[name] = parts[name][key]
        values = {}
        for column in columns:
            values[column.name] = column.of(rows, edge if column.by_edge else node)
        fill_store(store, values, fields | seed_fields.pop(key, {}))
    for key, fields in seed_fields.items():  # of links of a type that the data have no edges of
        fill_store(data[key], {}, fields)
    return data


def _seed_fields(
    metadata: tuple[Any, ...], input_type: Any, neg_sampling: NegativeSampling | None
) -> dict[Any, dict[str, Any]]:
    """Returns what belongs to the seeds, by store; None takes away what is of the whole graph."""
    if not isinstance(input_type, tuple) and len(metadata) <= 2:
        return {input_type: {"input_id": metadata[0], "seed_time": metadata[1], "batch_size": len(metadata[0])}}
    labels = ("edge_label_index", "edge_label", "edge_label_time")
    if neg_sampling is None or neg_sampling.is_binary():
        return links_by_store(dict(zip(("input_id", *labels), metadata, strict=True)), input_type)
    names = ("input_id", "src_index", "dst_pos_index", "dst_neg_index", "seed_time")
    triplets = dict(zip(names, metadata, strict=True))
    return links_by_store({**triplets, "edge_label_index": None, "edge_label_time": None}, input_type)

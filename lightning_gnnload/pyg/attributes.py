"""Attributes: which columns of a Data or HeteroData mini-batches carry, and how each gets there.

PyG's own rules say which attributes have a row for each node or edge. Dense ones in memory of the host are tables that
kernels gather; what else there is (ragged columns of a TensorFrame, sparse or transposed tensors, those of a GPU, those
that are learned) PyG itself indexes, in the thread that makes the mini-batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.loader.utils import index_select
from torch_geometric.typing import TensorFrame

from lightning_gnnload.adapters.pyg_stores import numbers_of_nodes, stores_of, type_of
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.slab import view_of
from lightning_gnnload.data.tables import EDGE_PREFIX, RESERVED
from lightning_gnnload.errors import GraphDataError, warn
from lightning_gnnload.pipeline.packing import aligned
from lightning_gnnload.pyg.outputs import Room

_TABLE_DTYPES = frozenset(
    (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
)
"""What kernels gather; PyG indexes numbers of other kinds."""
_SMALL = 8
"""How many times as large as the rows of a small table those of the largest are, at least."""
_STRUCTURE = ("edge_index", "adj_t", "num_nodes")
_OF_LINKS = ("edge_label_index", "edge_label", "edge_label_time")
"""What a loader of links gives each mini-batch."""
_OF_SEEDS = frozenset(
    f"{split}_{kind}" for split in ("train", "val", "valid", "test", "pred") for kind in ("idx", "index")
)
"""PyG's names for lists of seeds, which are given to loaders, or read by data modules."""
_NO_IDS = torch.empty(0, dtype=torch.long)


_GAPS = (
    "subgraph_type='bidirectional' has added edges that the graph does not have: batch.e_id is negative there, and "
    "attributes of edges are NaN, -1 or False. Have the graph hold its edges both ways, as "
    "torch_geometric.transforms.ToUndirected() makes it, or give these edges values in transform=."
)
"""What is said, once, where mini-batches have attributes of edges, and edges without any."""


Rebuild = Callable[[list[torch.Tensor], torch.Tensor], Any]


class Attribute(NamedTuple):
    """An attribute that has a row for each node, or each edge, of a store.

    Attributes:
        name: in the store.
        of_edges: rather than of nodes.
        tables: names of the tables that its parts are gathered from; :data:`.EDGE_PREFIX` begins those of edges.
        rebuild: makes of the parts' rows, and of the ids of all rows, what a mini-batch gets; None: it is the one part.
    """

    name: str
    of_edges: bool
    tables: tuple[str, ...]
    rebuild: Rebuild | None

    def of(self, rows: Mapping[str, torch.Tensor], ids: torch.Tensor | None) -> Any:
        """Returns what a mini-batch gets of its nodes or edges ``ids``, whose rows lie in the tables; None for none."""
        if ids is None:
            return None
        if self.rebuild is None:
            return rows[self.tables[0]]
        return self.rebuild([rows[name] for name in self.tables], ids)


class Attributes:
    """The attributes of a graph as they are when it is made, and the tables that kernels gather from.

    Args:
        data: a ``Data`` or ``HeteroData``, whose attributes may be others than when the sampler was made.
        graph: what is sampled of it.
        edges: whether rows of edges are gathered by kernels, too: not where PyG adds edges to those that were drawn.

    Attributes:
        data: the same, as mini-batches repeat it: :func:`repeated`.
        tables: GraphData with the tables.
        by_type: the attributes by node or edge type; of a ``Data`` under None.

    Raises:
        GraphDataError: a store that has grown or shrunk since the sampler was made.
    """

    def __init__(self, data: Any, graph: Graph, *, edges: bool) -> None:
        self.data = data = repeated(data)
        self.by_type: dict[Any, list[Attribute]] = {}
        of_nodes: dict[str, Any] = {}
        of_edges: dict[str, Any] = {}
        nodes, edges_of = stores_of(data)
        for kind, store in {**nodes, **edges_of}.items():
            held = self.by_type[kind] = []
            for name, value in store.items():
                if name in _STRUCTURE:
                    continue
                if (found := self.place_of(store, name, value)) is None:
                    continue
                by_edge, dim = found
                _check_kind(name, value, dim)
                tables = of_edges if by_edge else of_nodes
                parts, rebuild = _parts(value, dim) if edges or not by_edge else ([], _indexed(value, dim))
                named = []
                for part in parts:
                    named.append(_table_name(name, part, kind, tables, of_edges=by_edge))
                    tables[named[-1]] = part
                prefix = EDGE_PREFIX if by_edge else ""
                held.append(Attribute(name, by_edge, tuple(prefix + table for table in named), rebuild))
        try:
            self.tables = GraphData(graph, of_nodes.pop("x", None), tables=of_nodes, edge_tables=of_edges)
        except GraphDataError as error:
            raise GraphDataError(f"the attributes do not fit the sampler's graph: {error}") from error

    def place_of(self, store: Any, name: str, value: Any) -> tuple[bool, int] | None:
        """Returns whether an attribute's rows are those of edges, and not of nodes, and the dimension that they lie in;
        None where it has none."""
        by_node = hasattr(store, "is_node_attr") and store.is_node_attr(name)
        if not by_node and not (hasattr(store, "is_edge_attr") and store.is_edge_attr(name)):
            return None
        return not by_node, self.data.__cat_dim__(name, value, store)

    def gathered(self, output: Any, room: Room, own: Room) -> dict[str, torch.Tensor]:
        """Gathers the rows of who was sampled, and returns them by the tables' names.

        Args:
            output: a SamplerOutput or a HeteroSamplerOutput.
            room: for the rows of large tables, together.
            own: for those of each table that is small beside the largest: who keeps labels does not keep features.
        """
        stores, found = self.tables.stores, []
        for kind, held in self.by_type.items():
            for attribute in held:
                of_all = output.edge if attribute.of_edges else output.node
                for name in attribute.tables:
                    ids, store = of_all if kind is None else of_all.get(kind, _NO_IDS), stores[name]
                    found.append((name, ids, store, ids.numel() * store.row_bytes))
        small = max((num_bytes for *_, num_bytes in found), default=0) // _SMALL
        memory = room(sum(aligned(num_bytes) for *_, num_bytes in found if num_bytes > small))
        rows, begin = dict[str, torch.Tensor](), 0
        for name, ids, store, num_bytes in found:
            place = (memory, begin) if num_bytes > small else (own(num_bytes), 0)
            begin += aligned(num_bytes) if num_bytes > small else 0
            rows[name] = view_of(*place, (ids.numel(), *store.row_shape), store.dtype)
            store.gather(ids, rows[name].view(ids.numel(), store.shape[1]))
        return rows

    def rows_of(self, batch: MiniBatch) -> dict[str, torch.Tensor]:
        """Returns what kernels have gathered while they sampled, by the tables' names."""
        edges = {name: _no_rows(store) for name, store in self.tables.edge_stores.items()}
        if batch.blocks:
            edges = {EDGE_PREFIX + name: rows for name, rows in batch.blocks[0].tables.items()}
        x = {} if batch.x is None else {"x": batch.x}
        return {**x, **batch.tables, **edges}


def left_out(data: Any, input_type: Any, *, links: bool) -> str | None:
    """Says which attributes :func:`repeated` leaves out that are no lists of seeds, and that a loader does not set
    anew; None where there are none.

    Args:
        data: the user's.
        input_type: the type of what a loader begins at.
        links: whether it begins at links.
    """
    names = [
        f"{name!r}{type_of(store)}"
        for store in data.stores
        for name in numbers_of_nodes(store)
        if name not in _OF_SEEDS and not (links and store._key == input_type and name in _OF_LINKS)
    ]
    if not names:
        return None
    return (
        f"mini-batches leave out {', '.join(names)}: by their names, these number the nodes of the whole graph, "
        "which have other numbers in a mini-batch, or stand beside such numbers. batch.n_id says which nodes a "
        "mini-batch has; rename what numbers no nodes."
    )


def repeated(data: Any) -> Any:
    """Returns a ``Data`` or ``HeteroData`` without what numbers the nodes of the whole graph, of which nothing would be
    right in a mini-batch; itself where there is nothing of that kind."""
    if not any(numbers_of_nodes(store) for store in data.stores):
        return data
    kept = copy(data)
    for store in kept.stores:
        for name in numbers_of_nodes(store):
            del store[name]
    return kept


def _no_rows(store: FeatureStore) -> torch.Tensor:
    return torch.empty((0, *store.row_shape), dtype=store.dtype)


def _check_kind(name: str, value: Any, dim: int) -> None:
    """Raises GraphDataError: an attribute has an entry for each node or edge, but mini-batches cannot have it."""
    what = f"a {type(value).__name__}"
    if isinstance(value, torch.Tensor | TensorFrame):
        if _is_table(value):
            return
        try:
            index_select(value[:0] if isinstance(value, TensorFrame) else value, _NO_IDS, dim)
            return
        except (RuntimeError, NotImplementedError):  # as of compressed sparse ones, of which torch takes no rows
            assert isinstance(value, torch.Tensor), "frames have rows"
            what = f"a tensor of layout {value.layout}"
    if isinstance(value, np.ndarray):
        try:
            torch.from_numpy(np.empty(0, value.dtype))
            return
        except (TypeError, ValueError):
            what = f"an array of {value.dtype}"
    raise GraphDataError(
        f"{name!r} is {what} with an entry for each node or edge. Mini-batches have rows of tensors that are dense or "
        "sparse COO, of arrays of numbers, and of TensorFrames: make it one of these, as by .to_dense(), or leave it "
        f"out: del data[...][{name!r}]."
    )


def _parts(value: Any, dim: int) -> tuple[list[Any], Rebuild | None]:
    """Returns the tables of an attribute, and what makes it of their rows."""
    if isinstance(value, TensorFrame):
        return _frame_parts(value)
    if _is_table(value) and (dim == 0 or value.ndim == 1):
        return [value], None
    return [], _indexed(value, dim)


def _indexed(value: Any, dim: int) -> Rebuild:
    """Returns what indexes an attribute as PyG does, and leaves rows of edges that the graph does not have without a
    value."""

    def index(_: list[torch.Tensor], ids: torch.Tensor) -> Any:
        is_there = ids >= 0
        there = ids if bool(is_there.all()) else ids[is_there]
        rows = index_select(value, there.to(value.device) if isinstance(value, torch.Tensor) else there, dim=dim)
        return rows if there is ids else _with_gaps(rows, is_there, dim)

    return index


def _with_gaps(rows: Any, is_there: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns the rows of those that are there, and for each other one what says that there is none."""
    warn(_GAPS)
    if not isinstance(rows, torch.Tensor):
        raise GraphDataError(f"a {type(rows).__name__} of edges cannot have rows without a value. {_GAPS}")
    shape = list(rows.shape)
    shape[dim] = len(is_there)
    no_value = math.nan if rows.is_floating_point() or rows.is_complex() else 0 if rows.dtype is torch.bool else -1
    gaps = rows.new_full((), no_value).expand(shape)
    return gaps.index_copy(dim, is_there.nonzero().view(-1).to(rows.device), rows)


def _is_table(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        is_number = value.dtype.isnative and value.dtype.kind in "ifb" and value.dtype != np.longdouble
        return value.ndim > 0 and value.flags.c_contiguous and (is_number or value.dtype == np.uint8)
    # Subclasses of Tensor (PyG's Index and EdgeIndex) know more than their rows do.
    is_dense = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu"
    is_as_stored = is_dense and value.is_contiguous() and not value.is_conj() and not value.is_neg()
    # Gradients flow through PyG's rows to a tensor that asks for them.
    return is_as_stored and value.ndim > 0 and value.dtype in _TABLE_DTYPES and not value.requires_grad


def _frame_parts(frame: Any) -> tuple[list[Any], Rebuild]:
    """Returns the dense parts of a TensorFrame, a tensor by stype, embeddings side by side; it indexes the others."""
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
            return {key: each[ids] for key, each in feat.items()} if isinstance(feat, dict) else feat[ids]
        is_embedding = isinstance(feat, MultiEmbeddingTensor)
        return MultiEmbeddingTensor(len(part), feat.num_cols, part, feat.offset) if is_embedding else part

    def rebuild(parts: list[torch.Tensor], ids: torch.Tensor) -> Any:
        rows = dict(zip(dense, parts, strict=False))
        made = copy(frame)
        made.feat_dict = {stype: row_of(stype, rows, ids) for stype in frame.feat_dict}
        made.y = parts[-1] if has_y else None if frame.y is None else frame.y[ids]
        made._num_rows = None if frame._num_rows is None else len(ids)
        return made

    return [*dense.values(), *([frame.y] if has_y else [])], rebuild


def _table_name(name: str, rows: Any, kind: Any, taken: Mapping[str, Any], *, of_edges: bool) -> str:
    """Returns a new name for a table: the attribute's own where it can be one; one of a type's tables ends in it."""
    own = name if name.isascii() and name.isidentifier() else "column"
    if kind is None:
        if own in RESERVED and (own != "x" or of_edges or rows.ndim < 2):
            own = f"{own}_"
        suffix = ""
    else:
        suffix = f".{kind if isinstance(kind, str) else '__'.join(kind)}"
    number = 0
    while f"{own}{number or ''}{suffix}" in taken:
        number += 1
    return f"{own}{number or ''}{suffix}"

"""The tables of a mini-batch: their places in its slot, and which rows of which store go there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch

from lightning_gnnload.data.block import MiniBatch, view_of
from lightning_gnnload.data.features import FeatureStore, Reads, summed_reads
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.tables import EDGE_PREFIX, EdgeTable, NodeTable
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import HopLayout, SampleLayout, gather_rows
from lightning_gnnload.sample.rows import Asked

_ALIGN = 64


@dataclass(frozen=True)
class TableLayout:
    """The position of one feature table in a slot."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    def view(self, buffer: Any) -> torch.Tensor:
        return view_of(buffer, self.offset, self.shape, getattr(torch, self.dtype))

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * getattr(torch, self.dtype).itemsize


@dataclass(frozen=True)
class EdgePositions:
    """The rows of an EdgeTable in a slot: which edges they belong to.

    Attributes:
        places: of each row's edge among those of its hop, int64 ``[M]``.
        spans: of each hop, in the order of the layout: from which row to which its own are.
    """

    places: TableLayout
    spans: tuple[tuple[int, int], ...]


class Gather(NamedTuple):
    """An instruction to gather: rows ``ids``, int64, of the store ``name`` go to ``place``."""

    name: str
    ids: torch.Tensor
    place: TableLayout


class TablePlaces(NamedTuple):
    """The positions of a mini-batch's feature tables in its memory, and which rows go there.

    Attributes:
        x: features of all V nodes.
        y: labels of the seeds, or of their rows.
        tables: further features by name: ``[V, F]``, or ``[M, F]`` of the M nodes that a NodeTable has rows for.
        positions: of NodeTables, by name: the places of these M nodes among all nodes, int64 ``[M]``, ascending.
        edge_tables: edge features of all hops by name, ``"edge_x"`` among them; :func:`edge_spans` says which rows are
            whose. Those of EdgeTables: rows of the edges of their types.
        edge_positions: of EdgeTables, by name: whose these are.
        seed_columns: what belongs to the rows, by name.
        end: where they end.
        gathers: what to gather for them; y is gathered apart, as it is in no store.
        found: what to write to ``positions`` and ``edge_positions``.
    """

    x: TableLayout | None
    y: TableLayout | None
    tables: dict[str, TableLayout]
    positions: dict[str, TableLayout]
    edge_tables: dict[str, TableLayout]
    edge_positions: dict[str, EdgePositions]
    seed_columns: dict[str, TableLayout]
    end: int
    gathers: list[Gather]
    found: list[tuple[TableLayout, np.ndarray]]


def place_tables(data: GraphData, batch: MiniBatch, layout: SampleLayout, asked: Asked) -> TablePlaces:
    """Places a mini-batch's tables one after the other, each aligned to 64 bytes, in the free middle of its slot.

    The nodes lie at the slot's begin, the hops at its end. The caller checks whether there is so much room.

    Raises:
        SamplerConfigError: the data has edge tables, but the blocks no edge ids.
    """
    end, gathers, found = layout.free_begin, list[Gather](), list[tuple[TableLayout, np.ndarray]]()

    def place(shape: tuple[int, ...], dtype: torch.dtype) -> TableLayout:
        nonlocal end
        table = TableLayout(end, shape, str(dtype).removeprefix("torch."))
        end += -(-table.num_bytes // _ALIGN) * _ALIGN
        return table

    def gather(name: str, store: FeatureStore, ids: torch.Tensor) -> TableLayout:
        gathers.append(Gather(name, ids, place((len(ids), *store.row_shape), store.dtype)))
        return gathers[-1].place

    def put(numbers: np.ndarray) -> TableLayout:
        found.append((place(numbers.shape, torch.int64), numbers))
        return found[-1][0]

    x = y = None
    tables, positions = dict[str, TableLayout](), dict[str, TableLayout]()
    if data.x is not None:
        x = gather("x", data.x, batch.nodes)
    if asked.y is not None:
        y = place(tuple(asked.y.shape), asked.y.dtype)
    elif data.y is not None and asked.takes_labels_of_nodes:
        y = place((batch.num_seeds, *data.y.shape[1:]), data.y.dtype)
    nodes, of_ranges = batch.nodes.numpy(), dict[range, tuple[np.ndarray, torch.Tensor]]()
    for name, table in data.tables.items():
        if isinstance(table, NodeTable):
            if table.nodes not in of_ranges:  # a type's tables have one
                places = np.flatnonzero((nodes >= table.nodes.start) & (nodes < table.nodes.stop))
                of_ranges[table.nodes] = places, torch.from_numpy(nodes[places] - table.first)
            places, rows = of_ranges[table.nodes]
            positions[name] = put(places)
            tables[name] = gather(name, table.store, rows)
        else:
            tables[name] = gather(name, table, batch.nodes)
    edge_tables, edge_positions = dict[str, TableLayout](), dict[str, EdgePositions]()
    if data.edge_stores:
        edges = _Edges(data, batch, layout)
        for name, store in data.edge_stores.items():
            key = name.removeprefix(EDGE_PREFIX)
            of_edges = data.edge_tables.get(key) if name.startswith(EDGE_PREFIX) else None
            if isinstance(of_edges, EdgeTable):
                ids, where, spans = edges.of_type(of_edges)
                edge_positions[key] = EdgePositions(put(where), spans)
                edge_tables[key] = gather(name, store, ids)
            else:
                edge_tables[key] = gather(name, store, edges.rows)
    seed_columns = {name: place(tuple(rows.shape), rows.dtype) for name, rows in asked.columns.items()}
    return TablePlaces(x, y, tables, positions, edge_tables, edge_positions, seed_columns, end, gathers, found)


def fill_tables(
    places: TablePlaces, stores: Mapping[str, FeatureStore], request: BatchRequest | None, buffer: Any
) -> Reads:
    """Gathers all tables but y into the slot, and announces the request to their stores, unless it is None.

    Returns:
        Where the rows came from, of stores that count.
    """
    reads = []
    for name, ids, place in places.gathers:
        if request is not None:
            stores[name].announce(request)
        store = stores[name]
        reads.append(store.gather(ids, place.view(buffer).view(len(ids), store.shape[1])) or ())
    for place, numbers in places.found:
        place.view(buffer).numpy()[:] = numbers
    return reads[0] if len(reads) == 1 else summed_reads(reads)


def edge_spans(hops: Sequence[HopLayout]) -> list[slice]:
    """Finds the rows of each hop among the edge features of all; hops that are prefixes of one array share rows."""
    sizes: dict[int, int] = {}
    for hop in hops:
        sizes[hop.edge_ids_offset] = max(hop.num_edges, sizes.get(hop.edge_ids_offset, 0))
    begins = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
    return [slice(begin := begins[hop.edge_ids_offset], begin + hop.num_edges) for hop in hops]


def num_edge_rows(hops: Sequence[HopLayout]) -> int:
    """Counts the rows of the edge features of all hops."""
    return max((span.stop for span in edge_spans(hops)), default=0)


class _Edges:
    """The edges of a mini-batch's hops, one after the other as :func:`edge_spans` has them, and their rows in tables.

    Raises:
        SamplerConfigError: the blocks have no edge ids.
    """

    def __init__(self, data: GraphData, batch: MiniBatch, layout: SampleLayout) -> None:
        self._graph, self._spans = data.graph, edge_spans(layout.hops)
        self._ids = np.empty(num_edge_rows(layout.hops), np.int64)
        for block, span in zip(reversed(batch.blocks), self._spans, strict=True):
            if block.edge_ids is None:
                raise SamplerConfigError(
                    f"the data has tables of edges ({', '.join(data.edge_stores)}), whose rows are found by edge ids, "
                    f"but the sampler's blocks have none. Give the sampler edge_ids=True, if it knows the edges that "
                    f"it draws, or leave these tables out: GraphData(edge_x=None, edge_tables={{}}), "
                    f"from_pyg(edge_tables=[])."
                )
            self._ids[span] = block.edge_ids.numpy()
        self._blocks = batch.blocks[::-1]
        self._found: dict[int, tuple[torch.Tensor, np.ndarray, tuple[tuple[int, int], ...]]] = {}

    @cached_property
    def rows(self) -> torch.Tensor:
        """The rows of tables of all edges, int64."""
        return _rows_at(self._ids, self._graph.flat_order)

    @cached_property
    def _kinds(self) -> np.ndarray:
        """The number of each edge's type, of the smallest dtype, which is sorted the fastest."""
        assert self._graph.types is not None
        dtype = np.min_scalar_type(len(self._graph.types.edge_types))
        if any(block.edge_type is None for block in self._blocks):
            return self._graph.edge_types_of(self._ids).astype(dtype)
        kinds = np.empty(len(self._ids), dtype)
        for block, span in zip(self._blocks, self._spans, strict=True):
            kinds[span] = block.edge_type.numpy()  # type: ignore[union-attr]  # as was asked above
        return kinds

    @cached_property
    def _by_type(self) -> tuple[np.ndarray, np.ndarray]:
        """The edges by type, ascending within each, and where the edges of each type begin and end."""
        types = self._graph.types
        assert types is not None
        counts = np.bincount(self._kinds, minlength=len(types.edge_types))
        return np.argsort(self._kinds, kind="stable"), np.concatenate([[0], np.cumsum(counts)])

    def of_type(self, table: EdgeTable) -> tuple[torch.Tensor, np.ndarray, tuple[tuple[int, int], ...]]:
        """Returns the rows of an edge type's table, the place of each one's edge in its hop, and each hop's span of
        them."""
        types, order = self._graph.types, self._graph.edge_order
        assert types is not None
        assert order is not None
        kind = types.edge_type_number(table.edge_type)
        if kind not in self._found:  # a type's tables have the same rows
            by_type, ptr = self._by_type
            found = by_type[ptr[kind] : ptr[kind + 1]]
            where = found.copy()
            spans = []
            for span in self._spans:  # hops that are prefixes of one array begin at one place
                own = slice(*np.searchsorted(found, (span.start, span.stop)).tolist())
                where[own] = found[own] - span.start
                spans.append((own.start, own.stop))
            self._found[kind] = _rows_at(self._ids[found], order), where, tuple(spans)
        return self._found[kind]


def _rows_at(edges: np.ndarray, order: np.ndarray | None) -> torch.Tensor:
    """Returns the rows of tables of these edges, int64; where there is no order, these are the edges."""
    if order is None:
        return torch.from_numpy(edges)
    rows = np.empty(len(edges), order.dtype)
    gather_rows(order, edges, rows)  # each is a miss of the caches
    return torch.from_numpy(rows.astype(np.int64, copy=False))

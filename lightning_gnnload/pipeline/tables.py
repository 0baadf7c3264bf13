"""The tables of a mini-batch: their places in its slot, and which rows of which store go there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch

from lightning_gnnload.data.block import MiniBatch, view_of
from lightning_gnnload.data.features import FeatureStore, Reads, summed_reads
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.tables import EDGE_PREFIX, NodeTable
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import HopLayout, SampleLayout

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


class Gather(NamedTuple):
    """An instruction to gather: rows ``ids``, int64, of the store ``name`` go to ``place``."""

    name: str
    ids: torch.Tensor
    place: TableLayout


class TablePlaces(NamedTuple):
    """The positions of a mini-batch's feature tables in its memory, and which rows go there.

    Attributes:
        x: features of all V nodes.
        y: labels of the seeds.
        tables: further features by name: ``[V, F]``, or ``[M, F]`` of the M nodes that a NodeTable has rows for.
        positions: of NodeTables, by name: the places of these M nodes among all nodes, int64 ``[M]``, ascending.
        edge_tables: edge features of all hops by name, ``"edge_x"`` among them; :func:`edge_spans` says which rows are
            whose.
        end: where they end.
        gathers: what to gather for them; y is gathered apart, as it is in no store.
        found: what to write to ``positions``.
    """

    x: TableLayout | None
    y: TableLayout | None
    tables: dict[str, TableLayout]
    positions: dict[str, TableLayout]
    edge_tables: dict[str, TableLayout]
    end: int
    gathers: list[Gather]
    found: dict[str, np.ndarray]


def place_tables(data: GraphData, batch: MiniBatch, layout: SampleLayout) -> TablePlaces:
    """Places a mini-batch's tables one after the other, each aligned to 64 bytes, in the free middle of its slot.

    The nodes lie at the slot's begin, the hops at its end. The caller checks whether there is so much room.

    Raises:
        SamplerConfigError: the data has edge tables, but the blocks no edge ids.
    """
    end, gathers, found = layout.free_begin, list[Gather](), dict[str, np.ndarray]()

    def place(shape: tuple[int, ...], dtype: torch.dtype) -> TableLayout:
        nonlocal end
        table = TableLayout(end, shape, str(dtype).removeprefix("torch."))
        end += -(-table.num_bytes // _ALIGN) * _ALIGN
        return table

    def gather(name: str, store: FeatureStore, ids: torch.Tensor) -> TableLayout:
        gathers.append(Gather(name, ids, place((len(ids), *store.row_shape), store.dtype)))
        return gathers[-1].place

    x = y = None
    tables, positions = dict[str, TableLayout](), dict[str, TableLayout]()
    if data.x is not None:
        x = gather("x", data.x, batch.nodes)
    if data.y is not None:
        y = place((batch.num_seeds, *data.y.shape[1:]), data.y.dtype)
    for name, table in data.tables.items():
        if isinstance(table, NodeTable):
            nodes = batch.nodes.numpy()
            found[name] = np.flatnonzero((nodes >= table.nodes.start) & (nodes < table.nodes.stop))
            positions[name] = place(found[name].shape, torch.int64)
            tables[name] = gather(name, table.store, torch.from_numpy(nodes[found[name]] - table.first))
        else:
            tables[name] = gather(name, table, batch.nodes)
    edge_rows = _edge_rows(data, batch, layout) if data.edge_stores else torch.empty(0, dtype=torch.int64)
    edge_tables = {
        name.removeprefix(EDGE_PREFIX): gather(name, store, edge_rows) for name, store in data.edge_stores.items()
    }
    return TablePlaces(x, y, tables, positions, edge_tables, end, gathers, found)


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
    for name, positions in places.found.items():
        places.positions[name].view(buffer).numpy()[:] = positions
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


def _edge_rows(data: GraphData, batch: MiniBatch, layout: SampleLayout) -> torch.Tensor:
    """Returns the rows of edge tables that the hops need, in the order of :func:`edge_spans`."""
    rows = torch.empty(num_edge_rows(layout.hops), dtype=torch.int64)
    for block, span in zip(reversed(batch.blocks), edge_spans(layout.hops), strict=True):
        if block.edge_ids is None:
            raise SamplerConfigError(
                f"the data has tables of edges ({', '.join(data.edge_stores)}), whose rows are found by edge ids, but "
                f"the sampler's blocks have none. Give the sampler edge_ids=True, if it knows the edges that it draws, "
                f"or leave these tables out: GraphData(edge_x=None, edge_tables={{}}), from_pyg(edge_tables=[])."
            )
        rows[span] = block.edge_ids
    order = data.graph.edge_order
    return rows if order is None else torch.from_numpy(order[rows.numpy()].astype(np.int64, copy=False))

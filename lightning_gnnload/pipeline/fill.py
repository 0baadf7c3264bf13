"""Fill: which columns come with a mini-batch that was drawn, and where their rows are gathered from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from lightning_gnnload.data.features import FeatureStore, Reads, gather, summed_reads
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.slab import EDGES, NODES, ROWS, SEEDS, Axis, Column, Header, hop_spans
from lightning_gnnload.data.tables import EDGE_PREFIX, EdgeTable, NodeTable
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import SampleLayout
from lightning_gnnload.sample.seeds.rows import SeedBatch


class Filling(NamedTuple):
    """The columns that come with one mini-batch, and what fills them.

    ``header`` describes all columns; they end at ``end``, behind which the hops must begin. ``contents`` has, for each
    column that was not drawn, a store's name or rows, and which of these rows (None: all).
    """

    header: Header
    end: int
    contents: list[tuple[str | torch.Tensor, torch.Tensor | None]]

    def gather(self, stores: Mapping[str, FeatureStore], request: BatchRequest | None, memory: np.ndarray) -> Reads:
        """Fills the columns and returns where the rows came from. Stores are told of ``request`` first, unless it is
        None."""
        header, reads = self.header, list[Reads]()
        views = header.views(memory, len(header.offsets) - len(self.contents))
        for (rows, ids), out in zip(self.contents, views, strict=True):
            if isinstance(rows, str):
                store = stores[rows]
                if request is not None:
                    store.announce(request)
                reads.append(store.gather(ids, out.view(len(out), store.shape[1])) or ())  # type: ignore[arg-type]
            elif ids is None:
                out.copy_(rows)
            else:
                gather(rows, ids, out)
        return reads[0] if len(reads) == 1 else summed_reads(reads)


class Filler:
    """Finds the columns that come with mini-batches of these data: features, labels, and what belongs to the seeds'
    rows."""

    def __init__(self, data: GraphData) -> None:
        self._data = data
        self._of_nodes = list[tuple[str, Column]]()
        self._of_some: dict[range, list[tuple[str, Column]]] = {}
        self._of_edges = list[tuple[str, Column]]()
        self._of_types: dict[int, list[tuple[str, Column]]] = {}
        if data.x is not None:
            self._of_nodes.append(("x", Column.of(NODES, "x", data.x)))
        for name, table in data.tables.items():
            if isinstance(table, NodeTable):  # tables of a type share its nodes
                some = self._of_some.setdefault(table.nodes, [])
                axis = Axis("node", part=list(self._of_some).index(table.nodes))
                some.append((name, Column.of(axis, "tables", table.store, name)))
            else:
                self._of_nodes.append((name, Column.of(NODES, "tables", table, name)))
        for name, store in data.edge_stores.items():
            key = name.removeprefix(EDGE_PREFIX)
            per_type = data.edge_tables.get(key) if name.startswith(EDGE_PREFIX) else None
            if isinstance(per_type, EdgeTable):
                assert data.graph.types is not None, "GraphData refuses it"
                part = data.graph.types.edge_type_number(per_type.edge_type)
                column = Column.of(EDGES._replace(part=part), "tables", store, key)
                self._of_types.setdefault(part, []).append((name, column))
            elif name == "edge_x":
                self._of_edges.append((name, Column.of(EDGES, "x", store)))
            else:
                self._of_edges.append((name, Column.of(EDGES, "tables", store, key)))

    @property
    def columns(self) -> dict[str, Column]:
        """The columns that are gathered from stores, by the store's name, in the order in which they are."""
        by_axis = [self._of_nodes, *self._of_some.values(), self._of_edges, *self._of_types.values()]
        return {name: column for group in by_axis for name, column in group}

    def place(self, layout: SampleLayout, seeds: SeedBatch, memory: np.ndarray) -> Filling:
        """Places the columns of one drawn mini-batch between its nodes and its hops; ``memory`` (uint8) may be too
        small.

        Raises SamplerConfigError where the data has edge tables, but the blocks have no edge ids.
        """
        data, nodes = self._data, memory[: 8 * layout.num_nodes].view(np.int64)
        ids = torch.from_numpy(nodes)
        columns, lengths = list[Column](), {NODES: layout.num_nodes}
        contents = list[tuple[str | torch.Tensor, torch.Tensor | None]]()

        def add(group: list[tuple[str, Column]], rows: torch.Tensor) -> None:
            for name, column in group:
                columns.append(column)
                contents.append((name, rows))

        def add_part(group: list[tuple[str, Column]], positions: np.ndarray, rows: torch.Tensor) -> None:
            axis = group[0][1].axis
            columns.append(Column(axis, "positions", "int64"))
            contents.append((torch.from_numpy(positions), None))
            lengths[axis] = len(positions)
            add(group, rows)

        add(self._of_nodes, ids)
        for some, group in self._of_some.items():
            positions = np.flatnonzero((nodes >= some.start) & (nodes < some.stop))
            add_part(group, positions, torch.from_numpy(nodes[positions] - some.start))
        if self._of_edges or self._of_types:
            edges = _HopEdges(data, layout, memory)
            lengths[EDGES] = edges.num_edges
            if self._of_edges:
                add(self._of_edges, edges.rows)
            for part, group in self._of_types.items():
                rows, positions, counts = edges.of_type(part)
                lengths |= counts
                add_part(group, positions, rows)
        num_seeds, key = len(seeds.draw.seeds), seeds.draw.key
        if data.y is not None and seeds.takes_labels_of_nodes:
            columns.append(Column.of(SEEDS, "y", data.y))
            contents.append((data.y, ids[:num_seeds]))
        for column, values in of_rows(seeds, seeds.y):
            columns.append(column)
            contents.append((values, None))
            lengths[column.axis] = len(values)
        header, end = Header.place(layout, num_seeds, key.epoch, key.step, tuple(columns), lengths, seeds.form)
        return Filling(header, end, contents)


def of_rows(seeds: SeedBatch, labels: torch.Tensor | None) -> list[tuple[Column, torch.Tensor]]:
    """Lists what belongs to a mini-batch's rows, and their labels."""
    values = [] if labels is None else [(Column.of(ROWS, "y", labels), labels)]
    for number, (name, rows) in enumerate(seeds.columns.items()):
        values.append((Column.of(Axis("row", part=number), "seed_columns", rows, name), rows))
    return values


class _HopEdges:
    """The edges of a mini-batch's hops, joined as :func:`.hop_spans` lays them, and their rows in tables."""

    def __init__(self, data: GraphData, layout: SampleLayout, memory: np.ndarray) -> None:
        hops = layout.hops
        ids, types = [hop.edge_ids_offset for hop in hops], [hop.edge_types_offset for hop in hops]
        if min(ids, default=0) < 0:
            raise SamplerConfigError(
                f"the data has tables of edges ({', '.join(data.edge_stores)}), whose rows are found by edge ids, "
                f"but the sampler's blocks have none. Give the sampler edge_ids=True, if it knows the edges that "
                f"it draws, or leave these tables out: GraphData(edge_x=None, edge_tables={{}}), "
                f"from_pyg(edge_tables=[])."
            )
        self._graph, self._types_at, self._memory = data.graph, types, memory
        self._spans = hop_spans([hop.indices_offset for hop in hops], [hop.num_edges for hop in hops])
        self.num_edges = max([span.stop for span in self._spans], default=0)
        self._ids = self._column(ids, np.dtype(np.int64))

    def _column(self, offsets: list[int], dtype: np.dtype, out_dtype: np.dtype | None = None) -> np.ndarray:
        """Joins a column of all hops."""
        joined = np.empty(self.num_edges, out_dtype or dtype)
        for span, offset in zip(self._spans, offsets, strict=True):
            count = span.stop - span.start
            joined[span] = self._memory[offset : offset + count * dtype.itemsize].view(dtype)
        return joined

    @cached_property
    def rows(self) -> torch.Tensor:
        """The rows of tables of all edges, int64."""
        return torch.from_numpy(self._graph.edge_rows(self._ids))

    @cached_property
    def _types(self) -> np.ndarray:
        """The number of each edge's type, of the smallest dtype, which is sorted the fastest."""
        assert self._graph.types is not None
        dtype = np.min_scalar_type(len(self._graph.types.edge_types))
        if min(self._types_at, default=0) < 0:
            return self._graph.edge_types_of(self._ids).astype(dtype)
        return self._column(self._types_at, np.dtype(np.int32), dtype)

    @cached_property
    def _by_type(self) -> tuple[np.ndarray, np.ndarray]:
        """The edges by type, ascending within each, and where the edges of each type begin and end."""
        assert self._graph.types is not None
        counts = np.bincount(self._types, minlength=len(self._graph.types.edge_types))
        return np.argsort(self._types, kind="stable"), np.concatenate([[0], np.cumsum(counts)])

    def of_type(self, part: int) -> tuple[torch.Tensor, np.ndarray, dict[Axis, int]]:
        """Returns the table rows of one edge type, each edge's position in its hop, and the count of each hop."""
        by_type, ptr = self._by_type
        edges = by_type[ptr[part] : ptr[part + 1]]
        positions, counts = edges.copy(), {EDGES._replace(part=part): len(edges)}
        for hop, span in enumerate(self._spans):  # hops that are prefixes of one array begin at one place
            first, last = np.searchsorted(edges, (span.start, span.stop)).tolist()
            positions[first:last] = edges[first:last] - span.start
            counts[Axis("edge", hop, part)] = last - first
        return torch.from_numpy(self._graph.edge_rows(self._ids[edges], part)), positions, counts

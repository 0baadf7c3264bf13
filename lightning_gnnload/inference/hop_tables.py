"""HopTables: makes the tables of sums of one table, in memory or in a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import torch

from lightning_gnnload.data.aggregates import Aggregate
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, byte_rows
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.tables import NodeTable
from lightning_gnnload.errors import FeatureFileError, GraphDataError
from lightning_gnnload.inference.aggregation import InEdges, inverse_root, read_columns, sums, totals
from lightning_gnnload.storage.aggregates import AddedTable, checksums
from lightning_gnnload.storage.folders import ArrayWriter
from lightning_gnnload.storage.tables import table_name

Advance = Callable[[int], None]


@dataclass(frozen=True)
class HopTables:
    """The tables to make of one table by edges of one type; ``names`` are theirs, by hop."""

    store: FeatureStore
    edges: InEdges
    aggregate: Aggregate
    names: list[str]
    first: int | None  # node of the table, where it has rows for those of a type alone
    dtype: torch.dtype
    width: int  # columns at a time
    chunk_bytes: int

    @property
    def sum_dtype(self) -> torch.dtype:
        return torch.float64 if self.store.dtype is torch.float64 else torch.float32

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.edges.nodes), self.store.shape[1]

    @property
    def slices(self) -> list[slice]:
        """The columns that are summed at a time; of a table without any, once none."""
        width = self.shape[1]
        return [slice(begin, min(begin + self.width, width)) for begin in range(0, max(width, 1), self.width)]

    @property
    def work(self) -> int:
        """The rows and edges that are read in all."""
        indptr, nodes = self.edges.graph.indptr, self.edges.nodes
        a_hop = len(nodes) + int(indptr[nodes.stop] - indptr[nodes.start])
        return len(self.slices) * (len(self.edges.sources) + len(self.names) * a_hop)

    def aggregates(self, sources: dict[str, int]) -> dict[str, Aggregate]:
        """Returns what each of the tables is, by name."""
        return {name: replace(self.aggregate, hop=hop, sources=sources) for hop, name in enumerate(self.names, start=1)}

    def sum_blocks(self, columns: slice, advance: Advance) -> Iterator[tuple[int, int, torch.Tensor]]:
        """Yields the hop, from 0 on, the first node and the sums ``[n, w]`` of blocks of all nodes."""
        into_sources, into_sums = self._norms
        chunk_rows = max(self.chunk_bytes // max(self.store.row_bytes, 1), 1)
        rows = torch.empty((self.store.shape[0], columns.stop - columns.start), dtype=self.sum_dtype)
        for count in read_columns(self.store, columns, rows, chunk_rows):
            advance(count)
        for hop in range(len(self.names)):
            if into_sources is not None:
                rows.mul_(into_sources[:, None])
            sums_of_all = torch.empty_like(rows) if hop + 1 < len(self.names) else None
            for begin, end in self.edges.blocks():
                lists = self.edges.of(begin, end)
                block = sums(rows, lists)
                if self.aggregate.aggr == "mean":
                    total = totals(lists)
                    block.div_(total.masked_fill_(total == 0, 1).to(block.dtype)[:, None])
                if into_sums is not None:
                    block.mul_(into_sums[begin:end, None])
                if sums_of_all is not None:
                    sums_of_all[begin:end] = block
                yield hop, begin, block
                advance(end - begin + len(lists.sources))
            if sums_of_all is not None:
                rows = sums_of_all

    @cached_property
    def _norms(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The factors of sources and of nodes that a norm has."""
        if self.aggregate.aggr not in ("gcn", "both"):
            return None, None
        node_factors = inverse_root(self.edges.in_degrees()).to(self.sum_dtype)
        if self.aggregate.aggr == "gcn":
            return node_factors, node_factors
        return inverse_root(self.edges.out_degrees()).to(self.sum_dtype), node_factors

    def rounded(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns rows in the tables' dtype. Raises GraphDataError: it does not hold them."""
        small = rows.to(self.dtype)
        if bool((small.isinf() & rows.isfinite()).any()):
            raise GraphDataError(
                f"the {self.aggregate} goes up to {rows.abs().max():.5g}, but {self.dtype} holds numbers up to "
                f"{torch.finfo(self.dtype).max:.5g}. Give dtype=torch.float32, --dtype float32."
            )
        return small


def in_memory(data: GraphData, tables: list[HopTables], advance: Advance) -> GraphData:
    """Returns the data with the tables in memory."""
    added, aggregates = dict[str, Any](), dict[str, Aggregate]()
    for table in tables:
        rows = [torch.empty(table.shape, dtype=table.dtype) for _ in table.names]
        for columns in table.slices:
            for hop, begin, block in table.sum_blocks(columns, advance):
                rows[hop][begin : begin + len(block), columns] = table.rounded(block)
        for name, hop_rows in zip(table.names, rows, strict=True):
            store = MemoryFeatureStore(hop_rows.view(len(hop_rows), *table.store.row_shape))
            added[name] = store if table.first is None else NodeTable(store, table.first)
        source = data.stores[table.aggregate.table]
        for name, aggregate in table.aggregates(checksums(data, table.aggregate)).items():
            aggregates[name] = aggregate.bound(data.graph, source)
    return data.with_tables(added, aggregates)


def on_disk(
    tables: list[HopTables], folder: Path, advance: Advance, sources: Callable[[Aggregate], dict[str, int]]
) -> dict[str, AddedTable]:
    """Writes the arrays of the tables to a new folder."""
    added = {}
    for table in tables:
        aggregates = table.aggregates(sources(table.aggregate))
        for name, entry in _write(table, folder, advance).items():
            added[name] = AddedTable(entry, table.first, aggregates[name])
    return added


def _write(table: HopTables, folder: Path, advance: Advance) -> dict[str, dict[str, Any]]:
    """Writes a table for each hop to a folder; returns their entries in the manifest."""
    row_bytes, slices = table.shape[1] * table.dtype.itemsize, table.slices
    with ExitStack() as stack:
        writers = [
            stack.enter_context(ArrayWriter(folder, table_name(name), np.uint8, (row_bytes,))) for name in table.names
        ]
        if len(slices) == 1:
            for hop, _, block in table.sum_blocks(slices[0], advance):
                writers[hop].append(byte_rows(table.rounded(block)))
        else:
            # Columns lie apart until all are there: a row of all of them can only be written at once.
            files = [stack.enter_context(TemporaryFile(dir=folder.parent)) for _ in table.names]
            for columns in slices:
                for hop, _, block in table.sum_blocks(columns, advance):
                    files[hop].write(byte_rows(table.rounded(block)).data)
            for writer, file in zip(writers, files, strict=True):
                _join(table, file, writer)
        shape = [table.shape[0], *table.store.row_shape]
        dtype = str(table.dtype).removeprefix("torch.")
        # Written as bytes, as NumPy has no bfloat16.
        entries = [writer.entry() | {"dtype": dtype, "shape": shape} for writer in writers]
    return dict(zip(table.names, entries, strict=True))


def _join(table: HopTables, file: IO[bytes], writer: ArrayWriter) -> None:
    """Writes rows of all columns; the file has all rows of some columns, then those of the next ones."""
    file.flush()
    num_rows, item = table.shape[0], table.dtype.itemsize
    chunk_rows = max(table.chunk_bytes // max(table.shape[1] * item, 1), 1)
    for begin in range(0, num_rows, chunk_rows):
        rows = np.empty((min(chunk_rows, num_rows - begin), table.shape[1] * item), np.uint8)
        for columns in table.slices:
            first, stop = columns.start * item, columns.stop * item
            piece = np.empty((len(rows), stop - first), np.uint8)
            num_bytes = os.preadv(file.fileno(), [piece.data], num_rows * first + begin * (stop - first))
            if num_bytes != piece.nbytes:
                raise FeatureFileError(f"columns that were written beside {writer.path} cannot be read again.")
            rows[:, first:stop] = piece
        writer.append(rows)

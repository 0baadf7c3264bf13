"""HopTables: makes the tables of sums of one table, in memory or in a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
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
class Hop:
    """A table of sums of rows by some edges, and the hops that sum it again; ``name`` is None where it is not kept."""

    edges: InEdges
    aggregate: Aggregate
    name: str | None
    further: tuple[Hop, ...] = ()

    @property
    def first(self) -> int | None:
        """The table's first node; None where it has a row for each node of the graph."""
        return None if self.edges.edge_types is None else self.edges.nodes.start

    @property
    def all(self) -> Iterator[Hop]:
        """Yields this and all further ones, in the order in which they are made."""
        yield self
        for hop in self.further:
            yield from hop.all


def rows_at_once(hops: Sequence[Hop], num_rows: int) -> int:
    """Returns how many rows have to be in memory to sum ``num_rows`` by all of these hops."""
    most = num_rows
    for number, hop in enumerate(hops, start=1):
        if hop.further:
            num_sums = len(hop.edges.nodes)
            waiting = num_rows if number < len(hops) else 0
            most = max(most, num_rows + num_sums, waiting + rows_at_once(hop.further, num_sums))
    return most


@dataclass(frozen=True)
class HopTables:
    """The tables to make of one table, whose rows are those of ``hops[...].edges.sources``."""

    store: FeatureStore
    hops: tuple[Hop, ...]
    dtype: torch.dtype
    width: int  # columns at a time
    chunk_bytes: int

    @property
    def sum_dtype(self) -> torch.dtype:
        return torch.float64 if self.store.dtype is torch.float64 else torch.float32

    @property
    def all(self) -> list[Hop]:
        return [further for hop in self.hops for further in hop.all]

    @property
    def kept(self) -> dict[str, Hop]:
        """The hops whose tables are kept, by their names."""
        return {hop.name: hop for hop in self.all if hop.name is not None}

    @property
    def slices(self) -> list[slice]:
        """The columns that are summed at a time; of a table without any, once none."""
        width = self.store.shape[1]
        return [slice(begin, min(begin + self.width, width)) for begin in range(0, max(width, 1), self.width)]

    @cached_property
    def work(self) -> int:
        """The rows and edges that are read in all."""
        sizes = [(len(hop.edges.nodes), hop.edges) for hop in self.all]
        return len(self.slices) * (self.store.shape[0] + sum(size + edges.num_edges(0, size) for size, edges in sizes))

    def aggregates(self, sources: dict[str, int]) -> dict[str, Aggregate]:
        """Returns what each of the tables is, by name."""
        return {name: replace(hop.aggregate, sources=sources) for name, hop in self.kept.items()}

    def sum_blocks(self, columns: slice, advance: Advance) -> Iterator[tuple[str, int, torch.Tensor]]:
        """Yields the name of a table, the first node and the sums ``[n, w]`` of blocks of all of its nodes."""
        chunk_rows = max(self.chunk_bytes // max(self.store.row_bytes, 1), 1)
        rows = torch.empty((self.store.shape[0], columns.stop - columns.start), dtype=self.sum_dtype)
        for count in read_columns(self.store, columns, rows, chunk_rows):
            advance(count)
        # What is summed last goes first: rows are let go as soon as nothing sums them any more.
        waiting = [(rows, hop) for hop in reversed(self.hops)]
        del rows
        while waiting:
            rows, hop = waiting.pop()
            sums_of_all = None
            if hop.further:
                sums_of_all = torch.empty((len(hop.edges.nodes), rows.shape[1]), dtype=rows.dtype)
            for begin, block in self._blocks(rows, hop, advance):
                if sums_of_all is not None:
                    sums_of_all[begin : begin + len(block)] = block
                if hop.name is not None:
                    yield hop.name, begin, block
            if sums_of_all is not None:
                waiting += [(sums_of_all, further) for further in reversed(hop.further)]
            del rows, sums_of_all

    def _blocks(self, rows: torch.Tensor, hop: Hop, advance: Advance) -> Iterator[tuple[int, torch.Tensor]]:
        into_sources, into_sums = self._norms
        if into_sources is not None:
            rows.mul_(into_sources[:, None])
        for begin, end in hop.edges.blocks():
            lists = hop.edges.of(begin, end)
            block = sums(rows, lists)
            if hop.aggregate.aggr == "mean":
                total = totals(lists)
                block.div_(total.masked_fill_(total == 0, torch.inf).to(block.dtype)[:, None])
            if into_sums is not None:
                block.mul_(into_sums[begin:end, None])
            yield begin, block
            advance(end - begin + hop.edges.num_edges(begin, end))

    @cached_property
    def _norms(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The factors of sources and of nodes that a norm has, which is of a graph without types: alike at each hop."""
        edges, aggregate = self.hops[0].edges, self.hops[0].aggregate
        if aggregate.aggr not in ("gcn", "both"):
            return None, None
        node_factors = inverse_root(edges.in_degrees()).to(self.sum_dtype)
        if aggregate.aggr == "gcn":
            return node_factors, node_factors
        return inverse_root(edges.out_degrees()).to(self.sum_dtype), node_factors

    def rounded(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Returns rows in the tables' dtype. Raises GraphDataError: it does not hold them."""
        small = rows.to(self.dtype)
        if bool((small.isinf() & rows.isfinite()).any()):
            raise GraphDataError(
                f"the {self.kept[name].aggregate} goes up to {rows.abs().max():.5g}, but {self.dtype} holds numbers up "
                f"to {torch.finfo(self.dtype).max:.5g}. Give dtype=torch.float32, --dtype float32."
            )
        return small


def in_memory(data: GraphData, tables: list[HopTables], advance: Advance) -> GraphData:
    """Returns the data with the tables in memory."""
    added, aggregates = dict[str, Any](), dict[str, Aggregate]()
    for table in tables:
        width = table.store.shape[1]
        rows = {name: torch.empty(len(hop.edges.nodes), width, dtype=table.dtype) for name, hop in table.kept.items()}
        for columns in table.slices:
            for name, begin, block in table.sum_blocks(columns, advance):
                rows[name][begin : begin + len(block), columns] = table.rounded(name, block)
        for name, hop in table.kept.items():
            store = MemoryFeatureStore(rows[name].view(len(rows[name]), *table.store.row_shape))
            added[name] = store if hop.first is None else NodeTable(store, hop.first)
        made_of = table.hops[0].aggregate
        for name, aggregate in table.aggregates(checksums(data, made_of)).items():
            aggregates[name] = aggregate.bound(data.graph, data.stores[made_of.table])
    return data.with_tables(added, aggregates)


def on_disk(
    tables: list[HopTables], folder: Path, advance: Advance, sources: Callable[[Aggregate], dict[str, int]]
) -> dict[str, AddedTable]:
    """Writes the arrays of the tables to a new folder."""
    added = {}
    for table in tables:
        aggregates = table.aggregates(sources(table.hops[0].aggregate))
        for name, entry in _write(table, folder, advance).items():
            added[name] = AddedTable(entry, table.kept[name].first, aggregates[name])
    return added


def _write(table: HopTables, folder: Path, advance: Advance) -> dict[str, dict[str, Any]]:
    """Writes the tables of all hops to a folder; returns their entries in the manifest."""
    row_bytes, slices, hops = table.store.shape[1] * table.dtype.itemsize, table.slices, table.kept
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(ArrayWriter(folder, table_name(name), np.uint8, (row_bytes,))) for name in hops
        }
        if len(slices) == 1:
            for name, _, block in table.sum_blocks(slices[0], advance):
                writers[name].append(byte_rows(table.rounded(name, block)))
        else:
            # Columns lie apart until all are there: a row of all of them can only be written at once.
            files = {name: stack.enter_context(TemporaryFile(dir=folder.parent)) for name in hops}
            for columns in slices:
                for name, _, block in table.sum_blocks(columns, advance):
                    files[name].write(byte_rows(table.rounded(name, block)).data)
            for name, writer in writers.items():
                _join(table, len(hops[name].edges.nodes), files[name], writer)
        # Written as bytes, as NumPy has no bfloat16.
        dtype = str(table.dtype).removeprefix("torch.")
        return {
            name: writer.entry() | {"dtype": dtype, "shape": [len(hops[name].edges.nodes), *table.store.row_shape]}
            for name, writer in writers.items()
        }


def _join(table: HopTables, num_rows: int, file: IO[bytes], writer: ArrayWriter) -> None:
    """Writes rows of all columns; the file has all rows of some columns, then those of the next ones."""
    file.flush()
    width, item = table.store.shape[1], table.dtype.itemsize
    chunk_rows = max(table.chunk_bytes // max(width * item, 1), 1)
    for begin in range(0, num_rows, chunk_rows):
        rows = np.empty((min(chunk_rows, num_rows - begin), width * item), np.uint8)
        for columns in table.slices:
            first, stop = columns.start * item, columns.stop * item
            piece = np.empty((len(rows), stop - first), np.uint8)
            num_bytes = os.preadv(file.fileno(), [piece.data], num_rows * first + begin * (stop - first))
            if num_bytes != piece.nbytes:
                raise FeatureFileError(f"columns that were written beside {writer.path} cannot be read again.")
            rows[:, first:stop] = piece
        writer.append(rows)

"""Whole in-neighbourhoods as mini-batches: of one hop, of which a layer is computed, and of all hops, to compare with.

Shapes: S nodes asked for, V nodes of a mini-batch, K layers of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.features import FeatureStore, gather
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.slab import EDGE_COLUMNS
from lightning_gnnload.data.tables import EDGE_PREFIX, EdgeTable, NodeTable
from lightning_gnnload.data.typed_parts import edge_types
from lightning_gnnload.inference.rows import rows_at
from lightning_gnnload.sample.neighbor import NeighborSampler

ABSENT, BLANK = "absent", "blank"
"""What stands for rows that a stage does not read: no rows at all, or zeros that take no memory."""


@dataclass(frozen=True)
class InLists:
    """The in-neighbours of nodes, as samplers read them: all, or some few that a node has whenever it is asked.

    Attributes:
        data: whose graph it is.
        fanout: how many a node has at most, of each edge type; -1 for all.
        time: edges later than this do not count; None where the graph has no times, or they are ignored.
        settings: ``before`` and ``window`` of the sampler.
    """

    data: GraphData
    fanout: int = -1
    time: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def hop(self, nodes: np.ndarray, kinds: Sequence[int] | None = None) -> MiniBatch:
        """Returns these nodes, int64 ``[S]``, with their in-neighbours by edges of some types, or all."""
        of_all = kinds is None or self.fanout != -1  # a node's few are to be the same, whatever is left out
        fanouts: Any = [self.fanout] if of_all else [dict.fromkeys(kinds or (), self.fanout)]
        timed = self.time is not None
        sampler = NeighborSampler(
            fanouts,
            edge_ids=bool(self.data.edge_stores) or self.data.graph.types is not None,
            **({"sharing": "time", **self.settings} if timed else {"before": None}),
        )
        if not timed:
            return sampler.sample(self.data.graph, nodes)
        batch = sampler.sample(self.data.graph, nodes, times=np.full(len(nodes), self.time))
        return replace(batch, seed_columns={"time": torch.from_numpy(np.full(len(nodes), self.time))})

    def hops(self, nodes: np.ndarray, count: int, most_edges: int | None = None) -> MiniBatch | None:
        """Returns these nodes with their neighbourhood of several hops; None where it has more than ``most_edges``.

        Whoever is found by one hop has the same neighbours at the next, so that each hop is the beginning of the one
        outside it, and the mini-batch is one of any format.
        """
        sizes, batch = [len(nodes)], self.without_edges(nodes)
        for _ in range(count):
            found = batch.nodes.numpy()
            if most_edges is not None and self.num_edges(found) > most_edges:
                return None
            batch = self.hop(found)
            sizes.append(batch.num_nodes)
        blocks = [beginning(batch.blocks[0], *pair) for pair in zip(sizes[-2::-1], sizes[:0:-1], strict=True)]
        columns = {name: rows[: len(nodes)] for name, rows in batch.seed_columns.items()}
        return replace(batch, num_seeds=len(nodes), blocks=blocks, seed_columns=columns)

    def num_edges(self, nodes: np.ndarray) -> int:
        """Counts the in-edges of nodes, int64 ``[S]``, of all times."""
        indptr = self.data.graph.indptr
        return int((indptr[nodes + 1] - indptr[nodes]).sum())

    def without_edges(self, nodes: np.ndarray) -> MiniBatch:
        """Returns these nodes alone, and a block without edges."""
        some = self.hop(nodes[:0])
        block, columns = some.blocks[0], some.seed_columns
        if self.time is not None:
            columns = {"time": torch.from_numpy(np.full(len(nodes), self.time))}
        return replace(
            some,
            nodes=torch.from_numpy(nodes),
            num_seeds=len(nodes),
            blocks=[edgeless(block, len(nodes))],
            rows=None if some.rows is None else torch.zeros(len(nodes), dtype=some.rows.dtype),
            seed_columns=columns,
        )


def beginning(block: Block, num_dst: int, num_src: int) -> Block:
    """Returns the block of its first destinations, whose sources are its first."""
    end = int(block.indptr[num_dst])
    ends = {name: int(torch.searchsorted(places, end)) for name, places in block.positions.items()}
    columns = {each.name: rows[:end] for each in EDGE_COLUMNS if (rows := getattr(block, each.name)) is not None}
    return Block(
        block.indptr[: num_dst + 1],
        block.indices[:end],
        num_dst,
        num_src,
        x=None if block.x is None else block.x[:end],
        tables={name: rows[: ends.get(name, end)] for name, rows in block.tables.items()},
        positions={name: places[: ends[name]] for name, places in block.positions.items()},
        **columns,
    )


def edgeless(block: Block, num_nodes: int) -> Block:
    """Returns a block with the same columns, and without edges, whose sources and destinations are the same nodes."""
    indptr = torch.zeros(num_nodes + 1, dtype=block.indptr.dtype)
    return replace(beginning(block, 0, 0), indptr=indptr, num_dst=num_nodes, num_src=num_nodes)


def with_oddities(hop: MiniBatch) -> MiniBatch:
    """Returns a hop, without types, whose destinations have each of their edges twice, but for the first, in place of
    which they have a loop."""
    [block] = hop.blocks
    columns = {
        each.name: rows.repeat_interleave(2) for each in EDGE_COLUMNS if (rows := getattr(block, each.name)) is not None
    }
    indptr, indices = block.indptr * 2, block.indices.repeat_interleave(2)
    if "edge_type" not in columns:
        has_edges = block.in_degrees > 0
        indices[indptr[:-1][has_edges].long()] = torch.arange(block.num_dst, dtype=indices.dtype)[has_edges]
    return replace(hop, blocks=[replace(block, indptr=indptr, indices=indices, **columns)])


class Columns:
    """Fills mini-batches with the rows of the data's tables.

    Args:
        data: whose tables they are.
        memory_bytes: how much may be expected to stay in memory of tables that lie in files.
    """

    def __init__(self, data: GraphData, memory_bytes: int) -> None:
        self.data, self.memory_bytes = data, memory_bytes

    def present(self, batch: MiniBatch) -> list[str]:
        """Returns the names of those tables, as ``GraphData.stores`` has them, that have rows for a mini-batch."""
        filled = self.fill(batch, {})
        [block] = filled.blocks
        edges = {"edge_x": block.x} | {EDGE_PREFIX + name: rows for name, rows in block.tables.items()}
        found = {"x": filled.x} | filled.tables | edges
        return [name for name, rows in found.items() if rows is not None and len(rows)]

    def fill(self, batch: MiniBatch, unread: Mapping[str, str]) -> MiniBatch:
        """Returns the batch, of one hop or of nested ones, with the rows of its nodes and edges.

        Args:
            batch: its outermost block holds all edges.
            unread: names of tables that are not read, each with what stands for them: ``ABSENT`` or ``BLANK``.
        """
        data, nodes = self.data, batch.nodes
        tables, positions = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
        for name, table in data.tables.items():
            if isinstance(table, NodeTable):
                ids = nodes - table.first
                places = ((ids >= 0) & (ids < table.count)).nonzero().squeeze(1)
                tables[name] = self._rows(name, table.store, ids[places], unread)
                positions[name] = places[: len(tables[name])]
            else:
                tables[name] = self._rows(name, table, nodes, unread)
        block = self._of_edges(batch.blocks[0], unread) if batch.blocks else None
        return replace(
            batch,
            blocks=[beginning(block, each.num_dst, each.num_src) for each in batch.blocks] if block else [],
            x=None if data.x is None else self._rows("x", data.x, nodes, unread),
            y=None if data.y is None else data.y[batch.seeds],
            tables=tables,
            positions=positions,
        )

    def _of_edges(self, block: Block, unread: Mapping[str, str]) -> Block:
        data, graph = self.data, self.data.graph
        if not data.edge_stores:
            return block
        assert block.edge_ids is not None, "the sampler was asked for them"
        edges = block.edge_ids.numpy()
        kinds = None if graph.types is None else edge_types(block, graph)
        tables, positions = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
        for name, table in data.edge_tables.items():
            key = EDGE_PREFIX + name
            if isinstance(table, EdgeTable):
                assert kinds is not None
                assert graph.types is not None
                places = np.flatnonzero(kinds == graph.types.edge_type_number(table.edge_type))
                tables[name] = self._rows(key, table.store, _in_order(edges[places], graph.edge_order), unread)
                positions[name] = torch.from_numpy(places)[: len(tables[name])]
            else:
                tables[name] = self._rows(key, table, _in_order(edges, graph.flat_order), unread)
        x = None
        if data.edge_x is not None:
            x = self._rows("edge_x", data.edge_x, _in_order(edges, graph.flat_order), unread)
        return replace(block, x=x, tables=tables, positions=positions)

    def _rows(self, name: str, store: FeatureStore, ids: torch.Tensor, unread: Mapping[str, str]) -> torch.Tensor:
        if name in unread:
            nothing = torch.zeros((1, *store.row_shape), dtype=store.dtype)
            return nothing[:0] if unread[name] == ABSENT else nothing.expand(len(ids), *store.row_shape)
        return rows_at(store, ids, self.memory_bytes)


def _in_order(edges: np.ndarray, order: np.ndarray | None) -> torch.Tensor:
    """Returns the rows of tables of edges at these positions of the graph, int64."""
    if order is None:
        return torch.from_numpy(edges)
    found = torch.empty(len(edges), dtype=torch.from_numpy(order[:0]).dtype)
    gather(torch.from_numpy(order), torch.from_numpy(edges), found)
    return found.long()


@dataclass(frozen=True)
class Batches:
    """Makes what a model is given.

    Attributes:
        columns: of the data.
        convert: from a MiniBatch to the batch format; None where that is the format.
        num_layers: K.
        nested: each hop's block holds the edges of all hops, as formats do that have one list of edges.
        device: where the model is.
    """

    columns: Columns
    convert: Callable[[MiniBatch], Any] | None
    num_layers: int
    nested: bool
    device: torch.device

    def whole(self, batch: MiniBatch) -> Any:
        """Returns what the model is given of all hops, with all rows."""
        return self._made(self.columns.fill(batch, {}))

    def at_layer(self, hop: MiniBatch, layer: int, unread: Mapping[str, str]) -> Any:
        """Returns what the model is given where nodes are to pass one layer.

        Layers before it have given their rows for all V nodes: their blocks have no edges, and keep all nodes.

        Args:
            hop: the nodes with their in-neighbours.
            layer: from 0 on; K or more for what follows the last one.
            unread: as for :meth:`Columns.fill`.
        """
        filled = self.columns.fill(hop, unread)
        [block] = filled.blocks
        if self.nested:
            blocks = [block] * self.num_layers
        else:
            before, after = (edgeless(block, count) for count in (block.num_src, block.num_dst))
            layer = min(layer, self.num_layers)
            blocks = [before] * layer + [block, *[after] * self.num_layers][: self.num_layers - layer]
        return self._made(replace(filled, blocks=blocks))

    def _made(self, batch: MiniBatch) -> Any:
        return moved(batch if self.convert is None else self.convert(batch), self.device)


def moved(batch: Any, device: torch.device) -> Any:
    """Returns what a batch holds, on a device."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, list | tuple):
        return type(batch)(moved(each, device) for each in batch)
    if isinstance(batch, dict):
        return {name: moved(each, device) for name, each in batch.items()}
    return batch.to(device)

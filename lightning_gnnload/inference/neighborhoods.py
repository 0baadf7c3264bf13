"""Whole in-neighbourhoods as mini-batches: of one hop, for which a layer is computed, and of all hops, to compare with.

Shapes: S requested nodes, V nodes of a mini-batch, K layers of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.slab import EDGE_COLUMNS
from lightning_gnnload.data.tables import EDGE_PREFIX, EdgeTable, NodeTable
from lightning_gnnload.data.typed_parts import edge_types
from lightning_gnnload.inference.rows import rows_at
from lightning_gnnload.sample.neighbor import NeighborSampler

ABSENT, BLANK = "absent", "blank"
"""What replaces rows that a stage does not read: no rows at all, or zeros that take no memory."""
_SPREAD = 1000


@dataclass(frozen=True)
class InLists:
    """The in-neighbours of nodes, as samplers read them: all, or a few, which are the same whenever a node comes.

    A node has at most ``fanout`` of each edge type, -1 for all. Edges later than ``time`` do not count, None where the
    graph has no times, or they are ignored; ``settings`` are ``before`` and ``window`` of the sampler.
    """

    data: GraphData
    fanout: int = -1
    time: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def hop(self, nodes: np.ndarray, edge_types: Sequence[int] | None = None) -> MiniBatch:
        """Returns these nodes, int64 ``[S]``, with their in-neighbours by edges of some types, or all."""
        # A node's few neighbours are to be the same, whatever types are read: so all types are drawn.
        is_whole = edge_types is None or self.fanout != -1
        fanouts: Any = [self.fanout] if is_whole else [dict.fromkeys(edge_types or (), self.fanout)]
        timed = self.time is not None
        # Rows of edges and, in a graph with types, the types of edges are looked up by edge ids.
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

        A node has the same neighbours at each hop, so that each hop is the beginning of the one outside it, and the
        mini-batch is one of any format.
        """
        sizes, batch = [len(nodes)], self.without_edges(nodes)
        for _ in range(count):
            reached = batch.nodes.numpy()
            if most_edges is not None and self.num_edges(reached) > most_edges:
                return None
            batch = self.hop(reached)
            sizes.append(batch.num_nodes)
        blocks = [block_prefix(batch.blocks[0], *pair) for pair in zip(sizes[-2::-1], sizes[:0:-1], strict=True)]
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


def spread_nodes(graph: Graph, nodes: range) -> tuple[np.ndarray, np.ndarray]:
    """Returns up to 1,000 nodes, spread evenly over a range, and how many in-edges each has, int64."""
    spread = np.linspace(nodes.start, max(nodes.stop - 1, nodes.start), _SPREAD).astype(np.int64)
    spread = np.unique(spread)[: len(nodes)]
    return spread, graph.indptr[spread + 1] - graph.indptr[spread] if len(spread) else spread


def block_prefix(block: Block, num_dst: int, num_src: int) -> Block:
    """Returns the block of the first ``num_dst`` destinations and ``num_src`` sources."""
    end = int(block.indptr[num_dst])
    num_rows = {name: int(torch.searchsorted(positions, end)) for name, positions in block.positions.items()}
    columns = {spec.name: rows[:end] for spec in EDGE_COLUMNS if (rows := getattr(block, spec.name)) is not None}
    return Block(
        block.indptr[: num_dst + 1],
        block.indices[:end],
        num_dst,
        num_src,
        x=None if block.x is None else block.x[:end],
        tables={name: rows[: num_rows.get(name, end)] for name, rows in block.tables.items()},
        positions={name: positions[: num_rows[name]] for name, positions in block.positions.items()},
        **columns,
    )


def edgeless(block: Block, num_nodes: int) -> Block:
    """Returns a block with the same columns, and without edges, whose sources and destinations are the same nodes."""
    indptr = torch.zeros(num_nodes + 1, dtype=block.indptr.dtype)
    return replace(block_prefix(block, 0, 0), indptr=indptr, num_dst=num_nodes, num_src=num_nodes)


def with_oddities(hop: MiniBatch) -> MiniBatch:
    """Returns a hop, without types, whose destinations have each of their edges twice, and a loop instead of the
    first."""
    [block] = hop.blocks
    columns = {
        spec.name: rows.repeat_interleave(2) for spec in EDGE_COLUMNS if (rows := getattr(block, spec.name)) is not None
    }
    indptr, indices = block.indptr * 2, block.indices.repeat_interleave(2)
    if "edge_type" not in columns:
        has_edges = block.in_degrees > 0
        indices[indptr[:-1][has_edges].long()] = torch.arange(block.num_dst, dtype=indices.dtype)[has_edges]
    return replace(hop, blocks=[replace(block, indptr=indptr, indices=indices, **columns)])


class Columns:
    """Fills mini-batches with the rows of the data's tables; ``memory_bytes`` of those in files may be expected to stay
    in memory."""

    def __init__(self, data: GraphData, memory_bytes: int) -> None:
        self.data, self.memory_bytes = data, memory_bytes

    def present(self, batch: MiniBatch) -> dict[str, int]:
        """Returns how many rows the tables, by their names in ``GraphData.stores``, have for a mini-batch; not those
        that have none."""
        filled = self.fill(batch, {})
        [block] = filled.blocks
        edges = {"edge_x": block.x} | {EDGE_PREFIX + name: rows for name, rows in block.tables.items()}
        tables = {"x": filled.x} | filled.tables | edges
        return {name: len(rows) for name, rows in tables.items() if rows is not None and len(rows)}

    def fill(self, batch: MiniBatch, unread: Mapping[str, str]) -> MiniBatch:
        """Returns the batch, of one hop or of nested ones, with the rows of its nodes and edges.

        Its outermost block has all edges. ``unread`` names tables that are not read, each with ``ABSENT`` or ``BLANK``.
        """
        data, nodes = self.data, batch.nodes
        tables, positions = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
        for name, table in data.tables.items():
            if isinstance(table, NodeTable):
                ids = nodes - table.first
                rows_of_type = ((ids >= 0) & (ids < table.count)).nonzero().squeeze(1)
                tables[name] = self._rows(name, table.store, ids[rows_of_type], unread)
                positions[name] = rows_of_type[: len(tables[name])]
            else:
                tables[name] = self._rows(name, table, nodes, unread)
        block = self._fill_block(batch.blocks[0], unread) if batch.blocks else None
        return replace(
            batch,
            blocks=[block_prefix(block, hop.num_dst, hop.num_src) for hop in batch.blocks] if block else [],
            x=None if data.x is None else self._rows("x", data.x, nodes, unread),
            y=None if data.y is None else data.y[batch.seeds],
            tables=tables,
            positions=positions,
        )

    def _fill_block(self, block: Block, unread: Mapping[str, str]) -> Block:
        data, graph = self.data, self.data.graph
        if not data.edge_stores:
            return block
        assert block.edge_ids is not None, "hop() samples them"
        edges = block.edge_ids.numpy()
        types = None if graph.types is None else edge_types(block, graph)
        tables, positions = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
        for name, table in data.edge_tables.items():
            key = EDGE_PREFIX + name
            if isinstance(table, EdgeTable):
                assert types is not None
                assert graph.types is not None
                number = graph.types.edge_type_number(table.edge_type)
                at = np.flatnonzero(types == number)
                tables[name] = self._rows(
                    key, table.store, torch.from_numpy(graph.edge_rows(edges[at], number)), unread
                )
                positions[name] = torch.from_numpy(at)[: len(tables[name])]
            else:
                tables[name] = self._rows(key, table, torch.from_numpy(graph.edge_rows(edges)), unread)
        x = None
        if data.edge_x is not None:
            x = self._rows("edge_x", data.edge_x, torch.from_numpy(graph.edge_rows(edges)), unread)
        return replace(block, x=x, tables=tables, positions=positions)

    def _rows(self, name: str, store: FeatureStore, ids: torch.Tensor, unread: Mapping[str, str]) -> torch.Tensor:
        if name in unread:
            nothing = torch.zeros((1, *store.row_shape), dtype=store.dtype)
            return nothing[:0] if unread[name] == ABSENT else nothing.expand(len(ids), *store.row_shape)
        return rows_at(store, ids, self.memory_bytes)


@dataclass(frozen=True)
class Batches:
    """Makes the batches of a model.

    ``convert`` makes one of a MiniBatch, None where that is the format; the model has ``num_layers`` K layers;
    ``nested`` says that each hop's block has the edges of all hops, as in formats with one list of edges.
    """

    columns: Columns
    convert: Callable[[MiniBatch], Any] | None
    num_layers: int
    nested: bool
    device: torch.device

    def whole(self, batch: MiniBatch) -> Any:
        """Returns the batch of all hops, with all rows."""
        return self._made(self.columns.fill(batch, {}))

    def at_layer(self, hop: MiniBatch, layer: int, unread: Mapping[str, str]) -> Any:
        """Returns the batch by which nodes pass the layer of this number, K or more for what follows the last one.

        Layers before it have computed their rows for all V nodes of ``hop``: their blocks have no edges, and keep all
        nodes. ``unread`` is as for :meth:`Columns.fill`.
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
    """Returns a batch with its tensors on a device."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, list | tuple):
        return type(batch)(moved(part, device) for part in batch)
    if isinstance(batch, dict):
        return {name: moved(part, device) for name, part in batch.items()}
    return batch.to(device)

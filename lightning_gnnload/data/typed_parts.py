"""TypedParts: the tensors of a mini-batch cut by node type and edge type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.by_type import table_of_type
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.seedform import COLUMNS
from lightning_gnnload.data.tables import EDGE_PREFIX, EdgeTable, NodeTable
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import GraphDataError, SamplerConfigError

ColumnOf = Mapping[str, tuple[Any, str]]
"""For each table of a mini-batch that has rows of one type: the node or edge type, and the column's name there."""


class TypedParts:
    """Cuts one mini-batch by type, for the fields of a :class:`.TypedMiniBatch`.

    ``local`` is memory for the nodes' ids by type, int64 ``[V]``; None: new memory.
    """

    def __init__(self, batch: MiniBatch, graph: Graph, columns: ColumnOf, local: np.ndarray | None = None) -> None:
        if graph.types is None:
            raise SamplerConfigError(f"{graph} has no types of nodes to cut a mini-batch by.")
        self.batch, self.graph, self.types, self.columns = batch, graph, graph.types, columns
        self.rows_are_seeds = batch.seed_form.name == "nodes"
        self._counts: dict[int, dict[str, int]] = {}
        self.by_type = ops.split_nodes(batch.nodes.cpu().numpy(), self.types.first_node, local)

    def nodes(self) -> dict[str, torch.Tensor]:
        return self.of_types(torch.from_numpy(self.by_type.local).to(self.batch.nodes.device))

    def rows(self) -> dict[str, torch.Tensor]:
        return {} if self.batch.rows is None else self.gathered(self.batch.rows)

    def seed_columns(self) -> dict[str, torch.Tensor]:
        columns, y = dict(self.batch.seed_columns), self.batch.y
        if self.rows_are_seeds:
            return columns
        for name, (_, holds) in COLUMNS[self.batch.seed_form.name].items():
            if holds == "node" and name in columns:
                positions = columns[name]
                within = self.by_type.places(positions.clamp(min=0).cpu().numpy())
                columns[name] = torch.from_numpy(within).to(positions.device).where(positions >= 0, -1)
        return columns if y is None else {**columns, "y": y}

    def counts(self, num_nodes: int) -> dict[str, int]:
        if num_nodes not in self._counts:  # hops have some in common
            counts = self.by_type.counts(num_nodes).tolist()
            self._counts[num_nodes] = dict(zip(self.types.node_types, counts, strict=True))
        return dict(self._counts[num_nodes])

    def of_types(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns each type's part of rows that lie by type."""
        return dict(zip(self.types.node_types, rows.split(np.diff(self.by_type.ptr).tolist()), strict=True))

    def gathered(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns each type's part of rows that lie in the order of the mini-batch."""
        return self.of_types(rows[torch.from_numpy(self.by_type.position).to(rows.device)])

    def labels(self) -> dict[str, torch.Tensor]:
        y, counts = self.batch.y, self.counts(self.batch.num_seeds)
        present = [name for name, count in counts.items() if count]
        if not self.rows_are_seeds:
            return {}
        if y is None or len(present) == 1:
            return {} if y is None else {present[0]: y}
        positions = self.of_types(torch.from_numpy(self.by_type.position).to(y.device))
        return {name: y[positions[name][: counts[name]]] for name in present}  # a type's seeds are its first nodes

    def node_tables(self) -> tuple[dict[str, torch.Tensor], dict[str, dict[str, torch.Tensor]]]:
        x = {} if self.batch.x is None else self.gathered(self.batch.x)
        tables: dict[str, dict[str, torch.Tensor]] = {name: {} for name in self.types.node_types}
        for name, rows in self.batch.tables.items():
            if name not in self.columns:
                for node_type, part in self.gathered(rows).items():
                    tables[node_type][name] = part
                continue
            node_type, column = self.columns[name]
            if column == "x":
                x[node_type] = rows
            else:
                tables[node_type][column] = rows
        return x, tables

    def blocks(self) -> list[dict[EdgeType, Block]]:
        blocks: list[dict[EdgeType, Block]] = []
        for number, block in enumerate(self.batch.blocks):
            outer = self.batch.blocks[number - 1] if number else None
            if outer is not None and _is_prefix(block, outer):
                blocks.append(self.prefix(blocks[-1], block))
            else:
                blocks.append(self.cut(block))
        return blocks

    def prefix(self, outer: dict[EdgeType, Block], block: Block) -> dict[EdgeType, Block]:
        """Returns the typed blocks of a hop that is the beginning of another."""
        num_src, num_dst = self.counts(block.num_src), self.counts(block.num_dst)
        return {
            edge_type: _beginning(longer, num_src[edge_type[0]], num_dst[edge_type[2]])
            for edge_type, longer in outer.items()
        }

    def cut(self, block: Block) -> dict[EdgeType, Block]:
        edges = ops.split_edges(
            block.indptr.cpu().numpy(),
            block.indices.cpu().numpy(),
            edge_types(block, self.graph),
            self.by_type,
            *self.types.endpoint_types,
            edge_ids=None if block.edge_ids is None else block.edge_ids.cpu().numpy(),
            positions=bool(block.tables) or block.edge_weight is not None or block.x is not None,
        )

        def by_type(rows: np.ndarray, ptr: np.ndarray) -> tuple[torch.Tensor, ...]:
            return torch.from_numpy(rows).to(block.indices.device).split(np.diff(ptr).tolist())

        indptrs, sources = by_type(edges.indptrs, edges.begin), by_type(edges.sources, edges.ptr)
        edge_ids = None if edges.edge_ids is None else by_type(edges.edge_ids, edges.ptr)
        position = None if edges.position is None else by_type(edges.position, edges.ptr)
        num_src, num_dst = self.counts(block.num_src), self.counts(block.num_dst)
        return {
            edge_type: Block(
                indptrs[k],
                sources[k],
                num_dst[edge_type[2]],
                num_src[edge_type[0]],
                None if edge_ids is None else edge_ids[k],
                **({} if position is None else self.edge_columns(block, edge_type, position[k])),
            )
            for k, edge_type in enumerate(self.types.edge_types)
        }

    def edge_columns(self, block: Block, edge_type: EdgeType, position: torch.Tensor) -> dict[str, Any]:
        """Returns further columns of an edge type's block, of edges that stand there in the block of all types."""
        columns = {"edge_weight": block.edge_weight, "x": block.x}
        result: dict[str, Any] = {name: rows[position] for name, rows in columns.items() if rows is not None}
        tables = {}
        for name, rows in block.tables.items():
            table_type, column = self.columns.get(EDGE_PREFIX + name, (None, name))
            if table_type is None:
                tables[name] = rows[position]
            elif table_type == edge_type and column == "x":
                result["x"] = rows
            elif table_type == edge_type:
                tables[column] = rows
        return result | {"tables": tables}


def columns_of(data: GraphData) -> dict[str, tuple[Any, str]]:
    """Returns which tables of these data's mini-batches have rows of one type, and which columns of it they are.

    Raises:
        GraphDataError: a table for some of the nodes that are not those of one type.
    """
    types, result = data.graph.types, dict[str, tuple[Any, str]]()
    if types is None:
        return result
    for name, table in data.tables.items():
        if isinstance(table, NodeTable):
            matching = [node_type for node_type in types.node_types if types.range_of(node_type) == table.nodes]
            named = [node_type for node_type in matching if name.endswith(table_of_type("", node_type))]
            if not matching:
                raise GraphDataError(f"table {name!r} is for {table}, which are not the nodes of one type of {types}.")
            result[name] = (named or matching)[0], name.partition(".")[0]
    for name, per_type in data.edge_tables.items():
        if isinstance(per_type, EdgeTable):
            result[EDGE_PREFIX + name] = per_type.edge_type, name.partition(".")[0]
    return result


def edge_types(block: Block, graph: Graph) -> np.ndarray:
    """Returns the number of each edge's type, int32 ``[num_edges]``: those of the block, or by the edges' positions.

    Raises:
        SamplerConfigError: the block has neither.
    """
    if block.edge_type is not None:
        return block.edge_type.cpu().numpy()
    if block.edge_ids is None:
        raise SamplerConfigError(
            "the graph has types, but the types of the drawn edges are unknown: the sampler's blocks have neither "
            "edge_type nor edge_ids. Give the sampler edge_ids=True, if it takes that."
        )
    return graph.edge_types_of(block.edge_ids.cpu().numpy())


def _is_prefix(inner: Block, outer: Block) -> bool:
    # Samplers let such hops share memory.
    arrays = ("indptr", "indices", "edge_ids", "edge_weight", "edge_type")
    pairs = [(getattr(inner, name), getattr(outer, name)) for name in arrays]
    return all(a is b is None or (a is not None and b is not None and a.data_ptr() == b.data_ptr()) for a, b in pairs)


def _beginning(outer: Block, num_src: int, num_dst: int) -> Block:
    end = int(outer.indptr[num_dst])
    values = {name: getattr(outer, name) for name in ("edge_ids", "edge_weight", "x")}
    columns = {name: rows[:end] for name, rows in values.items() if rows is not None}
    return Block(
        outer.indptr[: num_dst + 1],
        outer.indices[:end],
        num_dst,
        num_src,
        tables={name: rows[:end] for name, rows in outer.tables.items()},
        **columns,
    )

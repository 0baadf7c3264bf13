"""Mini-batches as PyG's SamplerOutput and HeteroSamplerOutput: who was sampled, without a row of data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from lightning_gnnload import ops
from lightning_gnnload.adapters.pyg.stores import steps
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.slab import view_of
from lightning_gnnload.data.typed_parts import TypedParts, edge_types
from lightning_gnnload.pyg.bidirectional import with_ways_back
from lightning_gnnload.pyg.compat import SubgraphType
from lightning_gnnload.pyg.topology import Direction, turned
from lightning_gnnload.sample.induced import induced_block

METADATA = "metadata_"  # begins the names of a mini-batch's columns that are the metadata of PyG's sampler output
UNTIL = "until"  # the column of what induced_block() takes of each row, in a graph with times
ALL_EDGES = (SubgraphType.induced, SubgraphType.bidirectional)  # types of subgraphs with edges that were not drawn

Room = Callable[[int], Any]
"""Gives memory of so many bytes or more, for tensors over it: recycled or new."""
NEW_MEMORY: Room = partial(np.empty, dtype=np.uint8)
_ID_BYTES = 8
_NODES_METADATA, _LINKS_METADATA = 2, 4  # entries, of nodes and of links with labels; those of triplets are more


class Settings(Protocol):
    """The settings that say how a mini-batch was drawn: those of :class:`.GnnloadSampler`."""

    graph: Graph
    subgraph_type: SubgraphType
    sample_direction: Direction
    counts_hops: bool  # whether PyG gets the counts of nodes and edges by hop
    keep_orig_edges: bool  # whether a bidirectional subgraph keeps the edges that were drawn beside it

    @property
    def disjoint(self) -> bool: ...

    @property
    def num_hops(self) -> int: ...


def sampler_output(
    batch: MiniBatch, sampler: Settings, num_rows: int | None = None, room: Room = NEW_MEMORY
) -> SamplerOutput | HeteroSamplerOutput:
    """Returns what PyG's own sampler would give for a mini-batch of ``sampler.inner()``: all types of the graph, edges
    by the user's numbers, and the metadata that the batch's columns hold.

    Edges come nearest hop first or, of induced and bidirectional subgraphs, in the order of their targets. ``num_rows``
    is the number of nodes or links that the batch began with; None: as many as the metadata has ids. ``room`` gives
    memory for the lists of nodes and edges.
    """
    output = _convert(batch, sampler, room, induced=sampler.subgraph_type is SubgraphType.induced)
    if sampler.subgraph_type is SubgraphType.bidirectional:
        induced = _convert(batch, sampler, NEW_MEMORY, induced=True)
        output = with_ways_back(output, induced, keep_drawn=sampler.keep_orig_edges)
    output.metadata = metadata_of(batch.seed_columns)
    if output.batch is not None and len(output.metadata) > _NODES_METADATA:
        num_rows = len(output.metadata[0]) if num_rows is None else num_rows
        output.batch = _links_of_nodes(
            output.batch, num_rows, seeds_per_endpoint(batch.num_seeds, len(output.metadata))
        )
    if not sampler.counts_hops:
        output.num_sampled_nodes = output.num_sampled_edges = None
    return output


def _convert(batch: MiniBatch, sampler: Settings, room: Room, *, induced: bool) -> Any:
    """Returns what was drawn, or what its nodes induce, with rows, columns and types as in the user's graph."""
    make = _homogeneous if sampler.graph.types is None else _hetero
    output: Any = make(batch, sampler, room, induced=induced)
    if sampler.sample_direction == "backward":
        output.row, output.col = output.col, output.row
        if isinstance(output, HeteroSamplerOutput):
            for name in ("row", "col", "edge", "num_sampled_edges"):
                if (by_type := getattr(output, name)) is not None:
                    setattr(output, name, {turned(name, "backward"): column for name, column in by_type.items()})
    return output


def joined(row: torch.Tensor, col: torch.Tensor) -> torch.Tensor:
    """Returns int64 ``[2, E]`` of both, without a copy where they lie one after the other, as a mini-batch's own do."""
    # To stack them would copy all edges of each mini-batch once more.
    memory = row.untyped_storage().data_ptr(), row.storage_offset() + len(row)
    is_joined = memory == (col.untyped_storage().data_ptr(), col.storage_offset())
    if not is_joined or not row.is_contiguous() or not col.is_contiguous() or row.dtype != col.dtype:
        return torch.stack([row, col])
    return row.as_strided((2, len(row)), (len(row), 1))


def _homogeneous(batch: MiniBatch, sampler: Settings, room: Room, *, induced: bool) -> SamplerOutput:
    graph, hops, block = sampler.graph, batch.blocks[::-1], _edges(batch, sampler, induced)
    lists = _Lists(room, num_edges=0 if block is None else block.num_edges)
    if block is not None:
        ops.list_edges(*_columns(block), graph.edge_order, graph.num_edges, lists.edge_lists)
    edge_index, edge = lists.edges(0, lists.num_edges)
    missing = [0] * (sampler.num_hops - len(hops))
    output = SamplerOutput(
        batch.nodes,
        edge_index[0],
        edge_index[1],
        edge,
        batch=batch.rows.long() if sampler.disjoint else None,  # type: ignore[union-attr]
        num_sampled_nodes=[*steps([0, batch.num_seeds, *(block.num_src for block in hops)]), *missing],
        num_sampled_edges=[*steps([0, *(block.num_edges for block in hops)]), *missing],
    )
    return _uncounted(output) if induced else output


def _hetero(batch: MiniBatch, sampler: Settings, room: Room, *, induced: bool) -> HeteroSamplerOutput:
    graph, hops, whole = sampler.graph, batch.blocks[::-1], _edges(batch, sampler, induced)
    types, rows = graph.types, batch.rows.long() if sampler.disjoint else None  # type: ignore[union-attr]
    assert types is not None, "_convert() calls this for graphs with types"
    num_rows = 0 if rows is None else batch.num_nodes
    lists = _Lists(room, batch.num_nodes, num_rows, 0 if whole is None else whole.num_edges)
    # The seeds' columns are PyG's metadata, which is not by type.
    parts = TypedParts(replace(batch, seed_columns={}), graph, {}, lists.node_ids)
    node_ptr = parts.by_type.ptr.tolist()
    missing = [0] * (sampler.num_hops - len(hops))
    totals = parts.by_type.counts(np.array([0, batch.num_seeds, *(block.num_src for block in hops)])).tolist()
    num_dst = [block.num_dst for block in ([whole] if induced and whole is not None else hops)]
    edge_ptr, num_edges = _split_edges(whole, graph, parts, np.array(num_dst), lists)
    output = HeteroSamplerOutput(
        {name: lists.nodes(*node_ptr[t : t + 2]) for t, name in enumerate(types.node_types)},
        {},
        {},
        {},
        batch=None if rows is None else dict(zip(types.node_types, lists.rows(rows, parts.by_type), strict=True)),
        num_sampled_nodes={
            name: [*steps(counts), *missing] for name, counts in zip(types.node_types, totals, strict=True)
        },
        num_sampled_edges={name: [*counts, *missing] for name, counts in zip(types.edge_types, num_edges, strict=True)},
    )
    for k, name in enumerate(types.edge_types):
        edge_index, output.edge[name] = lists.edges(*edge_ptr[k : k + 2])
        output.row[name], output.col[name] = edge_index[0], edge_index[1]
    return _uncounted(output) if induced else output


def _split_edges(
    whole: Block | None, graph: Graph, parts: TypedParts, num_dst: np.ndarray, lists: _Lists
) -> tuple[list[int], list[list[int]]]:
    """Lists edges by type; returns where each type's begin, ``[K + 1]``, and how many each hop has, ``[K][hops]``."""
    if whole is None:
        num_types = len(parts.types.edge_types)
        return [0] * (num_types + 1), [[]] * num_types
    indptr, indices, edge_ids = _columns(whole)
    columns, (src_type, dst_type) = (indptr, indices, edge_types(whole, graph), edge_ids), parts.types.endpoint_types
    listed = ops.split_edge_list(
        *columns, parts.by_type, src_type, dst_type, num_dst, graph.edge_order, graph.num_edges, lists.edge_lists
    )
    return listed.ptr.tolist(), listed.counts.T.tolist()


class _Lists:
    """The memory of one mini-batch's lists, in this order: nodes by type, the rows of nodes (all or none), sources and
    targets of edges by type, and numbers of edges.

    ``node_ids`` are int64 ``[V]``, ``edge_lists`` int64 ``[3 * E]``; ``room`` gives the memory.
    """

    def __init__(self, room: Room, num_nodes: int = 0, num_rows: int = 0, num_edges: int = 0) -> None:
        self.num_nodes, self.num_edges = num_nodes, num_edges
        self._edges_begin = num_nodes + num_rows
        count = self._edges_begin + 3 * num_edges
        # One allocation for all lists, which a slot recycles; an empty one would be no memory to view.
        self._memory = room(max(count, 1) * _ID_BYTES)
        entries = np.frombuffer(self._memory, np.int64, count)
        self.node_ids, self.edge_lists = entries[:num_nodes], entries[self._edges_begin :]

    def nodes(self, begin: int, end: int) -> torch.Tensor:
        return self._view(begin, end - begin)

    def rows(self, all_rows: Any, by_type: ops.SplitNodes) -> list[torch.Tensor]:
        """Lists the rows of the mini-batch's nodes, int64 ``[V]``, and returns those of each type."""
        rows = [self._view(self.num_nodes + begin, end - begin) for begin, end in pairwise(by_type.ptr.tolist())]
        for part, (begin, end) in zip(rows, pairwise(by_type.ptr.tolist()), strict=True):
            torch.index_select(all_rows, 0, torch.from_numpy(by_type.position[begin:end]), out=part)
        return rows

    def edges(self, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the sources and targets of edges ``[begin, end)``, int64 ``[2, end - begin]``, and their numbers."""
        edge_index = self._view(self._edges_begin + 2 * begin, 2, end - begin)
        return edge_index, self._view(self._edges_begin + 2 * self.num_edges + begin, end - begin)

    def _view(self, begin: int, *shape: int) -> torch.Tensor:
        # Each tensor has no more storage than its rows: a user may pickle it.
        return view_of(self._memory, begin * _ID_BYTES, shape, torch.int64)


def _columns(block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    assert block.edge_ids is not None, "the sampler has edge_ids=True"
    return block.indptr.numpy(), block.indices.numpy(), block.edge_ids.numpy()


def _edges(batch: MiniBatch, sampler: Settings, induced: bool) -> Block | None:
    """Returns all edges of a mini-batch: those that its nodes induce, or those of the outermost hop, of which other
    hops' are prefixes; None without hops."""
    if not induced:
        return batch.blocks[0] if batch.blocks else None
    until = batch.seed_columns.get(UNTIL)
    return induced_block(sampler.graph, batch, None if until is None else until.numpy())


def _uncounted(output: Any) -> Any:
    """Leaves out the counts by hop, as edges of an induced subgraph belong to none."""
    return replace(output, num_sampled_nodes=None, num_sampled_edges=None)


def metadata_of(columns: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    """Returns PyG's metadata: of nodes two entries, of links four, of triplets five; None for one that is not there."""
    entries: list[torch.Tensor | None] = []
    for name, rows in columns.items():
        if name.startswith(METADATA):
            at, count = map(int, name.removeprefix(METADATA).split("_of_"))
            entries = entries or [None] * count
            entries[at] = rows
    return tuple(entries) or (None,) * _NODES_METADATA


def metadata_columns(metadata: tuple[Any, ...]) -> dict[str, torch.Tensor]:
    """Returns PyG's metadata as columns of a mini-batch's rows, of which :func:`sampler_output` makes it again."""
    # The names say where each entry was, and how many there were: entries that are None have no column.
    named = {f"{METADATA}{at}_of_{len(metadata)}": rows for at, rows in enumerate(metadata)}
    return {name: torch.as_tensor(rows) for name, rows in named.items() if rows is not None}


def seeds_per_endpoint(num_seeds: int, num_metadata: int) -> int:
    """Returns after how many seeds rows begin anew.

    Seeds are the sources of all rows and of binary negatives, which need not be as many for each row, then their
    targets; or those of triplets, where each row has as many.
    """
    return num_seeds // 2 if num_metadata == _LINKS_METADATA else num_seeds


def _links_of_nodes(batch: Any, num_rows: int, per_endpoint: int) -> Any:
    """Returns the number of the link that each node belongs to."""
    if isinstance(batch, dict):
        return {name: _links_of_nodes(rows, num_rows, per_endpoint) for name, rows in batch.items()}
    return batch.remainder(max(per_endpoint, 1)).remainder(max(num_rows, 1))

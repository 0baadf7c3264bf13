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
from torch_geometric.sampler.base import SubgraphType

from lightning_gnnload import ops
from lightning_gnnload.adapters.pyg_stores import steps
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.slab import view_of
from lightning_gnnload.data.typed_parts import TypedParts, edge_types
from lightning_gnnload.pyg.bidirectional import with_ways_back
from lightning_gnnload.pyg.topology import Direction, turned
from lightning_gnnload.sample.induced import induced_block

METADATA = "metadata_"
"""Begins the names of a mini-batch's columns that are the metadata of PyG's sampler output."""
UNTIL = "until"
"""The column of what :func:`.induced_block` takes of each row, in a graph with times."""
ALL_EDGES = (SubgraphType.induced, SubgraphType.bidirectional)
"""The types of subgraphs that take edges which were not drawn."""

Room = Callable[[int], Any]
"""Gives memory of so many bytes or more, for tensors over it: recycled or new."""
NEW_MEMORY: Room = partial(np.empty, dtype=np.uint8)
_ID_BYTES = 8
_NODES_METADATA = 2
"""Entries of the metadata of nodes; that of links has more."""
_LINKS_METADATA = 4
"""Entries of the metadata of links with labels; that of triplets has more."""


class Settings(Protocol):
    """The interface of what says how a mini-batch was drawn: :class:`.GnnloadSampler`."""

    graph: Graph
    subgraph_type: SubgraphType
    sample_direction: Direction
    counts_hops: bool
    """Whether PyG is told how many nodes and edges each hop has found."""
    keep_orig_edges: bool
    """Whether the ends of what was drawn are kept beside what is bidirectional, as by PyG's samplers."""

    @property
    def disjoint(self) -> bool:
        """Whether each seed has nodes of its own."""

    @property
    def num_hops(self) -> int:
        """How many hops there are, with those that draw nothing."""


def sampler_output(
    batch: MiniBatch, sampler: Settings, num_rows: int | None = None, room: Room = NEW_MEMORY
) -> SamplerOutput | HeteroSamplerOutput:
    """Returns what PyG's own sampler would give: all types of the graph, edges by the user's numbers, nearest hop first
    or, of induced and bidirectional subgraphs, in the order of their targets; and the metadata that the batch's columns
    hold.

    Args:
        batch: of ``sampler.inner()`` for what ``sampler.asked`` returned.
        sampler: whose settings say what PyG is given.
        num_rows: how many nodes or links were asked for; None: as many as the metadata has ids.
        room: for the lists of nodes and edges.
    """
    made = _made(batch, sampler, room, induced=sampler.subgraph_type is SubgraphType.induced)
    if sampler.subgraph_type is SubgraphType.bidirectional:
        there = _made(batch, sampler, NEW_MEMORY, induced=True)
        made = with_ways_back(made, there, keep_drawn=sampler.keep_orig_edges)
    made.metadata = metadata_of(batch.seed_columns)
    if made.batch is not None and len(made.metadata) > _NODES_METADATA:
        num_rows = len(made.metadata[0]) if num_rows is None else num_rows
        made.batch = _of_links(made.batch, num_rows, seeds_an_end(batch.num_seeds, len(made.metadata)))
    if not sampler.counts_hops:
        made.num_sampled_nodes = made.num_sampled_edges = None
    return made


def _made(batch: MiniBatch, sampler: Settings, room: Room, *, induced: bool) -> Any:
    """Returns what was drawn, or what its nodes induce, by the user's types of edges."""
    make = _homogeneous if sampler.graph.types is None else _hetero
    made: Any = make(batch, sampler, room, induced=induced)
    if sampler.sample_direction == "backward":
        made.row, made.col = made.col, made.row
        if isinstance(made, HeteroSamplerOutput):
            for name in ("row", "col", "edge", "num_sampled_edges"):
                if (by_type := getattr(made, name)) is not None:
                    setattr(made, name, {turned(kind, "backward"): of for kind, of in by_type.items()})
    return made


def joined(row: torch.Tensor, col: torch.Tensor) -> torch.Tensor:
    """Returns int64 ``[2, E]`` of both; a mini-batch's own lie one after the other already."""
    memory = row.untyped_storage().data_ptr(), row.storage_offset() + len(row)
    is_joined = memory == (col.untyped_storage().data_ptr(), col.storage_offset())
    if not is_joined or not row.is_contiguous() or not col.is_contiguous() or row.dtype != col.dtype:
        return torch.stack([row, col])
    return row.as_strided((2, len(row)), (len(row), 1))


def _homogeneous(batch: MiniBatch, sampler: Settings, room: Room, *, induced: bool) -> SamplerOutput:
    graph, hops, block = sampler.graph, batch.blocks[::-1], _edges(batch, sampler, induced)
    lists = _Lists(room, num_edges=0 if block is None else block.num_edges)
    if block is not None:
        ops.list_edges(*_columns(block), graph.edge_order, graph.num_edges, lists.of_edges)
    edge_index, edge = lists.edges(0, lists.num_edges)
    missing = [0] * (sampler.num_hops - len(hops))
    made = SamplerOutput(
        batch.nodes,
        edge_index[0],
        edge_index[1],
        edge,
        batch=batch.rows.long() if sampler.disjoint else None,  # type: ignore[union-attr]
        num_sampled_nodes=[*steps([0, batch.num_seeds, *(block.num_src for block in hops)]), *missing],
        num_sampled_edges=[*steps([0, *(block.num_edges for block in hops)]), *missing],
    )
    return _uncounted(made) if induced else made


def _hetero(batch: MiniBatch, sampler: Settings, room: Room, *, induced: bool) -> HeteroSamplerOutput:
    graph, hops, whole = sampler.graph, batch.blocks[::-1], _edges(batch, sampler, induced)
    types = graph.types
    assert types is not None, "the caller asked for it"
    of_batch = batch.rows if sampler.disjoint else None
    num_rows = 0 if of_batch is None else batch.num_nodes
    lists = _Lists(room, batch.num_nodes, num_rows, 0 if whole is None else whole.num_edges)
    parts = TypedParts(replace(batch, seed_columns={}), graph, {}, lists.of_nodes)
    node_ptr = parts.by_type.ptr.tolist()
    missing = [0] * (sampler.num_hops - len(hops))
    totals = parts.by_type.counts(np.array([0, batch.num_seeds, *(block.num_src for block in hops)])).tolist()
    made = HeteroSamplerOutput(
        {kind: lists.nodes(*node_ptr[t : t + 2]) for t, kind in enumerate(types.node_types)},
        {},
        {},
        {},
        batch=None
        if of_batch is None
        else dict(zip(types.node_types, lists.rows(of_batch.long(), parts.by_type), strict=True)),
        num_sampled_nodes={
            kind: [*steps(of_hops), *missing] for kind, of_hops in zip(types.node_types, totals, strict=True)
        },
        num_sampled_edges={kind: [0] * sampler.num_hops for kind in types.edge_types},
    )
    edge_ptr = [0] * (len(types.edge_types) + 1)
    if whole is not None:
        num_dst = np.array([whole.num_dst] if induced else [block.num_dst for block in hops])
        indptr, indices, edge_ids = _columns(whole)
        of_edges, (src_type, dst_type) = (
            (indptr, indices, edge_types(whole, graph), edge_ids),
            parts.types.endpoint_types,
        )
        listed = ops.split_edge_list(
            *of_edges, parts.by_type, src_type, dst_type, num_dst, graph.edge_order, graph.num_edges, lists.of_edges
        )
        edge_ptr = listed.ptr.tolist()
        made.num_sampled_edges = {
            kind: [*counts, *missing] for kind, counts in zip(types.edge_types, listed.counts.T.tolist(), strict=True)
        }
    for k, kind in enumerate(types.edge_types):
        edge_index, made.edge[kind] = lists.edges(*edge_ptr[k : k + 2])
        made.row[kind], made.col[kind] = edge_index[0], edge_index[1]
    return _uncounted(made) if induced else made


class _Lists:
    """The memory of one mini-batch's lists: nodes by type, then their rows, the ends of edges by type, their numbers.

    Args:
        room: gives the memory.
        num_nodes: V, of nodes that are listed.
        num_rows: of nodes whose rows are listed: all or none.
        num_edges: E.

    Attributes:
        of_nodes: int64 ``[V]``.
        of_edges: int64 ``[3 * E]``.
    """

    def __init__(self, room: Room, num_nodes: int = 0, num_rows: int = 0, num_edges: int = 0) -> None:
        self.num_nodes, self.num_edges = num_nodes, num_edges
        self._edges_begin = num_nodes + num_rows
        count = self._edges_begin + 3 * num_edges
        self._memory = room(max(count, 1) * _ID_BYTES)
        entries = np.frombuffer(self._memory, np.int64, count)
        self.of_nodes, self.of_edges = entries[:num_nodes], entries[self._edges_begin :]

    def nodes(self, begin: int, end: int) -> torch.Tensor:
        """Returns nodes ``[begin, end)``, int64."""
        return self._view(begin, end - begin)

    def rows(self, of_batch: Any, by_type: ops.SplitNodes) -> list[torch.Tensor]:
        """Lists the rows of the mini-batch's nodes, int64 ``[V]``, and returns those of each type, int64."""
        rows = [self._view(self.num_nodes + begin, end - begin) for begin, end in pairwise(by_type.ptr.tolist())]
        for part, (begin, end) in zip(rows, pairwise(by_type.ptr.tolist()), strict=True):
            torch.index_select(of_batch, 0, torch.from_numpy(by_type.position[begin:end]), out=part)
        return rows

    def edges(self, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the ends of edges ``[begin, end)``, int64 ``[2, end - begin]``, and their numbers."""
        ends = self._view(self._edges_begin + 2 * begin, 2, end - begin)
        return ends, self._view(self._edges_begin + 2 * self.num_edges + begin, end - begin)

    def _view(self, begin: int, *shape: int) -> torch.Tensor:
        # A tensor each, with no more storage than it has: a user may pickle it.
        return view_of(self._memory, begin * _ID_BYTES, shape, torch.int64)


def _columns(block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    assert block.edge_ids is not None, "the sampler has edge_ids=True"
    return block.indptr.numpy(), block.indices.numpy(), block.edge_ids.numpy()


def _edges(batch: MiniBatch, sampler: Settings, induced: bool) -> Block | None:
    """Returns all edges of a mini-batch: those of the outermost hop, of which the others are prefixes, if there is one;
    or those that its nodes induce."""
    if not induced:
        return batch.blocks[0] if batch.blocks else None
    until = batch.seed_columns.get(UNTIL)
    return induced_block(sampler.graph, batch, None if until is None else until.numpy())


def _uncounted(output: Any) -> Any:
    """Leaves out the counts by hop: edges of an induced subgraph are of none."""
    return replace(output, num_sampled_nodes=None, num_sampled_edges=None)


def metadata_of(columns: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    """Returns PyG's metadata: of nodes two entries, of links four, of triplets five; None where one is not there."""
    held: list[torch.Tensor | None] = []
    for name, rows in columns.items():
        if name.startswith(METADATA):
            at, count = map(int, name.removeprefix(METADATA).split("_of_"))
            held = held or [None] * count
            held[at] = rows
    return tuple(held) or (None,) * _NODES_METADATA


def metadata_columns(metadata: tuple[Any, ...]) -> dict[str, torch.Tensor]:
    """Returns PyG's metadata as columns of a mini-batch's rows, of which :func:`sampler_output` makes it again."""
    named = {f"{METADATA}{at}_of_{len(metadata)}": rows for at, rows in enumerate(metadata)}
    return {name: torch.as_tensor(rows) for name, rows in named.items() if rows is not None}


def seeds_an_end(num_seeds: int, num_metadata: int) -> int:
    """Returns after how many seeds rows begin anew. Seeds are rows' sources and those of binary negatives, then their
    targets likewise, where negatives need not be as many for each row; or those of triplets, which are."""
    return num_seeds // 2 if num_metadata == _LINKS_METADATA else num_seeds


def _of_links(batch: Any, num_rows: int, an_end: int) -> Any:
    """Returns which link each node belongs to."""
    if isinstance(batch, dict):
        return {kind: _of_links(rows, num_rows, an_end) for kind, rows in batch.items()}
    return batch.remainder(max(an_end, 1)).remainder(max(num_rows, 1))

"""What a sampler written in Python needs besides its choice of neighbours: an arena's layout, and random words."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import ARENA_ALIGNMENT, ArenaTooSmall, DrawKey, HopLayout, SampleLayout
from lightning_gnnload.ops.reference import philox, stream_keys

_MAX_LOCAL = 2**31 - 1


class ArenaBuilder:
    """Lays a mini-batch into an arena, hop by hop, nearest hop first.

    Nodes are kept in the order of first occurrence, seeds first, so that the destinations of every hop are a
    prefix of its sources.

    Args:
        graph: N nodes.
        seeds: int64 ``[S]``, distinct.
        arena: writable uint8 ``[bytes]``, aligned to 64 bytes, as ``Sampler.sample_into`` gets it.

    Shapes: D nodes known before a hop, which are its destinations; E edges of the hop.

    Raises:
        SeedError: a seed is not a node, or repeats.
        ArenaTooSmall: let it pass; the caller comes back with a larger arena.

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 2], dst=[0, 0, 1])
        >>> build = ArenaBuilder(graph, np.array([0]), np.empty(1024, np.uint8))
        >>> build.nodes.tolist()
        [0]
        >>> build.add_hop(counts=[2], neighbors=[2, 1])
        >>> build.nodes.tolist(), build.layout().num_nodes
        ([0, 2, 1], 3)
    """

    def __init__(self, graph: Graph, seeds: np.ndarray, arena: np.ndarray) -> None:
        _check_seeds(seeds, graph.num_nodes)
        self._num_graph_nodes = graph.num_nodes
        self._arena = arena
        self._hops_begin = arena.nbytes // ARENA_ALIGNMENT * ARENA_ALIGNMENT
        self._hops: list[HopLayout] = []
        self._nodes = np.empty(0, np.int64)
        self._keep_nodes(seeds, hop_bytes=0)

    @property
    def nodes(self) -> np.ndarray:
        """int64 ``[D]``, not to be written to: the nodes known so far, which are the next hop's destinations."""
        return self._nodes

    def add_hop(
        self,
        counts: ArrayLike,
        neighbors: ArrayLike,
        *,
        edge_ids: ArrayLike | None = None,
        edge_weight: ArrayLike | None = None,
        edge_type: ArrayLike | None = None,
    ) -> None:
        """One hop: what each known node draws.

        Args:
            counts: integer ``[D]``, edges of each destination.
            neighbors: integer ``[E]``, node ids, those of the first destination first.
            edge_ids: integer ``[E]``, positions in ``Graph.indices``; None for blocks without them.
            edge_weight: float ``[E]``, what each edge counts; None likewise.
            edge_type: integer ``[E]``; None likewise.

        Raises:
            SamplerConfigError: arrays that do not fit each other, or an id that is not a node.
        """
        counts, neighbors = np.asarray(counts, np.int64), np.asarray(neighbors, np.int64)
        columns = {
            name: np.asarray(values, dtype)
            for name, values, dtype in (
                ("edge_ids", edge_ids, np.int64),
                ("edge_weights", edge_weight, np.float32),
                ("edge_types", edge_type, np.int32),
            )
            if values is not None
        }
        self._check_hop(counts, neighbors, columns)
        nodes, local = _relabel(self._nodes, neighbors)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        parts = {"indptr": indptr, "indices": local.astype(np.int32), **columns}
        self._keep_nodes(nodes, hop_bytes=sum(_aligned(part.nbytes) for part in parts.values()))
        offsets = {f"{name}_offset": self._place(part) for name, part in parts.items()}
        self._hops.append(HopLayout(len(counts), len(nodes), len(neighbors), **offsets))

    def layout(self) -> SampleLayout:
        """Where everything lies: what ``Sampler.sample_into`` returns."""
        return SampleLayout(len(self._nodes), tuple(self._hops), _aligned(self._nodes.nbytes), self._hops_begin)

    def _keep_nodes(self, nodes: np.ndarray, hop_bytes: int) -> None:
        """Nodes grow from the arena's begin, hops from its end; between them is room for ``hop_bytes`` more."""
        nodes_end = _aligned(8 * len(nodes))
        if nodes_end + hop_bytes > self._hops_begin:
            used = self._arena.nbytes // ARENA_ALIGNMENT * ARENA_ALIGNMENT - self._hops_begin
            raise ArenaTooSmall(nodes_end + hop_bytes + used)
        self._arena[: 8 * len(nodes)].view(np.int64)[:] = nodes
        self._nodes = nodes

    def _place(self, part: np.ndarray) -> int:
        self._hops_begin -= _aligned(part.nbytes)
        self._arena[self._hops_begin : self._hops_begin + part.nbytes].view(part.dtype)[:] = part
        return self._hops_begin

    def _check_hop(self, counts: np.ndarray, neighbors: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        if counts.shape != self._nodes.shape or counts.min(initial=0) < 0 or counts.sum() != len(neighbors):
            raise SamplerConfigError(
                f"add_hop: counts has shape {list(counts.shape)} and sums to {counts.sum()}, but needs a number for "
                f"each of the {len(self._nodes)} known nodes, {len(neighbors)} neighbors in all. "
                f"Give 0 for a node that draws nothing."
            )
        for name, values in columns.items():
            if values.shape != neighbors.shape:
                raise SamplerConfigError(
                    f"add_hop: {name} has shape {list(values.shape)}, but there are {len(neighbors)} neighbors; "
                    f"give one of each an edge."
                )
        if (bad := _first_outside(neighbors, self._num_graph_nodes)) is not None:
            raise SamplerConfigError(
                f"add_hop: neighbors[{bad}] is {neighbors[bad]}, but the graph has {self._num_graph_nodes} nodes. "
                f"Neighbours are node ids: graph.indices[edge_ids], not positions in an adjacency list."
            )
        if len(neighbors) + len(self._nodes) > _MAX_LOCAL:
            raise SamplerConfigError(
                f"add_hop: {len(neighbors)} edges are more than int32 local ids can count; "
                f"take fewer seeds a batch or fewer neighbours a node."
            )


def draw_words(key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
    """Random words of each node at one hop, as a pure function: no generator, so no state.

    Word ``j`` of a node does not depend on the other nodes, nor on ``count``: the draws of
    :class:`NeighborSampler` are made of the same words.

    Args:
        key: the key that ``Sampler.sample_into`` got.
        hop: 0 for the seeds' neighbours; each hop draws afresh.
        nodes: int64 ``[D]``, node ids below 2**48.
        count: words a node.

    Returns:
        uint32 ``[D, count]``, uniform.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11), section 3.3.

    Example:
        >>> words = draw_words(DrawKey(seed=0, epoch=0, step=0), hop=0, nodes=np.array([7, 3]), count=4)
        >>> words.shape, bool((words[1] == draw_words(DrawKey(0, 0, 0), 0, np.array([3]), 4)[0]).all())
        ((2, 4), True)
    """
    nodes = np.asarray(nodes, np.int64)
    counter = np.empty((len(nodes), (count + 3) // 4, 4), np.uint32)
    counter[..., 0] = (nodes & 0xFFFFFFFF)[:, None]
    counter[..., 1] = ((nodes >> 32) & 0xFFFF | hop << 16)[:, None]
    counter[..., 2] = key.step
    counter[..., 3] = np.arange(counter.shape[1])
    words = philox(counter, stream_keys(key.seed, key.epoch)[0])
    return words.reshape(len(nodes), 4 * counter.shape[1])[:, :count]


def _relabel(known: np.ndarray, more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All nodes in the order of first occurrence, and where each of ``more`` stands among them."""
    every, first, inverse = np.unique(np.concatenate([known, more]), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return every[order], rank[inverse[len(known) :]]


def _check_seeds(seeds: np.ndarray, num_nodes: int) -> None:
    if (bad := _first_outside(seeds, num_nodes)) is not None:
        raise SeedError(
            f"seeds[{bad}] is {seeds[bad]}, but the graph has {num_nodes} nodes; ids must lie in [0, {num_nodes})."
        )
    order = np.argsort(seeds, kind="stable")
    repeats = np.flatnonzero(np.diff(seeds[order]) == 0)
    if len(repeats):
        first, second = order[repeats[0]], order[repeats[0] + 1]
        raise SeedError(
            f"seeds[{second}] is {seeds[second]}, the same node as seeds[{first}]; seeds of a batch are distinct. "
            f"Remove repeats with numpy.unique(seeds)."
        )


def _first_outside(ids: np.ndarray, num_nodes: int) -> int | None:
    outside = np.flatnonzero((ids < 0) | (ids >= num_nodes))
    return int(outside[0]) if len(outside) else None


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ARENA_ALIGNMENT) * ARENA_ALIGNMENT

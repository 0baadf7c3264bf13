"""The tools of a sampler written in Python: ArenaBuilder lays out its mini-batch, draw_words draws random words."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from lightning_gnnload import ops
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import ARENA_ALIGNMENT, ArenaTooSmall, DrawKey, HopLayout, SampleLayout
from lightning_gnnload.ops.philox import philox, stream_keys
from lightning_gnnload.sample.base import thread_workspace


class _Numbered(Protocol):
    @property
    def num_nodes(self) -> int: ...


class ArenaBuilder:
    """Lays a mini-batch out in an arena, hop by hop, nearest hop first.

    Nodes are kept in the order of first occurrence, seeds first, so that the destinations of every hop are a
    prefix of its sources.

    Args:
        graph: N nodes; or what else has ``num_nodes``: a partition of it, whose new ids the batch is to be in.
        seeds: int64 ``[S]``, distinct.
        arena: writable uint8 ``[bytes]``, aligned to 64 bytes, as ``Sampler.draw`` gets it.

    Shapes: D nodes known before a hop, which are its destinations; E edges of the hop.

    Raises:
        SeedError: a seed is not a node, or repeats.
        ArenaTooSmall: let it pass; the caller comes back with a larger arena.

    Example:
        >>> from lightning_gnnload import Graph
        >>> graph = Graph.from_coo(src=[1, 2, 2], dst=[0, 0, 1])
        >>> build = ArenaBuilder(graph, np.array([0]), np.empty(1024, np.uint8))
        >>> build.nodes.tolist()
        [0]
        >>> build.add_hop(counts=[2], neighbors=[2, 1])
        >>> build.nodes.tolist(), build.layout().num_nodes
        ([0, 2, 1], 3)
    """

    def __init__(self, graph: _Numbered, seeds: np.ndarray, arena: np.ndarray) -> None:
        check_seeds(seeds, graph.num_nodes)
        self._num_graph_nodes = graph.num_nodes
        self._arena = arena
        self._hops: list[HopLayout] = []
        # Nodes grow from the front and hops from the back, so that neither moves; features go into the gap.
        self._num_nodes = len(seeds)
        self._nodes_end = _aligned(8 * len(seeds))
        self._hops_begin = arena.nbytes // ARENA_ALIGNMENT * ARENA_ALIGNMENT
        if self._nodes_end > self._hops_begin:
            raise ArenaTooSmall(self._nodes_end)
        self.nodes[:] = seeds

    @property
    def nodes(self) -> np.ndarray:
        """Returns the nodes known so far, the next hop's destinations: int64 ``[D]``, not to be written to."""
        return self._arena[: 8 * self._num_nodes].view(np.int64)

    def add_hop(
        self,
        counts: ArrayLike,
        neighbors: ArrayLike,
        *,
        edge_ids: ArrayLike | None = None,
        edge_weight: ArrayLike | None = None,
        edge_type: ArrayLike | None = None,
    ) -> None:
        """Adds one hop: what each known node draws.

        Args:
            counts: integer ``[D]``, edges of each destination.
            neighbors: integer ``[E]``, node ids, those of the first destination first.
            edge_ids: integer ``[E]``, positions in ``Graph.indices``; None for blocks without them.
            edge_weight: float ``[E]``, what each edge counts; None likewise.
            edge_type: integer ``[E]``; None likewise.

        Raises:
            SamplerConfigError: arrays that do not fit each other, or an id that is not a node.
        """
        counts, neighbors = np.asarray(counts, np.int64, order="C"), np.asarray(neighbors, np.int64, order="C")
        columns = {
            name: np.asarray(values, dtype, order="C")
            for name, values, dtype in (
                ("edge_ids", edge_ids, np.int64),
                ("edge_weights", edge_weight, np.float32),
                ("edge_types", edge_type, np.int32),
            )
            if values is not None
        }
        self._check_hop(counts, neighbors, columns)
        added = ops.add_hop(
            thread_workspace(self._num_graph_nodes),
            self._num_graph_nodes,
            self._num_nodes,
            counts,
            neighbors,
            self._arena,
            hops_begin=self._hops_begin,
            **columns,
        )
        self._hops.extend(added.hops)
        self._num_nodes, self._nodes_end, self._hops_begin = added.num_nodes, added.free_begin, added.free_end

    def layout(self, queries: np.ndarray | None = None) -> SampleLayout:
        """Finishes the layout, which ``Sampler.draw`` returns; ``queries``, int32 ``[D]``, are those of the nodes,
        where these belong to some."""
        if queries is None:
            return SampleLayout(self._num_nodes, tuple(self._hops), self._nodes_end, self._hops_begin)
        begin, end = self._nodes_end, _aligned(self._nodes_end + 4 * self._num_nodes)
        if end > self._hops_begin:
            raise ArenaTooSmall(end + self._arena.nbytes - self._hops_begin)
        self._arena[begin : begin + 4 * self._num_nodes].view(np.int32)[:] = queries
        return SampleLayout(self._num_nodes, tuple(self._hops), end, self._hops_begin, begin)

    def _check_hop(self, counts: np.ndarray, neighbors: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        num_known = self._num_nodes
        if counts.shape != (num_known,) or counts.sum() != len(neighbors):
            raise SamplerConfigError(
                f"add_hop: counts has shape {list(counts.shape)} and sums to {counts.sum()}, but needs a number for "
                f"each of the {num_known} known nodes, {len(neighbors)} neighbors in all. "
                f"Give 0 for a node that draws nothing."
            )
        for name, values in columns.items():
            if values.shape != neighbors.shape:
                raise SamplerConfigError(
                    f"add_hop: {name} has shape {list(values.shape)}, but there are {len(neighbors)} neighbors; "
                    f"give one of each an edge."
                )


def draw_words(key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
    """Draws random words for each node at one hop, as a pure function: there is no generator, and so no state.

    Word ``j`` of a node does not depend on the other nodes, nor on ``count``: the draws of
    :class:`NeighborSampler` are made of the same words.

    Args:
        key: the key that ``Sampler.draw`` got.
        hop: 0 for the seeds' neighbours; each hop draws afresh.
        nodes: int64 ``[D]``, below 2**48: the nodes' names, ``graph.names_of(build.nodes)``, which are their ids but
            in a part of a graph.
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
    # The counter of kernels/common/draw.h, field by field: else words would not be those of the kernels.
    counter = np.empty((len(nodes), (count + 3) // 4, 4), np.uint32)
    counter[..., 0] = (nodes & 0xFFFFFFFF)[:, None]
    counter[..., 1] = ((nodes >> 32) & 0xFFFF | key.hop + hop << 16)[:, None]
    counter[..., 2] = key.step
    counter[..., 3] = np.arange(counter.shape[1])
    words = philox(counter, stream_keys(key.seed, key.epoch)[0])
    return words.reshape(len(nodes), 4 * counter.shape[1])[:, :count]


def check_seeds(seeds: np.ndarray, num_nodes: int, query_numbers: np.ndarray | None = None) -> None:
    """Raises SeedError: a seed is not a node, or repeats; for the same query, where ``query_numbers`` tell of which
    each is."""
    if (bad := _first_outside(seeds, num_nodes)) is not None:
        raise SeedError(
            f"seeds[{bad}] is {seeds[bad]}, but the graph has {num_nodes} nodes; ids must lie in [0, {num_nodes})."
        )
    order = np.argsort(seeds, kind="stable") if query_numbers is None else np.lexsort((query_numbers, seeds))
    is_same = np.diff(seeds[order]) == 0
    if query_numbers is not None:
        is_same &= np.diff(query_numbers[order]) == 0
    repeats = np.flatnonzero(is_same)
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

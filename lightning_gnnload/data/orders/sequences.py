"""Seeds as a breadth-first search comes to them, and the order of an epoch that takes turns between parts of it."""

from __future__ import annotations

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.errors import SeedError

EARLY_EPOCH = 2**31
"""What is drawn before training is drawn as in this epoch, which no training reaches."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio
_MOST_COUNTED = 2**24


def breadth_first_ring(graph: Graph, seeds: np.ndarray, seed: int) -> np.ndarray:
    """Orders seeds so that those near in the graph are near in the order, which goes on at its begin after its end.

    It is a breadth-first search from a random seed, and from further ones until every seed is found. Seeds of large
    components come first, in the order in which the search came to them. Edges count in both directions: two seeds
    with a neighbour in common are near, whichever way the edges point.

    Args:
        graph: N nodes, E edges. Unless every node has as many edges in as out, it is copied in reverse for the search:
            4 or 8 bytes an edge, and as much again for a moment.
        seeds: int64 ``[S]``, each node once.
        seed: random seed of the run.

    Returns:
        int32 ``[S]``, positions in ``seeds``. As node ids, they do not depend on how the seeds were given.

    Raises:
        SeedError: a seed that is no node, or comes twice.

    Source: BGL (NSDI'23), section 3.2.2.
    """
    if len(seeds) and not (seeds.min() >= 0 and seeds.max() < graph.num_nodes):
        raise SeedError(
            f"seeds lie in [{seeds.min()}, {seeds.max()}], but the graph has {graph.num_nodes} nodes, from 0 on."
        )
    position = np.full(graph.num_nodes, -1, np.int32)
    position[seeds] = np.arange(len(seeds), dtype=np.int32)
    # In-edges alone lead everywhere that edges of both directions do where each node has as many of either kind: a
    # component of such a graph is strongly connected. Undirected graphs, with each edge both ways, are so.
    turned_round = () if _is_balanced(graph) else _turned_round(graph)
    roots = Shuffled().order(seeds, seed=seed, epoch=EARLY_EPOCH)
    order, tree = ops.breadth_first(graph.indptr, graph.indices, position, roots, len(seeds), *turned_round)
    if len(order) < len(seeds):
        raise SeedError(f"{len(seeds) - len(order)} of {len(seeds)} seeds are repeats: give each node once.")
    return order[np.argsort(-np.bincount(tree)[tree], kind="stable")]


def epoch_order(ring: np.ndarray, sequences: int, seed: int, epoch: int) -> np.ndarray:
    """Cuts a ring into near-equal sequences, at a random place first, and takes the next seed of each in turn.

    Sequences that follow each other in time are far from each other on the ring, so that mini-batches with fewer seeds
    than there are sequences are of places all round it.

    Args:
        ring: int32 ``[S]``, of :func:`breadth_first_ring`.
        sequences: how many, K.
        seed: random seed of the run.
        epoch: whose order.

    Returns:
        int32 ``[S]``, each entry of the ring once.

    BGL merges K searches, each of all seeds, and leaves out what another one gave before. Parts of one search have no
    gaps, so that fewer rows are missed where labels are mixed as well, and one search takes a Kth of the time.
    Source: BGL (NSDI'23), section 3.2.2; Weyl, "Über die Gleichverteilung von Zahlen mod. Eins" (Math. Ann. 77, 1916),
    for the order of turns.

    Example:
        >>> epoch_order(np.arange(12, dtype=np.int32), 3, seed=0, epoch=0).tolist()
        [8, 4, 0, 9, 5, 1, 10, 6, 2, 11, 7, 3]
    """
    sequences = min(sequences, len(ring))
    # Python's integers: the product has more than 64 bits. Its upper part is uniform without a division.
    [key] = ops.random_keys(seed, epoch, np.zeros(1, np.int64)).tolist()
    cuts = np.arange(sequences + 1) * len(ring) // sequences + (key * len(ring) >> 64)
    turns = np.argsort(np.argsort(np.arange(sequences, dtype=np.uint64) * _GOLDEN))
    positions = cuts[turns] + np.arange(-(-len(ring) // sequences))[:, None]
    return ring[positions[positions < cuts[turns + 1]] % len(ring)]


class RingOrder(SeedOrder):
    """The order that :func:`epoch_order` makes of a ring, which belongs to the seeds that are ordered.

    Args:
        ring: int32 ``[S]``.
        sequences: how many.
    """

    def __init__(self, ring: np.ndarray, sequences: int) -> None:
        self.ring = ring
        self.sequences = sequences

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        return seeds[epoch_order(self.ring, self.sequences, seed, epoch)]


def _is_balanced(graph: Graph) -> bool:
    out_degrees = np.zeros(graph.num_nodes, np.int64)
    # By parts: NumPy counts in a copy of 8 bytes an edge. Of N edges at least, as each part adds N counts.
    size = max(_MOST_COUNTED, graph.num_nodes)
    for begin in range(0, graph.num_edges, size):
        out_degrees += np.bincount(graph.indices[begin : begin + size], minlength=graph.num_nodes)
    return np.array_equal(out_degrees, graph.in_degrees)


def _turned_round(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    heads = np.repeat(np.arange(graph.num_nodes, dtype=graph.indices.dtype), graph.in_degrees)
    indptr, indices, _ = ops.coo_to_csc(heads, graph.indices, graph.num_nodes)
    return indptr, indices

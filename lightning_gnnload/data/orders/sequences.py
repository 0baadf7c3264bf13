"""Seeds in the order of a breadth-first search, and an epoch's order that takes turns between stretches of it."""

from __future__ import annotations

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.errors import SeedError

EARLY_EPOCH = 2**31
"""The epoch of draws that are made before training, which no training reaches."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio
_MOST_COUNTED = 2**24


def breadth_first_ring(graph: Graph, seeds: np.ndarray, seed: int) -> np.ndarray:
    """Orders distinct seeds, int64 ``[S]``, so that those near in the graph are near on the ring.

    Breadth-first searches start from random seeds until every seed is reached; larger components come first. Edges
    count in both directions. Returns positions in ``seeds``, int32 ``[S]``: the same nodes however these are ordered.

    Source: BGL (NSDI'23), section 3.2.2.
    """
    if len(seeds) and not (seeds.min() >= 0 and seeds.max() < graph.num_nodes):
        raise SeedError(
            f"seeds lie in [{seeds.min()}, {seeds.max()}], but the graph has {graph.num_nodes} nodes, from 0 on."
        )
    position = np.full(graph.num_nodes, -1, np.int32)
    position[seeds] = np.arange(len(seeds), dtype=np.int32)
    # Where each node has as many edges in as out, components are strongly connected, so that in-edges alone lead to
    # all of one. Undirected graphs, with each edge both ways, are so. Others are copied in reverse for the search: 4 or
    # 8 bytes an edge, and as much again for a moment.
    reverse = () if _is_balanced(graph) else _reversed(graph)
    roots = Shuffled().order(seeds, seed=seed, epoch=EARLY_EPOCH)
    order, tree = ops.breadth_first(graph.indptr, graph.indices, position, roots, len(seeds), *reverse)
    if len(order) < len(seeds):
        raise SeedError(f"{len(seeds) - len(order)} of {len(seeds)} seeds are repeats: give each node once.")
    return order[np.argsort(-np.bincount(tree)[tree], kind="stable")]


def epoch_order(ring: np.ndarray, sequences: int, seed: int, epoch: int) -> np.ndarray:
    """Cuts a ring, int32 ``[S]``, into K near-equal sequences, from a random start, and takes turns between them.

    Source: BGL (NSDI'23), section 3.2.2; Weyl, "Über die Gleichverteilung von Zahlen mod. Eins" (Math. Ann. 77, 1916),
    for the order of turns.

    Example:
        >>> epoch_order(np.arange(12, dtype=np.int32), 3, seed=0, epoch=0).tolist()
        [8, 4, 0, 9, 5, 1, 10, 6, 2, 11, 7, 3]
    """
    # BGL merges K searches of all seeds, and drops repeats. Stretches of one search have no gaps, so that fewer rows
    # are missed at equally mixed labels, and one search takes a Kth of the time.
    sequences = min(sequences, len(ring))
    # In Python's integers, as the product has more than 64 bits. Its upper part is uniform without a division.
    [key] = ops.random_keys(seed, epoch, np.zeros(1, np.int64)).tolist()
    cuts = np.arange(sequences + 1) * len(ring) // sequences + (key * len(ring) >> 64)
    # Successive turns are far apart on the ring, so that mini-batches of fewer than K seeds spread over all of it.
    turns = np.argsort(np.argsort(np.arange(sequences, dtype=np.uint64) * _GOLDEN))
    positions = cuts[turns] + np.arange(-(-len(ring) // sequences))[:, None]
    return ring[positions[positions < cuts[turns + 1]] % len(ring)]


class RingOrder(SeedOrder):
    """Orders the S seeds that a ring belongs to by :func:`epoch_order`."""

    def __init__(self, ring: np.ndarray, sequences: int) -> None:
        self.ring = ring
        self.sequences = sequences

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        return seeds[epoch_order(self.ring, self.sequences, seed, epoch)]


def _is_balanced(graph: Graph) -> bool:
    # By chunks of N edges at least, as each adds N counts.
    return np.array_equal(graph.out_degrees(max(_MOST_COUNTED, graph.num_nodes)), graph.in_degrees)


def _reversed(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    heads = np.repeat(np.arange(graph.num_nodes, dtype=graph.indices.dtype), graph.in_degrees)
    indptr, indices, _ = ops.coo_to_csc(heads, graph.indices, graph.num_nodes)
    return indptr, indices

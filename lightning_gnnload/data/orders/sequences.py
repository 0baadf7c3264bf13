"""Breadth-first sequences of seeds, and the order of an epoch that is made of several."""

from __future__ import annotations

from collections.abc import Generator
from itertools import count

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.errors import SeedError

FIRST_EPOCH = 2**31
"""Sequence ``k`` draws its roots as the epoch ``FIRST_EPOCH + k`` would, which no training reaches."""
_MOST_COUNTED = 2**24


def breadth_first_sequences(graph: Graph, seeds: np.ndarray, seed: int) -> Generator[np.ndarray]:
    """Yields endless sequences of all seeds, in each of which seeds that are near in the graph are near as well.

    Each is a breadth-first search from a random seed, and from further ones until every seed is found. Seeds of large
    components come first, in the order in which the search came to them. Edges count in both directions: two seeds
    with a neighbour in common are near, whichever way the edges point.

    Args:
        graph: N nodes, E edges. Unless every node has as many edges in as out, it is copied in reverse while the
            sequences are made: 4 or 8 bytes an edge, and as much again for a moment.
        seeds: int64 ``[S]``, each node once.
        seed: random seed of the run.

    Yields:
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
    for number in count():
        roots = Shuffled().order(seeds, seed=seed, epoch=FIRST_EPOCH + number)
        order, tree = ops.breadth_first(graph.indptr, graph.indices, position, roots, len(seeds), *turned_round)
        if len(order) < len(seeds):
            raise SeedError(f"{len(seeds) - len(order)} of {len(seeds)} seeds are repeats: give each node once.")
        sizes = np.bincount(tree)
        yield order[np.argsort(-sizes[tree], kind="stable")]


def epoch_order(sequences: list[np.ndarray], seed: int, epoch: int) -> np.ndarray:
    """Merges sequences into an epoch's order: each in turn gives its next seed that none has given before.

    Each starts at a random place and goes on at its begin after its end, so that what lies at its end (small
    components) does not always come last. Whatever the batch size, a batch has near-equal parts of all sequences.

    Args:
        sequences: K of :func:`breadth_first_sequences`.
        seed: random seed of the run.
        epoch: whose order.

    Returns:
        int32 ``[S]``.

    Source: BGL (NSDI'23), section 3.2.2.
    """
    keys = ops.random_keys(seed, epoch, np.arange(len(sequences)))
    # Python's integers: the products have more than 64 bits. Their upper part is uniform without a division.
    starts = [key * len(sequences[0]) >> 64 for key in keys.tolist()]
    return ops.round_robin(sequences, np.array(starts, np.int64))


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

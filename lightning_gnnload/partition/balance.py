"""Balancing seeds: every part gets as many as its rank's slices of an epoch hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.partition.lists import edge_chunks


def share_sizes(num_seeds: int, num_parts: int) -> np.ndarray:
    """Returns how many of S seeds each part gets, int64 ``[K]``: they differ by 1 at most, and part ``p`` has those
    from ``floor(S p / K)`` to ``floor(S (p + 1) / K)``, as :class:`.StepPlan` cuts them."""
    return np.diff(num_seeds * np.arange(num_parts + 1) // num_parts)


def deal(
    graph: Graph, seeds: Mapping[str, np.ndarray], owner: np.ndarray, num_parts: int
) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Balances the seeds of every phase.

    Args:
        graph: N nodes.
        seeds: by phase, int64 node ids.
        owner: int32 ``[N]``, or -1 for a node that is no seed.
        num_parts: K.

    Returns:
        The owners, changed for seeds that were moved; and by phase the seeds and the part of each. A node of two phases
        may be a seed of two parts; the one of the first phase owns it.
    """
    owner, dealt = owner.copy(), {}
    is_dealt = np.zeros(graph.num_nodes, np.bool_)
    for phase, ids in seeds.items():
        parts = balance(graph, ids, owner[ids], owner, num_parts)
        dealt[phase] = ids, parts
        first = ~is_dealt[ids]
        owner[ids[first]] = parts[first]
        is_dealt[ids] = True
    return owner, dealt


def balance(graph: Graph, seeds: np.ndarray, parts: np.ndarray, owner: np.ndarray, num_parts: int) -> np.ndarray:
    """Moves seeds from parts with too many to parts with too few, and returns the part of each.

    A part gives the seeds that have fewest in-neighbours in it. A part takes, of those given, the seeds that have
    most in-neighbours in it; who lacks most takes first. Ties go by node id, so that nothing is random.

    Args:
        graph: N nodes.
        seeds: int64 ``[S]``, distinct.
        parts: integer ``[S]``, in ``[0, num_parts)``: where they are.
        owner: integer ``[N]``: the part of every node, or -1.
        num_parts: K.

    Returns:
        int32 ``[S]``; ``parts`` itself where they are balanced.

    Source: PaGraph (TPDS'21), section 3.2, computation balance.
    """
    excess = np.bincount(parts, minlength=num_parts) - share_sizes(len(seeds), num_parts)
    if not excess.any():
        return parts
    balanced = parts.astype(np.int32)
    crowded = np.flatnonzero(excess[parts] > 0)  # seeds of other parts stay, so their edges need not be read
    loss = _neighbors_in(graph, seeds[crowded], owner, parts[crowded])
    crowded = crowded[np.lexsort((seeds[crowded], loss, parts[crowded]))]
    sizes = np.bincount(parts[crowded], minlength=num_parts)
    turn = np.arange(len(crowded)) - (np.cumsum(sizes) - sizes)[parts[crowded]]
    given = crowded[turn < excess[parts[crowded]]]
    for part in np.argsort(excess, kind="stable"):
        room = -excess[part]
        if room <= 0:
            break
        gain = _neighbors_in(graph, seeds[given], owner, np.full(len(given), part))
        given = given[np.lexsort((seeds[given], -gain))]
        balanced[given[:room]] = part
        given = given[room:]
    return balanced


def _neighbors_in(graph: Graph, nodes: np.ndarray, owner: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Counts the in-neighbours of each node that the part given beside it owns, int64."""
    counts = np.zeros(len(nodes), np.int64)
    for edges, lists in edge_chunks(graph.indptr, nodes, graph.indptr[nodes + 1] - graph.indptr[nodes]):
        first, last = lists[0], lists[-1]
        found = lists[owner[graph.indices[edges]] == parts[lists]]
        counts[first : last + 1] += np.bincount(found - first, minlength=last + 1 - first)
    return counts

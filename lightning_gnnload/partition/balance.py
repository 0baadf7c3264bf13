"""Balancing seeds: each part gets as many as its rank's slices of an epoch hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.partition.lists import edge_chunks


def share_sizes(num_seeds: int, num_parts: int) -> np.ndarray:
    """Returns how many of S seeds each part gets, int64 ``[K]``: they differ by 1 at most, and part ``p`` has those
    from ``floor(S p / K)`` to ``floor(S (p + 1) / K)``, as :class:`.StepPlan` cuts them."""
    return np.diff(num_seeds * np.arange(num_parts + 1) // num_parts)


def balance_phases(
    graph: Graph, seeds: Mapping[str, np.ndarray], owner: np.ndarray, num_parts: int
) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Balances the seeds of every phase, int64 ids; returns the owners, int32 ``[N]``, with those of seeds that moved,
    and by phase the seeds and the part of each.

    ``owner`` is -1 for a node that is no seed. A node that is a seed in two phases may be one in two parts; that of the
    first phase owns it.
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
    """Moves seeds from parts with too many to parts with too few; returns the part of each, int32 ``[S]``.

    A crowded part gives away the seeds with fewest in-neighbours in it. Of these a part takes those with most
    in-neighbours in it; the part that lacks most takes first. Ties go by node id, so that nothing is random. ``seeds``
    are distinct int64 ids, ``parts`` where they are, and ``owner``, ``[N]``, is the part of every node, or -1.

    Source: PaGraph (TPDS'21), section 3.2, computation balance.
    """
    excess = np.bincount(parts, minlength=num_parts) - share_sizes(len(seeds), num_parts)
    if not excess.any():
        return parts
    balanced = parts.astype(np.int32)
    crowded = np.flatnonzero(excess[parts] > 0)  # seeds elsewhere stay, so that their edges need not be read
    loss = _neighbors_in(graph, seeds[crowded], owner, parts[crowded])
    crowded = crowded[np.lexsort((seeds[crowded], loss, parts[crowded]))]
    sizes = np.bincount(parts[crowded], minlength=num_parts)
    turn = np.arange(len(crowded)) - (np.cumsum(sizes) - sizes)[parts[crowded]]
    moving = crowded[turn < excess[parts[crowded]]]
    # Who lacks most chooses first; parts are few, so that counting anew for each costs little.
    for part in np.argsort(excess, kind="stable"):
        room = -excess[part]
        if room <= 0:
            break
        gain = _neighbors_in(graph, seeds[moving], owner, np.full(len(moving), part))
        moving = moving[np.lexsort((seeds[moving], -gain))]
        balanced[moving[:room]] = part
        moving = moving[room:]
    return balanced


def _neighbors_in(graph: Graph, nodes: np.ndarray, owner: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Counts the in-neighbours of each node that the part beside it owns, int64."""
    counts = np.zeros(len(nodes), np.int64)
    for edges, lists in edge_chunks(graph.indptr, nodes, graph.indptr[nodes + 1] - graph.indptr[nodes]):
        first, last = lists[0], lists[-1]
        owned = lists[owner[graph.indices[edges]] == parts[lists]]
        counts[first : last + 1] += np.bincount(owned - first, minlength=last + 1 - first)
    return counts

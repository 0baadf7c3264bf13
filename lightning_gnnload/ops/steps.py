"""Random walks that pass from one holder of lists to another: a step, and what the visits come to.

Shapes: N graph nodes, E edges, M walks, D destinations, V visits of a destination.
"""

from __future__ import annotations

import numpy as np

from ..errors import SamplerConfigError, SeedError
from .alias import AliasTable
from .checks import as_flag, as_integer, check_array, check_graph, check_kind
from .dispatch import DrawKey, kernels
from .walks import MAX_VISITS, Walks, walk_entries

GOES_ON, RESTARTS, ENDS, STUCK = range(4)  # in the order of kernels/collective/step_walks.h


def step_walks(
    indptr: np.ndarray,
    indices: np.ndarray,
    places: np.ndarray,
    starts: np.ndarray,
    numbers: np.ndarray,
    walks: Walks,
    key: DrawKey,
    t: int,
    *,
    table: AliasTable | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Takes one step of many walks, as :func:`.random_walk` does, on the rank that holds each list.

    Args:
        indptr: int64 ``[N + 1]``, and ``indices`` int32 or int64 ``[E]``: a graph that passed
            :func:`check_csc`.
        places: int64 ``[M]``, the nodes where the walks stand.
        starts: int64 ``[M]``, the names of the nodes where they began: their ids in the whole graph.
        numbers: int64 ``[M]``, which of its start's walks each is.
        walks: how they go.
        key: decides every draw; its ``hop`` is the one that is walked for.
        t: the step, from 0.
        table: of this graph, by :func:`.build_alias`: the step goes by weight.

    Returns:
        int64 ``[M]``, the nodes reached, and uint8 ``[M]``, how each walk goes on: ``GOES_ON`` from there, ``RESTARTS``
        from its start, ``ENDS`` there; ``STUCK`` where it stood, for want of in-neighbours (of positive weight): the
        node is then -1.

    Raises:
        SeedError: a place out of range.
        SamplerConfigError: a number or a step that these walks do not have; a table as :func:`.random_walk` refuses it.
    """
    check_graph(indptr, indices)
    check_kind("walks", walks, Walks)
    check_kind("key", key, DrawKey)
    t = as_integer("t", t)
    if not 0 <= t < walks.length:
        raise SamplerConfigError(f"t is {t}, but the walks have {walks.length} steps, counted from 0.")
    for name, array in (("places", places), ("starts", starts), ("numbers", numbers)):
        check_array(name, array, (np.int64,), 1, SeedError)
        if len(array) != len(places):
            raise SeedError(f"{name} has {len(array)} entries, but there are {len(places)} places: one each is needed.")
    nodes, fates = np.empty(len(places), np.int64), np.empty(len(places), np.uint8)
    kernels.step_walks(
        indptr,
        indices,
        walk_entries(table, indptr, indices, walks),
        places,
        starts,
        numbers,
        walks.length,
        walks.num_walks,
        walks.end_below,
        walks.restart_below,
        t,
        key.seed,
        key.epoch,
        key.step,
        key.hop,
        nodes,
        fates,
    )
    return nodes, fates


def rank_visits(
    starts: np.ndarray,
    visits: np.ndarray,
    *,
    num_neighbors: int,
    include_self: bool = True,
    normalize: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chooses the neighbours of each destination by what its walks visited, as :func:`.sample_walks` does.

    Args:
        starts: int64 ``[D]``, the destinations, by their ids in the whole graph.
        visits: int64 ``[D, V]``, what the walks of each visited, likewise; -1 for no visit.
        num_neighbors: at most so many a destination.
        include_self: whether a visit of the destination itself counts.
        normalize: divide the visits by their sum over the neighbours taken.

    Returns:
        ``counts`` int64 ``[D]``; ``neighbors`` int64 and ``weights`` float32 ``[E]``, those of the first destination
        first, each by falling visits, equal ones by rising id.

    Raises:
        SamplerConfigError: more visits than are counted, ids not in [-1, 2**48), or arrays that do not fit.
    """
    check_array("starts", starts, (np.int64,), 1, SamplerConfigError)
    check_array("visits", visits, (np.int64,), 2, SamplerConfigError)
    num_neighbors = as_integer("num_neighbors", num_neighbors)
    if len(visits) != len(starts) or visits.shape[1] > MAX_VISITS or num_neighbors < 1:
        raise SamplerConfigError(
            f"visits has shape {visits.shape} for {len(starts)} starts, and num_neighbors is {num_neighbors}: a row "
            f"a start is needed, of at most {MAX_VISITS} visits, and at least one neighbour."
        )
    most = min(num_neighbors, visits.shape[1]) * len(starts)
    counts, neighbors = np.empty(len(starts), np.int64), np.empty(most, np.int64)
    weights = np.empty(most, np.float32)
    num_edges = kernels.rank_visits(
        starts,
        visits.reshape(-1),
        min(num_neighbors, visits.shape[1]),
        as_flag("include_self", include_self),
        as_flag("normalize", normalize),
        counts,
        neighbors,
        weights,
    )
    return counts, neighbors[:num_edges], weights[:num_edges]

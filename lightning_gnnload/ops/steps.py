"""Random walks whose lists lie on several ranks: one step of many walks, and the ranking of their visits.

Shapes: N graph nodes, E edges, M walks, D destinations, V visits of a destination.
"""

from __future__ import annotations

import numpy as np

from ..errors import SamplerConfigError, SeedError
from .alias import AliasTable
from .checks import as_flag, as_integer, check_array, check_csc_form, check_kind
from .dispatch import DrawKey, kernels
from .walks import MAX_VISITS, Walks, walk_entries

GOES_ON, RESTARTS, ENDS, STUCK = range(4)  # in the order of kernels/collective/step_walks.h


def step_walks(
    indptr: np.ndarray,
    indices: np.ndarray,
    current: np.ndarray,
    starts: np.ndarray,
    numbers: np.ndarray,
    walks: Walks,
    key: DrawKey,
    t: int,
    *,
    table: AliasTable | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Takes one step of many walks, as :func:`.random_walk` does, on the rank that has each list.

    ``current`` are the nodes where the walks are, ``starts`` the global ids of the nodes where they began, and
    ``numbers`` which of their start's walks they are, int64 ``[M]`` each. ``t`` counts steps from 0; with a ``table``
    the step goes by weight. Returns the nodes reached, int64 ``[M]``, and how each walk goes on, uint8 ``[M]``:
    ``GOES_ON`` from there, ``RESTARTS`` from its start, ``ENDS`` there, or ``STUCK`` without in-neighbours (of positive
    weight), where the node is -1.

    Raises SeedError for a node out of range; SamplerConfigError for a number or a step that these walks do not have, or
    a table as :func:`.random_walk` refuses it.
    """
    check_csc_form(indptr, indices)
    check_kind("walks", walks, Walks)
    check_kind("key", key, DrawKey)
    t = as_integer("t", t)
    if not 0 <= t < walks.length:
        raise SamplerConfigError(f"t is {t}, but the walks have {walks.length} steps, counted from 0.")
    for name, array in (("current", current), ("starts", starts), ("numbers", numbers)):
        check_array(name, array, (np.int64,), 1, SeedError)
        if len(array) != len(current):
            raise SeedError(f"{name} has {len(array)} entries, but there are {len(current)} walks: one each is needed.")
    nodes, fates = np.empty(len(current), np.int64), np.empty(len(current), np.uint8)
    kernels.step_walks(
        indptr,
        indices,
        walk_entries(table, indptr, indices, walks),
        current,
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

    ``starts``, int64 ``[D]``, are the destinations and ``visits``, int64 ``[D, V]``, what the walks of each visited, as
    global ids, -1 for no visit. ``include_self`` counts visits of the destination itself; ``normalize`` divides the
    visits by their sum over the neighbours taken. Returns ``counts`` int64 ``[D]``, and ``neighbors`` int64 and
    ``weights`` float32 ``[E]``, those of the first destination first, each by descending visits, equal ones by
    ascending id. Raises SamplerConfigError for more visits than are counted, ids outside [-1, 2**48), or arrays that do
    not fit.
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

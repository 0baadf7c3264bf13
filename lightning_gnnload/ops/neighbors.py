"""Neighbourhood sampling, node by node.

Shapes: N graph nodes, E edges, S seeds, L hops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from ..errors import SamplerConfigError
from .checks import as_flag, as_integer, as_list, check_batch, check_choice, check_kind
from .dispatch import ALL_NEIGHBORS, MAX_FANOUT, DrawKey, SampleLayout, Workspace, check_draws, check_hops, kernels
from .edge_types import EdgeTypeIndex

MAX_TYPED_HOPS: int = kernels.MAX_TYPED_HOPS


def sample_neighbors(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanouts: Sequence[int],
    key: DrawKey,
    arena: np.ndarray,
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
    names: np.ndarray | None = None,
) -> SampleLayout:
    """Sample the neighbourhood of ``seeds`` into ``arena``: a pure function of everything but the workspace.

    ``nodes`` are in order of first occurrence, seeds first; destination ``j`` of every hop is ``nodes[j]``.
    Picks are in the order of draws, or in adjacency order where all neighbours are taken. With
    ``expand="new"`` the hops share one ``indptr`` and one ``indices``, each hop a prefix of the next.

    Args:
        workspace: scratch memory, of this thread alone.
        indptr: int64 ``[N + 1]``, and ``indices`` int32 or int64 ``[E]``: a graph that passed
            :func:`check_csc`.
        seeds: int64 ``[S]``, distinct.
        fanouts: neighbours a node at each hop, nearest hop first; -1 takes all.
        key: decides every draw.
        arena: uint8, writable, starting at a multiple of 64 bytes.
        replace: draw each neighbour independently.
        expand: ``"all"``: every node known so far is a destination of the next hop (DGL); ``"new"``: only
            those that the last hop found (PyG).
        edge_ids: also write each edge's position in ``indices``.
        names: int64 ``[N]``, by which nodes draw: their ids in the graph that this one is a part of. None: their own.

    Raises:
        SeedError: a seed out of range or repeated.
        SamplerConfigError: a fanout of 0 or below -1, or a batch beyond int32 local ids.
        ArenaTooSmall: sample again with at least ``needed_bytes``.

    Source: GraphSAGE (NIPS'17), section 3.1; TurboGNN, section III-B for the kernel that this one does without.
    """
    check_draws(workspace, key)
    check_batch(indptr, indices, seeds, arena, names)
    fanouts = check_fanouts(fanouts)
    check_hops("fanouts", len(fanouts), key)
    check_choice("expand", expand, ("all", "new"))
    return SampleLayout.of(
        kernels.sample_neighbors(
            workspace.native,
            indptr,
            indices,
            seeds,
            fanouts,
            key.seed,
            key.epoch,
            key.step,
            key.hop,
            names,
            arena,
            as_flag("replace", replace),
            expand == "new",
            as_flag("edge_ids", edge_ids),
        )
    )


def sample_typed_neighbors(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    types: EdgeTypeIndex,
    seeds: np.ndarray,
    fanouts: Sequence[int | Mapping[int, int]],
    key: DrawKey,
    arena: np.ndarray,
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
    names: np.ndarray | None = None,
) -> SampleLayout:
    """As :func:`sample_neighbors`, with a fanout for each edge type; the hops carry edge types.

    A node's edges are in ascending order of type; each type's in-neighbours are drawn from as if there were no
    others.

    Args:
        types: of this graph, by :func:`.index_edge_types`.
        fanouts: for each hop, nearest first, ``{type: fanout}``, where types left out draw nothing; or one number
            for every type.

    Raises:
        SamplerConfigError: also for more than 16 hops, and for a type that the graph does not have.
    """
    check_draws(workspace, key)
    check_batch(indptr, indices, seeds, arena, names)
    check_kind("types", types, EdgeTypeIndex)
    if len(types.run_ptr) != len(indptr):
        raise SamplerConfigError(
            f"types index {len(types.run_ptr) - 1} nodes, but the graph has {len(indptr) - 1}: index this graph's."
        )
    fanouts = as_list("fanouts", fanouts)
    check_hops("fanouts, with one an edge type,", len(fanouts), key, MAX_TYPED_HOPS)
    check_choice("expand", expand, ("all", "new"))
    num_types = max(types.num_types, 1)
    table = [fanout for hop in fanouts for fanout in _fanouts_of_types(hop, num_types)]
    return SampleLayout.of(
        kernels.sample_typed(
            workspace.native,
            indptr,
            indices,
            types.run_ptr,
            types.run_type,
            types.run_end,
            types.order,
            seeds,
            table,
            num_types,
            key.seed,
            key.epoch,
            key.step,
            key.hop,
            names,
            arena,
            as_flag("replace", replace),
            expand == "new",
            as_flag("edge_ids", edge_ids),
        )
    )


def _fanouts_of_types(fanouts: int | Mapping[int, int], num_types: int) -> list[int]:
    if not isinstance(fanouts, Mapping):
        return check_fanouts([fanouts]) * num_types
    table = [0] * num_types
    for kind, fanout in fanouts.items():
        if not 0 <= as_integer("fanouts: an edge type", kind) < num_types:
            raise SamplerConfigError(
                f"fanouts name edge type {kind}, but the graph's edge types lie in [0, {num_types})."
            )
        [table[kind]] = check_fanouts([fanout])
    return table


def check_fanouts(fanouts: Sequence[int]) -> list[int]:
    """Fanouts as plain integers; raises SamplerConfigError where one is no fanout."""
    fanouts = [as_integer(f"fanouts[{hop}]", fanout) for hop, fanout in enumerate(as_list("fanouts", fanouts))]
    for hop, fanout in enumerate(fanouts):
        if fanout != ALL_NEIGHBORS and not 1 <= fanout <= MAX_FANOUT:
            raise SamplerConfigError(
                f"fanouts[{hop}] is {fanout}, but must lie in [1, {MAX_FANOUT}], or be -1 for all."
            )
    return fanouts

"""ShaDow sampling: a scope around the seeds, and the subgraph that it induces.

Shapes: N graph nodes, E edges, S seeds, V nodes of the scope.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import SamplerConfigError
from .checks import as_flag, as_integer, check_batch
from .dispatch import MAX_HOPS, DrawKey, SampleLayout, Workspace, check_draws, check_hops, kernels
from .neighbors import check_fanouts


def sample_shadow(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanouts: Sequence[int],
    key: DrawKey,
    arena: np.ndarray,
    *,
    num_layers: int,
    edge_ids: bool = False,
    names: np.ndarray | None = None,
) -> SampleLayout:
    """Sample the scope of ``seeds`` and all edges within it into ``arena``.

    A pure function of everything but the workspace. ``nodes`` are those of :func:`.sample_neighbors` with
    ``expand="new"``. Every node keeps its in-neighbours in the scope, in adjacency order. All hops share one
    ``indptr`` and one ``indices``: the nearest has the seeds as destinations, the others all nodes.

    Args:
        workspace: scratch memory, of this thread alone.
        indptr: int64 ``[N + 1]``, and ``indices`` int32 or int64 ``[E]``: a graph that passed
            :func:`check_csc`.
        seeds: int64 ``[S]``, distinct.
        fanouts: neighbours a node at each hop of the scope, nearest hop first; -1 takes all.
        key: decides every draw.
        arena: uint8, writable, starting at a multiple of 64 bytes.
        num_layers: hops to lay out, at least 1.
        edge_ids: also write each edge's position in ``indices``.
        names: int64 ``[N]``, by which nodes draw: their ids in the graph that this one is a part of. None: their own.

    Raises:
        SeedError: a seed out of range or repeated.
        SamplerConfigError: a fanout of 0 or below -1, no layers, or a batch beyond int32 local ids.
        ArenaTooSmall: sample again with at least ``needed_bytes``.

    Source: Zeng et al., "Decoupling the depth and scope of graph neural networks" (NeurIPS'21), section 3.
    """
    check_draws(workspace, key)
    check_batch(indptr, indices, seeds, arena, names)
    fanouts = check_fanouts(fanouts)
    check_hops("fanouts", len(fanouts), key)
    num_layers = check_num_layers(num_layers)
    return SampleLayout.of(
        kernels.sample_shadow(
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
            num_layers,
            as_flag("edge_ids", edge_ids),
        )
    )


def check_num_layers(num_layers: int) -> int:
    """``num_layers`` as a plain integer; raises SamplerConfigError where it counts no layers."""
    num_layers = as_integer("num_layers", num_layers)
    if not 1 <= num_layers <= MAX_HOPS:
        raise SamplerConfigError(f"num_layers is {num_layers}, but must lie in [1, {MAX_HOPS}].")
    return num_layers

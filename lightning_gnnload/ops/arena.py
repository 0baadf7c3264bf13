"""Laying a mini-batch into an arena, where its neighbours were chosen elsewhere.

Shapes: N graph nodes, D nodes known before a hop, E edges of the hop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import SamplerConfigError
from .checks import ARENA_ALIGNMENT, as_integer, check_apart, check_array, check_kind
from .dispatch import MAX_NODES, ArenaTooSmall, SampleLayout, Workspace, kernels


def add_hop(
    workspace: Workspace,
    num_nodes: int,
    num_known: int,
    counts: np.ndarray,
    neighbors: np.ndarray,
    arena: np.ndarray,
    *,
    hops_begin: int | None = None,
    edge_ids: np.ndarray | None = None,
    edge_weights: np.ndarray | None = None,
    edge_types: np.ndarray | None = None,
) -> SampleLayout:
    """Puts one hop into ``arena``, which holds the nodes known so far at its start and the hops before at its end.

    New nodes follow the known ones, in order of first occurrence.

    Args:
        workspace: scratch memory, of this thread alone.
        num_nodes: N, below which ids lie.
        num_known: D: the arena's first ``8 * D`` bytes are distinct node ids, int64.
        counts: int64 ``[D]``, edges of each destination.
        neighbors: int64 ``[E]``, node ids, those of the first destination first.
        arena: uint8, writable; offsets in it are multiples of 64 bytes.
        hops_begin: where the hops before begin in it, its end where there are none.
        edge_ids: int64 ``[E]``, and ``edge_weights`` float32 ``[E]``, ``edge_types`` int32 ``[E]``; None for a hop
            without them.

    Returns:
        The layout of the arena with this one hop; ``free_end`` is the next one's ``hops_begin``.

    Raises:
        SeedError: a known node out of range or repeated.
        SamplerConfigError: a neighbour out of range, counts that do not fit, or a batch beyond int32 local ids.
        ArenaTooSmall: begin again with at least ``needed_bytes``.

    Example:
        >>> arena = np.empty(1024, np.uint8)
        >>> arena[:8].view(np.int64)[:] = 5
        >>> layout = add_hop(Workspace(10), 10, 1, np.array([3]), np.array([2, 5, 2]), arena)
        >>> arena[: 8 * layout.num_nodes].view(np.int64).tolist()
        [5, 2]
    """
    check_kind("workspace", workspace, Workspace)
    num_nodes, num_known = as_integer("num_nodes", num_nodes), as_integer("num_known", num_known)
    if not 0 <= num_nodes < MAX_NODES:
        raise SamplerConfigError(f"num_nodes is {num_nodes}, but must lie in [0, 2**48).")
    check_array("arena", arena, (np.uint8,), 1, SamplerConfigError, writable=True)
    if arena.size and arena.ctypes.data % 8:
        raise SamplerConfigError(f"arena starts at address {arena.ctypes.data:#x}, but must be aligned to 8 bytes.")
    end = arena.nbytes if hops_begin is None else as_integer("hops_begin", hops_begin)
    if not 0 <= end <= arena.nbytes:
        raise SamplerConfigError(f"hops_begin is {end}, but the arena has {arena.nbytes} bytes.")
    end = end // ARENA_ALIGNMENT * ARENA_ALIGNMENT
    if not 0 <= 8 * num_known <= end:
        raise SamplerConfigError(f"num_known is {num_known}, but {end} bytes are before the hops, 8 for each node.")
    edges: tuple[tuple[str, Any, type], ...] = (
        ("counts", counts, np.int64),
        ("neighbors", neighbors, np.int64),
        ("edge_ids", edge_ids, np.int64),
        ("edge_weights", edge_weights, np.float32),
        ("edge_types", edge_types, np.int32),
    )
    for name, array, dtype in edges:
        # Edge columns alone may be left out; None for another array is refused by check_array().
        if array is None and name.startswith("edge"):
            continue
        check_array(name, array, (dtype,), 1, SamplerConfigError)
        check_apart("arena", arena, (name, array))
        length = num_known if name == "counts" else len(neighbors)
        if len(array) != length:
            raise SamplerConfigError(f"{name} has {len(array)} entries, but needs {length}.")
    try:
        written = kernels.add_hop(
            workspace.native,
            num_nodes,
            arena[: 8 * num_known].view(np.int64),
            counts,
            neighbors,
            edge_ids,
            edge_weights,
            edge_types,
            arena[:end],
        )
    except ArenaTooSmall as small:
        # The kernel was given the arena up to the earlier hops, but the larger one has to hold these, too.
        used = arena.nbytes // ARENA_ALIGNMENT * ARENA_ALIGNMENT - end
        raise ArenaTooSmall(small.needed_bytes + used) from None
    return SampleLayout.of(written)

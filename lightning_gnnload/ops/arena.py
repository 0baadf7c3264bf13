"""Writes a mini-batch into an arena whose neighbours were chosen elsewhere.

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
    """Puts one hop into ``arena``, which begins with the ``num_known`` nodes known so far, int64 ``[D]``, and ends with
    the hops before, from ``hops_begin`` on. New nodes follow the known ones, in order of first occurrence.

    ``counts`` int64 ``[D]`` are the edges of each destination; ``neighbors`` int64 ``[E]``, and ``edge_ids`` int64,
    ``edge_weights`` float32, ``edge_types`` int32 where given, have those of the first destination first. Returns the
    layout of this one hop, whose ``free_end`` is the next one's ``hops_begin``.

    Raises SeedError for a known node out of range or repeated; SamplerConfigError for a neighbour out of range, counts
    that do not fit, or a batch beyond int32 local ids; ArenaTooSmall, after which to begin again with ``needed_bytes``.

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
    # An arena may end anywhere, but the hops at its end are laid out in whole cache lines.
    end = end // ARENA_ALIGNMENT * ARENA_ALIGNMENT
    if not 0 <= 8 * num_known <= end:
        raise SamplerConfigError(f"num_known is {num_known}, but {end} bytes are before the hops, 8 for each node.")
    _check_column("counts", counts, np.int64, arena, num_known)
    check_array("neighbors", neighbors, (np.int64,), 1, SamplerConfigError)
    check_apart("arena", arena, ("neighbors", neighbors))
    columns: dict[str, tuple[Any, type]] = {
        "edge_ids": (edge_ids, np.int64),
        "edge_weights": (edge_weights, np.float32),
        "edge_types": (edge_types, np.int32),
    }
    for name, (column, dtype) in columns.items():
        if column is not None:
            _check_column(name, column, dtype, arena, len(neighbors))
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
        # The kernel saw the arena without the earlier hops, but a larger one has to hold these as well.
        used = arena.nbytes // ARENA_ALIGNMENT * ARENA_ALIGNMENT - end
        raise ArenaTooSmall(small.needed_bytes + used) from None
    return SampleLayout.of(written)


def _check_column(name: str, column: Any, dtype: type, arena: np.ndarray, count: int) -> None:
    check_array(name, column, (dtype,), 1, SamplerConfigError)
    check_apart("arena", arena, (name, column))
    if len(column) != count:
        raise SamplerConfigError(f"{name} has {len(column)} entries, but needs {count}.")

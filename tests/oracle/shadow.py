"""Oracle of ShaDow sampling."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from lightning_gnnload.ops.dispatch import DrawKey

from .neighbors import Hop, sample_neighbors


def sample_shadow(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanouts: Sequence[int],
    key: DrawKey,
    *,
    num_layers: int,
    names: np.ndarray | None = None,
) -> tuple[np.ndarray, list[Hop]]:
    """``nodes`` int64 and the hops of a batch, nearest hop first; see :func:`.shadow.sample_shadow`."""
    nodes, _ = sample_neighbors(indptr, indices, seeds, fanouts, key, expand="new", names=names)
    return nodes, hops_within(indptr, indices, nodes, len(seeds), num_layers)


def hops_within(
    indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray, num_seeds: int, num_layers: int
) -> list[Hop]:
    """The subgraph that nodes induce, as hops: the nearest has the seeds as destinations, the others all nodes."""
    local = {int(node): i for i, node in enumerate(nodes)}
    hops = []
    for num_dst in [num_seeds] + [len(nodes)] * (num_layers - 1):
        edge_ids = [
            [edge for edge in range(indptr[node], indptr[node + 1]) if int(indices[edge]) in local]
            for node in nodes[:num_dst]
        ]
        hop_indptr = np.cumsum([0, *map(len, edge_ids)])
        flat = np.array([*itertools.chain(*edge_ids)], np.int64)
        hops.append(Hop(len(nodes), hop_indptr, np.array([local[int(v)] for v in indices[flat]], np.int64), flat))
    return hops

"""Oracle of ShaDow sampling, and of the edges that nodes induce."""

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
    indptr, indices, edge_ids = induced_edges(indptr, indices, nodes, np.array([0, len(nodes)]))
    hops = []
    for num_dst in [num_seeds] + [len(nodes)] * (num_layers - 1):
        end = indptr[num_dst]
        hops.append(Hop(len(nodes), indptr[: num_dst + 1], indices[:end], edge_ids[:end]))
    return hops


def induced_edges(
    indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray, ptr: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``indptr``, ``indices`` and ``edge_ids`` of the edges within each group; see :func:`.induced.induced_edges`."""
    starts, places, edge_ids = [0], [], []
    for first, end in itertools.pairwise(ptr):
        place_of = {int(nodes[i]): i for i in range(first, end)}
        for node in nodes[first:end]:
            for edge in range(indptr[node], indptr[node + 1]):
                if int(indices[edge]) in place_of:
                    places.append(place_of[int(indices[edge])])
                    edge_ids.append(edge)
            starts.append(len(places))
    return np.array(starts), np.array(places, np.int64), np.array(edge_ids, np.int64)

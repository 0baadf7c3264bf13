"""Oracle of neighbourhood sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..dispatch import ALL_NEIGHBORS, DrawKey
from .draws import NodeDraws, stream_keys


def sample_positions(degree: int, fanout: int, replace: bool, draws: NodeDraws) -> list[int]:
    """Which of ``degree`` in-neighbours one node takes, as positions in its adjacency list."""
    if degree == 0:
        return []
    if fanout == ALL_NEIGHBORS or (not replace and degree <= fanout):
        return list(range(degree))
    if replace:
        return draws.below([degree] * fanout)
    picked: dict[int, None] = {}  # a set that keeps its order
    last_positions = range(degree - fanout, degree)
    for last, drawn in zip(last_positions, draws.below([last + 1 for last in last_positions]), strict=True):
        picked[last if drawn in picked else drawn] = None
    return list(picked)


@dataclass(frozen=True)
class Hop:
    """One hop: ``indptr`` ``[num_dst + 1]``, ``indices`` (local ids) and ``edge_ids`` ``[num_edges]``."""

    num_src: int
    indptr: np.ndarray
    indices: np.ndarray
    edge_ids: np.ndarray


def sample_neighbors(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanouts: Sequence[int],
    key: DrawKey,
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
) -> tuple[np.ndarray, list[Hop]]:
    """``nodes`` int64 and the hops of a batch, nearest hop first; see :func:`.dispatch.sample_neighbors`."""
    local = {int(seed): i for i, seed in enumerate(seeds)}  # a dict keeps the order of insertion
    hop_indptr, hop_indices, edge_ids = [0], list[int](), list[int]()
    hops = []
    num_expanded = 0
    draw_key, _ = stream_keys(key.seed, key.epoch)
    for hop, fanout in enumerate(fanouts):
        if expand == "all":
            hop_indptr, hop_indices, edge_ids = [0], [], []
            num_expanded = 0
        for node in list(local)[num_expanded:]:
            start, end = int(indptr[node]), int(indptr[node + 1])
            draws = NodeDraws(draw_key, key.step, hop, node)
            for position in sample_positions(end - start, fanout, replace, draws):
                neighbor = int(indices[start + position])
                hop_indices.append(local.setdefault(neighbor, len(local)))
                edge_ids.append(start + position)
            hop_indptr.append(len(hop_indices))
        num_expanded = len(hop_indptr) - 1
        hops.append(
            Hop(
                len(local),
                np.array(hop_indptr),
                np.array(hop_indices, np.int64),
                np.array(edge_ids, np.int64),
            )
        )
    return np.array(list(local), np.int64), hops

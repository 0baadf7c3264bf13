"""Oracle of neighbourhood sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lightning_gnnload.ops.dispatch import ALL_NEIGHBORS, DrawKey

from .draws import BatchDraws, NodeDraws


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


Picks = Callable[[int, int], list[int]]


def sample_neighbors(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanouts: Sequence[int],
    key: DrawKey,
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    names: np.ndarray | None = None,
) -> tuple[np.ndarray, list[Hop]]:
    """``nodes`` int64 and the hops of a batch, nearest hop first; see :func:`.neighbors.sample_neighbors`."""
    batch_draws = BatchDraws(key, names)

    def pick(hop: int, node: int) -> list[int]:
        start, end = int(indptr[node]), int(indptr[node + 1])
        draws = batch_draws.of(node, hop)
        return [start + i for i in sample_positions(end - start, fanouts[hop], replace, draws)]

    return expand_hops(indices, seeds, len(fanouts), pick, expand)


def lists_of(
    indptr: np.ndarray, node: int, hop: int, fanouts: int | Mapping[int, int], edge_type: np.ndarray | None
) -> Iterator[tuple[range, int, int]]:
    """The lists that a node draws from as if there were no others: where they lie, their fanouts, and the hops in the
    names of their draws. By type, where ``edge_type`` ``[E]`` sorts each list, else the whole."""
    whole = range(int(indptr[node]), int(indptr[node + 1]))
    if isinstance(fanouts, int):
        yield whole, fanouts, hop
        return
    assert edge_type is not None
    for kind, fanout in sorted(fanouts.items()):
        own = [edge for edge in whole if edge_type[edge] == kind]
        if own:
            yield range(own[0], own[-1] + 1), fanout, hop | (kind + 1) << 4


def expand_hops(
    indices: np.ndarray, seeds: np.ndarray, num_hops: int, pick: Picks, expand: Literal["all", "new"]
) -> tuple[np.ndarray, list[Hop]]:
    """Expand node by node; ``pick(hop, node)`` says which edges a node takes, as positions in ``indices``."""
    local = {int(seed): i for i, seed in enumerate(seeds)}  # a dict keeps the order of insertion
    hop_indptr, hop_indices, edge_ids = [0], list[int](), list[int]()
    hops = []
    num_expanded = 0
    for hop in range(num_hops):
        if expand == "all":
            hop_indptr, hop_indices, edge_ids = [0], [], []
            num_expanded = 0
        for node in list(local)[num_expanded:]:
            for edge in pick(hop, node):
                hop_indices.append(local.setdefault(int(indices[edge]), len(local)))
                edge_ids.append(edge)
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


def add_hop(known: np.ndarray, counts: np.ndarray, neighbors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``nodes`` int64, and the ``indptr`` and ``indices`` of a hop; see :func:`.arena.add_hop`."""
    local = {node: i for i, node in enumerate(known.tolist())}  # a dict keeps the order of insertion
    indices = [local.setdefault(node, len(local)) for node in neighbors.tolist()]
    return np.array(list(local), np.int64), np.concatenate([[0], np.cumsum(counts)]), np.array(indices, np.int64)

"""Slow oracle of every op: plain Python and NumPy, written to be read. The kernels must equal it exactly.

Shapes: N graph nodes, E edges, S seeds, B requested ids, F feature width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .dispatch import ALL_NEIGHBORS, DrawKey

_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Philox4x32-10 of many counters at once.

    Args:
        counter: uint32 ``[..., 4]``.
        key: uint32 ``[..., 2]``, broadcast against ``counter``.

    Returns:
        uint32 ``[..., 4]``.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11), section 3.3.

    Example:
        >>> [hex(word) for word in philox(np.zeros(4, np.uint32), np.zeros(2, np.uint32))]
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    # 64-bit lanes hold the products of 32-bit words.
    c0, c1, c2, c3 = np.moveaxis(np.asarray(counter, np.uint64), -1, 0)
    k0, k1 = np.moveaxis(np.asarray(key, np.uint64), -1, 0)
    for _ in range(10):
        product0 = np.uint64(0xD2511F53) * c0
        product1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0,
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ k1,
            product0 & _LOW,
        )
        k0 = (k0 + np.uint64(0x9E3779B9)) & _LOW
        k1 = (k1 + np.uint64(0xBB67AE85)) & _LOW
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1).astype(np.uint32)


def stream_keys(seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """The two keys of an epoch, uint32 ``[2]`` each: for draws and for ordering keys."""
    words = philox(_uint32(epoch, 0, 0, 0x6B657973), _uint32(seed, seed >> 32))
    return words[:2], words[2:]


class NodeDraws:
    """All draws of one destination node at one hop; ``key`` is the epoch's key for draws."""

    def __init__(self, key: np.ndarray, step: int, hop: int, node: int) -> None:
        self._key = key
        self._counter = (node, ((node >> 32) & 0xFFFF) | hop << 16, step)

    def words(self, count: int, attempt: int = 0) -> np.ndarray:
        """The words of draws 0 to ``count`` - 1, uint32."""
        counter = np.tile(_uint32(*self._counter, attempt << 24), ((count + 3) // 4, 1))
        counter[:, 3] |= np.arange(len(counter), dtype=np.uint32)
        return philox(counter, self._key).ravel()[:count]

    def below(self, bounds: Sequence[int]) -> list[int]:
        """Draw ``j`` for each bound, exactly uniform in ``[0, bounds[j])``.

        Words whose product falls below 2**32 mod bound would be drawn too often: they are drawn again.
        """
        drawn = []
        for j, (bound, word) in enumerate(zip(bounds, self.words(len(bounds)).tolist(), strict=True)):
            attempt = 0
            while word * bound % 2**32 < 2**32 % bound:
                attempt += 1
                word = int(self.words(j + 1, attempt)[j])
            drawn.append(word * bound >> 32)
        return drawn


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


def gather_rows(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """``[B, F]`` rows of ``table`` ``[N, F]``."""
    return table[ids]


def coo_to_csc(src: np.ndarray, dst: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``indptr``, ``indices`` and ``order`` of a graph given by its edges."""
    order = np.argsort(dst, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=num_nodes))])
    return indptr, src[order], order


def is_csc(indptr: np.ndarray, indices: np.ndarray) -> bool:
    """Whether :func:`.dispatch.check_csc` passes."""
    num_nodes, degrees = len(indptr) - 1, np.diff(indptr)
    return bool(
        indptr[0] == 0
        and indptr[-1] == len(indices)
        and np.all((degrees >= 0) & (degrees < 2**32))
        and np.all((indices >= 0) & (indices < num_nodes))
    )


def random_keys(seed: int, epoch: int, ids: np.ndarray) -> np.ndarray:
    """Ordering keys uint64 ``[B]``."""
    ids = np.asarray(ids, np.int64).astype(np.uint64)
    zeros = np.zeros_like(ids)
    counter = np.stack([ids & _LOW, ids >> _SHIFT, zeros, zeros], axis=-1)
    words = philox(counter, stream_keys(seed, epoch)[1]).astype(np.uint64)
    return words[:, 0] | words[:, 1] << _SHIFT


def _uint32(*words: int) -> np.ndarray:
    return np.array([word & 0xFFFFFFFF for word in words], np.uint32)

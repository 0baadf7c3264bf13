"""Deals nodes out to parts: seeds by what their neighbourhoods share (PaGraph), then the nodes that are still open.

Shapes: N graph nodes, E edges, S seeds, K parts, W = ceil(N / 64) words of bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import PartitionError, SeedError
from .checks import as_integer_within, check_apart, check_array, check_choice, check_csc_form, check_kind
from .dispatch import kernels

MAX_CLOSED_PARTS = 64  # the parts that hold a node are bits of one word
OVERLAPS = ("seeds", "nodes")
MOST_WEIGHT = 2**16 - 1
_MOST_NODES = 2**36  # scores are products of four such numbers, in 128 bits
# The largest int64, for limits that no count reaches.
_NEVER = 2**63 - 1


@dataclass(frozen=True)
class DealtSeeds:
    """The state of dealing seeds out to parts one after the other, which begins with :meth:`none_of`."""

    part: np.ndarray  # int8 [N], of each seed that has one; -1 for all other nodes
    num_seeds: np.ndarray  # int64 [K], of the phase that is being dealt
    num_nodes: np.ndarray  # int64 [K], that each part holds: PaGraph's PV
    node_bits: np.ndarray  # uint64 [K, W], which nodes these are
    scratch: np.ndarray  # uint64 [W], zeros between two calls

    @classmethod
    def none_of(cls, num_nodes: int, num_parts: int) -> DealtSeeds:
        """Makes the state before the first seed, in N + (K + 1) N / 8 bytes. Raises PartitionError for K outside [1,
        64]."""
        num_nodes = as_integer_within("num_nodes", num_nodes, 0, _MOST_NODES, PartitionError)
        num_parts = as_integer_within("num_parts", num_parts, 1, MAX_CLOSED_PARTS, PartitionError)
        num_words = -(-num_nodes // 64)
        return cls(
            np.full(num_nodes, -1, np.int8),
            np.zeros(num_parts, np.int64),
            np.zeros(num_parts, np.int64),
            np.zeros((num_parts, num_words), np.uint64),
            np.zeros(num_words, np.uint64),
        )


def deal_seeds(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    quotas: np.ndarray,
    dealt: DealtSeeds,
    *,
    hops: int,
    overlap: str = "seeds",
    overlap_weight: int = 1,
    smoothing: int = 0,
    max_edges: int = _NEVER,
) -> int:
    """Deals seeds out in their order, each to the part with room where it scores highest. Not thread-safe.

    The score of seed v at part i is ``(overlap_weight * |TV_i & IN(v)| + smoothing) * (S / K - |TV_i|) / |PV_i|``, with
    IN(v) its ``hops``-hop in-neighbours, TV_i the part's seeds by now, and PV_i its nodes (1 if there are none);
    ``overlap="nodes"`` counts all nodes that the part has of v and IN(v) in place of its seeds there. Scores are
    fractions of integers, compared exactly; of equal scores, the part with fewest nodes, then the lowest index. The
    part then holds v and IN(v).

    ``seeds`` are int64 ``[n]``, distinct and without a part; ``quotas`` int64 ``[K]`` says how many each part gets, S
    in all. ``dealt`` is updated; another phase begins with ``dealt.num_seeds`` at 0. It stops after ``max_edges``, so
    that a long stream can be dealt in slices, and returns how many seeds it dealt, at least 1 if there are any.

    Raises GraphFormatError, SeedError or PartitionError for arrays that do not fit each other, settings out of range,
    and a seed that is no node, has a part, or finds no room; seeds before it have been dealt.

    Source: PaGraph (TPDS'21), section 3.2, Eq. 1, and section 4, Algorithm 1.

    Example:
        >>> indptr, indices = np.array([0, 0, 1, 1, 2]), np.array([0, 2])  # 0 -> 1, 2 -> 3
        >>> dealt = DealtSeeds.none_of(4, num_parts=2)
        >>> deal_seeds(indptr, indices, np.array([0, 2, 3, 1]), np.array([2, 2]), dealt, hops=1)
        4
        >>> dealt.part.tolist()
        [0, 0, 1, 1]
    """
    check_csc_form(indptr, indices)
    check_array("seeds", seeds, (np.int64,), 1, SeedError)
    check_array("quotas", quotas, (np.int64,), 1, PartitionError)
    check_kind("dealt", dealt, DealtSeeds)
    num_nodes, num_parts = len(indptr) - 1, len(dealt.num_seeds)
    if len(dealt.part) != num_nodes:
        raise PartitionError(
            f"dealt is for a graph of {len(dealt.part)} nodes, but this one has {num_nodes}: begin with none_of()."
        )
    if len(quotas) != num_parts:
        raise PartitionError(f"quotas has {len(quotas)} entries for {num_parts} parts; give one each.")
    if not (quotas.min() >= 0 and quotas.max() <= num_nodes):
        raise PartitionError(f"quotas span [{quotas.min()}, {quotas.max()}], but the graph has {num_nodes} nodes.")
    check_choice("overlap", overlap, OVERLAPS)
    settings = [
        as_integer_within("hops", hops, 1, _NEVER, PartitionError),
        as_integer_within("overlap_weight", overlap_weight, 0, MOST_WEIGHT, PartitionError),
        as_integer_within("smoothing", smoothing, 0, MOST_WEIGHT, PartitionError),
        as_integer_within("max_edges", max_edges, 1, _NEVER, PartitionError),
    ]
    state = (dealt.part, dealt.num_seeds, dealt.num_nodes, dealt.node_bits.reshape(-1), dealt.scratch)
    return kernels.deal_seeds(indptr, indices, seeds, quotas, *state, overlap == "nodes", *settings)


def vote_nodes(
    indptr: np.ndarray,
    indices: np.ndarray,
    part: np.ndarray,
    is_open: np.ndarray,
    masks: np.ndarray | None,
    num_parts: int,
    *,
    capacity: int,
    begin: int = 0,
    end: int | None = None,
) -> None:
    """Moves open nodes, by ascending id, to the part that owns most of their in-neighbours by then, in place.

    A node goes only to parts that hold it, by ``masks``, uint64 ``[N]`` with bit ``p`` for part ``p``, or to any where
    none does; never to one that owns ``capacity`` nodes without it; and stays without votes for another. Of equal
    votes, fewest nodes, then lowest index. ``part`` is int32 ``[N]`` in ``[0, K)``, -1 for none yet; ``is_open`` bool
    ``[N]``; nodes ``[begin, end)`` have their turn. Raises GraphFormatError or PartitionError for arrays that do not
    fit each other, or a part or nodes that do not exist.

    Source: Ugander & Backstrom (WSDM'13): label propagation under constraints on size.

    Example:
        >>> indptr, indices = np.array([0, 0, 1, 2, 2]), np.array([0, 1])  # 0 -> 1 -> 2, and 3 alone
        >>> part = np.array([1, -1, -1, -1], np.int32)
        >>> vote_nodes(indptr, indices, part, part < 0, None, 2, capacity=4)
        >>> part.tolist()
        [1, 1, 1, -1]
    """
    check_csc_form(indptr, indices)
    _check_parts(part, masks, num_parts, writable=True)
    check_array("is_open", is_open, (np.bool_,), 1, PartitionError)
    num_nodes = len(indptr) - 1
    if len(part) != num_nodes or len(is_open) != num_nodes:
        raise PartitionError(
            f"part has {len(part)} entries and is_open {len(is_open)}, but the graph has {num_nodes} nodes: give "
            "one each."
        )
    arrays = {"indptr": indptr, "indices": indices, "is_open": is_open} | ({} if masks is None else {"masks": masks})
    check_apart("part", part, *arrays.items())
    capacity = as_integer_within("capacity", capacity, 0, _NEVER, PartitionError)
    end = as_integer_within("end", num_nodes if end is None else end, 0, num_nodes, PartitionError)
    begin = as_integer_within("begin", begin, 0, end, PartitionError)
    num_own = _count_own(part, num_parts)
    kernels.vote_nodes(indptr, indices, is_open.view(np.uint8), masks, part, num_own, capacity, begin, end)


def settle_nodes(part: np.ndarray, masks: np.ndarray | None, num_parts: int) -> np.ndarray:
    """Gives nodes without a part, by ascending id, to the part of fewest nodes so far, of those that hold them by
    ``masks`` as in :func:`vote_nodes`, or of all. Returns int32 ``[N]`` in ``[0, K)``. Raises PartitionError for arrays
    that do not fit each other, or a part that does not exist.

    Example:
        >>> settle_nodes(np.array([0, 0, -1, -1], np.int32), np.array([1, 1, 1, 0], np.uint64), 2).tolist()
        [0, 0, 0, 1]
    """
    _check_parts(part, masks, num_parts)
    settled = part.copy()
    kernels.settle_nodes(masks, settled, _count_own(part, num_parts))
    return settled


def spread_parts(
    indptr: np.ndarray, indices: np.ndarray, fresh: np.ndarray, masks: np.ndarray
) -> tuple[np.ndarray, int]:
    """Extends the closures of all parts by one hop: a part that holds a node takes in its in-neighbours.

    Masks, uint64 ``[N]``, have a bit for each part that holds a node. ``fresh`` are the parts that got the node in the
    last hop, and now spread; new bits are added to ``masks``. Returns those, which spread in the next hop, and for how
    many nodes there are any. One pass over the lists of nodes with fresh parts, in the graph's order, so that a mapped
    one is read in turn. Raises GraphFormatError or PartitionError for arrays of other dtypes or lengths, or of one
    memory.

    Source: PaGraph (TPDS'21), section 3.2, self-reliance.

    Example:
        >>> indptr, indices = np.array([0, 1, 2, 2]), np.array([1, 2])  # 2 -> 1 -> 0
        >>> masks = np.array([0b01, 0b10, 0], np.uint64)
        >>> fresh, num_reached = spread_parts(indptr, indices, masks.copy(), masks)
        >>> fresh.tolist(), num_reached, masks.tolist()
        ([0, 1, 2], 2, [1, 3, 2])
    """
    check_csc_form(indptr, indices)
    check_array("fresh", fresh, (np.uint64,), 1, PartitionError)
    check_array("masks", masks, (np.uint64,), 1, PartitionError, writable=True)
    num_nodes = len(indptr) - 1
    if len(fresh) != num_nodes or len(masks) != num_nodes:
        raise PartitionError(
            f"there are {len(fresh)} fresh masks and {len(masks)} masks, but {num_nodes} nodes: give one each."
        )
    check_apart("masks", masks, ("indptr", indptr), ("indices", indices), ("fresh", fresh))
    reached = np.empty(num_nodes, np.uint64)
    return reached, kernels.spread_parts(indptr, indices, fresh, masks, reached)


def _check_parts(part: np.ndarray, masks: np.ndarray | None, num_parts: int, writable: bool = False) -> None:
    check_array("part", part, (np.int32,), 1, PartitionError, writable)
    if masks is not None:
        check_array("masks", masks, (np.uint64,), 1, PartitionError)
        if len(masks) != len(part):
            raise PartitionError(f"masks has {len(masks)} entries, but part has {len(part)}: give one a node, to each.")
    num_parts = as_integer_within("num_parts", num_parts, 1, MAX_CLOSED_PARTS, PartitionError)
    if len(part) and not (part.min() >= -1 and part.max() < num_parts):
        raise PartitionError(
            f"part spans [{part.min()}, {part.max()}], but must lie in [0, {num_parts}), or be -1 where it is open."
        )


def _count_own(part: np.ndarray, num_parts: int) -> np.ndarray:
    """Counts the nodes that each part owns, int64 ``[K]``."""
    # Shifted by one, as bincount() takes no negative numbers, and open nodes are -1.
    return np.bincount(part + 1, minlength=num_parts + 1)[1:].astype(np.int64, copy=False)

"""Dealing nodes out to parts: seeds by what their neighbourhoods share (PaGraph), then what is left open.

Shapes: N graph nodes, E edges, S seeds, K parts, W = ceil(N / 64) words of bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import PartitionError, SeedError
from .checks import as_integer, check_apart, check_array, check_choice, check_graph, check_kind
from .dispatch import kernels

MOST_PARTS = 64
"""The parts that can hold a node are bits of one word."""
OVERLAPS = ("seeds", "nodes")
MOST_WEIGHT = 2**16 - 1
_MOST_NODES = 2**36  # scores are products of four such numbers, in 128 bits
# The largest int64: a limit that no count reaches.
_NEVER = 2**63 - 1


@dataclass(frozen=True)
class DealtSeeds:
    """The state of assigning seeds to parts one after the other. Made by :meth:`none_of`.

    Attributes:
        part: int8 ``[N]``, of each seed that has one; -1 for all other nodes.
        num_seeds: int64 ``[K]``, of the phase that is dealt out.
        num_nodes: int64 ``[K]``: PaGraph's PV, the nodes that a part holds.
        held: uint64 ``[K, W]``: which they are, a bit a node.
        seen: uint64 ``[W]``, zeros: room to work in.
    """

    part: np.ndarray
    num_seeds: np.ndarray
    num_nodes: np.ndarray
    held: np.ndarray
    seen: np.ndarray

    @classmethod
    def none_of(cls, num_nodes: int, num_parts: int) -> DealtSeeds:
        """Makes the state before the first seed; it takes N + (K + 1) N / 8 bytes.

        Raises:
            PartitionError: K is not in [1, 64].
        """
        num_nodes = _within("num_nodes", num_nodes, 0, _MOST_NODES)
        num_parts = _within("num_parts", num_parts, 1, MOST_PARTS)
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
    IN(v) its ``hops``-hop in-neighbours, TV_i the part's seeds by now, and PV_i its nodes (1 if there are none). Of
    equal scores, the part with fewest nodes, then the one of lowest index. The part then holds v and IN(v). Scores are
    fractions of integers, compared exactly.

    Args:
        indptr: int64 ``[N + 1]``, and ``indices`` int32 or int64 ``[E]``, of a graph that passed :func:`.check_csc`.
        indices: likewise.
        seeds: int64 ``[n]``, distinct nodes without a part.
        quotas: int64 ``[K]``: how many seeds each part shall have of this phase; S in all.
        dealt: what came before; it is added to. Another phase begins with ``dealt.num_seeds`` at 0.
        hops: at least 1.
        overlap: ``"seeds"``, or ``"nodes"`` for all that a part holds of v and IN(v), in place of its seeds there.
        overlap_weight: of a node in common; 0 to 65535.
        smoothing: is added to it, so that no score is 0 for lack of nodes in common; 0 to 65535.
        max_edges: to stop after, so that a long stream can be dealt in slices.

    Returns:
        How many were dealt out, at least 1 if there are any; go on with the rest.

    Raises:
        GraphFormatError, SeedError, PartitionError: arrays that do not fit each other, settings out of range, a seed
            that is no node, has a part, or finds no room. Seeds before it have been dealt out.

    Source: PaGraph (TPDS'21), section 3.2, Eq. 1, and section 4, Algorithm 1.

    Example:
        >>> indptr, indices = np.array([0, 0, 1, 1, 2]), np.array([0, 2])  # 0 -> 1, 2 -> 3
        >>> dealt = DealtSeeds.none_of(4, num_parts=2)
        >>> deal_seeds(indptr, indices, np.array([0, 2, 3, 1]), np.array([2, 2]), dealt, hops=1)
        4
        >>> dealt.part.tolist()
        [0, 0, 1, 1]
    """
    check_graph(indptr, indices)
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
        _within("hops", hops, 1, _NEVER),
        _within("overlap_weight", overlap_weight, 0, MOST_WEIGHT),
        _within("smoothing", smoothing, 0, MOST_WEIGHT),
        _within("max_edges", max_edges, 1, _NEVER),
    ]
    state = (dealt.part, dealt.num_seeds, dealt.num_nodes, dealt.held.reshape(-1), dealt.seen)
    return kernels.deal_seeds(indptr, indices, seeds, quotas, *state, overlap == "nodes", *settings)


def vote_nodes(
    indptr: np.ndarray,
    indices: np.ndarray,
    part: np.ndarray,
    is_open: np.ndarray,
    held: np.ndarray | None,
    num_parts: int,
    *,
    capacity: int,
    begin: int = 0,
    end: int | None = None,
) -> None:
    """Moves open nodes, by ascending id, to the part that owns most of their in-neighbours by then; in place.

    A node goes to none but the parts that hold it, or to any where none does; to none that owns ``capacity`` nodes
    without it; and stays where it is if it has no vote for another. Equal votes: fewest nodes, then lowest index.

    Args:
        indptr: int64 ``[N + 1]``, and ``indices`` int32 or int64 ``[E]``, of a graph that passed :func:`.check_csc`.
        indices: likewise.
        part: int32 ``[N]`` in ``[0, K)``, or -1: none yet. Is written to.
        is_open: bool ``[N]``: which nodes may be moved.
        held: uint64 ``[N]``, bit ``p`` where part ``p`` holds the node; None: any may own it.
        num_parts: K, 1 to 64.
        capacity: nodes that a part may own.
        begin: the first node whose turn it is.
        end: the one after the last; None: N.

    Raises:
        GraphFormatError, PartitionError: arrays that do not fit each other, or a part or nodes that are none.

    Source: Ugander & Backstrom (WSDM'13): label propagation under constraints on size.

    Example:
        >>> indptr, indices = np.array([0, 0, 1, 2, 2]), np.array([0, 1])  # 0 -> 1 -> 2, and 3 alone
        >>> part = np.array([1, -1, -1, -1], np.int32)
        >>> vote_nodes(indptr, indices, part, part < 0, None, 2, capacity=4)
        >>> part.tolist()
        [1, 1, 1, -1]
    """
    check_graph(indptr, indices)
    _check_parts(part, held, num_parts, writable=True)
    check_array("is_open", is_open, (np.bool_,), 1, PartitionError)
    num_nodes = len(indptr) - 1
    if len(part) != num_nodes or len(is_open) != num_nodes:
        raise PartitionError(
            f"part has {len(part)} entries and is_open {len(is_open)}, but the graph has {num_nodes} nodes: give "
            "one each."
        )
    arrays = {"indptr": indptr, "indices": indices, "is_open": is_open} | ({} if held is None else {"held": held})
    check_apart("part", part, *arrays.items())
    capacity = _within("capacity", capacity, 0, _NEVER)
    end = _within("end", num_nodes if end is None else end, 0, num_nodes)
    begin = _within("begin", begin, 0, end)
    num_own = _count_own(part, num_parts)
    kernels.vote_nodes(indptr, indices, is_open.view(np.uint8), held, part, num_own, capacity, begin, end)


def settle_nodes(part: np.ndarray, held: np.ndarray | None, num_parts: int) -> np.ndarray:
    """Gives nodes without a part, by ascending id, to the part of fewest nodes so far, of those that hold them.

    Args:
        part: int32 ``[N]`` in ``[0, K)``, or -1: open.
        held: uint64 ``[N]``, bit ``p`` where part ``p`` holds the node. Where none does, or without this, all parts
            are to choose from.
        num_parts: K, 1 to 64.

    Returns:
        int32 ``[N]``, in ``[0, K)``. Of parts with equally many nodes, the one of lowest index was taken.

    Raises:
        PartitionError: arrays that do not fit each other, or a part that is none.

    Example:
        >>> settle_nodes(np.array([0, 0, -1, -1], np.int32), np.array([1, 1, 1, 0], np.uint64), 2).tolist()
        [0, 0, 0, 1]
    """
    _check_parts(part, held, num_parts)
    settled = part.copy()
    kernels.settle_nodes(held, settled, _count_own(part, num_parts))
    return settled


def _within(name: str, value: int, least: int, most: int) -> int:
    value = as_integer(name, value, PartitionError)
    if not least <= value <= most:
        raise PartitionError(f"{name} is {value}, but must lie in [{least}, {most}].")
    return value


def _check_parts(part: np.ndarray, held: np.ndarray | None, num_parts: int, writable: bool = False) -> None:
    check_array("part", part, (np.int32,), 1, PartitionError, writable)
    if held is not None:
        check_array("held", held, (np.uint64,), 1, PartitionError)
        if len(held) != len(part):
            raise PartitionError(f"held has {len(held)} entries, but part has {len(part)}: give one a node, to each.")
    num_parts = _within("num_parts", num_parts, 1, MOST_PARTS)
    if len(part) and not (part.min() >= -1 and part.max() < num_parts):
        raise PartitionError(
            f"part spans [{part.min()}, {part.max()}], but must lie in [0, {num_parts}), or be -1 where it is open."
        )


def _count_own(part: np.ndarray, num_parts: int) -> np.ndarray:
    """Counts the nodes that each part owns, int64 ``[K]``."""
    # Shifted by one, as bincount() takes no negative numbers, and open nodes are -1.
    return np.bincount(part + 1, minlength=num_parts + 1)[1:].astype(np.int64, copy=False)

"""Blocks of nodes, and the graph of blocks: what partitions of a large graph are made of.

Shapes: N graph nodes, E edges, B blocks.
"""

from __future__ import annotations

import numpy as np

from ..errors import PartitionError, SeedError
from .checks import as_integer, as_integer_within, check_apart, check_array, check_csc_form
from .dispatch import kernels

MAX_LINKED_BLOCKS = 2**14  # the matrix of their links then takes 2 GiB
# Blocks and their sizes are numbered in int32.
_MOST_NODES = 2**31 - 1


def grow_blocks(
    indptr: np.ndarray, indices: np.ndarray, sources: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Grows connected blocks of up to ``most`` nodes along in-neighbours, by breadth-first searches that take turns.

    Searches start at all ``sources``, int64 ``[S]``, at once; whenever a block ends, full or with nowhere left to go,
    the lowest node of no block starts another. Returns ``block_of`` int32 ``[N]``, and ``sizes`` int32 ``[B]``.

    Raises GraphFormatError, SeedError or PartitionError for arrays of other forms, a source that is no node, a ``most``
    below 1, or more than 2**31 - 1 nodes.

    Source: BGL (NSDI'23), section 3.3.1.

    Example:
        >>> path = np.array([0, 1, 3, 5, 6]), np.array([1, 0, 2, 1, 3, 2])  # 0 - 1 - 2 - 3
        >>> grow_blocks(*path, sources=np.array([3]), most=3)
        (array([1, 0, 0, 0], dtype=int32), array([3, 1], dtype=int32))
    """
    check_csc_form(indptr, indices)
    check_array("sources", sources, (np.int64,), 1, SeedError)
    num_nodes, most = len(indptr) - 1, as_integer("most", most, PartitionError)
    if most < 1:
        raise PartitionError(f"most is {most}, but a block has at least 1 node.")
    if num_nodes > _MOST_NODES:
        raise PartitionError(f"the graph has {num_nodes} nodes, but blocks are of at most {_MOST_NODES}.")
    block_of, sizes = np.empty(num_nodes, np.int32), np.empty(num_nodes, np.int32)
    num_blocks = kernels.grow_blocks(indptr, indices, sources, min(most, _MOST_NODES), block_of, sizes)
    # Copied, as a view would keep room for N blocks alive.
    return block_of, sizes[:num_blocks].copy()


def join_blocks(
    indptr: np.ndarray,
    indices: np.ndarray,
    block_of: np.ndarray,
    sizes: np.ndarray,
    is_large: np.ndarray,
    most: int,
) -> np.ndarray:
    """Finds for each small block a large one that it borders on and that has room for it, int32 ``[B]``; -1 for none,
    and for large blocks.

    It is the one with more than half of the edges between the small block and large ones, if there is such, and else
    some that it borders on. ``block_of`` is int32 ``[N]`` in ``[0, B)``, ``sizes`` int32 ``[B]``, ``is_large`` uint8
    ``[B]``; ``most`` is the number of nodes that a block may have with those that join it. Raises GraphFormatError or
    PartitionError for arrays that do not fit each other, or a block out of range.

    Source: BGL (NSDI'23), section 3.3.1.
    """
    _check_blocks(indptr, indices, block_of)
    check_array("sizes", sizes, (np.int32,), 1, PartitionError)
    check_array("is_large", is_large, (np.uint8,), 1, PartitionError)
    if len(sizes) != len(is_large):
        raise PartitionError(
            f"there are {len(sizes)} sizes, but {len(is_large)} entries of is_large: give one a block."
        )
    most = min(as_integer("most", most, PartitionError), _MOST_NODES)
    joins = np.empty(len(sizes), np.int32)
    kernels.join_blocks(indptr, indices, block_of, sizes, is_large, max(most, 0), joins)
    return joins


def link_blocks(indptr: np.ndarray, indices: np.ndarray, block_of: np.ndarray, num_blocks: int) -> np.ndarray:
    """Counts the edges between blocks, or parts, int64 ``[B, B]``: entry ``a, b`` those that make a node of ``b`` an
    in-neighbour of a node of ``a``. Raises GraphFormatError or PartitionError for arrays that do not fit each other, a
    block out of range, or more than 2**14."""
    _check_blocks(indptr, indices, block_of)
    num_blocks = as_integer_within("num_blocks", num_blocks, 0, MAX_LINKED_BLOCKS, PartitionError)
    counts = np.empty(num_blocks * num_blocks, np.int64)
    kernels.link_blocks(indptr, indices, block_of, num_blocks, counts)
    return counts.reshape(num_blocks, num_blocks)


def deal_nodes(
    indptr: np.ndarray,
    indices: np.ndarray,
    is_seed: np.ndarray,
    part_of: np.ndarray,
    num_parts: int,
    node_capacity: int,
    seed_capacity: int,
) -> int:
    """Deals nodes out to parts in one stream, in place: each to where its in-neighbours are and room is. Returns how
    many nodes changed their part.

    A node goes to the part with the largest ``neighbours there * (1 - nodes / node_capacity)``, for a seed also ``* (1
    - seeds / seed_capacity)``, of what this stream has dealt to the part. Full parts get no more while others have
    room; seeds keep to their capacity as long as those of all parts suffice.

    ``is_seed`` is uint8 ``[N]``; ``part_of`` int32 ``[N]`` is written to: where an earlier stream left a part, an
    in-neighbour that is still to come counts for it, -1 where there is none. Raises GraphFormatError or PartitionError
    for arrays that do not fit each other, or a number or part out of range.

    Source: Stanton & Kliot (KDD'12), linear deterministic greedy; Nishimura & Ugander (KDD'13), restreaming.

    Example:
        >>> parts = np.full(4, -1, np.int32)
        >>> pairs = np.array([0, 1, 2, 3, 4]), np.array([2, 3, 0, 1])  # 0 - 2 and 1 - 3
        >>> deal_nodes(*pairs, np.zeros(4, np.uint8), parts, 2, node_capacity=2, seed_capacity=1)
        4
        >>> parts
        array([0, 1, 0, 1], dtype=int32)
    """
    _check_blocks(indptr, indices, part_of, "part_of", writable=True)
    check_array("is_seed", is_seed, (np.uint8,), 1, PartitionError)
    if len(is_seed) != len(part_of):
        raise PartitionError(f"is_seed has {len(is_seed)} entries, but the graph has {len(part_of)} nodes.")
    num_parts = as_integer_within("num_parts", num_parts, 1, MAX_LINKED_BLOCKS, PartitionError)
    node_capacity = as_integer_within("node_capacity", node_capacity, 1, _MOST_NODES, PartitionError)
    seed_capacity = as_integer_within("seed_capacity", seed_capacity, 0, _MOST_NODES, PartitionError)  # 0: no seeds
    check_apart("part_of", part_of, ("indptr", indptr), ("indices", indices), ("is_seed", is_seed))
    return kernels.deal_nodes(indptr, indices, is_seed, num_parts, node_capacity, seed_capacity, part_of)


def _check_blocks(
    indptr: np.ndarray, indices: np.ndarray, block_of: np.ndarray, name: str = "block_of", writable: bool = False
) -> None:
    check_csc_form(indptr, indices)
    check_array(name, block_of, (np.int32,), 1, PartitionError, writable=writable)
    if len(block_of) != len(indptr) - 1:
        raise PartitionError(
            f"{name} has {len(block_of)} entries, but the graph has {len(indptr) - 1} nodes; give one each."
        )

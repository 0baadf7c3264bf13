"""Oracle of blocks of nodes, and of dealing nodes out in one stream."""

from __future__ import annotations

from collections import Counter, deque
from fractions import Fraction
from itertools import count

import numpy as np


def grow_blocks(
    indptr: np.ndarray, indices: np.ndarray, sources: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """``block_of`` and ``sizes``, int32; see :func:`.blocks.grow_blocks`."""
    num_nodes = len(indptr) - 1
    numbers, block_of, queue = count(), dict[int, int](), deque[int]()
    sizes, waiting = Counter[int](), Counter[int]()

    def take(node: int, block: int) -> None:
        block_of[node] = block
        sizes[block] += 1
        waiting[block] += 1
        queue.append(node)

    def start_at_lowest() -> None:
        lowest = next((node for node in range(num_nodes) if node not in block_of), None)
        if lowest is not None:
            take(lowest, next(numbers))

    for source in sources.tolist():
        if source not in block_of:
            take(source, next(numbers))
    while len(block_of) < num_nodes or queue:
        if not queue:
            start_at_lowest()
        node = queue.popleft()
        block = block_of[node]
        waiting[block] -= 1
        if sizes[block] == most:
            continue
        for neighbor in indices[indptr[node] : indptr[node + 1]].tolist():
            if neighbor not in block_of and sizes[block] < most:
                take(neighbor, block)
        if sizes[block] == most or not waiting[block]:
            start_at_lowest()
    numbered = [block_of[node] for node in range(num_nodes)]
    return np.array(numbered, np.int32), np.array([sizes[block] for block in range(len(sizes))], np.int32)


def join_blocks(
    indptr: np.ndarray,
    indices: np.ndarray,
    block_of: np.ndarray,
    sizes: np.ndarray,
    is_large: np.ndarray,
    most: int,
) -> np.ndarray:
    """int32 ``[B]``; see :func:`.blocks.join_blocks`."""
    leads: dict[int, tuple[int, int]] = {}
    for node in range(len(indptr) - 1):
        for neighbor in indices[indptr[node] : indptr[node + 1]].tolist():
            pair = int(block_of[node]), int(block_of[neighbor])
            for small, large in (pair, pair[::-1]):
                if is_large[small] or not is_large[large]:
                    continue
                leader, lead = leads.get(small, (large, 0))
                if lead == 0:
                    leader = large
                leads[small] = leader, lead + 1 if leader == large else lead - 1
    totals, joins = sizes.tolist(), np.full(len(sizes), -1, np.int32)
    for small in sorted(leads):
        large, _ = leads[small]
        if totals[large] + sizes[small] <= most:
            totals[large] += int(sizes[small])
            joins[small] = large
    return joins


def link_blocks(indptr: np.ndarray, indices: np.ndarray, block_of: np.ndarray, num_blocks: int) -> np.ndarray:
    """int64 ``[B, B]``; see :func:`.blocks.link_blocks`."""
    counts = np.zeros((num_blocks, num_blocks), np.int64)
    for node in range(len(indptr) - 1):
        for neighbor in indices[indptr[node] : indptr[node + 1]]:
            counts[block_of[node], block_of[neighbor]] += 1
    return counts


def deal_nodes(
    indptr: np.ndarray,
    indices: np.ndarray,
    is_seed: np.ndarray,
    part_of: np.ndarray,
    num_parts: int,
    node_capacity: int,
    seed_capacity: int,
) -> int:
    """How many nodes changed parts; ``part_of`` is written to. See :func:`.blocks.deal_nodes`."""
    nodes, seeds, num_changed = [0] * num_parts, [0] * num_parts, 0
    for node in range(len(indptr) - 1):
        near = Counter(part_of[indices[indptr[node] : indptr[node + 1]]].tolist())
        scores = []
        for part in range(num_parts):
            room = max(Fraction(node_capacity - nodes[part], node_capacity), Fraction(0))
            if is_seed[node]:
                room *= max(Fraction(seed_capacity - seeds[part], max(seed_capacity, 1)), Fraction(0))
            if room:
                scores.append((near[part] * room, room, -part))
        if scores:
            best = -max(scores)[-1]
        else:
            loads = seeds if is_seed[node] else nodes
            best = loads.index(min(loads))
        nodes[best] += 1
        seeds[best] += int(is_seed[node])
        num_changed += int(part_of[node] != best)
        part_of[node] = best
    return num_changed

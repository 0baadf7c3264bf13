"""Oracle of orders by proximity."""

from __future__ import annotations

from collections import deque

import numpy as np


def breadth_first(
    indptr: np.ndarray,
    indices: np.ndarray,
    position: np.ndarray,
    roots: np.ndarray,
    num_seeds: int,
    reversed_indptr: np.ndarray | None = None,
    reversed_indices: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """``order`` and ``tree``, int32; see :func:`.orders.breadth_first`."""
    graphs = [(indptr, indices)]
    if reversed_indptr is not None and reversed_indices is not None:
        graphs.append((reversed_indptr, reversed_indices))
    found: list[tuple[int, int]] = []
    seen: set[int] = set()
    trees: dict[int, int] = {}  # numbers of the roots that lead to a seed
    for root in roots.tolist():
        if root in seen:
            continue
        seen.add(root)
        queue = deque([root])
        while queue:
            node = queue.popleft()
            if position[node] >= 0:
                found.append((int(position[node]), trees.setdefault(root, len(trees))))
            for offsets, neighbors in graphs:
                for neighbor in neighbors[offsets[node] : offsets[node + 1]].tolist():
                    if neighbor not in seen:
                        seen.add(neighbor)
                        queue.append(neighbor)
    order, tree = np.array(found[:num_seeds], np.int32).reshape(-1, 2).T
    return order, tree


def round_robin(sequences: list[np.ndarray], starts: np.ndarray) -> np.ndarray:
    """int32 ``[S]``; see :func:`.orders.round_robin`."""
    turns = [
        deque(np.roll(sequence, -start).tolist()) for sequence, start in zip(sequences, starts.tolist(), strict=True)
    ]
    order: list[int] = []
    taken: set[int] = set()
    while len(order) < len(sequences[0]):
        turn = turns[len(order) % len(turns)]
        position = turn.popleft()
        while position in taken:
            position = turn.popleft()
        taken.add(position)
        order.append(position)
    return np.array(order, np.int32)

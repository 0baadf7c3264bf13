"""Oracle of breadth-first orders."""

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

"""Orders of a window's mini-batches in which each shares many rows with the one before it.

A mini-batch moves with its seeds and draws, so the rows of each are what they were; only the steps at which they come
differ. So an order is a pure function of (seed, epoch, window), and each mini-batch as well mixed as before.

Source: FastGL (ASPLOS'24), Match-Reorder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Choice = Callable[[np.ndarray], list[int]]
"""Orders the lists 1, 2, ... after list 0, by how many nodes any two of them share, int64 ``[L, L]``."""


def shared_nodes(lists: Sequence[np.ndarray], num_nodes: int) -> np.ndarray:
    """Counts the nodes that each two lists share, int64 ``[L, L]``.

    Example:
        >>> shared_nodes([np.array([0, 1, 2]), np.array([2, 1]), np.array([3])], num_nodes=4).tolist()
        [[3, 2, 0], [2, 2, 0], [0, 0, 1]]
    """
    shared = np.empty((len(lists), len(lists)), np.int64)
    is_in = np.zeros(num_nodes, bool)
    for row, nodes in enumerate(lists):
        is_in[nodes] = True
        for column in range(row, len(lists)):
            shared[row, column] = shared[column, row] = np.count_nonzero(is_in[lists[column]])
        is_in[nodes] = False
    return shared


def nearest_next(shared: np.ndarray) -> list[int]:
    """Takes the list that shares most with the one before it, again and again, as FastGL does.

    Example:
        >>> nearest_next(np.array([[0, 5, 6, 0], [5, 0, 7, 0], [6, 7, 0, 9], [0, 0, 9, 0]]))
        [2, 3, 1]
    """
    order, left = [0], set(range(1, len(shared)))
    while left:
        # Of equals the first, so that all ranks choose alike.
        order.append(min(left, key=lambda number: (-shared[order[-1], number], number)))
        left.remove(order[-1])
    return order[1:]


def best_order(shared: np.ndarray) -> list[int]:
    """Finds the order in which the lists share most with those before them; time and memory double with each list.

    Source: Held and Karp, "A dynamic programming approach to sequencing problems" (1962).

    Example:
        >>> best_order(np.array([[0, 5, 6, 0], [5, 0, 7, 0], [6, 7, 0, 9], [0, 0, 9, 0]]))
        [1, 2, 3]
    """
    num_lists = len(shared) - 1
    gains = shared[1:, 1:]
    # By the set of lists that were taken, as bits, and the last of them: the most nodes shared so far.
    most = np.full((1 << num_lists, num_lists), -1)
    before = np.zeros((1 << num_lists, num_lists), np.int64)
    most[1 << np.arange(num_lists), np.arange(num_lists)] = shared[0, 1:]
    for taken in range(1, 1 << num_lists):
        reached = np.where(most[taken][:, None] < 0, -1, most[taken][:, None] + gains)
        last = reached.argmax(0)
        for after in range(num_lists):
            with_it = taken | 1 << after
            if with_it != taken and reached[last[after], after] > most[with_it, after]:
                most[with_it, after] = reached[last[after], after]
                before[with_it, after] = last[after]
    taken, number = (1 << num_lists) - 1, int(most[-1].argmax())
    order: list[int] = []
    for _ in range(num_lists):
        order.append(number + 1)
        taken, number = taken ^ 1 << number, int(before[taken, number])
    return order[::-1]


def in_windows(lists: Sequence[np.ndarray], num_nodes: int, window: int, choose: Choice) -> list[int]:
    """Reorders the lists of each window of ``window`` lists; returns their numbers. The first list stays first."""
    order = [0]
    for begin in range(0, len(lists), window):
        numbers = [number for number in range(begin, min(begin + window, len(lists))) if number]
        if numbers:
            shared = shared_nodes([lists[order[-1]], *(lists[number] for number in numbers)], num_nodes)
            order += [numbers[choice - 1] for choice in choose(shared)]
    return order

"""How far an order of seeds is from a shuffle, judged by the labels of its mini-batches."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def shuffling_bound(num_seeds: int, global_batch_size: int) -> float:
    """The shuffling error up to which SGD converges as it does on shuffled seeds, ``sqrt(b M) / n``.

    Source: Meng et al., "Convergence analysis of distributed stochastic gradient descent with shuffling"
    (Neurocomputing 337, 2019), theorem 3.15, as BGL (NSDI'23), section 3.2.2, applies it.
    """
    return math.sqrt(global_batch_size) / num_seeds


def label_distance(classes: np.ndarray, global_batch_size: int) -> float:
    """Total variation distance between the labels of a mini-batch and those of all seeds, mean over the mini-batches.

    Args:
        classes: of the seeds in their order, integers ``[S]`` from 0 on.
        global_batch_size: seeds of a step. What is left of the epoch after its full steps does not count.

    Returns:
        0 where every mini-batch has the labels of the whole, towards 1 where each has rare ones of its own.

    Example:
        >>> label_distance(np.array([0, 1, 1, 0, 0, 1]), 2), label_distance(np.array([0, 0, 1, 1]), 2)
        (0.0, 0.5)
    """
    num_steps = max(len(classes) // global_batch_size, 1)
    size = min(global_batch_size, len(classes))
    in_steps = classes[: num_steps * size]
    share = np.bincount(classes) / len(classes)
    # Of each step, only the labels that it has: there may be many classes. Two distributions' distance is also the
    # sum of what the one has more than the other.
    found, times = np.unique(np.repeat(np.arange(num_steps), size) * len(share) + in_steps, return_counts=True)
    excess = times / size - share[found % len(share)]
    return float(excess[excess > 0].sum() / num_steps)


def smallest_within(bound: float, error: Callable[[int], float], most: int) -> tuple[int, float]:
    """The smallest number from 1 to ``most`` whose error is at most ``bound``, and that error; ``most`` if none is.

    By doubling, then by halving the interval: errors that fall as the number grows are taken for granted.
    """
    above, number = 0, 1
    reached = error(number)
    while reached > bound and number < most:
        above, number = number, min(2 * number, most)
        reached = error(number)
    while reached <= bound and number - above > 1:
        middle = (above + number) // 2
        at_middle = error(middle)
        if at_middle <= bound:
            number, reached = middle, at_middle
        else:
            above = middle
    return number, reached

"""How far an order of seeds is from a shuffle, by the labels of its mini-batches; how many sequences come near."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.orders.sequences import epoch_order

_JUDGED_EPOCHS = range(8)  # one epoch's rotation can be lucky


@dataclass(frozen=True)
class Choice:
    """Holds a chosen number of sequences and the reason for it.

    Attributes:
        sequences: how many are merged.
        error: the shuffling error of their order.
        bound: the error that would do.
        distance: :func:`label_distance` of their order.
    """

    sequences: int
    error: float
    bound: float
    distance: float

    @property
    def is_within_bound(self) -> bool:
        return self.error <= self.bound

    def __str__(self) -> str:
        verdict = "within" if self.is_within_bound else "the most allowed, and above"
        return (
            f"{self.sequences} breadth-first sequences have a shuffling error of {self.error:.2g}, {verdict} the bound "
            f"sqrt(b M) / n = {self.bound:.2g}: the labels of a mini-batch lie {self.distance:.2g} from those of all "
            f"seeds, a shuffle's {self.distance - self.error:.2g}."
        )


def shuffling_bound(num_seeds: int, global_batch_size: int) -> float:
    """Returns the shuffling error up to which SGD converges as it does on shuffled seeds, ``sqrt(b M) / n``.

    Source: Meng et al., "Convergence analysis of distributed stochastic gradient descent with shuffling"
    (Neurocomputing 337, 2019), theorem 3.15, as BGL (NSDI'23), section 3.2.2, applies it.
    """
    return math.sqrt(global_batch_size) / num_seeds


def label_distance(classes: np.ndarray, global_batch_size: int) -> float:
    """Returns the total variation distance between a mini-batch's labels and all seeds', mean over the mini-batches.

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


def choose_sequences(
    sequences: Iterator[np.ndarray],
    seeds: np.ndarray,
    classes: np.ndarray,
    *,
    seed: int,
    global_batch_size: int,
    most: int,
) -> tuple[list[np.ndarray], Choice]:
    """Makes the fewest sequences whose order's shuffling error is within :func:`shuffling_bound`; ``most`` if none is.

    The shuffling error is how much further an order's mini-batches lie from all seeds than a shuffle's do, by
    :func:`label_distance`, over the first epochs of either. BGL does not say how it takes what a shuffle has into
    account: even the labels of a perfectly random mini-batch differ from those of the whole, and by far more than
    the bound.

    Args:
        sequences: as many as are asked for are taken of it.
        seeds: int64 ``[S]``, node ids.
        classes: their labels, integers ``[S]`` from 0 on.
        seed: random seed of the run.
        global_batch_size: seeds of a step.
        most: at most so many.

    Source: BGL (NSDI'23), section 3.2.2.
    """
    made: list[np.ndarray] = []

    def distance(order: Callable[[int], np.ndarray]) -> float:
        return float(np.mean([label_distance(classes[order(epoch)], global_batch_size) for epoch in _JUDGED_EPOCHS]))

    def error(number: int) -> float:
        made.extend(islice(sequences, max(number - len(made), 0)))
        return max(distance(lambda epoch: epoch_order(made[:number], seed, epoch)) - shuffled, 0.0)

    # In the order that Shuffled makes of the same seed, so that the comparison is with what training would do.
    shuffled = distance(lambda epoch: np.argsort(ops.random_keys(seed, epoch, seeds)))
    bound = shuffling_bound(len(seeds), global_batch_size)
    number, reached = smallest_within(bound, error, most)
    return made[:number], Choice(number, reached, bound, reached + shuffled)


def smallest_within(bound: float, error: Callable[[int], float], most: int) -> tuple[int, float]:
    """Finds the smallest number from 1 to ``most`` with an error of at most ``bound``, and its error; ``most`` if none.

    It doubles the number, then halves the interval: errors are assumed to fall as the number grows.
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

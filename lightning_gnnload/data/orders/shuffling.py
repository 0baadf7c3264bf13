"""Chooses the number of sequences of a proximity order: the fewest that mix labels nearly as a shuffle does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import torch

from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.reads import CACHE_RATIO, BatchSpan, batch_spans, cache_reads, neighborhoods
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.data.orders.sequences import RingOrder

MOST_SEQUENCES = 4096
MOST_EXCESS = 0.03
"""The excess of :func:`label_distance` over a shuffle's that is allowed; docs/guides/order.md shows its cost."""
LEAST_SAVED = 0.05
"""The share of a cache's misses that an order has to save, or seeds are shuffled."""
LEAST_JUDGED = 1024
"""Seeds over which labels are compared at the least, or a 32nd of an epoch: where small steps with nearly the same
labels follow each other, a model learns less, however mixed those of each step are."""
CHOICE_SEED = 0
"""The random seed of searches and comparisons, so that the choice does not depend on a run's seed."""
_JUDGED_EPOCHS = range(4)  # one epoch's cuts can be lucky
_LEAST_SPANS, _LEAST_BATCHES = 4, 512
_STANDARD_ERRORS = 4.0  # between an estimate and LEAST_SAVED that end the sampling
_MOST_BATCHES = 2560  # of which sampling takes some seconds on a large graph, a minute on a huge one


@dataclass(frozen=True)
class Choice:
    """The chosen number of sequences, and the measurements behind it."""

    sequences: int | None  # the fewest that mix labels well enough; None where no number does
    distance: float  # label_distance() of their order
    shuffled: float  # label_distance() of a shuffle
    saved: float  # the share of a shuffle's cache misses that the order avoids

    @property
    def worth(self) -> int | None:
        """The number of sequences to take; None to shuffle."""
        return self.sequences if self.saved >= LEAST_SAVED else None

    def __str__(self) -> str:
        mixed = f"labels of a step lie {self.distance:.2g} from those of all seeds, a shuffle's {self.shuffled:.2g}"
        if self.sequences is None:
            return f"no number of sequences mixes labels nearly as a shuffle does: the {mixed}. Seeds are shuffled."
        cache = f"a cache of {CACHE_RATIO:.0%} of the rows misses {max(self.saved, 0):.0%} fewer than under a shuffle"
        with_these = f"with {count(self.sequences)}, {cache}"
        if self.worth is not None:
            return f"{with_these}, and the {mixed}."
        return (
            f"{with_these}, and {LEAST_SAVED:.0%} are asked for: neighbours have too little in common. Seeds are "
            "shuffled."
        )


def count(sequences: int) -> str:
    """Returns a number of sequences in words, for messages."""
    return f"{sequences} sequence{'s' * (sequences > 1)}"


def are_classes(labels: torch.Tensor | None) -> TypeGuard[torch.Tensor]:
    """Returns whether labels are classes: integers ``[N]``."""
    return labels is not None and labels.ndim == 1 and not (labels.is_floating_point() or labels.is_complex())


def label_distance(labels: np.ndarray, global_batch_size: int) -> float:
    """Returns the mean over full steps of the total variation distance between a step's labels and all labels.

    ``labels`` are integers ``[S]`` in the seeds' order. The distance is 0 where every step has the labels of the whole,
    and near 1 where each has rare ones.

    Source: BGL (NSDI'23), section 3.2.2, which calls it the shuffling error.

    Example:
        >>> label_distance(np.array([0, 7, 7, 0, 0, 7]), 2), label_distance(np.array([0, 0, 7, 7]), 2)
        (0.0, 0.5)
    """
    num_steps = max(len(labels) // global_batch_size, 1)
    size = min(global_batch_size, len(labels))
    values, classes, times_in_all = np.unique(labels, return_inverse=True, return_counts=True)
    # Only the labels that a step has are counted, as there may be many classes. The distance of two distributions is
    # also the sum of what the one has more than the other. In integers but for the last division, so that all machines
    # choose alike.
    steps_of = np.repeat(np.arange(num_steps), size)
    step_classes, times = np.unique(steps_of * len(values) + classes[: num_steps * size], return_counts=True)
    excess = times * len(labels) - times_in_all[step_classes % len(values)] * size
    return int(excess[excess > 0].sum()) / (num_steps * size * len(labels))


def mean_distance(
    order: SeedOrder, seeds: np.ndarray, labels: torch.Tensor, *, seed: int, global_batch_size: int
) -> float:
    """Returns the mean :func:`label_distance` of a bound order over the first epochs, by :data:`LEAST_JUDGED` seeds.

    ``seeds`` are node ids, int64 ``[S]``; ``labels`` those of all nodes, integers ``[N]``.
    """
    ordered = (order.order(seeds, seed=seed, epoch=epoch) for epoch in _JUDGED_EPOCHS)
    size = max(global_batch_size, min(LEAST_JUDGED, len(seeds) // 32))
    # Over more seeds than a small step has, where successive steps may have nearly the same labels.
    distances = [label_distance(labels[tensor_view(ids)].numpy(), size) for ids in ordered]
    return sum(distances) / len(distances)


def choose_sequences(
    graph: Graph, ring: np.ndarray, seeds: np.ndarray, labels: torch.Tensor, *, global_batch_size: int
) -> Choice:
    """Chooses the number of sequences by labels, integers ``[N]``, and estimates the cache misses that they save.

    More sequences mix labels better, and share fewer neighbours, so the fewest that mix within :data:`MOST_EXCESS` of a
    shuffle are best. The choice depends on the graph, its labels and the seeds alone.

    Source: BGL (NSDI'23), section 3.2.2.
    """

    def distance(order: SeedOrder) -> float:
        return mean_distance(order, seeds, labels, seed=CHOICE_SEED, global_batch_size=global_batch_size)

    # Not BGL's bound, sqrt(b M) / n: even the labels of a random mini-batch differ from those of the whole by far more.
    shuffled = distance(Shuffled())
    number, reached = smallest_within(
        shuffled + MOST_EXCESS, lambda tried: distance(RingOrder(ring, tried)), min(MOST_SEQUENCES, len(seeds))
    )
    if reached > shuffled + MOST_EXCESS:
        return Choice(None, reached, shuffled, 0.0)
    return Choice(number, reached, shuffled, _saved(graph, RingOrder(ring, number), seeds, global_batch_size))


def _saved(graph: Graph, order: SeedOrder, seeds: np.ndarray, size: int) -> float:
    """Estimates the share of a shuffle's cache misses that an order avoids."""

    def batches(seed_order: SeedOrder, span: BatchSpan) -> Iterator[np.ndarray]:
        return neighborhoods(graph, lambda epoch: seed_order.order(seeds, seed=CHOICE_SEED, epoch=epoch), size, span)

    both = (order, Shuffled())
    rows = len(next(batches(Shuffled(), BatchSpan(0, 0, 1))))
    missed: list[list[int]] = []
    for span in batch_spans(rows, graph.num_nodes, max(len(seeds) // size, 1)):
        missed.append(
            [cache_reads(batches(seed_order, span), span.warm_up, graph.num_nodes).missed for seed_order in both]
        )
        batches_per_span = len(both) * (span.warm_up + span.counted)
        if len(missed) < _LEAST_SPANS or len(missed) * batches_per_span < _LEAST_BATCHES:
            continue
        ours, shuffled = np.array(missed, np.float64).T
        ratio = ours.sum() / max(shuffled.sum(), 1)
        # Sampling ends when the estimate is further from LEAST_SAVED than it may err by: the standard error of a ratio
        # of sums.
        error = np.std(ours - ratio * shuffled, ddof=1) * np.sqrt(len(missed)) / max(shuffled.sum(), 1)
        if (
            abs(1 - ratio - LEAST_SAVED) > _STANDARD_ERRORS * error
            or (len(missed) + 1) * batches_per_span > _MOST_BATCHES
        ):
            return float(1 - ratio)
    raise AssertionError("batch_spans() does not end")


def smallest_within(bound: float, error: Callable[[int], float], most: int) -> tuple[int, float]:
    """Finds the smallest number from 1 to ``most`` with an error within ``bound``, or ``most``, and its error."""
    # Doubles the number, then halves the interval, as errors fall while the number grows.
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

"""Visit counts of few epochs, freed from some of their noise by what nodes of like degree have in common."""

from __future__ import annotations

import numpy as np

_CLASSES_AN_OCTAVE = 4


def smoothed(counts: np.ndarray, degrees: np.ndarray, num_batches: int) -> np.ndarray:
    """Moves each count towards the mean of its degree class, the further the more of the class's spread is chance.

    Of a node's count, part is the node's and part is luck. In a class whose counts spread no more than luck alone
    would spread them, all nodes get the mean; where nodes truly differ, because the seeds are near some of them or
    weights favour some, counts stay nearly as they are.

    Args:
        counts: mini-batches that visited each node, ``[N]``.
        degrees: out-degree of each node, ``[N]``.
        num_batches: that were sampled; no count is larger.

    Returns:
        float64 ``[N]``; the sum is that of the counts.

    Source: empirical Bayes, as in Efron and Morris, "Stein's estimation rule and its competitors" (JASA 68, 1973).

    Example:
        >>> smoothed(np.array([2, 4, 3, 3, 9]), np.array([5, 5, 5, 5, 40]), num_batches=100).tolist()
        [3.0, 3.0, 3.0, 3.0, 9.0]
    """
    fraction, octave = np.frexp(degrees.astype(np.float64))  # exact, so that all machines class alike
    classes = octave * _CLASSES_AN_OCTAVE + ((2 * fraction - 1) * _CLASSES_AN_OCTAVE).astype(np.int64)
    classes = np.where(degrees > 0, classes, 0)
    size = np.maximum(np.bincount(classes), 1)
    counts = counts.astype(np.float64)
    mean = np.bincount(classes, counts) / size
    square = np.bincount(classes, counts**2) / size
    spread = square - mean**2
    luck = mean - square / num_batches  # of a count of rare events among so many chances
    own = np.divide(spread - luck, spread, out=np.zeros(len(size)), where=spread > luck)[classes]
    return own * counts + (1 - own) * mean[classes]

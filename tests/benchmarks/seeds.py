"""The seeds of every turn: the same for every library, whatever Python it runs in."""

from __future__ import annotations

import numpy as np

BATCH_SIZE = 1024
NUM_LINKS = 1_000_000  # of a graph's, so many feed a loader


def seeds_of_turn(train: np.ndarray, turn: int, num_batches: int) -> np.ndarray:
    """int64 ``[num_batches, BATCH_SIZE]``: distinct within a batch."""
    draw = np.random.default_rng(turn)
    return np.stack([draw.choice(train, BATCH_SIZE, replace=False) for _ in range(num_batches)])


def times_of_turn(span: tuple[int, int], turn: int, num_batches: int) -> np.ndarray:
    """int64 ``[num_batches, BATCH_SIZE]``: times in the later half of ``span``, one a seed."""
    first, last = span
    return np.random.default_rng([turn, 1]).integers((first + last) // 2, last, (num_batches, BATCH_SIZE))


def links_of_turn(num_edges: int, turn: int, num_batches: int) -> np.ndarray:
    """int64 ``[num_batches, BATCH_SIZE]``: positions of edges."""
    return np.random.default_rng([turn, 2]).integers(0, num_edges, (num_batches, BATCH_SIZE))


def ends_of_links(
    links: np.ndarray, num_negatives: int, indptr: np.ndarray, indices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of a batch of links, the nodes to sample for: sources and targets, int64, each once.

    Targets are those of the links and ``num_negatives`` drawn for each, which may be edges, too.
    """
    drawn = np.random.default_rng(links[:1]).integers(0, len(indptr) - 1, len(links) * num_negatives)
    targets = np.searchsorted(indptr, links, side="right") - 1
    return np.unique(indices[links]), np.unique(np.concatenate([targets, drawn]))

"""The seeds of every turn: the same for every library, whatever Python it runs in."""

from __future__ import annotations

import numpy as np

BATCH_SIZE = 1024


def seeds_of_turn(train: np.ndarray, turn: int, num_batches: int) -> np.ndarray:
    """int64 ``[num_batches, BATCH_SIZE]``: distinct within a batch."""
    draw = np.random.default_rng(turn)
    return np.stack([draw.choice(train, BATCH_SIZE, replace=False) for _ in range(num_batches)])

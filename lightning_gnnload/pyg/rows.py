"""Samplers of rows, to which Lightning announces each epoch of a PyG loader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np
from torch.utils.data import RandomSampler, Sampler, SequentialSampler

from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.pipeline.position import Position


class OrderedRows(SequentialSampler):
    """Lists rows in their order; ``position`` of the loader hears of epochs, and ``data_source`` may be set later."""

    def __init__(self, position: Position, data_source: Sized = ()) -> None:
        self.set_epoch = position.announce
        self.data_source = data_source


class ShuffledRows(RandomSampler):
    """Shuffles rows as a pure function of (seed, epoch). It is a RandomSampler, as Lightning looks for one to share the
    rows out among ranks."""

    def __init__(self, position: Position, seed: int) -> None:
        # Not by RandomSampler's constructor, which refuses an empty source.
        self.set_epoch = position.announce
        self.data_source: Sequence[Any] = ()  # set by the loader, which is made later
        self.replacement, self._num_samples, self.generator = False, None, None
        self.seed, self.drawn_epoch = seed, 0

    def of_epoch(self) -> np.ndarray:
        """Returns the rows in this epoch's order, int64 ``[R]``."""
        return Shuffled().order(np.arange(len(self.data_source)), seed=self.seed, epoch=self.drawn_epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(self.of_epoch().tolist())


class AnnouncedRows(Sampler):
    """Lists the rows of a user's sampler; ``position`` of the loader hears of epochs."""

    def __init__(self, position: Position, rows: Any) -> None:
        self.set_epoch = position.announce
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

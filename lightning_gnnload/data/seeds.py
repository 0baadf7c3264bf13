"""SeedOrder: how an epoch orders its seeds."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.errors import LoaderConfigError


class SeedOrder(ABC):
    """Orders the seeds of an epoch as a pure function of (seeds, seed, epoch)."""

    @abstractmethod
    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        """The same seeds, int64 ``[S]``, in this epoch's order."""


class Sequential(SeedOrder):
    """As given."""

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        return seeds


class Shuffled(SeedOrder):
    """A uniformly random order: each node draws a 64-bit key from (seed, epoch, node), and keys are sorted.

    So the order does not depend on how the seeds were given, and needs no generator with state.
    """

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        keys = ops.random_keys(seed, epoch, seeds)
        # Equal keys (2^-64 a pair) fall back to the node id.
        return seeds[np.lexsort((seeds, keys))]


_BY_NAME: dict[str, type[SeedOrder]] = {"shuffle": Shuffled, "sequential": Sequential}


def seed_order(order: str | SeedOrder) -> SeedOrder:
    """``"shuffle"``, ``"sequential"``, or an order of one's own.

    Raises:
        LoaderConfigError: an unknown name.
    """
    if isinstance(order, SeedOrder):
        return order
    if order not in _BY_NAME:
        raise LoaderConfigError(
            f"order={order!r} is not known; give one of {', '.join(map(repr, _BY_NAME))} or a SeedOrder."
        )
    return _BY_NAME[order]()

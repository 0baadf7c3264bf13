"""Exchange: how ranks that sample together pass each other tasks and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np


class Exchange(ABC):
    """All-to-all among the ranks that hold one part each.

    One thread a rank calls it, so that all ranks call in one order (DSP, PPoPP'23, section 5, by construction).

    Attributes:
        rank: this rank, which holds part ``rank``.
        num_ranks: how many there are.
    """

    rank: int
    num_ranks: int

    @abstractmethod
    def all_to_all(self, outgoing: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Sends ``outgoing[r]`` to rank ``r``, and returns what each rank sent here: uint8 ``[bytes]`` each way.

        Returns when every rank has called it. What a rank sends to itself is not copied.

        Raises:
            ExchangeError: a rank is gone, or has not come in time.
        """

    @abstractmethod
    def close(self) -> None:
        """Gives back what it took. Safe to call twice."""

"""How many of the rows that ranks share are worth a copy in each of them."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ReadCosts:
    """The seconds that a rank takes to gather a row: from its own memory, another rank's, and where no cache has it."""

    local_s: float
    peers_s: float
    behind_s: float


def rows_to_copy(visits: np.ndarray, num_ranks: int, costs: ReadCosts) -> int:
    """Computes how many of the hottest rows each rank should copy, where the room of all is filled with further rows,
    each of them once.

    ``visits``, descending, are those of as many rows as all have room for, each once: M for R ranks, of whom each has
    room for M / R. Where C rows are copied, C + (M / R - C) R are cached, since a copy more takes the room of R - 1
    other rows. Of the rows that are there once, a rank has one in R itself and asks others for the rest. So the copy of
    row C pays as long as

        visits[C] (R - 1) / R (peers - local)  >  visits of the R - 1 coldest rows (behind - once),
        once = (local + (R - 1) peers) / R,

    where the left side falls with C and the right side grows, as colder rows are given up first. Where links between
    ranks are no faster than the memory behind, all rows are copied; where ranks are on one device, none.

    Source: DSP (PPoPP'23), section 3.2, which replicates the hottest rows and leaves their number open.

    Example:
        >>> visits = np.array([900.0, 90, 9, 8, 7, 6, 5, 4])
        >>> [rows_to_copy(visits, 2, ReadCosts(1, 5, behind_s)) for behind_s in (5, 50, 10_000)]
        [4, 1, 0]
    """
    per_rank = len(visits) // num_ranks
    once = (costs.local_s + (num_ranks - 1) * costs.peers_s) / num_ranks  # on average, of a row that is there once
    before = np.concatenate([[0.0], np.cumsum(visits, dtype=np.float64)])

    def is_too_many(copied: int) -> bool:
        cached = per_rank * num_ranks - copied * (num_ranks - 1)
        given_up = before[cached] - before[cached - (num_ranks - 1)]
        return float(visits[copied]) * (once - costs.local_s) <= float(given_up) * (costs.behind_s - once)

    return bisect.bisect_left(range(per_rank), True, key=is_too_many) if num_ranks > 1 else 0

"""What a mini-batch shares with the one before it, and what the memory of such rows would save otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.cache.rules import RULES
from lightning_gnnload.cache.simulate import AccessTrace, evicting_hits, slots_of

LAST, LARGER = "the last mini-batch's rows", "a larger cache"
"""Uses of memory in :attr:`Reuse.saved`, beside those of rules that evict."""


def num_reused(lists: Iterable[np.ndarray], num_nodes: int) -> int:
    """Counts the nodes of each list that are in the list before it, too.

    Source: FastGL (ASPLOS'24), Match: the next mini-batch takes these rows from where this one has them.

    Example:
        >>> num_reused([np.array([0, 1, 2]), np.array([2, 1]), np.array([2, 0])], num_nodes=3)
        3
    """
    latest = np.full(num_nodes, -1)  # of each node, the last list that it was in
    count = 0
    for number, nodes in enumerate(lists, start=1):  # so that no list comes before the first
        count += int(np.count_nonzero(latest[nodes] == number - 1))
        latest[nodes] = number
    return count


@dataclass(frozen=True)
class Reuse:
    """Compares uses of the memory that one mini-batch's rows take, behind a cache that was filled beforehand."""

    ratio: float  # of all rows, in that cache
    missed: float  # of the rows read, by it
    more: float  # of all rows, that there is memory for: those that a mini-batch of each rank misses
    saved: dict[str, float]  # by use of the memory, the share of missed rows that it avoids; negative: it adds some

    @property
    def best(self) -> str:
        """The use that saves most among those that settings have, which :data:`LAST` is not; of equals, the first."""
        return max((use for use in self.saved if use != LAST), key=lambda use: self.saved[use])


def reuse(trace: AccessTrace, hotness: np.ndarray, ratio: float) -> Reuse:
    """Simulates uses of that memory on a trace, behind a cache of the hottest rows.

    ``hotness`` is a number a node, ``[N]``, and ``ratio`` that cache's share of all rows. Rows of the last mini-batch
    are those of the same rank's. Raises CacheConfigError for a hotness that ranks nothing.

    Source: FastGL (ASPLOS'24), Match; levels as in BGL (NSDI'23), section 3.2.
    """
    num_nodes, num_ranks, num_warm = trace.num_nodes, trace.workload.num_ranks, len(trace.epochs[0])
    num_slots = slots_of(ratio, num_nodes)
    ranked = hottest(hotness, num_nodes, num_nodes)
    lists = list(chain(*trace.epochs))

    def num_missed(num_cached: int) -> int:
        return sum(map(len, _without(ranked[:num_cached], lists[num_warm:], num_nodes)))

    missed = num_missed(num_slots)
    # Slots for the misses of a step.
    more = min(-(-missed * num_ranks // (len(lists) - num_warm)), num_nodes - num_slots)

    def saved(still_missed: int) -> float:
        return (missed - still_missed) / missed if missed else 0.0

    reused = 0
    for rank in range(num_ranks):
        # From the last step of the epoch that warms up on, which the first measured one follows.
        rank_lists = lists[num_warm - num_ranks + rank :: num_ranks]
        reused += num_reused(_without(ranked[:num_slots], rank_lists, num_nodes), num_nodes)
    uses = {LAST: saved(missed - reused), LARGER: saved(num_missed(num_slots + more))}
    for name, rule in RULES.items():
        if rule.admit is not None and not rule.looks_ahead:
            missed_lists = _without(ranked[:num_slots], lists, num_nodes)
            behind = evicting_hits(num_nodes, more, name, missed_lists, num_warm)
            alone = evicting_hits(num_nodes, num_slots + more, name, lists, num_warm)
            uses[f"a level of {name} behind it"] = saved(missed - behind)
            uses[f"{name} alone, in all the memory"] = saved(trace.num_visits - alone)
    return Reuse(ratio, missed / max(trace.num_visits, 1), more / num_nodes, uses)


def _without(nodes: np.ndarray, lists: Iterable[np.ndarray], num_nodes: int) -> Iterator[np.ndarray]:
    """Yields each list without these nodes: one at a time, as a trace may take gigabytes."""
    is_left = np.ones(num_nodes, bool)
    is_left[nodes] = False
    return (listed[is_left[listed]] for listed in lists)

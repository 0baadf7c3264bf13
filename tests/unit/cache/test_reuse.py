"""What a mini-batch shares with the one before it, against sets of node ids."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import pytest

from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.cache.reuse import LARGER, LAST, num_reused, reuse
from lightning_gnnload.cache.rules import RULES
from lightning_gnnload.cache.simulate import AccessTrace
from lightning_gnnload.ops import EvictingSlots
from tests.unit.toy import toy_workload


def _shared_with_last(lists: list[np.ndarray]) -> int:
    return sum(len(np.intersect1d(last, nodes)) for last, nodes in pairwise(lists))


@pytest.mark.parametrize("num_lists", [0, 1, 12])
def test_rows_are_shared_with_the_list_before_and_no_other(num_lists: int) -> None:
    random = np.random.default_rng(0)
    lists = [random.permutation(40)[: random.integers(0, 30)] for _ in range(num_lists)]
    assert num_reused(lists, 40) == _shared_with_last(lists)


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5])
def test_uses_of_memory_save_what_sets_of_ids_say(num_ranks: int, ratio: float) -> None:
    trace = AccessTrace(toy_workload(num_ranks=num_ranks, batch_size=8), 3)
    hotness = np.random.default_rng(1).random(300)
    result = reuse(trace, hotness, ratio)
    ranked = hottest(hotness, 300, 300)

    def missed(nodes: np.ndarray, num_cached: int) -> np.ndarray:
        return nodes[~np.isin(nodes, ranked[:num_cached])]

    num_slots = int(ratio * 300)
    warm, *epochs = [[missed(nodes, num_slots) for nodes in epoch] for epoch in trace.epochs]
    measured = list(chain(*epochs))
    total = sum(map(len, measured))
    assert result.missed == total / trace.num_visits
    more = round(result.more * 300)
    assert more == -(-total // (len(measured) // num_ranks))  # rows that a step misses, rounded up
    # A rank's first mini-batch of an epoch follows its last one of the epoch before.
    ranks = [[*warm[-num_ranks:], *measured][rank::num_ranks] for rank in range(num_ranks)]
    assert result.saved[LAST] == sum(map(_shared_with_last, ranks)) / total
    larger = sum(len(missed(nodes, num_slots + more)) for nodes in measured)
    assert result.saved[LARGER] == pytest.approx(1 - larger / total)
    for rule in ("fifo", "clock", "s3fifo"):
        level, alone = EvictingSlots(300, more, 0, rule), EvictingSlots(300, num_slots + more, 0, rule)
        behind = [level.visit(nodes) for nodes in [*warm, *measured]][len(warm) :]
        hits = [alone.visit(nodes) for nodes in chain(*trace.epochs)][len(warm) :]
        assert result.saved[f"a level of {rule} behind it"] == sum(behind) / total
        still_missed = trace.num_visits - sum(hits)
        assert result.saved[f"{rule} alone, in all the memory"] == pytest.approx(1 - still_missed / total)
    assert len(result.saved) == 2 + 2 * sum(rule.admit is not None and not rule.looks_ahead for rule in RULES.values())
    assert result.saved[result.best] == max(share for use, share in result.saved.items() if use != LAST)


def test_a_cache_that_misses_nothing_leaves_nothing_to_save() -> None:
    result = reuse(AccessTrace(toy_workload(), 2), np.ones(300), 1.0)
    assert (result.missed, result.more, set(result.saved.values())) == (0, 0, {0})

"""What caches would do: against caches that do it, and against all that could be cached."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch

from lightning_gnnload.cache.dynamic import DynamicCache
from lightning_gnnload.cache.rules import EVICTION_RULES, POLICIES
from lightning_gnnload.cache.simulate import AccessTrace, evicting_curves, static_curves
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.ops import EVICTIONS
from lightning_gnnload.sample.layerwise import LayerSampler
from tests.unit.toy import toy_data, toy_workload

DATA = toy_data()
RATIOS = [0.003, 0.05, 0.3, 1.0]  # of 300 nodes: none, then some


@pytest.fixture(scope="module")
def trace() -> AccessTrace:
    return AccessTrace(toy_workload(DATA), num_epochs=3)


def test_all_policies_are_there_and_the_optimum_is_one(trace: AccessTrace) -> None:
    curves = {curve.name: curve for curve in static_curves(trace, RATIOS, "shuffle", pytest.fail)}
    assert set(curves) == {"optimum", *POLICIES}
    for name in set(curves) - {"optimum", "clairvoyant"}:
        for rate, best in zip(curves[name].hit_rates, curves["optimum"].hit_rates, strict=True):
            assert rate <= best
    # It chooses anew each epoch, and can do no worse than one choice for all.
    assert all(np.subtract(curves["clairvoyant"].hit_rates, curves["optimum"].hit_rates) >= 0)
    for curve in curves.values():
        assert curve.hit_rates[0] == 0
        assert curve.hit_rates[-1] == 1
        assert curve.missed_rows[0] == trace.num_visits / 2  # of two measured epochs
        assert curve.missed_rows[-1] == 0


def test_the_optimum_hits_what_the_busiest_rows_were_visited(trace: AccessTrace) -> None:
    # The wrong code counts the epoch that warms up, too.
    visited = np.bincount(np.concatenate(list(chain(*trace.epochs[1:]))), minlength=300)
    most = np.sort(visited)[::-1][:90].sum()
    optimum = next(iter(static_curves(trace, [0.3], "shuffle", pytest.fail)))
    assert optimum.hit_rates == [most / visited.sum()]


def test_rules_do_as_the_caches_that_have_them(trace: AccessTrace) -> None:
    curves = {curve.name: curve for curve in evicting_curves(trace, [0.3], "shuffle")}
    assert tuple(curves) == EVICTION_RULES
    for rule in EVICTIONS:
        cache, hits = DynamicCache(DATA.x, 90, rule), 0
        for number, epoch in enumerate(trace.epochs):
            for nodes in epoch:
                ours, *_ = cache.gather(torch.from_numpy(nodes), torch.empty(len(nodes), 5))
                hits += ours.rows if number else 0
        assert curves[rule].hit_rates == [hits / trace.num_visits]


def _belady_by_hand(lists: list[list[int]], num_slots: int, num_warm: int) -> int:
    """Keeps, of what is there and what was just read, the rows that come next soonest."""
    held: set[int] = set()
    hits = 0
    for number, nodes in enumerate(lists):
        hits += len(held & set(nodes)) if number >= num_warm else 0

        def following(node: int, after: int = number) -> int:
            return next((later for later in range(after + 1, len(lists)) if node in lists[later]), len(lists))

        wanted = [node for node in held | set(nodes) if following(node) < len(lists)]
        held = set(sorted(wanted, key=following)[:num_slots])
    return hits


@pytest.mark.parametrize("num_slots", [1, 15, 60])
def test_belady_is_the_optimum_of_caches_that_evict(num_slots: int) -> None:
    # Among rows that come next in one and the same mini-batch, any choice hits as often.
    trace = AccessTrace(toy_workload(DATA, batch_size=10), num_epochs=2)
    lists = [nodes.tolist() for nodes in chain(*trace.epochs)]
    curves = {curve.name: curve for curve in evicting_curves(trace, [num_slots / 300], "shuffle")}
    hits = _belady_by_hand(lists, num_slots, len(trace.epochs[0]))
    assert curves["belady"].hit_rates == [pytest.approx(hits / trace.num_visits)]
    assert all(curve.hit_rates <= curves["belady"].hit_rates for curve in curves.values())


def test_a_record_that_is_too_large_stops_at_one_step_in_all_epochs() -> None:
    whole = AccessTrace(toy_workload(DATA, num_ranks=2, batch_size=5), num_epochs=2)
    size = sum(nodes.nbytes for nodes in whole.epochs[0])
    cut = AccessTrace(toy_workload(DATA, num_ranks=2, batch_size=5), num_epochs=2, max_bytes=size)  # a half each
    assert cut.is_cut
    assert not whole.is_cut
    assert 0 < cut.num_steps < whole.num_steps
    for part, all_of in zip(cut.epochs, whole.epochs, strict=True):
        assert len(part) == 2 * cut.num_steps  # whole steps
        assert all(np.array_equal(one, other) for one, other in zip(part, all_of, strict=False))


def test_what_cannot_be_judged_is_left_out_and_said() -> None:
    said: list[str] = []
    trace = AccessTrace(toy_workload(DATA, sampler=LayerSampler([20, 30])), num_epochs=2)
    names = {curve.name for curve in static_curves(trace, [0.5], "shuffle", said.append)}
    assert names == {"optimum", *POLICIES} - {"expected"}
    assert len(said) == 1
    assert said[0].startswith("expected: ")


def test_settings_that_cannot_work() -> None:
    with pytest.raises(CacheConfigError, match="one to warm up and one to measure"):
        AccessTrace(toy_workload(DATA), num_epochs=1)
    with pytest.raises(CacheConfigError, match="too few to record one step"):
        AccessTrace(toy_workload(DATA), num_epochs=2, max_bytes=10)

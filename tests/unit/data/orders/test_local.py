"""LocalOrder: whose seeds a rank's slices hold, whatever the sizes."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lightning_gnnload import Graph, ProximityOrder
from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.data.orders.seeds import SeedOrder, Sequential, Shuffled
from lightning_gnnload.data.plan import StepPlan
from lightning_gnnload.errors import PartitionError

EDGELESS = Graph.from_coo([], [], num_nodes=400)


def ordered(
    order: LocalOrder, seeds: np.ndarray, batch_size: int, epoch: int = 0, graph: Graph = EDGELESS
) -> np.ndarray:
    return order.bind(graph, None, batch_size * order.num_ranks).order(seeds, seed=1, epoch=epoch)


def slices(ordered_seeds: np.ndarray, plan: StepPlan) -> list[list[int]]:
    """Of each rank, the seeds of its epoch in order."""
    return [
        [seed for step in range(plan.num_steps) for seed in ordered_seeds[slice(*plan.slice(step, rank))].tolist()]
        for rank in range(plan.num_ranks)
    ]


def balanced(seeds: np.ndarray, num_parts: int) -> list[np.ndarray]:
    cuts = [len(seeds) * part // num_parts for part in range(1, num_parts)]
    return np.split(seeds, cuts)


@st.composite
def plans(draw: st.DrawFn) -> StepPlan:
    num_parts, batch_size = draw(st.integers(1, 8)), draw(st.integers(1, 40))
    drop_last = draw(st.booleans())
    num_seeds = draw(st.integers(num_parts * batch_size if drop_last else num_parts, 400))
    return StepPlan(num_seeds, batch_size, num_parts, drop_last)


def seeds_of(plan: StepPlan) -> np.ndarray:
    return np.random.default_rng(plan.num_seeds).permutation(400)[: plan.num_seeds]


@given(plans())
def test_ranks_have_all_seeds_of_balanced_parts_and_no_others(plan: StepPlan) -> None:
    seeds = seeds_of(plan)
    parts = balanced(seeds, plan.num_ranks)
    order = LocalOrder(parts, drop_last=plan.drop_last)
    assert order.is_balanced
    result = ordered(order, seeds, plan.batch_size)
    assert sorted(result) == sorted(seeds)
    for part, own in zip(parts, slices(result, plan), strict=True):
        # In the very order that the part alone would be shuffled to: nothing is drawn anew.
        assert own == Shuffled().order(part, seed=1, epoch=0).tolist()[: len(own)]
        assert len(own) == len(part) or plan.drop_last


@given(plans(), st.randoms(use_true_random=False))
def test_ranks_have_as_many_seeds_of_their_uneven_part_as_can_be(plan: StepPlan, random: object) -> None:
    seeds = seeds_of(plan)
    parts = np.split(seeds, sorted(random.choices(range(plan.num_seeds + 1), k=plan.num_ranks - 1)))  # type: ignore[attr-defined]
    order = LocalOrder(parts, drop_last=plan.drop_last)
    result = ordered(order, seeds, plan.batch_size)
    assert sorted(result) == sorted(seeds)
    assert order.is_balanced == (list(map(len, parts)) == list(map(len, balanced(seeds, plan.num_ranks))))
    for part, had in zip(parts, slices(result, plan), strict=True):
        assert len(set(had) & set(part.tolist())) == min(len(had), len(part))


def test_slices_of_others_are_spread_over_the_epoch() -> None:
    seeds = np.arange(120)
    order, plan = LocalOrder([seeds[:30], seeds[30:]]), StepPlan(120, 10, 2)
    first, second = slices(ordered(order, seeds, 10), plan)
    assert [{seed >= 30 for seed in first[begin : begin + 10]} for begin in range(0, 60, 10)] == 3 * [{False}, {True}]
    assert min(second) >= 30
    assert order.owners(plan, 2).tolist() == 3 * [[0, 1], [1, 1]]


@given(plans(), st.integers(1, 5), st.integers(1, 2), st.randoms(use_true_random=False))
def test_any_number_of_ranks_has_slices_of_one_part(
    plan: StepPlan, num_parts: int, num_machines: int, random: object
) -> None:
    plan = replace(plan, num_ranks=plan.num_ranks // num_machines * num_machines or num_machines)
    assume(plan.num_seeds >= (plan.global_batch_size if plan.drop_last else plan.num_ranks))
    seeds = seeds_of(plan)
    cuts = sorted(random.choices(range(plan.num_seeds + 1), k=num_parts - 1))  # type: ignore[attr-defined]
    parts, part_of = np.split(seeds, cuts), np.full(400, -1)
    for part, own in enumerate(parts):
        part_of[own] = part
    order = LocalOrder(parts, num_ranks=plan.num_ranks, num_machines=num_machines, drop_last=plan.drop_last)
    result = ordered(order, seeds, plan.batch_size)
    assert sorted(result) == sorted(seeds)
    homes = order.owners(plan, num_parts)
    num_mixed = np.zeros(plan.num_ranks, int)
    for step, rank in np.ndindex(*homes.shape):
        of_parts = np.bincount(part_of[result[slice(*plan.slice(step, rank))]], minlength=num_parts)
        assert of_parts[homes[step, rank]] == of_parts.max()
        num_mixed[rank] += np.count_nonzero(of_parts) > 1
    # Of each part, a rank has less than a slice that is not whole.
    assert num_mixed.max() <= num_parts
    assert np.array_equal(order.owners(plan, 1), np.zeros_like(homes))


@pytest.mark.parametrize(
    ("num_ranks", "num_machines", "expected"),
    [
        (1, 1, [{0, 1, 2, 3}]),
        (2, 1, [{0, 1}, {2, 3}]),
        (3, 1, [{0, 1}, {1, 2}, {2, 3}]),
        (8, 1, [{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}]),
        # The samplers of each machine hold all parts: its trainers need them all.
        (4, 2, [{0, 1}, {2, 3}, {0, 1}, {2, 3}]),
    ],
)
def test_ranks_share_the_parts_alike(num_ranks: int, num_machines: int, expected: list[set[int]]) -> None:
    seeds = np.arange(240)
    order = LocalOrder(balanced(seeds, 4), num_ranks=num_ranks, num_machines=num_machines)
    homes = order.owners(StepPlan(240, 5, num_ranks), 4)
    assert [set(of_rank) for of_rank in homes.T.tolist()] == expected
    # In turn: whatever is made at the same time is made by as many as can be.
    assert np.bincount(homes.ravel()).tolist() == [12, 12, 12, 12]
    if num_ranks == 1:
        assert homes.ravel().tolist() == 12 * [0, 1, 2, 3]


def test_what_is_left_out_is_of_all_parts() -> None:
    seeds = np.arange(100)
    order = LocalOrder(balanced(seeds, 2), num_ranks=1, drop_last=True)
    trained = ordered(order, seeds, 30)[:90]
    assert np.bincount(trained // 50).tolist() == [45, 45]


def test_epochs_and_inner_orders_differ() -> None:
    seeds = np.arange(40)
    shuffled, sequential = LocalOrder(balanced(seeds, 4)), LocalOrder(balanced(seeds, 4), Sequential())
    # Two of the 10!^4 orders are equal with a probability below 1e-26; the seed is fixed.
    assert ordered(shuffled, seeds, 5).tolist() != ordered(shuffled, seeds, 5, epoch=1).tolist()
    assert ordered(shuffled, seeds, 5).tolist() == ordered(copy.deepcopy(shuffled), seeds, 5).tolist()
    assert slices(ordered(sequential, seeds, 5), StepPlan(40, 5, 4)) == [part.tolist() for part in sequential.parts]


def test_seeds_that_are_near_in_the_graph_are_near_within_their_part() -> None:
    ring = Graph.from_coo([*range(400), *range(1, 400), 0], [*range(1, 400), 0, *range(400)])
    seeds = np.arange(400)
    order = LocalOrder(balanced(seeds, 4), ProximityOrder(sequences=1))
    result = ordered(order, seeds, 25, graph=ring)
    for own in slices(result, StepPlan(400, 25, 4)):
        for batch in np.array(own).reshape(4, 25):
            # Two sides of a search, from two places at most: all but 4 have the next one with them. Of a shuffle of
            # the part it would be a quarter.
            assert np.isin(batch + 1, batch).sum() >= 21


def test_searches_are_made_once_for_each_part() -> None:
    made = []

    class Counts(SeedOrder):
        def __init__(self) -> None:
            self.held: list[int] = []

        def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
            if self.held != seeds.tolist():
                made.append(len(seeds))
            self.held = seeds.tolist()
            return seeds

    seeds = np.arange(60)
    order = LocalOrder(balanced(seeds, 3), Counts())
    for epoch in range(3):
        ordered(order, seeds, 5, epoch)
    assert made == [20, 20, 20]


def test_names_tell_partitions_apart() -> None:
    seeds = np.arange(40)
    name = LocalOrder(balanced(seeds, 4)).name
    assert name.startswith("LocalOrder(Shuffled, 4 parts ")
    assert LocalOrder([part[::-1] for part in balanced(seeds, 4)]).name == name
    assert LocalOrder(balanced(seeds[::-1], 4)).name != name
    assert LocalOrder(balanced(seeds, 4), Sequential()).name != name
    assert LocalOrder(balanced(seeds, 4), num_ranks=2).name.endswith(" for 2 ranks)")
    assert LocalOrder(balanced(seeds, 4), num_machines=2).name.endswith(" on 2 machines)")


def test_parts_that_cannot_be_ordered_so() -> None:
    seeds = np.arange(40)
    order = LocalOrder(balanced(seeds, 4))
    with pytest.raises(PartitionError, match="42 seeds, but 4 ranks"):
        order.bind(EDGELESS, None, 42)
    with pytest.raises(PartitionError, match="3 ranks on 2 machines"):
        LocalOrder(balanced(seeds, 4), num_ranks=3, num_machines=2)
    with pytest.raises(PartitionError, match=r"\(40\) are not those to train on \(39\)"):
        ordered(order, seeds[1:], 5)
    with pytest.raises(PartitionError, match=r"to train on \(40\)"):
        ordered(order, seeds + 1, 5)
    with pytest.raises(PartitionError, match="no parts"):
        LocalOrder([])
    with pytest.raises(PartitionError, match="bind"):
        order.order(seeds, seed=0, epoch=0)

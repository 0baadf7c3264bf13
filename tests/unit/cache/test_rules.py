"""Policies: each ranks by what it says; the hottest are the same for everyone; bad hotness is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_gnnload import Graph, GraphData, NeighborSampler
from lightning_gnnload.cache.policy import CachePolicy, hottest
from lightning_gnnload.cache.rules import (
    EVICTION_RULES,
    POLICIES,
    Clairvoyant,
    Degree,
    DegreeRatio,
    PreSample,
    Random,
    Recorded,
    policy_named,
)
from lightning_gnnload.cache.trace import smoothed, visit_counts
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.sample.workload import PRESAMPLED_EPOCHS, Workload
from tests.unit.toy import toy_workload

# Edges 1 -> 0, 2 -> 0, 2 -> 0, 0 -> 3, 2 -> 1: out-degrees 1, 1, 3, 0 and in-degrees 3, 1, 0, 1.
SMALL = GraphData(Graph.from_coo(src=[1, 2, 2, 0, 2], dst=[0, 0, 0, 3, 1]), train=np.array([0, 3]))


@pytest.mark.parametrize(
    ("policy", "hotness"), [(Degree(), [1, 1, 3, 0]), (DegreeRatio(), [3.0, 1.0, 0.0, 0.0])], ids=repr
)
def test_degrees_are_those_of_the_right_end(policy: CachePolicy, hotness: list[float]) -> None:
    # In- for out-degree gives other numbers; a division by the zero of node 3 warns or gives infinity.
    assert policy.hotness(toy_workload(SMALL), 0).tolist() == hotness


def test_degrees_add_up_over_chunks() -> None:
    graph = toy_workload().graph
    src = graph.indices.tolist()
    assert graph.out_degrees(7).tolist() == [src.count(node) for node in range(graph.num_nodes)]


def test_random_follows_the_run_s_seed_alone() -> None:
    ranked = [hottest(Random().hotness(toy_workload(seed=seed), epoch), 300, 300) for seed, epoch in [(1, 0), (1, 9)]]
    other = hottest(Random().hotness(toy_workload(seed=2), 0), 300, 300)
    assert ranked[0].tolist() == ranked[1].tolist() != other.tolist()
    assert sorted(other.tolist()) == list(range(300))


@pytest.mark.parametrize("num_epochs", [None, 1, 3])
def test_the_papers_presampling_counts_epochs_that_training_does_not_use(num_epochs: int | None) -> None:
    workload = toy_workload()
    found = PreSample(num_epochs, smooth=False, progress=False).hotness(workload, epoch=0)
    expected = visit_counts(workload, PRESAMPLED_EPOCHS[: num_epochs or 1], progress=False)
    assert found.tolist() == expected.tolist()
    assert found.tolist() != visit_counts(workload, range(len(PRESAMPLED_EPOCHS[: num_epochs or 1]))).tolist()


@pytest.mark.parametrize(
    ("num_seeds", "settings", "num_epochs"),
    [
        (100, {}, 3),  # 2.7 visits a node in an epoch, and 6 are enough
        (100, {"batch_size": 4}, 2),  # 3.4
        (100, {"batch_size": 4, "sampler": NeighborSampler([10, 10])}, 1),
        (20, {}, 8),  # 0.6; more would be many
        (20, {"end_epoch": 8}, 3),  # the run has no more
        (20, {"end_epoch": 2}, 1),  # it is over, and somebody asks all the same
        (20, {"fixed_draws": True}, 1),  # all epochs are alike
    ],
    ids=repr,
)
def test_small_epochs_are_sampled_more_often(num_seeds: int, settings: dict[str, Any], num_epochs: int) -> None:
    workload = toy_workload(**settings)
    workload = Workload(**workload.settings() | {"seeds": workload.seeds[:num_seeds]})
    counts = visit_counts(workload, range(5, 5 + num_epochs), progress=False)
    num_batches = num_epochs * workload.plan(1).num_steps
    expected = smoothed(counts, workload.graph.out_degrees(), num_batches)
    assert PreSample(progress=False).hotness(workload, epoch=5).tolist() == expected.tolist()
    assert PreSample(num_epochs, progress=False).hotness(workload, epoch=5).tolist() == expected.tolist()


def test_smoothing_moves_counts_to_their_class_as_far_as_luck_explains_them() -> None:
    rng = np.random.default_rng(0)
    chance = np.where(np.arange(8000) < 4000, 0.03, rng.uniform(0.0, 0.5, 8000))
    degrees = np.where(np.arange(8000) < 4000, 5, 50)  # alike in one class, unlike in the other
    counts = rng.binomial(200, chance)
    found = smoothed(counts, degrees, num_batches=200)
    assert found.sum() == pytest.approx(counts.sum())
    alike, unlike = found[:4000], found[4000:]
    assert alike.std() < 0.1 * counts[:4000].std()
    assert np.abs(unlike - counts[4000:]).max() < 4  # of 0 to 119
    # Nearer to the truth than the counts, which is what it is for.
    assert ((found - 200 * chance) ** 2).mean() < 0.9 * ((counts - 200 * chance) ** 2).mean()


def test_smoothing_takes_counts_beyond_the_mini_batches() -> None:
    # Seeds that share no nodes have a node several times in a mini-batch. Luck below zero would make hotness negative.
    counts = np.array([0, 1, 30, 200])
    assert smoothed(counts, np.full(4, 5), num_batches=2).tolist() == counts.tolist()


def test_smoothing_mixes_no_degrees() -> None:
    # Four classes an octave: 8 and 9 are one, 7 and 10 others, 0 is alone.
    assert smoothed(np.array([4, 8, 0, 0, 9]), np.array([8, 9, 7, 10, 0]), 100).tolist() == [6, 6, 0, 0, 9]


def test_presampling_nears_the_optimum_where_an_epoch_visits_little() -> None:
    # Few of the nodes train, and those that many gather from are none that have many neighbours.
    rng = np.random.default_rng(0)
    new = np.repeat(np.arange(1, 3000), 8)
    graph = Graph.from_coo(src=new, dst=(new * rng.random(len(new)) ** 2).astype(np.int64), num_nodes=3000)
    data = GraphData(graph, train=np.sort(rng.choice(3000, 60, replace=False)))
    workload = toy_workload(data, sampler=NeighborSampler([5, 5]), batch_size=6)
    visits = visit_counts(workload, range(10), progress=False)
    most = np.sort(visits)[-300:].sum()
    one, default = (
        visits[hottest(PreSample(count, progress=False).hotness(workload, 0), 3000, 300)].sum() / most
        for count in (1, None)
    )
    assert one < 0.85 < 0.95 < default


def test_presampling_knows_better_when_it_smooths() -> None:
    workload = toy_workload(batch_size=4)
    visits = visit_counts(workload, range(40), progress=False)
    found = [
        visits[hottest(PreSample(smooth=smooth, progress=False).hotness(workload, 0), 300, 30)].sum()
        for smooth in (False, True)
    ]
    assert found[0] < found[1] <= np.sort(visits)[-30:].sum()


@pytest.mark.parametrize("window", [1, 2])
def test_clairvoyant_hits_as_often_as_any_choice_of_rows_can(window: int) -> None:
    # The optimum by another way: of all visits of these epochs, the most that 30 rows can take.
    workload, epoch, rows = toy_workload(), 5, 30
    policy = Clairvoyant(window, progress=False)
    assert policy.window == window
    cached = hottest(policy.hotness(workload, epoch), 300, rows)
    visits = visit_counts(workload, range(epoch, epoch + window), progress=False)
    assert visits[cached].sum() == np.sort(visits)[-rows:].sum()
    # Looking one epoch too early or too late does worse.
    for wrong in (epoch - 1, epoch + 1):
        other = hottest(policy.hotness(workload, wrong), 300, rows)
        assert visits[other].sum() < visits[cached].sum()


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.uint64, np.int64])
@pytest.mark.parametrize("count", [0, 1, 7, 29, 40, 100])
def test_the_hottest_come_by_falling_hotness_then_by_id(dtype: Any, count: int) -> None:
    # Few distinct values: ties stand at every place, among them where the list ends.
    hotness = np.random.default_rng(0).integers(0, 4, 40).astype(dtype)
    expected = sorted(range(40), key=lambda node: (-int(hotness[node]), node))[:count]
    found = hottest(hotness, 40, count)
    assert found.dtype == np.int64
    assert found.tolist() == expected


def test_large_integers_are_told_apart() -> None:
    # As float64 these are equal, and the lower id would win.
    assert hottest(np.array([2**60, 2**60 + 1]), 2, 1).tolist() == [1]
    assert hottest(np.array([0, 2**64 - 1], np.uint64), 2, 1).tolist() == [1]


@pytest.mark.parametrize(
    ("hotness", "said"),
    [
        ([1.0, np.nan, 2.0], "node 1 is nan"),
        ([1.0, 2.0, np.inf], "node 2 is inf"),
        ([-1, 2, -3], "node 0 is -1, and 1 more"),
        ([1, 2], r"shape \[2\]"),
        ([[1, 2, 3]], r"shape \[1, 3\]"),
        (["a", "b", "c"], "dtype"),
        ([True, False, True], "dtype bool"),
    ],
)
def test_hotness_that_ranks_nothing_is_refused(hotness: Any, said: str) -> None:
    with pytest.raises(CacheConfigError, match=said):
        hottest(Recorded(hotness).hotness(toy_workload(), 0), 3, 2)


def test_every_name_gives_a_policy_that_ranks_all_nodes() -> None:
    workload = toy_workload()
    for name in POLICIES:
        hotness = policy_named(name, progress=False).hotness(workload, 0)
        assert len(hottest(hotness, 300, 300)) == 300, name


def test_a_policy_is_taken_as_it_is_and_the_window_given_on() -> None:
    own = Recorded([1])
    assert policy_named(own) is own
    assert policy_named("clairvoyant", window=4).window == 4
    assert all(policy_named(name).window is None for name in POLICIES if name != "clairvoyant")


@pytest.mark.parametrize("window", [0, -1, 1.5])
def test_a_window_that_is_no_number_of_epochs_is_refused(window: Any) -> None:
    class Own(Recorded):
        pass

    Own.window = window
    with pytest.raises(CacheConfigError, match=rf"Own\.window is {window}"):
        policy_named(Own([1]))


@pytest.mark.parametrize("name", ["presampling", "", None, ["degree"], *EVICTION_RULES])
def test_other_names_are_refused_with_the_known_ones(name: Any) -> None:
    with pytest.raises(CacheConfigError, match=r"'presample'.*'fifo'"):
        policy_named(name)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, 2**40])
def test_epochs_are_whole_numbers_of_at_least_one(number: Any) -> None:
    for policy in (PreSample, Clairvoyant):
        with pytest.raises(CacheConfigError, match="whole number"):
            policy(number)


def test_progress_can_be_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    policy_named("presample", progress=False).hotness(toy_workload(), 0)
    assert capfd.readouterr().err == ""

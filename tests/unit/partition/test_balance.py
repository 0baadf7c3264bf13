"""Balancing seeds, and numbering nodes."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload import Graph
from lightning_gnnload.data.plan import StepPlan
from lightning_gnnload.partition.balance import balance, balance_phases, share_sizes
from lightning_gnnload.partition.numbering import number_nodes
from tests.unit.toy import toy_graph


@pytest.mark.parametrize("num_seeds", [7, 64, 1000, 1001])
@pytest.mark.parametrize("num_parts", [1, 2, 3, 7])
def test_shares_are_what_ranks_take_of_an_epoch_in_one_step(num_seeds: int, num_parts: int) -> None:
    plan = StepPlan(num_seeds, num_seeds, num_parts)
    slices = [plan.slice(0, rank) for rank in range(num_parts)]
    assert share_sizes(num_seeds, num_parts).tolist() == [end - begin for begin, end in slices]


@pytest.mark.parametrize("num_parts", [2, 3, 8])
def test_every_part_gets_its_share_and_no_seed_moves_in_vain(num_parts: int) -> None:
    graph, rng = toy_graph(), np.random.default_rng(num_parts)
    for crowd in (1.0, 0.6, 0.0):  # of the seeds that lie in one part
        seeds = rng.permutation(300)[:101]
        parts = np.where(rng.random(101) < crowd, 1, rng.integers(0, num_parts, 101)).astype(np.int32)
        owner = np.full(300, -1, np.int32)
        owner[seeds] = parts
        balanced = balance(graph, seeds, parts, owner, num_parts)
        shares = share_sizes(101, num_parts)
        assert np.bincount(balanced, minlength=num_parts).tolist() == shares.tolist()
        excess = np.bincount(parts, minlength=num_parts) - shares
        assert np.count_nonzero(balanced != parts) == excess.clip(0).sum()
        order = rng.permutation(101)
        again = balance(graph, seeds[order], parts[order], owner, num_parts)
        assert again.tolist() == balanced[order].tolist()  # ties go by id, not by how seeds are given


def test_balanced_seeds_stay() -> None:
    seeds, parts = np.arange(7), np.array([0, 1, 1, 0, 2, 2, 2])  # 2, 2 and 3, as StepPlan cuts
    assert balance(toy_graph(), seeds, parts, np.zeros(300, np.int32), 3) is parts


def test_who_loses_least_goes_where_it_gains_most() -> None:
    # Seeds 0 to 4 lie in part 0, which keeps one: 0, with most in-neighbours there. Part 1 takes 2 for its one, and 1
    # by id; part 2 has the neighbours of the rest.
    src = [5, 5, 5, 6, 7, 7]
    dst = [0, 0, 1, 2, 3, 4]
    graph = Graph.from_coo(src, dst)
    owner = np.array([0, 0, 0, 0, 0, 0, 1, 2], np.int32)
    assert balance(graph, np.arange(5), np.zeros(5, np.int32), owner, 3).tolist() == [0, 1, 1, 2, 2]


def test_a_node_of_two_phases_is_owned_by_the_part_of_the_first() -> None:
    seeds = {"train": np.array([0, 1]), "val": np.array([1, 2, 3, 4])}
    owner, dealt = balance_phases(toy_graph(), seeds, np.zeros(300, np.int32), 2)
    assert [np.bincount(parts, minlength=2).tolist() for _, parts in dealt.values()] == [[1, 1], [2, 2]]
    assert owner[seeds["train"]].tolist() == dealt["train"][1].tolist()
    rest = seeds["val"][1:]
    assert owner[rest].tolist() == dealt["val"][1][1:].tolist()


def test_new_ids_go_by_part_and_then_by_id() -> None:
    starts, node_ids, new_ids = number_nodes(np.array([2, 0, 2, 0, 0], np.int32), 4)
    assert starts.tolist() == [0, 3, 3, 5, 5]
    assert node_ids.tolist() == [1, 3, 4, 0, 2]
    assert new_ids.tolist() == [3, 0, 4, 1, 2]
    assert all(each.dtype == np.int64 for each in (starts, node_ids, new_ids))

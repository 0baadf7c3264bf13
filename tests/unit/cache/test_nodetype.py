"""Caches of the tables of node types: the policy's ranking, cut to the type."""

import numpy as np
import pytest
import torch

from lightning_gnnload import FeatureCache, GraphData, MemoryFeatureStore, NodeTable
from lightning_gnnload.cache.cache import fitting
from lightning_gnnload.cache.policy import CachePolicy, SubsetPolicy
from lightning_gnnload.cache.rules import Clairvoyant, policy_named
from lightning_gnnload.errors import CacheConfigError
from tests.unit.toy import toy_workload


def toy_tables(**tables) -> GraphData:
    return GraphData(toy_workload().graph, tables=tables)


class ById(CachePolicy):
    """The higher the id, the hotter."""

    def hotness(self, workload, epoch):
        return np.arange(workload.graph.num_nodes)


@pytest.mark.parametrize(("first", "count"), [(0, 200), (200, 100), (120, 50)])
def test_the_hottest_of_the_type_are_cached(first: int, count: int) -> None:
    # Ranks of all nodes, or from node 0 on, would cache other rows of this table.
    table = NodeTable(MemoryFeatureStore(torch.arange(first, first + count)[:, None]), first)
    (level,) = fitting([FeatureCache(ById(), ratio=0.2)], toy_tables(paper=table), "paper")
    cache = level.open(table.store, toy_workload(), progress=False)
    num_hot = count // 5
    for ids, tier in ((torch.arange(count - num_hot), "memory"), (torch.arange(count - num_hot, count), "cache")):
        out = torch.empty(len(ids), 1, dtype=torch.int64)
        assert [read.tier for read in cache.gather(ids, out) if read.rows] == [tier]
        assert torch.equal(out[:, 0], ids + first)


def test_a_ranking_is_checked_before_it_is_cut() -> None:
    class Short(CachePolicy):
        def hotness(self, workload, epoch):
            return np.ones(250)  # of 300: the type's nodes are all there

    with pytest.raises(CacheConfigError, match=r"shape \[250\].*300 nodes"):
        SubsetPolicy(Short(), range(100, 200)).hotness(toy_workload(), 0)


def test_it_looks_as_far_ahead_as_the_other() -> None:
    policy = SubsetPolicy(policy_named("clairvoyant", window=3), range(5, 10))
    assert policy.window == 3
    assert policy.quietly().policy == policy_named("clairvoyant", window=3).quietly()
    assert not policy.quietly().policy.progress
    assert SubsetPolicy(ById(), range(5, 10)).window is None


@pytest.mark.parametrize("policy", ["clairvoyant", Clairvoyant(window=3)])
def test_a_window_of_epochs_suits_a_table_of_a_type(policy: str | CachePolicy) -> None:
    table = NodeTable(MemoryFeatureStore(torch.arange(200)[:, None]), 0)
    settings = FeatureCache(policy, window=3 if policy == "clairvoyant" else 1)
    (level,) = fitting([settings], toy_tables(paper=table), "paper", progress=False)
    assert isinstance(level.policy, SubsetPolicy)
    assert level.policy.window == 3


def test_tables_of_all_nodes_need_nothing() -> None:
    levels = (FeatureCache("belady"), FeatureCache("degree"))
    assert fitting(levels, toy_tables(year=torch.ones(300, 1)), "year") == levels
    assert fitting(levels, toy_tables(), "x") == levels

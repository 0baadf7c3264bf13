"""docs/guides/works_with.md: every cell of its tables works, or is refused with an error that says why."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    FeatureCache,
    Graph,
    GraphData,
    GraphDataModule,
    HGTSampler,
    LaborSampler,
    LayerSampler,
    Negatives,
    NeighborSampler,
    ProximityOrder,
    RandomWalkSampler,
    SeedTable,
    ShadowSampler,
    WeightedNeighborSampler,
    partition_graph,
)
from lightning_gnnload.errors import CacheConfigError, GnnLoadError, LoaderConfigError, PartitionError
from tests.runif import RunIf

NUM_USERS, NUM_ITEMS, NUM_EDGES = 60, 90, 800
BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")
KINDS = ["types", "times", "rows", "links", "types, times", "types, rows", "types, links", "types, times, links"]
"""Of data. Rows come with a node in two of them; of times, too."""


@cache
def data_of(kind: str, bare: bool = False) -> GraphData:
    """``bare``: without edge weights and the order of edge lists."""
    types, times, links = ("types" in kind, "times" in kind, "links" in kind)
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, NUM_USERS, NUM_EDGES), rng.integers(0, NUM_ITEMS, NUM_EDGES)
    when, weight = rng.integers(0, 100, NUM_EDGES), rng.random(NUM_EDGES)
    x: Any = {"user": torch.rand(NUM_USERS, 3), "item": torch.rand(NUM_ITEMS, 2)}
    if types:
        graph = Graph.from_hetero(
            {"user": NUM_USERS, "item": NUM_ITEMS},
            {BUYS: (src, dst), BACK: (dst, src)},
            edge_weight=None if bare else {BUYS: weight, BACK: weight},
            edge_time={BUYS: when, BACK: when} if times else None,
            keep_order=not bare,
        )
    else:
        both, num_nodes = (np.r_[src, dst + NUM_USERS], np.r_[dst + NUM_USERS, src]), NUM_USERS + NUM_ITEMS
        dst, x = dst + NUM_USERS, torch.rand(num_nodes, 3)
        when = np.r_[when, when]
        graph = Graph.from_coo(
            *both,
            num_nodes,
            None if bare else np.r_[weight, weight],
            edge_time=when if times else None,
            keep_order=not bare,
        )
    time = when[:20] if times else None
    if links:
        return GraphData(
            graph, x, train=SeedTable(src=src[:20], dst=dst[:20], time=time, edge_type=BUYS if types else None)
        )
    if kind == "types":
        return GraphData(graph, x, y={"user": np.arange(NUM_USERS) % 3}, train={"user": range(20)})
    return GraphData(graph, x, train=SeedTable(np.arange(20) % 15, time=time, node_type="user" if types else None))


def module(kind: str, sampler: Any = None, *, bare: bool = False, **settings: Any) -> GraphDataModule:
    """Rows of ``"rows"`` have nodes of their own, unless a sampler is given."""
    sharing: Any = "disjoint" if "rows" in kind else None
    sampler = sampler or NeighborSampler([3, 2], expand="new", sharing=sharing)
    if "links" in kind:
        settings.setdefault("negatives", Negatives("triplet", num=2))
    return GraphDataModule(data_of(kind, bare), sampler, 10, num_threads=0, **settings)


def served(kind: str, sampler: Any = None, **settings: Any) -> list[Any]:
    made = module(kind, sampler, **settings)
    batches = list(made.train_dataloader())
    made.teardown()
    assert len(batches) == 2
    return batches


OTHERS = {
    "weighted": WeightedNeighborSampler([3, 2]),
    "weighted, rows": WeightedNeighborSampler([3, 2], sharing="disjoint"),
    "labor": LaborSampler([3, 2]),
    "labor by importance": LaborSampler([3, 2], importance=1),
    "walks": RandomWalkSampler(2),
    "walks by metapath": RandomWalkSampler(2, metapath=[BACK, BUYS]),
    "layers": LayerSampler([20, 20]),
    "layers with ids": LayerSampler([20, 20], edge_ids=True),
    "shadow": ShadowSampler([3, 2], num_layers=2),
    "shadow with ids": ShadowSampler([3, 2], num_layers=2, edge_ids=True),
    "hgt": HGTSampler([6, 6]),
}
WITH_TYPES = {"weighted", "weighted, rows", "labor", "layers with ids", "shadow with ids", "hgt"}
PLAIN = set(OTHERS) - {"walks by metapath", "hgt"}


@pytest.mark.parametrize(
    "form",
    ["blocks", pytest.param("pyg", marks=RunIf(extras="pyg")), pytest.param("dgl", marks=RunIf(extras="dgl"))],
)
@pytest.mark.parametrize("kind", KINDS)
def test_neighbor_sampler_serves_all_in_all_formats(kind: str, form: Any) -> None:
    served(kind, batch_format=form)


@pytest.mark.parametrize("kind", ["types, times", "times", "types, times, links"])
@pytest.mark.parametrize("settings", [{"sharing": "time"}, {"pick": "last"}, {"order": "path"}, {"window": 20}])
def test_settings_of_time(kind: str, settings: dict[str, Any]) -> None:
    served(kind, NeighborSampler([3, 2], **settings))


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("kind", KINDS)
def test_other_samplers(kind: str, name: str) -> None:
    takes = WITH_TYPES if "types" in kind else PLAIN
    if kind == "types":  # seeds of the type that the metapath begins at
        takes = takes | {"walks by metapath"}
    if "times" in kind or "rows" in kind:
        takes = set() if "times" in kind else {"weighted, rows"}
    if name in takes:
        served(kind, OTHERS[name], exclude=None)
    else:
        with pytest.raises(GnnLoadError):
            served(kind, OTHERS[name], exclude=None)
    if "links" in kind:  # leaving edges out is NeighborSampler's alone
        with pytest.raises(GnnLoadError):
            served(kind, OTHERS[name])


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_any_sampler_takes_rows_that_name_a_node_once(name: str) -> None:
    data = data_of("links")
    rows = SeedTable(np.arange(20), y=np.arange(20))
    [batch] = GraphDataModule(GraphData(data.graph, train=rows), OTHERS[name], 20, num_threads=0).train_dataloader()
    assert batch.y.equal(batch.seed_columns["input_id"])


@pytest.mark.parametrize("policy", ["degree", "presample", "clairvoyant", "s3fifo"])
@pytest.mark.parametrize("kind", KINDS)
def test_caches_change_no_mini_batch(kind: str, policy: str) -> None:
    level: Any = FeatureCache(policy, ratio=0.3)
    by_name = {"x.user": level, "x.item": level}
    for with_cache, without in zip(
        served(kind, cache=by_name if "types" in kind else level), served(kind), strict=True
    ):
        for one, other in zip(_rows(with_cache), _rows(without), strict=True):
            assert torch.equal(one, other)


def _rows(batch: Any) -> list[torch.Tensor]:
    return list(batch.x.values()) if isinstance(batch.x, dict) else [batch.x]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["expected", "belady"])
def test_policies_that_judge_all_nodes_take_no_types(kind: str, policy: str) -> None:
    level = FeatureCache(policy, ratio=0.3)
    if "types" in kind:
        with pytest.raises(CacheConfigError):
            served(kind, cache={"x.user": level})
    elif policy == "expected":
        with pytest.raises(CacheConfigError, match="presample"):
            served(kind, cache=level)
    else:
        served(kind, cache=level)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hops", [0, 2])
def test_partitions_serve_nodes_of_types(kind: str, hops: int, tmp_path: Any) -> None:
    def parts() -> list[Any]:
        return served(kind, partition=partition_graph(data_of(kind), tmp_path / "parts", num_parts=1, hops=hops))

    if kind == "types" or not hops:
        widths = [(batch.x["user"] if "types" in kind else batch.x).shape[1] for batch in parts()]
        assert widths == [3, 3]
    else:
        with pytest.raises(PartitionError):
            parts()


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("types", "shadow with ids", "no kernels for a device"),
        ("types", "hgt", "no kernels for a device"),
        ("links", "labor by importance", "importance=1 is solved in float64"),
    ],
)
def test_what_devices_refuse(kind: str, name: str, reason: str) -> None:
    """What they serve: tests/cuda/test_typed_batches.py."""
    with pytest.raises(LoaderConfigError, match=reason):
        served(kind, OTHERS[name], sampling_device="cuda", exclude=None)


@pytest.mark.parametrize("kind", KINDS)
def test_orders(kind: str) -> None:
    served(kind, order="sequential")
    served(kind, order=ProximityOrder(sequences=2))
    if "times" in kind:
        served(kind, order="time")
    else:
        with pytest.raises(LoaderConfigError, match="needs rows with times"):
            served(kind, order="time")
    with pytest.raises(LoaderConfigError, match="links of several edge types"):
        served(kind, order="even")
    if kind != "types":
        with pytest.raises(LoaderConfigError, match="sequences"):
            served(kind, order="proximity")

"""A data module over a partition: which mini-batches, whose caches, and what cannot be."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from jsonargparse import ArgumentParser

from lightning_gnnload import (
    FeatureCache,
    Graph,
    GraphData,
    GraphDataModule,
    NeighborSampler,
    load_partition,
    partition_graph,
)
from lightning_gnnload.cache.cache import open_all
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.cache.policy import PartPolicy
from lightning_gnnload.cache.rules import policy_named
from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import LoaderConfigError, PartitionError, PartitionMismatchError, PartReachError
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.plugin.strategy.profile import measure
from lightning_gnnload.plugin.strategy.rehearsal import RehearsalSetting
from lightning_gnnload.sample.parts.sampler import PartSampler
from lightning_gnnload.sample.workload import Workload
from lightning_gnnload.storage import parts
from tests.integration.learnable import quiet_trainer
from tests.unit.cache.ranks import together
from tests.unit.partition.by_id import ById
from tests.unit.parts import partition_of
from tests.unit.plugin.module.test_caching import Fits
from tests.unit.toy import content, toy_data, toy_graph

NUM_PARTS = 3


def data() -> GraphData:
    return toy_data(val=range(40), test=range(40, 50))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("parts") / "partition"
    partition_graph(data(), made, NUM_PARTS, ById(), hops=2, phases=("train", "val"), progress=False)
    return made


def module(partition: Any, trainers: int | None = NUM_PARTS, **settings: Any) -> GraphDataModule:
    overfit = settings.pop("overfit", 0)
    made = GraphDataModule(
        data(),
        settings.pop("sampler", NeighborSampler([3, 2])),
        **{"batch_size": 8, "seed": 4, **settings},
        partition=partition,
    )
    if trainers is not None:
        made.trainer = SimpleNamespace(world_size=trainers, overfit_batches=overfit)
    return made


def batches(workload: Workload, epoch: int = 1) -> Iterator[Any]:
    for request in workload.requests(epoch):
        key = workload.key_of(request)
        batch = workload.sampler.sample(workload.graph, workload.seeds_of(request), key.seed, key.epoch, key.step)
        yield request, content(batch)


def local_order(partition: Partition, phase: str, like: Any = None) -> LocalOrder:
    return LocalOrder([part.seeds[phase] for part in partition.parts], like)


@pytest.mark.parametrize("phase", ["train", "val"])
def test_batches_are_those_of_the_whole_graph_in_the_same_order(folder: Path, phase: str) -> None:
    parted = module(folder).workload(phase)
    assert isinstance(parted.sampler, PartSampler)
    whole = module(None).workload(phase)
    same = Workload(**{**whole.settings(), "order": local_order(parted.sampler.partition, phase, whole.order)})
    assert list(batches(parted)) == list(batches(same))
    own = [set(part.seeds[phase].tolist()) for part in parted.sampler.partition.parts]
    for request in parted.requests(1):
        assert set(parted.seeds_of(request).tolist()) <= own[request.rank]


@pytest.mark.parametrize(
    ("phase", "trainers", "sampler"),
    [
        ("test", NUM_PARTS, NeighborSampler([3, 2])),  # the partition was not made for it
        ("val", 2, NeighborSampler([3, 2])),
        ("val", NUM_PARTS, NeighborSampler([3, 2, 2])),
    ],
)
def test_evaluation_that_parts_cannot_serve_samples_the_whole_graph(
    folder: Path, phase: str, trainers: int, sampler: NeighborSampler
) -> None:
    workload = module(folder, trainers, eval_sampler=sampler).workload(phase)
    assert workload.sampler is sampler
    assert list(batches(workload)) == list(batches(module(None, trainers, eval_sampler=sampler).workload(phase)))


def test_other_settings_stay(folder: Path) -> None:
    overfit, dropping = module(folder, overfit=1).workload("train"), module(folder, drop_last=True).workload("train")
    assert overfit.fixed_draws
    assert np.array_equal(next(seeds for _, (_, _, _, seeds, *_) in batches(overfit))[:3], overfit.order.parts[0][:3])  # type: ignore[attr-defined]
    assert dropping.drop_last
    for request in dropping.requests(0):
        assert len(dropping.seeds_of(request)) == 8
    copied = copy.deepcopy(module(folder)).workload("train")
    assert list(batches(copied)) == list(batches(module(folder).workload("train")))


def test_seeds_of_all_parts_are_known_without_their_graphs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_partition(folder)
    expected = [part.seeds["val"].tolist() for part in loaded.parts]
    monkeypatch.setattr(parts, "open_topology", lambda *_, **__: pytest.fail("a graph was loaded"))
    seeds = load_partition(folder).seeds_of("val")
    assert seeds is not None
    assert [ids.tolist() for ids in seeds] == expected
    assert load_partition(folder).seeds_of("test") is None


@pytest.mark.parametrize("hops", [2, 0])
def test_by_hand_the_mini_batches_of_a_part_are_those_of_its_trainer(tmp_path: Path, hops: int) -> None:
    partition_graph(data(), tmp_path / "parts", NUM_PARTS, hops=hops, progress=False)
    by_hand = module(tmp_path / "parts", trainers=None, num_threads=0)
    loaders = [by_hand.train_dataloader(rank=rank) for rank in range(NUM_PARTS)]
    whole = by_hand.workload("train")
    for epoch in range(2):
        wanted = {(request.step, request.rank): found for request, found in batches(whole, epoch)}
        for rank, loader in enumerate(loaders):
            for step, batch in enumerate(loader):
                assert content(batch)[:5] == wanted[step, rank][:5]
    for loop in (by_hand.train_dataloader, lambda: by_hand.workload("train")):
        by_hand._part_by_hand = None
        with pytest.raises(PartitionError, match=r"train_dataloader\(rank=0\) to rank=2"):
            loop()
    for rank in (3, -1, True, "0"):
        with pytest.raises(LoaderConfigError, match="the number of a part, from 0 to 2"):
            by_hand.train_dataloader(rank=rank)  # type: ignore[arg-type]
    with pytest.raises(LoaderConfigError, match="there is no partition="):
        module(None, trainers=None).train_dataloader(rank=0)


@pytest.mark.parametrize("trainers", [None, 1, 2, 4])
def test_each_part_has_a_trainer(folder: Path, trainers: int | None) -> None:
    count = trainers or 1
    with pytest.raises(PartitionError, match=rf"3 parts, but there (is|are) {count} trainer.*--parts {count}"):
        module(folder, trainers).workload("train")


def test_partitions_that_do_not_fit(folder: Path) -> None:
    with pytest.raises(PartReachError, match=r"3 hops.*--hops 3"):
        module(folder, sampler=NeighborSampler([3, 2, 2])).workload("train")
    other = GraphData(toy_graph(seed=1), train=range(20))
    with pytest.raises(PartitionMismatchError, match="fingerprint"):
        GraphDataModule(other, NeighborSampler([3, 2]), partition=folder).setup()
    graph, some = data().graph, np.arange(200, 300)
    uneven = partition_of(graph, np.arange(300) % NUM_PARTS, {"train": some[some % 3 > 0]}, hops=2)
    few = GraphDataModule(GraphData(graph, train=some[some % 3 > 0]), NeighborSampler([3, 2]), partition=uneven)
    few.trainer = SimpleNamespace(world_size=NUM_PARTS, overfit_batches=0)
    with pytest.raises(PartitionError, match="parts have 0, 33, 34 seeds, but trainers take equal shares"):
        few.workload("train")
    resplit = GraphData(data().graph, train=range(150))
    changed = GraphDataModule(resplit, NeighborSampler([3, 2]), partition=folder)
    changed.trainer = SimpleNamespace(world_size=NUM_PARTS, overfit_batches=0)
    with pytest.raises(PartitionError, match=r"parts \(100\) are not those to train on \(150\)"):
        changed.workload("train")


def test_roles_are_measured_before_there_are_trainers(folder: Path) -> None:
    setting = RehearsalSetting(torch.device("cpu"), 1, (), {})
    arguments = {"model": Fits(), "datamodule": module(folder, trainers=None)}
    _, profile, *_ = measure(quiet_trainer(), arguments, setting, lambda facts: False)
    assert profile is not None


@pytest.mark.parametrize(("written", "given"), [("runs/parts", "runs/parts"), ("null", None)])
def test_configuration_files_name_folders(written: str, given: str | None) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(GraphDataModule, "data", skip={"data", "sampler"})
    parsed = parser.parse_args([f"--data.partition={written}"]).data.partition
    assert (None if parsed is None else str(parsed)) == given


# Caches.


@pytest.mark.parametrize("name", ["presample", "clairvoyant", "degree", "expected", "random"])
def test_a_ranks_cache_has_the_rows_that_the_rank_gathers(folder: Path, name: str) -> None:
    workload = module(folder).workload("train")
    assert isinstance(workload.sampler, PartSampler)
    partition = workload.sampler.partition
    for part in partition.parts:
        policy = PartPolicy(policy_named(name, progress=False), workload.sampler.sampler, partition, part, "train")
        hotness = policy.hotness(workload, 1)
        counts = np.zeros(partition.num_nodes)
        for request in workload.requests(1):
            if request.rank == part.index:
                counts[workload.nodes_of(request)] += 1
        assert part.graph.origin is not None
        outside = np.setdiff1d(np.arange(partition.num_nodes), part.graph.origin.node_ids)
        assert not counts[outside].any()
        assert not hotness[outside].any()
        if name == "clairvoyant":
            assert np.array_equal(hotness, counts)
        else:
            # By a policy of another rank, rows of other seeds' neighbours would come first.
            place = 30
            hot = np.argsort(-hotness, kind="stable")[:place]
            assert counts[hot].sum() > (0 if name == "random" else 1.5 * place * counts.sum() / (counts > 0).sum() / 2)


@pytest.mark.parametrize(("policy", "window"), [("degree", 1), ("clairvoyant", 2)])
def test_ranks_share_memory_but_no_rows(folder: Path, policy: str, window: int) -> None:
    made = module(folder)
    workload, store = made.workload("train"), made.data.stores["x"]

    def own(membership: Membership) -> tuple[int, list[int]]:
        levels = (FeatureCache(policy, capacity_bytes=NUM_PARTS * 2000, window=window),)
        [level] = made.module_partition.own_levels(levels, workload, "train", membership.index, progress=False)
        cache = level.open(store, workload, membership=membership, progress=False)
        rows = np.flatnonzero(cache.location >= 0).tolist()  # type: ignore[attr-defined]
        cache.close()
        return cache.num_rows, rows  # type: ignore[attr-defined]

    opened = together(NUM_PARTS, own)
    assert len({tuple(rows) for _, rows in opened}) == NUM_PARTS
    # Each has the room of one, not that of all.
    alone = FeatureCache(policy, capacity_bytes=2000, window=window).open(store, workload, progress=False)
    assert {count for count, _ in opened} == {alone.num_rows}  # type: ignore[attr-defined]
    alone.close()


@pytest.mark.parametrize("policy", ["degree", "clairvoyant"])
def test_levels_of_a_part_hold_what_one_of_their_size_would(folder: Path, policy: str) -> None:
    made = module(folder)
    workload, store = made.workload("train"), made.data.stores["x"]

    def rows(rank: int, *ratios: float) -> list[set[int]]:
        levels = tuple(FeatureCache(policy, ratio=ratio) for ratio in ratios)
        levels = made.module_partition.own_levels(levels, workload, "train", rank, progress=False)
        opened = open_all(levels, store, workload, progress=False)
        opened.close()
        return [set(np.flatnonzero(cache.location >= 0).tolist()) for cache in opened.caches]  # type: ignore[attr-defined]

    for rank in range(NUM_PARTS):
        near, far = rows(rank, 0.1, 0.2)
        assert [near] == rows(rank, 0.1)
        assert [near | far] == rows(rank, 0.3)
        assert not near & far


@pytest.mark.parametrize(
    ("gather_group", "expected"),
    [
        (GatherGroup(count=3), [0, 0, 1, 1, 2, 2]),  # samplers, or the trainers of one machine
        (GatherGroup(count=2), [0, 0, 0, 1, 1, 1]),  # the rows of a part that two share take turns
        (GatherGroup(count=2, trainer=1, ranks=(1, 2)), [-1, -1, 0, 0, 1, 1]),  # the second of two machines
        (GatherGroup(), None),
    ],
)
def test_rows_of_shared_caches_lie_with_their_parts_ranks(
    folder: Path, gather_group: GatherGroup, expected: list[int] | None
) -> None:
    made = module(folder)
    partition = made.module_partition.open(made.graph_data.graph)
    assert partition is not None
    rows = np.concatenate([np.flatnonzero(partition.part_of(np.arange(300)) == part)[:2] for part in range(3)])
    sharer_of = made.module_partition.sharer_of(gather_group)
    assert (sharer_of and sharer_of(rows).tolist()) == expected
    if sharer_of is not None:  # of a table that begins with a later node
        later = made.module_partition.sharer_of(gather_group, first_node=1)
        assert later is not None
        assert later(rows - 1).tolist() == expected
    assert module(None).module_partition.sharer_of(gather_group) is None


def test_caches_that_stay_one_for_all_ranks(folder: Path) -> None:
    made = module(folder)
    shared, evicting = FeatureCache("degree", ratio=0.1, share="partitioned"), FeatureCache("fifo", ratio=0.1)
    assert made.module_partition.own_levels((shared, evicting), made.workload("train"), "train", 0, progress=False) == (
        shared,
        evicting,
    )
    whole = module(None)
    level = FeatureCache("degree", ratio=0.1)
    assert whole.module_partition.own_levels((level,), whole.workload("train"), "train", 0, progress=False) == (level,)


def test_a_partition_is_one_or_a_folder() -> None:
    with pytest.raises(LoaderConfigError, match="partition is 4, but must be one, the folder"):
        module(4)


def test_parts_of_a_graph_with_types_and_times(tmp_path: Path) -> None:
    """Nodes are seeds at their own times, and a cache knows what each part draws."""
    rng, kinds = np.random.default_rng(0), [("user", "buys", "item"), ("item", "rev_buys", "user")]
    edges = {kind: rng.integers(0, 60, (2, 400)) for kind in kinds}
    times: dict[str, Any] = {"edge_time": {kind: rng.integers(0, 50, 400) for kind in kinds}}
    times["node_time"] = {name: rng.integers(0, 50, 60) for name in ("user", "item")}
    data = GraphData(Graph.from_hetero({"user": 60, "item": 60}, edges, **times), train={"user": range(45)})
    partition = partition_graph(data, tmp_path / "parts", NUM_PARTS, hops=2, progress=False)
    workloads = []
    for given in (partition, None):
        made = GraphDataModule(data, NeighborSampler([3, 2], order="path"), 5, seed=4, partition=given)
        made.trainer = SimpleNamespace(world_size=NUM_PARTS, overfit_batches=0)
        workloads.append(made.workload("train"))
    parted, whole = workloads
    same = Workload(**{**whole.settings(), "order": local_order(partition, "train", whole.order)})
    assert list(batches(parted)) == list(batches(same))
    for part in partition.parts:
        policy = PartPolicy(policy_named("presample", window=1), parted.sampler.sampler, partition, part, "train")
        drawn = np.flatnonzero(policy.hotness(parted, 0))
        assert np.isin(part.seeds["train"], drawn).all()
        assert np.isin(drawn, part.graph.origin.node_ids).all()

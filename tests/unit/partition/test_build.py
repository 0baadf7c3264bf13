"""Partitions as partition_graph makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    LaborSampler,
    LayerSampler,
    NeighborSampler,
    NodeTable,
    Partition,
    QuantizedFeatureStore,
    RandomWalkSampler,
    Sampler,
    SeedTable,
    ShadowSampler,
    WeightedNeighborSampler,
    load_partition,
    partition_graph,
    quantize,
)
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.errors import (
    FeatureFileError,
    PartitionError,
    PartitionMismatchError,
    StoreFormatError,
)
from lightning_gnnload.partition import build
from lightning_gnnload.partition.partitioner import Partitioner
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from tests.unit.partition.by_id import ById, Given
from tests.unit.partition.whole import assert_lists_are_those_of_the_whole, distances
from tests.unit.sample.ranks import over_parts
from tests.unit.seed_tables import kind_of_seeds
from tests.unit.toy import content, toy_data, toy_graph


def made(data: GraphData, folder: Path, num_parts: int = 4, method: Any = None, **settings: Any) -> Partition:
    settings = {"hops": 2, "progress": False} | settings
    return partition_graph(data, folder, num_parts, method or ById(), **settings)


def rich_data() -> GraphData:
    """All that a graph and its nodes can have."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 200, (2, 900))
    graph = Graph.from_coo(src, dst, 200, rng.random(900, np.float32), rng.integers(0, 3, 900).astype(np.int16))
    train, val, test = np.split(rng.permutation(200)[:120], [61, 90])
    return GraphData(graph, rng.random((200, 3)), rng.integers(0, 2, (200, 4)), train, val, test)


def test_what_parts_cannot_do_is_refused(tmp_path: Path) -> None:
    for rows in (SeedTable(src=[0, 1, 2], dst=[1, 2, 3]), SeedTable([0, 1, 2]), SeedTable([0, 1, 2], time=[1, 2, 3])):
        with pytest.raises(PartitionError, match="train are rows of a SeedTable"):
            made(GraphData(Graph.from_coo([0, 1, 2], [1, 2, 3]), train=rows), tmp_path / "parts", 2)
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize("kind", ["timed nodes", "links among negatives", "plain links"])
def test_parts_that_sample_together_have_types_and_times_and_seeds_of_any_kind(tmp_path: Path, kind: str) -> None:
    data, settings = kind_of_seeds(kind)
    partition = made(data, tmp_path / "parts", 3, hops=0)
    whole = data.graph
    for name in ("types", "clock", "node_time"):
        ours, theirs = getattr(partition, name), getattr(whole, name)
        assert (ours is None) == (theirs is None)
    assert partition.types == whole.types
    if whole.clock is not None:
        assert partition.clock.to_json() == whole.clock.to_json()
    for part in partition.parts:
        assert_lists_are_those_of_the_whole(part, whole)

    def work(colleagues: SamplingGroup) -> Any:
        sampler = settings["sampler"]
        times = None if whole.clock is None or sampler.before is None else [500, 900]
        asked = {"seeds": [3, 150], "times": times, "rows": [7, 2**32 + 1]}
        batch = CollectiveSampler(sampler, colleagues).sample(None, **asked)
        assert content(batch) == content(sampler.sample(whole, **asked))
        return batch.num_nodes

    [few, *others] = over_parts(partition, work)
    assert few > 2
    assert others == [few] * 2


def test_times_of_nodes_lie_in_the_head(tmp_path: Path) -> None:
    graph = Graph.from_coo([0, 1, 2, 0], [1, 2, 3, 3], edge_time=[1, 2.5, 3, 9], node_time=[0.5, 4, 0, 7])
    partition = made(GraphData(graph, train=[3, 2]), tmp_path / "parts", 2, hops=0)
    assert partition.node_time.tolist() == [0.5, 4, 0, 7]
    assert partition.clock.ranked.tolist() == graph.clock.ranked.tolist()
    found = over_parts(
        partition, lambda group: CollectiveSampler(NeighborSampler([-1, -1]), group).sample(None, [3, 2])
    )
    assert [content(batch) for batch in found] == [content(NeighborSampler([-1, -1]).sample(graph, [3, 2]))] * 2


@pytest.mark.parametrize("leave_open", [False, True])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_self_reliant_parts_hold_what_their_seeds_need(tmp_path: Path, hops: int, leave_open: bool) -> None:
    data = rich_data()
    partition = made(data, tmp_path / "parts", 3, ById(leave_open), hops=hops, phases=("train", "val"))
    owner = partition.part_of(np.arange(200))
    for part in partition.parts:
        origin = part.graph.origin
        seeds = np.concatenate([part.seeds["train"], part.seeds["val"]])
        wanted = distances(data.graph, seeds, hops)
        assert dict(zip(origin.node_ids.tolist(), origin.reach.tolist(), strict=True)) == {
            node: hops - distance for node, distance in wanted.items()
        }
        assert_lists_are_those_of_the_whole(part, data.graph)
        assert (owner[origin.node_ids] == part.index).tolist() == [True] * part.num_own + [False] * part.num_mirrors
        assert (owner[seeds] == part.index).all()
    for phase, sizes in (("train", [20, 20, 21]), ("val", [9, 10, 10])):
        of_parts = [part.seeds[phase] for part in partition.parts]
        assert [len(ids) for ids in of_parts] == sizes
        assert all((np.diff(ids) > 0).all() for ids in of_parts)
        assert sorted(np.concatenate(of_parts)) == sorted(data.split(phase))
    assert set(partition.parts[0].seeds) == {"train", "val"}


def test_disjoint_parts_hold_the_lists_of_their_nodes(tmp_path: Path) -> None:
    data = rich_data()
    partition = made(data, tmp_path / "parts", 3, hops=0)
    assert not partition.is_self_reliant
    for part in partition.parts:
        begin, end = partition.starts[part.index : part.index + 2]
        origin = part.graph.origin
        # A new id less the start is the row of the owner: a request on the wire needs no table.
        assert origin.node_ids[: part.num_own].tolist() == partition.node_ids[begin:end].tolist()
        assert origin.reach.tolist() == [1] * part.num_own + [0] * part.num_mirrors
        assert_lists_are_those_of_the_whole(part, data.graph)
        for phase in ("train", "val", "test"):
            ids = data.split(phase)
            assert part.seeds[phase].tolist() == sorted(ids[ids % 3 == part.index])
    assert sum(part.graph.num_edges for part in partition.parts) == data.graph.num_edges


@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler([3, -1], edge_ids=True),
        NeighborSampler([{0: 2, 2: 1}, {1: 4}], replace=True, expand="new"),
        WeightedNeighborSampler([2, 3]),
        LaborSampler([3, 2]),
        LayerSampler([20, 20]),
        RandomWalkSampler(num_layers=1, walk_length=2, num_neighbors=3),
        ShadowSampler([3], num_layers=2),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_a_part_gives_the_whole_graphs_batches(tmp_path: Path, sampler: Sampler) -> None:
    data = rich_data()
    partition = made(data, tmp_path / "parts", 3, "self-reliant", hops=2)
    assert sampler.reach == 2
    for part in partition.parts:
        assert part.graph.num_edges < data.graph.num_edges
        seeds = part.seeds["train"][::-2].copy()
        ours, whole = (sampler.sample(graph, seeds, 7, 1, 3) for graph in (part.graph, data.graph))
        assert content(ours) == content(whole)


@pytest.mark.parametrize("hops", [0, 2])
def test_features_are_found_by_every_number_of_a_node(tmp_path: Path, hops: int) -> None:
    data = toy_data(tables={"year": torch.arange(300, dtype=torch.int16)[:, None]})
    partition = made(data, tmp_path / "parts", hops=hops)
    out = torch.empty(300, 5)
    partition.x.gather(torch.arange(300), out)
    assert torch.equal(out, data.x.rows)
    years = torch.empty(2, 1, dtype=torch.int16)
    partition.tables["year"].gather(torch.tensor([299, 7]), years)
    assert years[:, 0].tolist() == [299, 7]
    for part in partition.parts:
        ids = torch.from_numpy(part.graph.origin.node_ids.copy())
        x = torch.empty(len(ids), 5)
        part.x.gather(torch.arange(len(ids)), x)
        assert torch.equal(x, data.x.rows[ids])
        assert torch.equal(part.y, data.y[ids])
    # Where each list lies with its owner, so do the rows.
    files = [tmp_path / "parts" / (f"part-{part:04d}/x.bin" if hops == 0 else "x.bin") for part in range(4)]
    stored = np.concatenate([np.fromfile(file, np.float32).reshape(-1, 5) for file in dict.fromkeys(files)])
    np.testing.assert_array_equal(stored, data.x.rows.numpy()[partition.node_ids])


def test_quantised_features_stay_so_and_labels_keep_their_shape(tmp_path: Path) -> None:
    data = rich_data()
    data.put("x", quantize(data.x.rows.float()))
    partition = made(data, tmp_path / "parts")
    for store in (partition.x, load_partition(tmp_path / "parts", features="disk").x):
        found, wanted = torch.empty(2, 200, 3)
        store.gather(torch.arange(200), found)
        data.x.gather(torch.arange(200), wanted)
        assert torch.equal(found, wanted)
    assert (tmp_path / "parts" / "x.bin").stat().st_size == 200 * 3
    part = partition.parts[1]
    assert isinstance(part.x, QuantizedFeatureStore)  # or a cache in front would hold floats
    assert torch.equal(part.y, data.y[part.graph.origin.node_ids])


def test_parts_without_features_and_without_tables_of_a_type(tmp_path: Path) -> None:
    data = toy_data(tables={"paper": NodeTable(torch.rand(3, 2), 7)})
    bare = made(data, tmp_path / "bare", features=False)
    assert (bare.x, bare.tables, bare.parts[0].x, bare.parts[0].y) == (None, {}, None, None)
    assert not (tmp_path / "bare" / "x.bin").exists()
    full = made(data, tmp_path / "full")
    assert full.tables == {}
    wide = made(toy_data(width=0), tmp_path / "wide")
    assert wide.parts[0].x.shape[1] == 0
    assert full.x is not None


def test_the_same_settings_give_the_same_files(tmp_path: Path) -> None:
    data = rich_data()
    for name in ("one", "two"):
        made(data, tmp_path / name, 3, "self-reliant", seed=5)
    files = {path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.bin")}
    assert len(files) > 20
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_balanced_seeds_stay_where_the_method_put_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, assigned = toy_data(num_train=101), {}
    method = build.partitioner("self-reliant")
    assign = type(method).assign

    def watched(self: Partitioner, *args: Any, **settings: Any) -> np.ndarray:
        assigned["owner"] = assign(self, *args, **settings)
        return assigned["owner"]

    monkeypatch.setattr(type(method), "assign", watched)
    partition = made(data, tmp_path / "parts", 4, "self-reliant")
    assert partition.part_of(data.train).tolist() == assigned["owner"][data.train].tolist()


def test_one_part_is_the_seeds_closure(tmp_path: Path) -> None:
    data = toy_data()
    partition = made(data, tmp_path / "parts", 1, "self-reliant")
    assert partition.parts[0].seeds["train"].tolist() == sorted(data.train)
    assert partition.parts[0].num_mirrors == 0


def test_isolated_seeds_and_graphs_in_pieces(tmp_path: Path) -> None:
    graph = Graph.from_coo([1, 5, 6], [2, 4, 4], num_nodes=9)  # 0, 3, 7 and 8 are alone
    data = GraphData(graph, train=[0, 8, 2, 4])
    partition = made(data, tmp_path / "parts", 2, Given(np.array([0, 0, 0, 0, 1, 1, 1, 1, 1], np.int32)))
    first, second = partition.parts
    assert first.graph.origin.node_ids.tolist() == [0, 1, 2]
    assert first.graph.in_degrees.tolist() == [0, 0, 1]
    assert second.graph.origin.node_ids.tolist() == [4, 5, 6, 8]
    assert partition.part_of(np.array([3, 7])).tolist() == [0, 1]  # owned, though no part holds them


def test_a_dataset_is_prepared_and_loaded(tmp_path: Path) -> None:
    class Toy(Dataset):
        ready = False

        def prepare(self) -> None:
            self.ready = True

        def load(self) -> GraphData:
            assert self.ready
            return toy_data()

    assert made(Toy(), tmp_path / "parts").num_nodes == 300


def test_progress_is_told_of_every_stage(tmp_path: Path) -> None:
    partition = made(toy_data(), tmp_path / "parts", 2, progress=True)
    stages = [stage["name"] for stage in partition.report["stages"]]
    assert stages == [
        "Assigning nodes",
        "Dealing nodes out",
        "Closing parts",
        "Writing parts",
        "Writing features",
        "Measuring quality",
    ]


def test_parts_of_another_graph_are_told_apart(tmp_path: Path) -> None:
    data = toy_data()
    partition = made(data, tmp_path / "parts")
    partition.check(data.graph)
    weight, kind = data.graph.edge_weight, data.graph.edge_type
    partition.check(Graph.from_csc(data.graph.indptr, data.graph.indices.astype(np.int64), weight, kind))
    with pytest.raises(PartitionMismatchError):  # its parts would draw by weights that it has not
        partition.check(Graph.from_csc(data.graph.indptr, data.graph.indices, np.full(data.graph.num_edges, 0.5), kind))
    other = data.graph.indices.copy()
    other[7] ^= 1
    with pytest.raises(
        PartitionMismatchError, match=r"fingerprint 300-2400-\w{8}.*has 300-2400-\w{8}.*was partitioned"
    ):
        partition.check(Graph.from_csc(data.graph.indptr, other))
    with pytest.raises(PartitionMismatchError):
        partition.check(toy_graph(301))


@pytest.mark.parametrize(
    ("num_parts", "settings", "told"),
    [
        (101, {"hops": 0}, "101 parts cannot share 100 training nodes"),
        (65, {}, r"num_parts is 65, but at most 64 parts can hold hops=2.*hops=0"),
        (0, {}, "num_parts is 0, but must be 1 or more"),
        (2.5, {}, "num_parts is 2.5, but must be an integer"),
        (2, {"hops": 256}, r"hops is 256, but must lie in \[0, 255\]"),
        (2, {"hops": -1}, "hops is -1"),
        (2, {"seed": -1}, r"seed is -1, but must lie in \[0, 2\*\*64\)"),
        (2, {"seed": 2**64, "method": "ldg"}, "seed is 18446744073709551616"),  # which draws nothing by it
        (2, {"seed": "5"}, "seed is '5', but must be an integer"),
        (65, {"hops": 0, "method": "self-reliant"}, "self-reliant deals seeds out to 64 parts at most.*'bgl'"),
        (2, {"phases": ("val",)}, 'with "train" among them'),
        (2, {"phases": ("train", "tests")}, "phases is"),
        (2, {"phases": ("train", "train")}, "phases is"),
        (2, {"phases": "train"}, "phases is 'train'"),
        (2, {"phases": None}, "phases is None"),
        (2, {"method": "mitis"}, "method='mitis' is not known; give one of 'self-reliant', 'metis'"),
        (2, {"method": Given([0] * 300)}, r"given: assign must return int32 \[300\]"),
        (2, {"method": Given(np.zeros(300))}, r"given: assign must return int32 \[300\]"),
        (2, {"method": Given(np.zeros(299, np.int32))}, r"given: assign must return int32 \[300\]"),
        (2, {"method": Given(np.full(300, 2, np.int32))}, "returned parts from 2 to 2, but there are 2"),
        (2, {"method": Given(np.full(300, -2, np.int32))}, "returned parts from -2"),
        (2, {"method": Given(np.full(300, -1, np.int32))}, "left a node of train without a part"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, num_parts: Any, settings: Any, told: str) -> None:
    with pytest.raises(PartitionError, match=told):
        made(toy_data(), tmp_path / "parts", num_parts, **settings)
    assert list(tmp_path.iterdir()) == []


def test_training_nodes_come_first_however_phases_are_given(tmp_path: Path) -> None:
    """A node of two phases lies with the part that trains on it."""

    class Watched(ById):
        phases: ClassVar[list[str]] = []

        def assign(self, graph: Graph, seeds: Any, *args: Any, **settings: Any) -> np.ndarray:
            self.phases.extend(seeds)
            return super().assign(graph, seeds, *args, **settings)

    partition = made(toy_data(), tmp_path / "parts", 2, Watched(), phases=("val", "train"))
    assert Watched.phases == list(partition.parts[0].seeds) == ["train", "val"]


def test_more_than_64_parts_are_sampled_together(tmp_path: Path) -> None:
    partition = made(toy_data(65, 65), tmp_path / "parts", 65, hops=0, features=False)
    assert [part.num_own for part in partition.parts] == [1] * 65


def test_graphs_that_cannot_be_cut(tmp_path: Path) -> None:
    data = toy_data()
    with pytest.raises(PartitionError, match="a Graph cannot be partitioned"):
        made(data.graph, tmp_path / "bad")
    for bad in (GraphData(Graph.from_coo([], [])), GraphData(data.graph, data.x)):
        with pytest.raises(PartitionError, match="1 parts cannot share 0 training nodes"):
            made(bad, tmp_path / "bad", 1)
    part = made(data, tmp_path / "parts").parts[0].graph
    with pytest.raises(PartitionError, match="a part of another already"):
        made(GraphData(part, train=[0, 1]), tmp_path / "bad", 1)


def test_a_folder_is_replaced_only_when_told(tmp_path: Path) -> None:
    made(toy_data(), tmp_path / "parts", 2)
    with pytest.raises(StoreFormatError, match=r"exists already.*overwrite=True"):
        made(toy_data(), tmp_path / "parts", 3)
    assert load_partition(tmp_path / "parts").num_parts == 2
    made(toy_data(), tmp_path / "parts", 3, overwrite=True)
    assert load_partition(tmp_path / "parts").num_parts == 3


def test_no_room_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lightning_gnnload.storage.folders.os.posix_fallocate", full)
    with pytest.raises(FeatureFileError, match=r"cannot be written: .*No space left.*disk with room"):
        made(toy_data(), tmp_path / "parts")
    assert list(tmp_path.iterdir()) == []

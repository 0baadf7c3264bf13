"""A partition's folder whose lists and rows lie with owners, on machines with all of it, a part, or the head."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    NodeTable,
    Partition,
    SeedTable,
    load_partition,
    partition_graph,
    quantize,
)
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.parted import PartedFeatureStore
from lightning_gnnload.data.task import Task
from lightning_gnnload.errors import PartitionError, RemoteListsError, SeedError, StoreFormatError
from tests.unit.partition.by_id import Given

NUM_NODES, NUM_EDGES = 120, 500
EMPTY = 2  # a part that owns nothing but a training seed


def rich_data(*, keep_order: bool = True) -> GraphData:
    """Rows of every form: a quantised x, a column, a table of some nodes, rows of several dimensions, edges."""
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, NUM_NODES, NUM_EDGES), rng.integers(0, NUM_NODES // 2, NUM_EDGES)
    dst[:200] = 7  # a hub; half of the nodes have no list
    graph = Graph.from_coo(src, dst, NUM_NODES, rng.random(NUM_EDGES), keep_order=keep_order)
    tables = {
        "year": rng.integers(0, 99, NUM_NODES),
        "some": NodeTable(rng.random((20, 2)), 30),
        "images": rng.random((NUM_NODES, 2, 3), np.float32),
    }
    edges = {"edge_x": rng.random((NUM_EDGES, 2)), "edge_tables": {"w": rng.random(NUM_EDGES)}} if keep_order else {}
    labels, split = rng.integers(0, 5, NUM_NODES), rng.permutation(NUM_NODES)
    return GraphData(
        graph,
        quantize(rng.random((NUM_NODES, 3), np.float32)),
        labels,
        split[:40],
        split[40:60],
        split[60:65],
        tables=tables,
        predict=split[65:70],
        user_ids=[f"node {node}" for node in range(NUM_NODES)],
        class_names=list("abcde"),
        **edges,
    )


def made(folder: Path, data: GraphData) -> Partition:
    owner = (np.arange(NUM_NODES) % 2).astype(np.int32)
    owner[data.train[0]] = EMPTY
    return partition_graph(data, folder, 3, Given(owner), hops=0, progress=False)


@pytest.fixture(scope="module")
def data() -> GraphData:
    return rich_data()


@pytest.fixture(scope="module")
def whole(data: GraphData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts") / "parts"
    made(folder, data)
    return folder


def head_of(folder: Path, target: Path, *parts: int) -> Path:
    """A copy of the folder without its parts, but for some."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("part-*"))
    for part in parts:
        shutil.copytree(folder / f"part-{part:04d}", target / f"part-{part:04d}")
    return target


def rows_of(store: FeatureStore, ids: np.ndarray) -> torch.Tensor:
    out = torch.empty(len(ids), store.shape[1], dtype=store.dtype)
    store.gather(torch.from_numpy(ids), out)
    return out


@pytest.mark.parametrize("features", ["mapped", "disk"])
def test_rows_that_lie_with_parts_are_those_of_the_whole(data: GraphData, whole: Path, features) -> None:
    known = load_partition(whole, features=features).graph_data
    order = data.graph.edge_order
    assert known.stores.keys() == data.stores.keys()
    for name, store in data.stores.items():
        ids = np.random.default_rng(1).permutation(store.shape[0])
        wanted = order[ids].astype(np.int64) if name in data.edge_stores else ids
        assert torch.equal(rows_of(known.stores[name], ids), rows_of(store, wanted)), name
        assert (known.stores[name].row_shape, known.stores[name].dtype) == (store.row_shape, store.dtype)


def test_the_head_has_all_but_lists_and_rows(data: GraphData, whole: Path, tmp_path: Path) -> None:
    partition = load_partition(head_of(whole, tmp_path / "head"), verify=True)
    assert repr(partition) == "Partition(given, num_parts=3, num_nodes=120, each list with its owner, parts here: none)"
    known = partition.graph_data
    for name in ("train", "val", "test", "predict"):
        np.testing.assert_array_equal(known.split(name), data.split(name))
    assert torch.equal(known.y, data.y)
    assert (known.num_classes, known.class_names, known.num_features) == (5, tuple("abcde"), 3)
    np.testing.assert_array_equal(known.user_ids[""].values, data.user_ids[""].values)
    graph = known.graph
    assert (graph.num_nodes, graph.num_edges, graph.fingerprint) == (NUM_NODES, NUM_EDGES, data.graph.fingerprint)
    assert not graph.has_lists
    assert graph.edge_type is None
    for read in (
        lambda: graph.indptr,
        lambda: graph.in_neighbors(3),
        lambda: graph.edge_weight,
        lambda: graph.alias_table,
    ):
        with pytest.raises(RemoteListsError, match=r"not on this machine.*graph='remote'"):
            read()
    with pytest.raises(StoreFormatError, match=r"part 1 of .* is not on this machine: there is no part-0001"):
        rows_of(known.x, np.array([1]))
    again = pickle.loads(pickle.dumps(graph))  # noqa: S301  our own bytes
    assert (again.num_edges, again.fingerprint) == (graph.num_edges, graph.fingerprint)


def test_a_part_alone_is_served_where_it_lies(data: GraphData, whole: Path, tmp_path: Path) -> None:
    partition = load_partition(head_of(whole, tmp_path / "one", 1), verify=True)
    assert partition.parts_here == [1]
    part = partition.parts[1]
    own = part.graph.origin.node_ids[: part.num_own]
    assert torch.equal(part.stores["x"].rows, data.x.codes.rows[own])
    assert torch.equal(
        part.stores["table.some"].rows, data.tables["some"].store.rows[own[(own >= 30) & (own < 50)] - 30]
    )
    assert part.stores["edge_x"].shape[0] == part.graph.num_edges
    with pytest.raises(StoreFormatError, match=r"part 0 of .* is not on this machine"):
        partition.parts[0]


def test_a_row_says_who_has_it(whole: Path) -> None:
    partition = load_partition(whole)
    for name, table in partition.parted.items():
        rows = np.arange(table.num_rows)
        located = {part: own for part, own, _ in table.by_part(rows)}
        assert sorted(np.concatenate([at for _, _, at in table.by_part(rows)])) == rows.tolist(), name
        # Each row of each part comes once.
        for part in partition.parts:
            assert sorted(located.get(part.index, ())) == list(range(part.stores[name].shape[0])), name
        with pytest.raises(SeedError, match=rf"ids\[1\] is {table.num_rows}, but the table has rows 0 to"):
            table.by_part(np.array([0, table.num_rows]))
    store = partition.graph_data.tables["year"]
    assert isinstance(store, PartedFeatureStore)
    with pytest.raises(SeedError, match="is -1"):
        rows_of(store, np.array([-1]))


def test_tasks_and_seed_tables_are_carried(tmp_path: Path) -> None:
    graph = Graph.from_coo([1, 2, 3], [0, 1, 2], 4)
    rows = {"train": SeedTable([1, 2, 3], y=[0, 1, 0]), "predict": SeedTable([0])}
    data = GraphData(graph, tasks={"churn": Task(rows, num_classes=2, label_names=("left",))}).with_task("churn")
    known = made_small(tmp_path / "parts", data).graph_data
    assert (known.task, known.num_classes, known.label_names) == ("churn", 2, ("left",))
    assert known.table("train").y.tolist() == [0, 1, 0]
    assert known.split("predict").tolist() == [0]


def made_small(folder: Path, data: GraphData) -> Partition:
    return partition_graph(data, folder, 2, Given(np.array([0, 1, 0, 1], np.int32)), hops=0, progress=False)


def test_what_has_no_head_says_how_to_make_one(tmp_path: Path) -> None:
    data = GraphData(Graph.from_coo([1, 2, 3], [0, 1, 2], 4), train=[0, 1])
    deep = partition_graph(data, tmp_path / "deep", 2, hops=1, progress=False)
    with pytest.raises(PartitionError, match=r"does not hold what a trainer without the graph needs.*--hops 0"):
        deep.graph_data  # noqa: B018


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows["x"].update(shape=[121, 3]), "x is .121, 3., but the graph has 120 nodes"),
        (lambda rows: rows["x"].update(shape=[120, 1 << 59]), "rows of 'x' are malformed"),
        (lambda rows: rows["x"].update(dtype="object"), "rows of 'x' are malformed"),
        (lambda rows: rows["edge_x"].update(shape=[7, 2]), "edge_x must have a row for each of 500 edges"),
        (lambda rows: rows.update(y=3), "rows of 'y' are malformed"),
    ],
)
def test_rows_that_cannot_be_are_refused(whole: Path, tmp_path: Path, change, message: str) -> None:
    folder = head_of(whole, tmp_path / "head", 0, 1, 2)
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest["attributes"]["partition"]["rows"])
    del manifest["checksum"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreFormatError, match=message):
        load_partition(folder)


def test_a_part_with_other_rows_than_the_head_says_is_refused(whole: Path, tmp_path: Path) -> None:
    folder = head_of(whole, tmp_path / "head", 0, 1, 2)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["attributes"]["partition"]["rows"]["table.images"]["shape"] = [NUM_NODES, 3, 2]
    del manifest["checksum"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreFormatError, match=r"table.images must be .* the rows of what the part owns"):
        load_partition(folder).parts[0]


def test_what_is_not_carried_is_told(tmp_path: Path) -> None:
    data = rich_data(keep_order=False)
    bare = partition_graph(data, tmp_path / "bare", 2, "random", hops=0, features=False, progress=False)
    assert (bare.parted, bare.graph_data.y, bare.parts[0].stores) == ({}, None, {})
    assert bare.graph_data.train.tolist() == data.train.tolist()

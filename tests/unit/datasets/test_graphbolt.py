import gzip
import os
import pickle

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_gnnload import GraphBolt, GraphData, GraphDataModule, Negatives, NeighborSampler
from lightning_gnnload.errors import DatasetError
from tests.unit.datasets.graphbolt_folders import BUYS, LIKED, NODES, array, flat_graph, rows, typed_graph, write

BOUGHT, LIKED_BY = ("user", "buys", "item"), ("item", "liked_by", "user")


def read(folder, **settings) -> GraphData:
    dataset = GraphBolt(folder, root=folder.parent / "converted", **settings)
    dataset.prepare()
    return dataset.load()


def edges(data: GraphData) -> list[tuple[int, int]]:
    dst = np.repeat(np.arange(data.num_nodes), data.graph.in_degrees)
    return sorted(zip(data.graph.indices.tolist(), dst.tolist(), strict=True))


def pairs(ends: np.ndarray, first_src: int = 0, first_dst: int = 0) -> list[tuple[int, int]]:
    return sorted(zip((ends[0] + first_src).tolist(), (ends[1] + first_dst).tolist(), strict=True))


def changed(folder, change) -> None:
    """Changes the fields of a folder's metadata."""
    file = folder / "metadata.yaml"
    fields = yaml.safe_load(file.read_text())
    change(fields)
    file.write_text(yaml.safe_dump(fields))


@pytest.fixture
def flat(tmp_path):
    """A folder without types, with all that it may have."""
    folder = tmp_path / "flat"
    features = [
        array(folder, "x.npy", np.arange(12, dtype=np.float32).reshape(4, 3), domain="node", name="feat"),
        array(folder, "year.pt", np.arange(4) + 2000, domain="node", name="year", in_memory=False),
        array(folder, "e.npy", np.arange(10.0).reshape(5, 2), domain="edge", name="feat"),
    ]
    weights = array(folder, "w.npy", np.array([1, 2, 3, 4, 5]), domain="edge", name="weight")
    task = {
        "name": "node_classification",
        "num_classes": 7,
        "train_set": [rows(folder, "train", seeds=np.array([3, 0], np.int32), labels=[2, 1])],
        "validation_set": [rows(folder, "val", seeds=[1], labels=[0])],
        "test_set": [rows(folder, "test", seeds=[3], labels=[2])],
    }
    graph = {**flat_graph(folder), "feature_data": [weights]}
    return write(folder, graph=graph, feature_data=features, tasks=[task])


@pytest.fixture
def typed(tmp_path):
    folder = tmp_path / "typed"
    features = [
        array(folder, "user.npy", np.eye(4, dtype=np.float32), domain="node", type="user", name="feat"),
        array(folder, "item.npy", np.arange(3.0), domain="node", type="item", name="price"),
        array(folder, "paid.npy", np.arange(5.0) * 10, domain="edge", type="user:buys:item", name="paid"),
    ]
    nodes = {
        "name": "nodes",
        "train_set": [
            rows(folder, "train", "user", seeds=[2, 0], labels=[1, 0]),
            rows(folder, "train", "item", seeds=[1], labels=[4]),
        ],
        "test_set": [rows(folder, "test", "user", seeds=[1], labels=[1])],
    }
    links = {
        "name": "links",
        "train_set": [rows(folder, "train", "user:buys:item", node_pairs=BUYS.T, timestamp=np.arange(5) + 100)],
        "test_set": [
            rows(folder, "test", "user:buys:item", seeds=[[0, 1], [3, 0]], negative_dsts=[[1, 2], [0, 1]]),
            rows(folder, "test", "item:liked_by:user", seeds=[[0, 1]]),
        ],
    }
    return write(folder, graph=typed_graph(folder), feature_data=features, tasks=[nodes, links])


def test_every_array_of_a_folder_without_types_is_read(flat):
    data = read(flat, edge_weight_name="weight")
    graph = data.graph
    assert graph.types is None
    assert edges(data) == pairs(BUYS)
    assert data.x.rows.tolist() == np.arange(12).reshape(4, 3).tolist()
    assert data.x.dtype is torch.float32
    assert data.tables["year"].rows.tolist() == [[2000], [2001], [2002], [2003]]
    assert data.edge_x.rows.tolist() == np.arange(10).reshape(5, 2).tolist()
    # Row e of features of edges belongs to edge e of the file, wherever that went.
    assert graph.indices.tolist() == BUYS[0][graph.edge_order].tolist()
    assert graph.edge_weight.tolist() == (graph.edge_order + 1).tolist()
    assert data.edge_tables["weight"].rows.tolist() == [[1], [2], [3], [4], [5]]
    assert (data.train.tolist(), data.val.tolist(), data.test.tolist()) == ([3, 0], [1], [3])
    assert data.y.tolist() == [1, 0, -1, 2]
    assert data.num_classes == 7
    assert data.seed_tables == {}


def test_every_array_of_a_folder_with_types_is_read(typed):
    data = read(typed, task="nodes")
    types = data.graph.types
    assert dict(zip(types.node_types, types.num_nodes, strict=True)) == NODES
    users, items = types.range_of("user").start, types.range_of("item").start
    assert edges(data) == sorted(pairs(BUYS, users, items) + pairs(LIKED, items, users))
    assert data.tables_of("user")["x"].store.rows.tolist() == np.eye(4).tolist()
    assert data.tables_of("item")["price"].store.rows.tolist() == [[0], [1], [2]]
    assert data.edge_tables_of(BOUGHT)["paid"].store.rows.tolist() == [[0], [10], [20], [30], [40]]
    assert data.split("train", "user").tolist() == [2, 0]
    assert data.split("train", "item").tolist() == [1]
    assert data.split("test", "user").tolist() == [1]
    assert data.labels_of("user").tolist() == [0, 1, 1, -1]
    assert data.labels_of("item").tolist() == [-1, 4, -1]


def test_links_are_rows_with_times_and_negatives(typed):
    data = read(typed, task="links", seed_type="user:buys:item")
    train, test = data.table("train"), data.table("test")
    assert train.ends.tolist() == BUYS.T.tolist()
    assert train.time.tolist() == [100, 101, 102, 103, 104]
    assert train.edge_type == BOUGHT
    assert test.columns["negatives"].tolist() == [[1, 2], [0, 1]]
    assert read(typed, task="links", seed_type="item:liked_by:user").table("test").ends.tolist() == [[0, 1]]


def test_a_node_in_several_rows_or_with_more_than_a_label_is_a_row(tmp_path):
    folder = tmp_path / "rows"
    task = {
        "train_set": [
            rows(folder, "train", seeds=[2, 2, 0], labels=[0.5, 1.5, 0.0], timestamp=[5, 6, 7], group=[1, 1, 2])
        ],
        "test_set": [rows(folder, "test", seeds=[1])],
    }
    data = read(write(folder, graph=flat_graph(folder), tasks=[task]))
    train = data.table("train")
    assert data.y is None
    assert train.ends[:, 0].tolist() == [2, 2, 0]
    assert train.y.tolist() == [0.5, 1.5, 0.0]
    assert train.time.tolist() == [5, 6, 7]
    assert train.columns["group"].tolist() == [1, 1, 2]
    assert data.table("test").ends[:, 0].tolist() == [1]


def test_a_node_with_two_labels_keeps_both(tmp_path):
    """As ``y`` has one label a node, the later set would win for both."""
    folder = tmp_path / "two"
    task = {name: [rows(folder, name, seeds=[2], labels=[at])] for at, name in enumerate(("train_set", "test_set"))}
    data = read(write(folder, graph=flat_graph(folder), tasks=[task]))
    assert [data.table(name).y.tolist() for name in ("train", "test")] == [[0], [1]]


def queries(folder, seeds, labels, indexes, **settings) -> GraphData:
    test = rows(folder, "test", seeds=seeds, labels=labels, indexes=indexes)
    return read(write(folder, graph=flat_graph(folder), tasks=[{"test_set": [test]}]), **settings)


def test_rows_of_an_index_are_a_query_with_negatives(tmp_path):
    """The true row of an index may stand anywhere among its rows."""
    seeds = [[0, 1], [3, 2], [0, 2], [3, 0], [3, 1], [0, 3]]
    table = queries(tmp_path / "dst", seeds, [1, 0, 0, 1, 0, 0], [0, 1, 0, 1, 1, 0]).table("test")
    assert table.ends.tolist() == [[0, 1], [3, 0]]
    assert table.columns["negatives"].tolist() == [[2, 3], [2, 1]]
    assert table.y is None
    with pytest.warns(UserWarning, match=r"replace sources: give negatives=Negatives\('hard', corrupt='src'\)"):
        table = queries(tmp_path / "src", np.flip(seeds, 1), [1, 0, 0, 1, 0, 0], [0, 1, 0, 1, 1, 0]).table("test")
    assert table.ends.tolist() == [[1, 0], [0, 3]]
    assert table.columns["negatives"].tolist() == [[2, 3], [2, 1]]


@pytest.mark.parametrize(
    ("labels", "indexes"),
    [([1, 1, 0, 0], [0, 0, 1, 1]), ([1, 0, 0, 1], [0, 0, 0, 1]), ([1, 0, 2, 0], [0, 0, 1, 1])],
    ids=["a query without a true row", "queries of several sizes", "other labels"],
)
def test_rows_that_are_no_queries_stay_rows_with_labels(tmp_path, labels, indexes):
    seeds = [[0, 1], [0, 2], [3, 0], [3, 1]]
    table = queries(tmp_path / "rows", seeds, labels, indexes).table("test")
    assert table.ends.tolist() == seeds
    assert table.y.tolist() == labels
    assert table.columns["indexes"].tolist() == indexes


def test_negatives_train_and_are_what_was_given(tmp_path):
    folder = tmp_path / "hard"
    test = rows(
        folder, "test", node_pairs=[[0, 1], [3, 3]], negative_srcs=[[0, 0], [3, 3]], negative_dsts=[[3, 1], [0, 1]]
    )
    data = read(write(folder, graph=flat_graph(folder), tasks=[{"test_set": [test]}]))
    module = GraphDataModule(data, NeighborSampler([2]), negatives=Negatives("hard"), eval_batch_size=2, num_threads=0)
    batch = next(iter(module.test_dataloader()))
    columns = batch.seed_columns
    found = batch.seeds[columns["negatives"]]
    assert found[columns["negative_mask"]].tolist() == [3, 0, 1]  # 0 leads to 1, in the row itself


def test_features_are_mapped_where_they_lie(flat):
    """A copy would miss what is written to the file later."""
    data = read(flat)
    np.lib.format.open_memmap(flat / "x.npy", "r+")[2, 1] = 77
    assert data.x.rows[2, 1] == 77
    assert not {path.name for path in (flat.parent / "converted").rglob("x*.bin")}


def test_nothing_is_written_into_the_folder_and_changes_are_seen(flat):
    """GraphBolt preprocesses a folder again that has another file in it."""
    before = sorted(flat.rglob("*"))
    read(flat)
    assert sorted(flat.rglob("*")) == before
    array(flat, "edges/follows.csv", np.array([[1], [2]]))
    os.remove(flat / "e.npy")
    changed(flat, lambda fields: (fields["graph"].pop("feature_data"), fields["feature_data"].pop()))
    with pytest.raises(DatasetError, match="other settings"):
        GraphBolt(flat, root=flat.parent / "converted").load()
    assert edges(read(flat)) == [(1, 2)]


def test_it_trains_in_a_data_module(typed):
    dataset = GraphBolt(typed, task="nodes", root=typed.parent / "converted")
    module = GraphDataModule(dataset, NeighborSampler([2, 2]), batch_size=3, num_threads=0)
    module.prepare_data()
    module.setup("fit")
    assert len(module.train_dataloader()) == 1


def test_what_is_not_read_is_named_at_once(flat):
    def more(fields):
        fields["licence"] = "ODC-BY"
        fields["tasks"][0]["metric"] = "accuracy"
        fields["graph"]["nodes"][0]["colour"] = "red"
        fields["feature_data"] += [
            dict(fields["feature_data"][0], name="page rank"),
            {"domain": "graph", "name": "size"},
        ]

    changed(flat, more)
    with pytest.warns(UserWarning, match="does not read") as told:
        read(flat)
    [message] = [str(each.message) for each in told]
    assert set(message.partition("does not read ")[2].rstrip(".").split(", ")) == {
        "licence",
        "graph.nodes[0].colour",
        "tasks[0].metric",
        "feature_data[3] ('page rank')",
        "feature_data[4] ('size')",
    }


def test_edges_as_numpy_and_as_csv_are_the_same(tmp_path):
    made = [read(write(tmp_path / name, graph=flat_graph(tmp_path / name, f"edges.{name}"))) for name in ("csv", "npy")]
    assert edges(made[0]) == edges(made[1]) == pairs(BUYS)


def test_times_of_edges_are_those_of_the_graph(tmp_path):
    folder = tmp_path / "times"
    since = array(folder, "t.npy", np.array([30, 10, 20, 50, 40]), domain="edge", name="timestamp")
    data = read(write(folder, graph=flat_graph(folder), feature_data=[since]), time_name="timestamp")
    assert data.graph.edge_time is not None
    assert data.graph.in_neighbors(2).tolist() == [0, 2, 3]  # by their times: 30, 40, 50


def broken(flat, change):
    changed(flat, change)
    read(flat)


def put(*path, value):
    def change(fields):
        for key in path[:-1]:
            fields = fields[key]
        fields[path[-1]] = value

    return change


SECRET = "../secret.npy"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("graph", "nodes", 0, "num", value="4"), r"graph\.nodes\[0\]\.num is '4'; a whole number is needed"),
        (put("graph", "nodes", 0, "num", value=-1), r"graph\.nodes\[0\]\.num is -1 \(int\); .* count of 0 or more"),
        (put("graph", "edges", value={}), r"graph\.edges is \{\} \(dict\); a list is needed"),
        (put("graph", "edges", 0, "format", value="parquet"), r"graph\.edges\[0\]\.format is 'parquet'.*csv, numpy"),
        (
            put("graph", "edges", 0, "path", value="none.csv"),
            r"graph\.edges\[0\]\.path is 'none\.csv'; there is no such",
        ),
        (
            put("graph", "nodes", 0, "num", value=3),
            r"GraphBolt .*edge 3 has the source 3, but there are 3 such nodes",
        ),
        (
            put("feature_data", 0, "path", value=SECRET),
            r"feature_data\[0\]\.path is '\.\./secret\.npy'; it leads out of",
        ),
        (put("feature_data", 0, "path", value="link.npy"), r"'link\.npy'; it leads out of"),
        (put("feature_data", 0, "path", value="/etc/passwd"), r"'/etc/passwd'; it leads out of"),
        (put("feature_data", 0, "path", value="a\0b"), r"no path of a file"),
        (
            put("feature_data", 0, "path", value="e.npy"),
            r"feature_data\[0\]\.path is 'e\.npy'; it has 5 rows, but .* 4 nodes",
        ),
        (put("feature_data", 0, "domain", value="nodes"), r"feature_data\[0\]\.domain is 'nodes'; .*node, edge, graph"),
        (put("feature_data", 0, "type", value="user"), r"feature_data\[0\]\.type is 'user'; the graph has no types"),
        (
            put("feature_data", 1, "name", value="feat"),
            r"feature_data\[1\]\.name is 'feat'; feature_data\[0\] has this name",
        ),
        (
            put("tasks", 0, "train_set", 0, "type", value="user"),
            r"train_set\[0\]\.type is 'user'; the graph has no types",
        ),
        (put("tasks", 0, "train_set", 0, "data", 0, "name", value="ids"), r"data has \['ids', 'labels'\], but 'seeds'"),
        (put("tasks", 0, "train_set", 0, "data", 1, "path", value="x.npy"), r"labels has 4 rows for 2 of seeds"),
        (put("tasks", 0, "train_set", 0, "data", 0, "path", value="year.npy"), r"row 1: 2000 is no node; .*\[0, 4\)"),
        (put("tasks", 0, "num_classes", value="many"), r"tasks\[0\]\.num_classes is 'many'; a whole number"),
        (put("graph", value=[1]), r"metadata\.yaml: graph is \[1\] \(list\); fields by name"),
        (put("graph", "nodes", value=[4]), r"graph\.nodes\[0\] is 4 \(int\), but fields by name"),
    ],
)
def test_a_broken_field_is_named_with_its_value(flat, change, message):
    np.save(flat.parent / "secret.npy", np.zeros((4, 3)))
    np.save(flat / "year.npy", np.array([0, 2000]))
    (flat / "link.npy").symlink_to(flat.parent / "secret.npy")
    with pytest.raises(DatasetError, match=message):
        broken(flat, change)


def places(value, path=()):
    """The paths of all that YAML holds."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


ODD = st.sampled_from(
    [None, -1, 2**70, 1.5, True, "", "a:b:c", "..", [], [None], {}, {"type": 1}, "feat", "e.npy", b"a"]
)


@pytest.mark.filterwarnings("ignore:.*does not read.*")
@given(data=st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_change_of_the_metadata_is_read_or_a_dataset_error(typed, data):
    """A description is not trusted: whatever it says, no other error comes of it."""
    file = typed / "metadata.yaml"
    before = file.read_text()
    fields = yaml.safe_load(before)
    path = data.draw(st.sampled_from(list(places(fields))))
    put(*path, value=data.draw(ODD))(fields)
    file.write_text(yaml.safe_dump(fields))
    try:
        read(typed, task="nodes")
    except DatasetError:
        pass  # which the tests above read
    finally:
        file.write_text(before)


def write_archive(file):
    with open(file, "wb") as opened:
        np.savez(opened, a=np.zeros(4))


def write_pickle(file):
    with open(file, "wb") as opened:
        pickle.dump({"rows": object}, opened, protocol=2)


def with_shape(shape):
    """Writes an array whose header says that this is its shape."""

    def write(file):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
        file.write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode() + b"\0" * 48)

    return write


@pytest.mark.parametrize(
    ("name", "write_file", "message"),
    [
        ("x.npy", lambda file: np.save(file, np.array([{}], object), allow_pickle=True), r"x\.npy cannot be read"),
        ("x.npy", write_archive, r"x\.npy is an archive of arrays"),
        ("x.npy", lambda file: np.save(file, np.zeros(4, ">f4")), r"x\.npy holds >f4; .*byte order"),
        ("x.npy", lambda file: os.truncate(file, 140), r"x\.npy cannot be read"),
        ("x.npy", lambda file: file.write_bytes(b"PK\3\4 no archive"), r"x\.npy cannot be read: File is not a zip"),
        ("x.npy", with_shape("(9" + "9" * 30 + ", 3)"), r"x\.npy cannot be read"),
        ("x.npy", with_shape("(True, 3)"), r"x\.npy cannot be read"),
        ("x.npy", with_shape("(4, 3"), r"x\.npy cannot be read"),
        (
            "year.pt",
            lambda file: torch.save(torch.zeros(1).expand(4), file),
            r"year\.pt holds an expanded tensor, \[4\]",
        ),
        ("year.pt", lambda file: torch.save(torch.zeros(4, device="meta"), file), r"a dense tensor of numbers"),
        ("year.pt", lambda file: torch.save(torch.zeros(4, dtype=torch.cfloat), file), r"a dense tensor of numbers"),
        ("x.npy", lambda file: np.save(file, np.float32(1)), r"x\.npy holds a single number"),
        ("year.pt", lambda file: torch.save({"a": torch.zeros(4)}, file), r"year\.pt holds a dict"),
        ("year.pt", lambda file: torch.save(GraphBolt("a"), file), r"year\.pt holds more than a tensor"),
        ("year.pt", write_pickle, r"year\.pt (holds more than a tensor|cannot be read)"),
        (
            "edges/follows.csv",
            lambda file: file.write_text("src,dst\n0,1\n"),
            r"could not convert string 'src'.*header",
        ),
        ("edges/follows.csv", lambda file: file.write_text("0,0,1\n1,1,2\n"), r"has 3 columns; two are needed"),
        ("edges/follows.csv", lambda file: file.write_text("0,1\n2\n"), r"number of columns changed"),
        ("edges/follows.csv", lambda file: file.write_text("0,1\n1.5,2\n"), r"could not convert string '1\.5'"),
    ],
)
def test_a_broken_file_is_named(flat, name, write_file, message):
    write_file(flat / name)
    with pytest.raises(DatasetError, match=message):
        read(flat)


def test_edges_by_rows_are_told_to_be_transposed(tmp_path):
    folder = write(tmp_path / "rows", graph=flat_graph(tmp_path / "rows", "e.npy", BUYS.T))
    with pytest.raises(
        DatasetError, match=r"edges are int64 \[5, 2\], but integers \[2, E\] are needed\. Save its transpose"
    ):
        read(folder)


@pytest.mark.parametrize(
    ("suffix", "content"),
    [("gz", gzip.compress(b"0,1\n" * 999)[:-9]), ("gz", gzip.compress(b"0,1\n")[:10] + b"\xff"), ("xz", b"\xfd7zXZ")],
    ids=["cut", "garbled", "header"],  # what gzip writes has the time in it
)
def test_damaged_archives_of_edges_are_named(tmp_path, suffix, content):
    folder = tmp_path / "packed"
    graph = {"nodes": [{"num": 2}], "edges": [{"format": "csv", "path": f"e.csv.{suffix}"}]}
    write(folder, graph=graph)
    (folder / f"e.csv.{suffix}").write_bytes(content)
    with pytest.raises(DatasetError, match=rf"e\.csv\.{suffix} cannot be read"):
        read(folder)


def test_pairs_may_be_stored_by_column(tmp_path):
    folder = tmp_path / "columns"
    train = rows(folder, "train", seeds=np.asfortranarray([[0, 1], [2, 3], [1, 1]]))
    table = read(write(folder, graph=flat_graph(folder), tasks=[{"train_set": [train]}])).table("train")
    assert table.ends.tolist() == [[0, 1], [2, 3], [1, 1]]


def test_a_set_without_rows_may_have_negatives(tmp_path):
    folder = tmp_path / "none"
    test = rows(folder, "test", seeds=np.empty((0, 2), int), negative_dsts=np.empty((0, 3), int))
    table = read(write(folder, graph=flat_graph(folder), tasks=[{"test_set": [test]}])).table("test")
    assert (len(table), table.columns["negatives"].shape) == (0, (0, 3))


def test_a_mark_before_the_first_edge_is_passed_over(tmp_path):
    folder = write(tmp_path / "mark", graph=flat_graph(tmp_path / "mark"))
    (folder / "edges" / "follows.csv").write_bytes(b"\xef\xbb\xbf0,1\r\n1,2\r\n")
    assert edges(read(folder)) == [(0, 1), (1, 2)]


def test_a_folder_without_edges_has_a_graph(tmp_path):
    for suffix in ("csv", "npy"):
        folder = tmp_path / suffix
        graph = flat_graph(folder, f"e.{suffix}", np.empty((2, 0), np.int64))
        assert read(write(folder, graph=graph)).graph.num_edges == 0


@pytest.mark.parametrize(
    "text",
    [
        "- 1\n",
        "just text",
        "",
        "a: [",
        "a: !!python/object/apply:os.getcwd []",
        "a: 2019-13-45",  # which YAML's reader takes for a date
        "a: " + "9" * 5000,
        "a: {b: 1, b: 2}",
    ],
)
def test_a_file_that_holds_no_fields_is_refused(tmp_path, text):
    (tmp_path / "metadata.yaml").write_text(text)
    with pytest.raises(DatasetError, match=r"metadata\.yaml(: it holds .* fields by name| cannot be read)"):
        read(tmp_path)


def test_a_folder_that_graphbolt_alone_can_read_is_refused(flat):
    (flat / "preprocessed").mkdir()
    (flat / "metadata.yaml").rename(flat / "preprocessed" / "metadata.yaml")
    with pytest.raises(DatasetError, match=r"pickled Python object.*Give the folder as it was before"):
        read(flat)
    write(flat, graph_topology={"type": "FusedCSCSamplingGraph", "path": "graph.pt"})
    with pytest.raises(DatasetError, match="pickled Python object"):
        read(flat)
    with pytest.raises(DatasetError, match=r"metadata\.yaml is missing"):
        read(flat.parent / "nothing")


def test_types_and_tasks_that_are_not_there_are_refused(typed):
    with pytest.raises(DatasetError, match="task is None, which names 2 tasks; the tasks are 'nodes', 'links'"):
        read(typed)
    with pytest.raises(DatasetError, match="task is 'edges', which names 0 tasks"):
        read(typed, task="edges")
    with pytest.raises(DatasetError, match="test_set has rows of several types, user:buys:item, item:liked_by:user"):
        read(typed, task="links")
    with pytest.raises(DatasetError, match="seed_type is 'shop', but there is no such"):
        read(typed, task="nodes", seed_type="shop")
    with pytest.raises(DatasetError, match="time_name is 'when', but there is no such column"):
        read(typed, task="nodes", time_name="when")
    changed(typed, put("graph", "edges", 0, "type", value="user:buys:thing"))
    with pytest.raises(DatasetError, match=r"edges\[0\]\.type is 'user:buys:thing'; there is no node type 'thing'"):
        read(typed, task="nodes")
    changed(typed, put("graph", "edges", 0, "type", value="buys"))
    with pytest.raises(DatasetError, match=r"edges\[0\]\.type is 'buys'; an edge type is needed"):
        read(typed, task="nodes")


def test_negatives_that_are_the_pairs_themselves_are_kept(tmp_path):
    folder = tmp_path / "same"
    train = rows(folder, "train", seeds=[[0, 1]], negative_srcs=[[0, 0]])
    with pytest.warns(UserWarning, match="replace sources"):
        data = read(write(folder, graph=flat_graph(folder), tasks=[{"train_set": [train]}]))
    assert data.table("train").columns["negatives"].tolist() == [[0, 0]]


def test_queries_may_have_labels_of_half_precision(tmp_path):
    """Which NumPy has no dtype for."""
    folder = tmp_path / "half"
    test = rows(folder, "test", seeds=[[0, 1], [0, 2]], indexes=[0, 0])
    test["data"].append(array(folder, "labels.pt", torch.tensor([1, 0], dtype=torch.bfloat16), name="labels"))
    table = read(write(folder, graph=flat_graph(folder), tasks=[{"test_set": [test]}])).table("test")
    assert table.columns["negatives"].tolist() == [[2]]


def test_negatives_at_both_ends_are_refused(tmp_path):
    folder = tmp_path / "both"
    train = rows(folder, "train", seeds=[[0, 1]], negative_srcs=[[2]], negative_dsts=[[3]])
    with pytest.raises(DatasetError, match="differ from the pairs at both ends"):
        read(write(folder, graph=flat_graph(folder), tasks=[{"train_set": [train]}]))


def test_an_older_torch_reads_no_tensors_of_others(flat, monkeypatch):
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.5.1+cpu"))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was unpickled"))
    with pytest.raises(DatasetError, match=r"\.pt is a file of torch\.save.*Install torch 2\.6"):
        read(flat)

import warnings

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, MemoryFeatureStore, SeedTable, load_graph_data, save_graph_data
from lightning_gnnload.errors import GraphDataError

GRAPH = Graph.from_coo([0, 1, 2], [1, 2, 3])  # four nodes


def test_splits_become_ids() -> None:
    data = GraphData(GRAPH, train=torch.tensor([2, 0], dtype=torch.int32), val=[1], test=np.array([3], np.uint8))
    assert [data.split(name).tolist() for name in ("train", "val", "test")] == [[2, 0], [1], [3]]
    assert {data.split(name).dtype for name in ("train", "val", "test")} == {np.dtype(np.int64)}
    assert data.num_features == 0
    assert len(GraphData(GRAPH).val) == 0


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_a_mask_stands_for_its_nodes(kind) -> None:
    data = GraphData(GRAPH, train=kind([True, False, True, True]), val=kind([False] * 4))
    assert (data.train.tolist(), data.val.tolist(), data.train.dtype) == ([0, 2, 3], [], np.dtype(np.int64))


def test_where_the_number_of_nodes_is_not_known_a_mask_is_told_what_makes_ids_of_it() -> None:
    for mask in (np.array([True, False, True]), torch.tensor([True, False, True])):
        with pytest.raises(GraphDataError, match=r"Give numpy\.flatnonzero\(mask\)"):
            SeedTable(mask)
        assert SeedTable(np.flatnonzero(mask)).nodes_in(GRAPH).ravel().tolist() == [
            0,
            2,
        ]  # the advice works


@pytest.mark.parametrize("graph", [torch.tensor([[0, 1], [1, 2]]), None, [[0, 1]]])
def test_what_is_no_graph_is_told_how_to_make_one(graph) -> None:
    with pytest.raises(GraphDataError, match=r"graph is a .*Graph\.from_coo\(src, dst\)"):
        GraphData(graph)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([True, False, True], r"train ids: a boolean mask of shape \(3,\).*there are 4 nodes"),
        (["a", "b"], r"train ids: numbers are needed.*GraphData\.from_tables or gnnload build"),
        ([0, 4], r"train ids: id 4 at position 1.*\[0, 4\)"),
        ([-1], r"train ids: id -1 at position 0"),
        ([2, 0, 2], r"train ids: node 2 appears more than once"),
        ([0.0, 1.0], r"train ids: .*integer.*float64"),
        ([[0, 1]], r"train ids: one-dimensional.*\(1, 2\)"),
        (np.array([2**64 - 1], np.uint64), r"train ids"),
        ([SeedTable([0]), SeedTable([1])], r"train: one SeedTable is needed, not a list of 2.*into one"),
        ((SeedTable([0]),), r"train: one SeedTable is needed, not a tuple of 1"),
        ({"a": SeedTable([0])}, r"train: a SeedTable says its type itself.*node_type='a'"),
        (SeedTable, r"train is the class SeedTable"),
    ],
)
def test_ids_that_are_no_split(ids, message: str) -> None:
    with pytest.raises(GraphDataError, match=message):
        GraphData(GRAPH, train=ids)
    with pytest.raises(GraphDataError, match=message.replace("train", "test")):
        GraphData(GRAPH, test=ids)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"x": np.zeros((3, 2))}, r"features x has 3 rows.*4 nodes"),
        ({"x": np.zeros(4)}, r"features x must be \[rows, F\].*\[4\].*\[:, None\]"),
        ({"x": [["a"]] * 4}, r"features x: numbers"),
        ({"x": np.zeros((4, 2), ">f4")}, r"features x: .*byte order.*>f4"),
        ({"x": np.zeros((4, 2), np.longdouble)}, r"features x: .*astype"),
        ({"x": torch.zeros(4, 2, device="meta")}, r"features x: .*meta.*\.cpu\(\)"),
        ({"y": [0, 1, 2, 3, 4]}, r"labels y has 5 rows.*4 nodes"),
        ({"y": torch.tensor(1)}, r"labels y must be \[N\] or \[N, C\].*\[\]"),
        ({"y": np.zeros((4, 1, 1))}, r"labels y must be \[N\] or \[N, C\].*\[4, 1, 1\]"),
    ],
)
def test_tables_that_do_not_fit_the_graph(tables, message: str) -> None:
    with pytest.raises(GraphDataError, match=message):
        GraphData(GRAPH, **tables)


def test_features_of_more_dimensions_keep_them() -> None:
    data = GraphData(GRAPH, np.arange(24.0).reshape(4, 2, 3))
    assert (data.x.shape, data.x.row_shape, data.num_features) == ((4, 6), (2, 3), 3)


def test_tables_are_not_copied() -> None:
    x, y = np.zeros((4, 3), np.float32), torch.arange(4)
    data = GraphData(GRAPH, x, y)
    assert data.x.rows.data_ptr() == x.ctypes.data
    assert data.y.data_ptr() == y.data_ptr()
    assert GraphData(GRAPH, store := MemoryFeatureStore(x)).x is store


def test_classes_are_counted_where_labels_are_used() -> None:
    # Nodes outside the splits may carry anything; their labels are no classes.
    labels = np.array([0, 2, 99, -1])
    assert GraphData(GRAPH, y=labels, train=[0], val=[1]).num_classes == 3
    assert GraphData(GRAPH, y=labels, train=[0], num_classes=7).num_classes == 7
    assert GraphData(GRAPH, y=labels).num_classes == 100


def test_ids_in_any_memory_layout() -> None:
    # One id reversed counts as contiguous in NumPy and has a stride that torch refuses; torch warns of read-only ids.
    backward, frozen = np.array([2])[::-1], np.array([1])
    frozen.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert GraphData(GRAPH, y=[0, 2, 1, 0], train=backward, val=frozen).num_classes == 3
    packed = np.array([2], np.int64).tobytes()
    misaligned = np.frombuffer(b"x" + packed, np.uint8)[1:].view(np.int64)
    assert GraphData(GRAPH, test=misaligned).test.flags.aligned


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.eye(4).to_sparse(), r"features x: a torch.sparse_coo tensor.*to_dense"),
        (torch.eye(4, device="meta"), r"features x: a tensor on meta"),
        (np.eye(4, dtype=np.longdouble), r"features x: torch has no float128"),
    ],
)
def test_tables_that_torch_does_not_hold(x, message: str) -> None:
    with pytest.raises(GraphDataError, match=message):
        GraphData(GRAPH, x=x)


@pytest.mark.parametrize("dtype", [np.ulonglong, np.longlong])
def test_integers_under_their_other_name(dtype) -> None:
    rows = np.arange(4, dtype=dtype).reshape(4, 1)
    assert GraphData(GRAPH, x=rows).x.rows.data_ptr() == rows.ctypes.data


@pytest.mark.parametrize("labels", [None, np.zeros(4), np.zeros((4, 2), np.int64)])
def test_classes_that_cannot_be_counted(labels) -> None:
    with pytest.raises(GraphDataError, match=r"num_classes=\.\.\."):
        _ = GraphData(GRAPH, y=labels).num_classes


def test_an_unknown_split_is_named() -> None:
    with pytest.raises(GraphDataError, match=r"'valid'.*train, val, test"):
        GraphData(GRAPH).split("valid")


@pytest.mark.parametrize("num_classes", [5.0, "5", True, np.True_, -1, np.float64(5), [5], np.array([5, 6])])
def test_a_number_of_classes_that_is_none_is_refused_at_once(num_classes) -> None:
    """It would be written to a folder that then cannot be read."""
    with pytest.raises(GraphDataError, match="num_classes is"):
        GraphData(Graph.from_coo([0], [1]), num_classes=num_classes)


@pytest.mark.parametrize("num_classes", [5, np.int64(5), np.uint8(5), torch.tensor(5)])
def test_a_number_of_classes_of_any_library_is_one(tmp_path, num_classes) -> None:
    data = GraphData(Graph.from_coo([0], [1]), num_classes=num_classes)
    assert type(data.num_classes) is int
    save_graph_data(data, tmp_path / "graph")
    assert load_graph_data(tmp_path / "graph").num_classes == 5

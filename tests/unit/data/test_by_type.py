"""Features, labels and splits that are given by type."""

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, MemoryFeatureStore, NodeTable
from lightning_gnnload.data.tables import EdgeTable
from lightning_gnnload.errors import GraphDataError

BUYS, BOUGHT = ("user", "buys", "item"), ("item", "bought", "user")
NAN = float("nan")


def graph(**change) -> Graph:
    edges = {BUYS: ([0, 1, 1], [2, 2, 0]), BOUGHT: ([2, 0], [1, 0])}
    return Graph.from_hetero({"user": 2, "item": 3, "tag": 0}, edges, **{"keep_order": True, **change})


def test_tables_of_a_type_have_widths_and_dtypes_of_their_own() -> None:
    users, items = np.ones((2, 5), np.float32), torch.ones(3, 2, 2).half()
    data = GraphData(graph(), {"user": users, "item": items}, tables={"item": {"year": [1, 2, 3]}})
    assert data.x is None
    assert list(data.stores) == ["x.user", "x.item", "year.item"]
    assert data.tables["x.user"].store.rows.data_ptr() == users.ctypes.data  # no copy
    assert data.tables["x.item"].nodes == range(2, 5)
    assert data.tables["x.item"].store.row_shape == (2, 2)
    assert {name: table.nodes for name, table in data.tables_of("item").items()} == {
        "x": range(2, 5),
        "year": range(2, 5),
    }
    assert data.tables_of("tag") == {}


def test_stores_are_put_in_front_of_tables_of_a_type() -> None:
    data = GraphData(graph(), {"item": torch.ones(3, 2)}, edge_x={BUYS: torch.ones(3, 1)})
    for name in data.stores:
        data.put(name, MemoryFeatureStore(torch.zeros(3, 4)))
    assert {name: store.shape for name, store in data.stores.items()} == dict.fromkeys(
        ["x.item", "edge.x.user__buys__item"], (3, 4)
    )
    assert data.tables["x.item"].nodes == range(2, 5)
    assert data.edge_tables["x.user__buys__item"].edge_type == BUYS


def test_tables_of_edges_by_type() -> None:
    rows = torch.arange(3.0)
    data = GraphData(graph(), edge_x={"buys": rows[:, None]}, edge_tables={BOUGHT: {"at": [5, 6]}, BUYS: {"at": rows}})
    assert list(data.stores) == ["edge.x.user__buys__item", "edge.at.item__bought__user", "edge.at.user__buys__item"]
    assert list(data.edge_tables_of("user__buys__item")) == ["x", "at"]
    assert repr(data.edge_tables_of(BOUGHT)["at"]) == "EdgeTable(item__bought__user, 2 edges, num_features=1)"
    assert isinstance(data.edge_tables["x.user__buys__item"], EdgeTable)


def test_the_graphs_weights_join_tables_by_type() -> None:
    typed = graph(edge_weight={BUYS: [0.5, 1.5, 2.5]})
    data = GraphData(typed, edge_x={BUYS: torch.ones(3, 1)}).with_graph_columns()
    assert data.edge_tables.keys() == {"x.user__buys__item", "edge_weight"}
    # In the order of the graph's edges: those of several lists have no other.
    assert data.edge_tables["edge_weight"].rows.view(-1).tolist() == typed.edge_weight.tolist()


@pytest.mark.parametrize(
    ("given", "dtype", "flat"),
    [
        (torch.tensor([3, -1, 0]), torch.int64, [-1, -1, 3, -1, 0]),
        (torch.tensor([3, 1, 0], dtype=torch.uint8), torch.int64, [-1, -1, 3, 1, 0]),
        (torch.tensor([True, False, True]), torch.int64, [-1, -1, 1, 0, 1]),
        (torch.tensor([3, 1, 0], dtype=torch.int32), torch.int32, [-1, -1, 3, 1, 0]),
        (torch.tensor([0.5, NAN, 1.0]), torch.float32, [NAN, NAN, 0.5, NAN, 1.0]),
        (torch.tensor([[0.5], [1.0], [2.0]]), torch.float32, [[NAN], [NAN], [0.5], [1.0], [2.0]]),
    ],
)
def test_labels_of_one_type(given, dtype, flat) -> None:
    data = GraphData(graph(), y={"item": given}, train={"item": [2, 0]})
    assert data.y.dtype is dtype
    np.testing.assert_array_equal(data.y.numpy(), np.array(flat))
    assert torch.equal(data.labels_of("item").nan_to_num(7), given.to(dtype).nan_to_num(7))
    assert data.train.tolist() == [4, 2]


def test_labels_and_splits_of_several_types() -> None:
    y = {"item": torch.tensor([3, 1, 0]), "user": torch.tensor([5, -1])}
    data = GraphData(graph(), y=y, train={"item": [1], "user": [0]}, val={"item": []}, test=[2])
    assert data.y.tolist() == [5, -1, 3, 1, 0]
    assert data.split("train").tolist() == [3, 0]
    assert data.split("train").dtype == np.int64
    assert data.split("train", "user").tolist() == [0]
    assert data.split("train", "item").tolist() == [1]
    assert (data.split("val").tolist(), data.split("test", "item").tolist()) == ([], [0])
    assert data.num_classes == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"x": {"shop": torch.ones(1)}}, "x: 'shop' is no node type of the graph"),
        ({"x": {"item": torch.ones(4, 1)}}, "table 'x.item' has 4 rows, but there are 3 nodes of this type"),
        ({"tables": {"item": {"a b": torch.ones(3)}}}, "'a b' cannot name a table"),
        ({"tables": {"item": {"year": torch.ones(2)}}}, "table 'year.item' has 2 rows"),
        ({"tables": {"year.shop": torch.ones(2)}}, "'year.shop' cannot name a table"),
        ({"tables": {"x.item": NodeTable(torch.ones(3), 1)}}, "table 'x.item' has 3 rows, but there are 3 nodes of"),
        ({"tables": {"positions": torch.ones(5)}}, "no table can be named 'positions'"),
        ({"y": {"item": [1, 2]}}, "labels y of 'item' has the shape \\[2\\], but there are 3 nodes"),
        ({"y": {"item": [1, 2, 3], "user": [0.5, 1.0]}}, "differ in dtype or width"),
        ({"y": {"item": torch.ones(3, 2), "user": torch.ones(2, 3)}}, "differ in dtype or width"),
        ({"y": {"item": torch.tensor(5)}}, "labels y of 'item' has the shape \\[\\]"),
        ({"y": {}}, "labels by node type is empty"),
        ({"y": {"shop": [1]}}, "y: 'shop' is no node type"),
        ({"train": {"shop": [1]}}, "train: 'shop' is no node type"),
        ({"train": {"item": [3]}}, r"train ids of 'item': id 3 at position 0 is not a node; ids must lie in \[0, 3\)"),
        ({"train": {"item": [1, 1]}}, "appears more than once"),
        ({"train": {"item": torch.tensor([True])}}, "train ids of 'item': a boolean mask of shape .*there are 3 nodes"),
        ({"y": {"item": [1, -1, 3]}, "val": {"item": [0, 1]}}, r"val: node 1 of type 'item' has no label \(\[-1\]\)"),
        ({"y": {"item": [1.0, NAN, 3.0]}, "val": {"item": [1]}}, r"val: node 1 of type 'item' has no label \(\[nan\]"),
        ({"y": {"item": [1, 2, 3]}, "test": {"user": [1]}}, "test: node 1 of type 'user' has no label"),
        ({"edge_x": {"sells": torch.ones(1)}}, "edge_x: 'sells' names no edge type"),
        ({"edge_x": {BUYS: torch.ones(2)}}, "table 'x.user__buys__item' has 2 rows, but there are 3 edges of this"),
        ({"edge_x": torch.ones(5, 1)}, "edge_x: rows of all edges .* Give a dict by edge type"),
        ({"edge_tables": {"at": torch.ones(5)}}, "'at' has rows of all edges.*Give tables by type"),
        ({"edge_tables": {BUYS: {"edge x": torch.ones(3)}}}, "'edge x' cannot name a table"),
    ],
)
def test_bad_input_is_named(settings, message: str) -> None:
    with pytest.raises(GraphDataError, match=message):
        GraphData(graph(), **settings)


def test_rows_with_gaps_in_some_columns_may_be_trained_on() -> None:
    y = torch.tensor([[1.0, NAN], [NAN, NAN], [0.0, 1.0]])  # of tasks of which a node has some
    assert GraphData(graph(), y={"item": y}, train={"item": [0, 2]}).y.shape == (5, 2)
    with pytest.raises(GraphDataError, match="node 1 of type 'item' has no label"):
        GraphData(graph(), y={"item": y}, train={"item": [0, 1]})


def test_edges_whose_order_is_lost_have_no_tables() -> None:
    with pytest.raises(GraphDataError, match=r"'x.user__buys__item'.*from_hetero\(\.\.\., keep_order=True\)"):
        GraphData(graph(keep_order=False), edge_x={BUYS: torch.ones(3, 1)})


@pytest.mark.parametrize(
    "settings",
    [
        {"x": {"item": torch.ones(3, 1)}},
        {"y": {"item": [1, 2, 3]}},
        {"train": {"item": [0]}},
        {"edge_x": {BUYS: [1.0]}},
    ],
)
def test_what_is_by_type_needs_a_graph_with_types(settings) -> None:
    with pytest.raises(GraphDataError, match=r"by type, but the graph has no types.*Graph\.from_hetero"):
        GraphData(Graph.from_coo([0, 1], [1, 2], 3), **settings)

import numpy as np
import pytest
import torch

from lightning_gnnload import FeatureStore, Graph, GraphData, MemoryFeatureStore, NodeTable
from lightning_gnnload.errors import GraphDataError

GRAPH = Graph.from_coo([0, 1, 2], [1, 2, 3])  # four nodes


def test_tables_are_not_copied() -> None:
    rows, store = np.zeros((4, 3), np.int8), MemoryFeatureStore(torch.zeros(2, 7))
    data = GraphData(GRAPH, tables={"age": rows, "paper": NodeTable(store, 1, 2)})
    assert data.tables["age"].rows.data_ptr() == rows.ctypes.data
    assert data.stores == {"age": data.tables["age"], "paper": store}
    assert data.tables["paper"].nodes == range(1, 3)


def test_tables_of_a_graph_without_are_empty() -> None:
    data = GraphData(GRAPH, np.zeros((4, 1)))
    assert (data.tables, data.edge_x, list(data.stores)) == ({}, None, ["x"])


def test_a_store_of_ones_own_is_a_table() -> None:
    class Zeros(FeatureStore):
        shape = (4, 2)
        dtype = torch.float16

        def gather(self, ids, out) -> None:
            out.zero_()

    store = Zeros()
    assert GraphData(GRAPH, tables={"zeros": store}).tables["zeros"] is store


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"age": np.zeros((3, 2))}, r"table 'age' has 3 rows, but the graph has 4 nodes.*NodeTable\(rows, first\)"),
        ({"age": np.zeros((5, 2))}, r"table 'age' has 5 rows, but the graph has 4 nodes"),
        ({"good": np.zeros((4, 2)), "age": np.zeros(5)}, r"table 'age' has 5 rows"),
        ({"age": torch.tensor(4.0)}, r"table 'age' must be \[rows, F\], but the shape is \[\]"),
        ({"age": [["a"]] * 4}, r"table 'age': numbers"),
        ({"age": [[1], [1, 2], [3], [4]]}, r"table 'age'"),  # rows of different widths
        ({"age": torch.zeros(4, 2, device="meta")}, r"table 'age': .*\.cpu\(\)"),
        ({"age": NodeTable(np.zeros((3, 1)), 2)}, r"table 'age' is for NodeTable\(nodes 2 to 4.*has 4 nodes"),
        ({"x": np.zeros((4, 1))}, r"no table can be named 'x'"),
        ({"y": np.zeros((4, 1))}, r"no table can be named 'y'"),
        ({"seeds": np.zeros((4, 1))}, r"no table can be named 'seeds'"),
        ({"../x": np.zeros((4, 1))}, r"'../x' cannot name a table"),
        ({"": np.zeros((4, 1))}, r"'' cannot name a table"),
        ({"2x": np.zeros((4, 1))}, r"'2x' cannot name a table.*Rename it, or leave it out"),
        ({"größe": np.zeros((4, 1))}, r"cannot name a table: ASCII"),
        ({3: np.zeros((4, 1))}, r"3 cannot name a table"),
        ([np.zeros((4, 1))], r"dict of tables by name.*list"),
    ],
)
def test_tables_that_do_not_fit_the_graph(tables, message: str) -> None:
    with pytest.raises(GraphDataError, match=message):
        GraphData(GRAPH, tables=tables)


@pytest.mark.parametrize(
    ("first", "count", "message"),
    [
        (0, 3, r"2 rows were given for 3 nodes"),
        (0, 0, r"2 rows were given for 0 nodes"),
        (-1, 2, r"first=-1"),
        (1.0, 2, r"first=1.0"),
        (True, 2, r"first=True"),
        (0, "2", r"count='2'"),
    ],
)
def test_node_tables_that_are_none(first, count, message: str) -> None:
    with pytest.raises(GraphDataError, match=message):
        NodeTable(np.zeros((2, 1)), first, count)


def test_one_row_an_edge() -> None:
    graph = Graph.from_csc([0, 0, 1, 2, 3], [0, 1, 2])
    assert GraphData(graph, edge_x=np.zeros((3, 2))).edge_x.shape == (3, 2)
    with pytest.raises(GraphDataError, match=r"edge_x has 4 rows, but the graph has 3 edges"):
        GraphData(graph, edge_x=np.zeros((4, 2)))
    with pytest.raises(GraphDataError, match=r"edge_x must be \[rows, F\]"):
        GraphData(graph, edge_x=np.zeros(3))


def test_edge_features_need_the_order_of_the_edges() -> None:
    # Taken for rows in the order of the graph's own arrays, they would go to other edges without a word.
    with pytest.raises(GraphDataError, match=r"did not keep the order.*keep_order=True"):
        GraphData(GRAPH, edge_x=np.zeros((3, 2)))
    assert GraphData(Graph.from_coo([0, 1], [1, 0], keep_order=True), edge_x=np.zeros((2, 5))).edge_x is not None


def test_edge_tables_by_name() -> None:
    graph = Graph.from_csc([0, 0, 1, 2, 3], [0, 1, 2], edge_weight=[0.5, 1.0, 2.0])
    data = GraphData(graph, tables={"age": np.zeros(4)}, edge_tables={"age": [1, 2, 3]})
    assert data.edge_tables["age"].row_shape == ()
    assert list(data.stores) == ["age", "edge.age"]  # the same name twice is common in DGL's graphs
    for tables, message in (
        ({"when": [1, 2]}, r"edge table 'when' has 2 rows, but the graph has 3 edges"),
        ({"x": [1, 2, 3]}, r"no table can be named 'x'"),
        ([1, 2, 3], r"edge_tables must be a dict of tables by name, but it is a list"),
    ):
        with pytest.raises(GraphDataError, match=message):
            GraphData(graph, tables={"age": np.zeros(4)}, edge_tables=tables)
    with pytest.raises(GraphDataError, match=r"edge table 'when': its rows cannot be matched.*keep_order=True"):
        GraphData(GRAPH, edge_tables={"when": [1, 2, 3]})


@pytest.mark.parametrize("keep_order", [True, False])
def test_the_graphs_weights_and_types_are_edge_tables_unless_others_were_named(keep_order: bool) -> None:
    src, dst, weight = [2, 0, 1, 0], [1, 2, 0, 1], np.array([0.25, 0.5, 1.0, 2.0])
    graph = Graph.from_coo(src, dst, edge_weight=weight, edge_type=[3, 2, 1, 0], keep_order=keep_order)
    data = GraphData(graph).with_graph_columns()
    found = data.edge_tables["edge_weight"].rows[:, 0].numpy()
    assert np.array_equal(found, weight if keep_order else graph.edge_weight)  # in the order that edge ids count in
    assert data.edge_tables["edge_type"].rows[:, 0].tolist() == (
        [3, 2, 1, 0] if keep_order else graph.edge_type.tolist()
    )
    assert GraphData(graph, edge_tables={}).with_graph_columns().edge_tables == {}

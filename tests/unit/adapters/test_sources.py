"""GraphData of other libraries' graphs: what it carries, and what it refuses or reports by name."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import GraphData, GraphDataModule, NeighborSampler
from lightning_gnnload.errors import GraphDataError
from tests.runif import RunIf

needs_dgl, needs_pyg = RunIf(extras="dgl"), RunIf(extras="pyg")


def edges_of(data: GraphData) -> set[tuple[int, int]]:
    dst = np.repeat(np.arange(data.num_nodes), data.graph.in_degrees)
    return set(zip(data.graph.indices.tolist(), dst.tolist(), strict=True))


def given_rows(data: GraphData, name: str) -> list[Any]:
    return data.edge_tables[name].rows[:, 0].tolist()  # type: ignore[union-attr]


READERS = ["from_pyg", "from_dgl", "from_networkx", "from_scipy", "from_edge_list", "from_tables"]


@pytest.mark.parametrize("name", READERS)
def test_help_on_a_reader_is_that_of_the_function_beside_its_format(name: str) -> None:
    reader = getattr(GraphData, name)
    assert (reader.__name__, reader.__module__.split(".")[1] in ("adapters", "ingest")) == (name, True)
    assert inspect.signature(reader).return_annotation == "GraphData"
    assert len(inspect.signature(reader).parameters) > 1
    assert f"GraphData.{name}(" in reader.__doc__
    assert "Raises:" in reader.__doc__


# PyG


def a_data(**more: Any) -> Any:
    from torch_geometric.data import Data

    return Data(x=torch.randn(5, 2), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), **more)


@needs_pyg
@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"name": "toy", "num_classes": 3}, ["'name'", "'num_classes'"]),
        ({"y": torch.tensor([1])}, ["'y'"]),  # of the whole graph: no label of a node
        ({"mystery": torch.zeros(7)}, ["'mystery'"]),
        ({"ptr": torch.tensor([0, 5])}, ["'ptr'"]),
        ({"edge_label_index": torch.zeros(2, 3, dtype=torch.long)}, ["'edge_label_index'", "SeedTable"]),
        ({"adj_t": torch.eye(5).to_sparse()}, ["'adj_t'"]),
    ],
)
def test_what_a_data_says_of_the_whole_graph_is_reported_once(more: dict[str, Any], names: list[str]) -> None:
    with pytest.warns(UserWarning, match="of the PyG graph") as told:
        data = GraphData.from_pyg(a_data(**more))
    [only] = [each for each in told if "PyG graph" in str(each.message)]
    assert all(name in str(only.message) for name in names)
    assert only.filename == __file__  # where the user called it
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        without = GraphData.from_pyg(a_data(**more), without=list(more))
    assert edges_of(without) == edges_of(data) == {(0, 1), (1, 2), (2, 3), (3, 4)}


@needs_pyg
def test_a_data_module_repeats_it_and_is_silent_unless_its_format_cannot() -> None:
    mine = a_data(name="toy", train_mask=torch.ones(5, dtype=torch.bool))
    sampler = NeighborSampler([-1], expand="new")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        module = GraphDataModule.from_pyg(mine, sampler=sampler, batch_size=5)
    assert next(iter(module.train_dataloader())).name == "toy"
    with pytest.warns(UserWarning, match="'name' of the PyG graph"):
        GraphDataModule.from_pyg(mine, sampler=sampler, batch_size=5, batch_format="blocks")
    module = GraphDataModule.from_pyg(mine, sampler=sampler, batch_size=5, without="name")
    assert "name" not in next(iter(module.train_dataloader()))


@needs_pyg
@pytest.mark.parametrize("name", ["edge_attr", "edge_weight", "train_mask"])
def test_rows_of_a_wrong_number_are_refused(name: str) -> None:
    with pytest.raises(GraphDataError, match=rf"'{name}' of the PyG graph has 7 rows, but there are 5 nodes and 4"):
        GraphData.from_pyg(a_data(**{name: torch.ones(7)}))


@needs_pyg
def test_a_hetero_data_loses_nothing_in_silence() -> None:
    from torch_geometric.data import HeteroData

    data = HeteroData(source="shop")
    data["user"].x, data["user"].title, data["user"].name = torch.randn(3, 2), "people", ["ann", "bob", "cleo"]
    data["item"].x = torch.randn(2, 4)
    data["user", "buys", "item"].edge_index = torch.tensor([[0, 2], [1, 0]])
    data["user", "buys", "item"].since = "2024"
    with pytest.raises(GraphDataError, match=r"'name' of the PyG graph is a list.*user_ids='name'"):
        GraphData.from_pyg(data, without=["source", "title", "since"])
    with pytest.warns(
        UserWarning, match=r"'source', 'title' of user, 'since' of \('user', 'buys', 'item'\) of the PyG"
    ):
        mine = GraphData.from_pyg(data, user_ids="name")
    assert mine.user_ids["user"].take([2]).tolist() == ["cleo"]
    assert set(mine.user_ids) == {"user"}
    data["item"].x = torch.randn(3, 4)
    data["item"].num_nodes = 2
    with pytest.raises(GraphDataError, match="'x' of the PyG graph of item has 3 rows, but there are 2 nodes"):
        GraphData.from_pyg(data, without=["source", "title", "since", "name"])


@needs_pyg
def test_ids_of_the_user_are_no_table() -> None:
    data = GraphData.from_pyg(a_data(n_id=torch.tensor([70, 71, 72, 73, 74])), user_ids="n_id")
    assert (data.user_ids[""].take([4]).tolist(), data.user_ids[""].column, data.tables) == ([74], "n_id", {})
    with pytest.raises(GraphDataError, match=r"without='nam', but the PyG graph holds only .*'x'"):
        GraphData.from_pyg(a_data(), without="nam")
    mine = a_data()
    GraphData.from_pyg(mine, without=["x"])
    assert "x" in mine  # the caller's own


# DGL


@needs_dgl
def test_a_dgl_graph_loses_nothing_in_silence() -> None:
    import dgl

    whole = dgl.graph(([0, 1, 2, 3], [1, 2, 3, 4]))
    whole.ndata["year"], whole.edata["w"] = torch.arange(5), torch.rand(4)
    part = dgl.node_subgraph(whole, [1, 2, 3])
    with pytest.warns(UserWarning, match="columns '_ID'.*user_ids='_ID'") as told:
        GraphData.from_dgl(part)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        data = GraphData.from_dgl(part, user_ids=dgl.NID)
        assert GraphData.from_dgl(part, without=[dgl.NID, "year"]).tables == {}
    assert data.user_ids[""].take([0, 1, 2]).tolist() == [1, 2, 3]
    assert (set(data.tables), set(data.edge_tables)) == ({"year"}, {"w"})
    assert dgl.NID in part.ndata
    assert "year" in part.ndata
    with pytest.raises(GraphDataError, match="without='yaer', but the graph holds only"):
        GraphData.from_dgl(whole, without=["yaer"])
    with pytest.warns(UserWarning, match="a batch of 2 graphs"):
        GraphData.from_dgl(dgl.batch([whole, whole]))


@needs_dgl
def test_ids_of_a_dgl_graph_with_types() -> None:
    import dgl

    shop = dgl.heterograph({("user", "buys", "item"): ([0, 1], [1, 0])})
    shop.nodes["user"].data["customer"] = torch.tensor([900, 901])
    data = GraphData.from_dgl(shop, user_ids="customer")
    assert (set(data.user_ids), data.user_ids["user"].take([1]).tolist(), data.tables) == ({"user"}, [901], {})


# NetworkX


def test_a_networkx_graph_carries_nodes_edges_and_attributes() -> None:
    nx = pytest.importorskip("networkx")
    graph = nx.DiGraph()
    for k, name in enumerate(["ann", "bob", "cleo"]):
        graph.add_node(name, x=[k, 0.5], y=k % 2, train_mask=k > 0, age=20 + k)
    graph.add_edge("ann", "bob", weight=0.5, kind=3)
    graph.add_edge("cleo", "bob", weight=2.0, kind=4)
    data = GraphData.from_networkx(graph)
    assert edges_of(data) == {(0, 1), (2, 1)}
    assert data.user_ids[""].take([0, 1, 2]).tolist() == ["ann", "bob", "cleo"]
    assert (data.x.rows.dtype, data.x.rows.tolist()) == (torch.float32, [[0, 0.5], [1, 0.5], [2, 0.5]])
    assert (data.y.tolist(), data.train.tolist()) == ([0, 1, 0], [1, 2])
    assert (set(data.tables), given_rows(data, "kind"), given_rows(data, "weight")) == (
        {"age", "train_mask"},
        [3, 4],
        [0.5, 2.0],
    )
    assert data.graph.edge_weight[data.graph.edge_order].tolist() == [0.5, 2.0]


@pytest.mark.parametrize("name", ["x", "y"])
def test_numbers_beyond_float32_are_refused_by_name(name: str) -> None:
    graph = pytest.importorskip("networkx").DiGraph([(0, 1)])
    for node, value in enumerate((1.0, 1e39)):
        graph.add_node(node, **{name: value})
    with pytest.raises(GraphDataError, match=rf"attribute '{name}' of nodes\[1.*\] is 1e\+39, as 1 are, but float32"):
        GraphData.from_networkx(graph)


def test_an_undirected_graph_goes_both_ways_and_loops_once() -> None:
    nx = pytest.importorskip("networkx")
    graph = nx.Graph()
    graph.add_node(0)
    graph.add_edge(1, 0, w=5)
    graph.add_edge(1, 1, w=7)
    data = GraphData.from_networkx(graph)
    assert edges_of(data) == {(1, 0), (0, 1), (1, 1)}
    assert sorted(given_rows(data, "w")) == [5, 5, 7]
    assert data.user_ids == {}  # its keys are the numbers themselves


@pytest.mark.parametrize(
    ("keys", "ids"),
    [([7, 3], [7, 3]), ([(0, 1), 2.5], ["(0, 1)", "2.5"]), ([1, "a"], ["1", "a"]), ([True, 5], ["True", "5"])],
)
def test_keys_of_any_kind_become_the_users_ids(keys: list[Any], ids: list[Any]) -> None:
    nx = pytest.importorskip("networkx")
    graph = nx.DiGraph()
    graph.add_nodes_from(keys)
    assert GraphData.from_networkx(graph).user_ids[""].take([0, 1]).tolist() == ids


def test_keys_of_a_multigraph() -> None:
    nx = pytest.importorskip("networkx")
    graph = nx.MultiDiGraph([(0, 1), (0, 1)])  # keys 0 and 1, which only count
    assert GraphData.from_networkx(graph).edge_tables == {}
    graph.add_edge(0, 1, key=7)
    assert given_rows(GraphData.from_networkx(graph), "key") == [0, 1, 7]
    graph.add_edge(0, 1, key="likes")
    with pytest.raises(GraphDataError, match=r"attribute 'key' of edges is .*without=\['key'\]"):
        GraphData.from_networkx(graph)
    assert GraphData.from_networkx(graph, without="key").graph.num_edges == 4


@pytest.mark.parametrize(
    ("attributes", "settings", "says"),
    [
        ([{"age": 1}, {}], {}, "1 of 2 nodes have no attribute 'age', the first is 'b'"),
        ([{"age": 1}, {"age": "old"}], {}, r"attribute 'age' of nodes is 'old', a str.*without=\['age'\]"),
        ([{"age": 1}, {"age": None}], {}, "attribute 'age' of nodes is None, a NoneType"),
        ([{"at": [1, 2]}, {"at": [1]}], {}, r"attribute 'at' of nodes is \[1, 2\], a list.*as many numbers"),
        ([{}, {}], {"without": ["age"]}, "without='age', but the NetworkX graph holds only"),
        ([{}, {}], {"feature_name": "feat"}, "feature_name='feat'"),
        ([{}, {}], {"edge_weight_name": "w"}, "edge_weight_name='w'"),
    ],
)
def test_mixed_and_missing_values_are_refused_by_name(
    attributes: list[dict[str, Any]], settings: dict[str, Any], says: str
) -> None:
    nx = pytest.importorskip("networkx")
    graph = nx.DiGraph()
    for key, each in zip("ab", attributes, strict=True):
        graph.add_node(key, **each)
    with pytest.raises(GraphDataError, match=says):
        GraphData.from_networkx(graph, **settings)


def test_what_a_networkx_graph_says_of_itself_is_reported() -> None:
    nx = pytest.importorskip("networkx")
    graph = nx.DiGraph(source="web")
    with pytest.warns(UserWarning, match="'source' of the NetworkX graph") as told:
        GraphData.from_networkx(graph)
    assert told[0].filename == __file__
    twins = nx.DiGraph([(1, "1")])
    with pytest.raises(GraphDataError, match="several nodes of the NetworkX graph are '1' as text"):
        GraphData.from_networkx(twins)
    with pytest.raises(GraphDataError, match="a NetworkX graph is needed, but a dict"):
        GraphData.from_networkx({})


# SciPy


@pytest.mark.parametrize("form", ["csr_array", "csc_matrix", "coo_matrix", "lil_matrix", "dok_array"])
@pytest.mark.parametrize("orientation", ["src_dst", "dst_src"])
def test_a_sparse_matrix_of_any_format(form: str, orientation: Any) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.array([[0, 2.5, 0], [0, 0, 1], [0.5, 0, 0]])
    data = GraphData.from_scipy(getattr(sparse, form)(dense), orientation=orientation, x=np.ones((3, 1)), train=[0])
    wanted = {(i, j): dense[i, j] for i, j in zip(*np.nonzero(dense), strict=True)}
    if orientation == "dst_src":
        wanted = {(j, i): weight for (i, j), weight in wanted.items()}
    assert edges_of(data) == set(wanted)
    dst = np.repeat(np.arange(3), data.graph.in_degrees)
    ends = zip(data.graph.indices.tolist(), dst.tolist(), strict=True)
    assert [wanted[each] for each in ends] == data.graph.edge_weight.tolist()
    assert (sorted(given_rows(data, "edge_weight")), data.train.tolist()) == ([0.5, 1, 2.5], [0])


def test_entries_of_one_are_no_weights_and_zeros_are_reported() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    ones = GraphData.from_scipy(sparse.csr_array(np.eye(3, dtype=bool)))
    assert (ones.graph.edge_weight, ones.edge_tables) == (None, {})
    with_zero = sparse.coo_array(([1.0, 0.0], ([0, 1], [1, 2])), shape=(3, 3))
    with pytest.warns(UserWarning, match=r"1 stored entries are 0.*eliminate_zeros"):
        assert GraphData.from_scipy(with_zero).graph.num_edges == 2
    negative = sparse.coo_array(([-1.0, 2.0], ([0, 1], [1, 2])), shape=(3, 3))
    with pytest.warns(UserWarning, match="no sampler can draw by it"):
        assert given_rows(GraphData.from_scipy(negative), "edge_weight") == [-1, 2]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda sparse: (np.eye(2),), r"sparse matrix or array of SciPy is needed, but a ndarray.*csr_array"),
        (lambda sparse: (sparse.random(2, 3, 0.5),), r"shape \[2, 3\].*Graph.from_hetero"),
    ],
)
def test_what_is_no_adjacency_is_refused(make: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(GraphDataError, match=says):
        GraphData.from_scipy(*make(pytest.importorskip("scipy.sparse")))
    with pytest.raises(GraphDataError, match="orientation='rows' is not known"):
        GraphData.from_scipy(pytest.importorskip("scipy.sparse").eye(3), orientation="rows")


# Lists of edges

PAIRS = [(0, 1), (1, 2), (2, 0)]


@pytest.mark.parametrize(
    "edges",
    [
        PAIRS,
        np.array(PAIRS),
        np.array(PAIRS).T,
        torch.tensor(PAIRS),
        torch.tensor(PAIRS).T,
        {"src": [0, 1, 2], "dst": [1, 2, 0]},
    ],
)
def test_edges_in_any_shape(edges: Any) -> None:
    data = GraphData.from_edge_list(edges, y=[0, 1, 0], train=[2])
    assert edges_of(data) == set(PAIRS)
    assert (data.y.tolist(), data.train.tolist(), data.user_ids) == ([0, 1, 0], [2], {})


def test_a_data_frame_carries_its_columns() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"who": ["bob", "ann"], "whom": ["ann", "cleo"], "w": [0.5, 2.0], "at": pandas.to_datetime([5, 9], unit="s")}
    )
    data = GraphData.from_edge_list(frame, src="who", dst="whom", edge_weight_name="w", time_name="at")
    assert data.user_ids[""].take([0, 1, 2]).tolist() == ["ann", "bob", "cleo"]
    assert edges_of(data) == {(1, 0), (0, 2)}
    assert given_rows(data, "w") == [0.5, 2.0]
    assert (data.graph.clock is not None, data.graph.edge_weight[data.graph.edge_order].tolist()) == (True, [0.5, 2.0])
    later, sooner = reversed(given_rows(data, "at"))
    assert later > sooner
    nodes = ["dora", "cleo", "bob", "ann"]
    data = GraphData.from_edge_list(frame, src="who", dst="whom", nodes=nodes, without=["w", "at"])
    assert (edges_of(data), data.num_nodes, data.edge_tables) == ({(2, 3), (3, 1)}, 4, {})


@needs_pyg
def test_batches_carry_every_attribute_of_other_graphs() -> None:
    nx = pytest.importorskip("networkx")
    drawn = np.random.default_rng(0).integers(30, size=(200, 2))
    graph = nx.MultiDiGraph()
    graph.add_nodes_from((node, {"x": [node, 0.0], "y": node % 3, "age": node * 7}) for node in range(30))
    graph.add_edges_from((src, dst, {"weight": 1.0 + src + 100 * dst}) for src, dst in drawn.tolist())
    columns = {"src": drawn[:, 0], "dst": drawn[:, 1], "weight": 1.0 + drawn @ [1, 100]}
    of_nodes = {
        "x": np.arange(60).reshape(30, 2) // 2 * [1, 0],
        "y": np.arange(30) % 3,
        "tables": {"age": np.arange(30) * 7},
    }
    for data in (
        GraphData.from_networkx(graph, train=range(30)),
        GraphData.from_edge_list(columns, edge_weight_name="weight", train=range(30), **of_nodes),
    ):
        sampler = NeighborSampler([3, 2], expand="new", edge_ids=True)
        module = GraphDataModule(data, sampler, batch_size=10, batch_format="pyg", num_threads=0)
        for batch in module.train_dataloader():
            src, dst = batch.n_id[batch.edge_index]
            assert batch.weight.tolist() == (1.0 + src + 100 * dst).tolist()
            assert batch.x[:, 0].tolist() == batch.n_id.tolist()
            assert batch.age.tolist() == (batch.n_id * 7).tolist()
            assert batch.y.tolist() == (batch.n_id[:10] % 3).tolist()


def test_numbers_that_are_ids() -> None:
    edges = {"src": [10**12, 7], "dst": [7, 10**12]}
    with pytest.raises(GraphDataError, match=r"go up to 1000000000000.*nodes=numpy.unique"):
        GraphData.from_edge_list(edges)
    data = GraphData.from_edge_list(edges, nodes=[7, 10**12])
    assert (edges_of(data), data.user_ids[""].take([1]).tolist()) == ({(0, 1), (1, 0)}, [10**12])
    with pytest.raises(GraphDataError, match="1 of 2 ids are unknown, the first is 1000000000000"):
        GraphData.from_edge_list(edges, nodes=[7, 8])


@pytest.mark.parametrize(
    ("edges", "settings", "says"),
    [
        ([(0, 1), (1, 2)], {}, r"2 by 2 may have an edge a row.*'src': sources"),
        ([("a", "b"), ("b", "c")], {}, "2 by 2"),
        (np.zeros((3, 3), int), {}, r"\[2, E\] or \[E, 2\] is needed, but the shape is \[3, 3\]"),
        (np.zeros((2, 3)), {}, "whole numbers or texts are needed, but there is 0.0"),
        ({"src": [0], "dst": ["a"]}, {}, "one end of the edges is text"),
        ({"src": ["a", None], "dst": ["b", "c"]}, {}, "there is None. Remove edges without an end"),
        ({"source": [0], "dst": [1]}, {}, r"src='src', but the edge list holds only \['dst', 'source'\]"),
        ({"src": [0], "dst": [1], "kind": ["x"]}, {}, r"column 'kind' of the edge list is 'x', a str.*without"),
        ({"src": [0], "dst": [1]}, {"time_name": "at"}, "time_name='at'"),
        ({"src": ["a"], "dst": ["b"]}, {"num_nodes": 5}, "num_nodes=5 is for ends that are numbers of nodes"),
    ],
)
def test_what_is_no_edge_list_is_refused(edges: Any, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(GraphDataError, match=says):
        GraphData.from_edge_list(edges, **settings)


def test_a_text_file_of_two_columns(tmp_path: Path) -> None:
    file = tmp_path / "snap.txt"
    file.write_text("# FromNodeId\tToNodeId\n0\t1\n1\t2\n% more\n2 0\n")
    assert edges_of(GraphData.from_edge_list(file)) == set(PAIRS)
    file.write_text("0 1\n1 2\n")  # two edges, which a file cannot leave open
    assert edges_of(GraphData.from_edge_list(str(file))) == {(0, 1), (1, 2)}
    file.write_text("0 a\n")
    with pytest.raises(GraphDataError, match=r"snap.txt: two whole numbers a line.*gnnload build"):
        GraphData.from_edge_list(file)

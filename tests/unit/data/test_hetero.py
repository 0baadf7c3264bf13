"""Graphs with types and times: their arrays against a plain sort, and what is refused."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_gnnload import Graph
from lightning_gnnload.data.clock import Clock
from lightning_gnnload.data.edge_lists import ALWAYS
from lightning_gnnload.errors import GnnLoadError, GraphFormatError
from tests.oracle.runs import typed_graph

BUYS, BOUGHT, LIKES = ("user", "buys", "item"), ("item", "bought", "user"), ("user", "likes", "user")
FRACTIONS = [0.5, 1.0, 2.0]


@st.composite
def hetero(draw):
    """The arguments of from_hetero, as lists: types without nodes, empty lists, ties, types with and without times."""
    num_nodes = {name: draw(st.integers(0, 4)) for name in ("user", "tag", "item")}
    edges, edge_time, edge_weight = {}, {}, {}
    for kind in draw(st.permutations([BUYS, BOUGHT, LIKES])):
        most = 12 if num_nodes[kind[0]] and num_nodes[kind[2]] else 0
        pairs = draw(
            st.lists(
                st.tuples(*(st.integers(0, max(num_nodes[end] - 1, 0)) for end in (kind[0], kind[2]))), max_size=most
            )
        )
        edges[kind] = [src for src, _ in pairs], [dst for _, dst in pairs]
        size = {"min_size": len(pairs), "max_size": len(pairs)}
        if draw(st.booleans()):
            edge_time[kind] = draw(st.lists(st.integers(-3, 3), **size))
        if draw(st.booleans()):
            edge_weight[kind] = draw(st.lists(st.sampled_from(FRACTIONS), **size))
    node_time = {
        name: draw(st.lists(st.integers(-4, 4), min_size=count, max_size=count))
        for name, count in num_nodes.items()
        if draw(st.booleans())
    }
    return num_nodes, edges, edge_time, node_time, edge_weight


@given(hetero(), st.sampled_from([np.int32, np.int64]))
def test_the_arrays_are_those_of_one_sort(given, dtype) -> None:
    num_nodes, edges, edge_time, node_time, edge_weight = given
    graph = Graph.from_hetero(
        num_nodes,
        {kind: tuple(np.array(ids, dtype) for ids in ends) for kind, ends in edges.items()},
        edge_time={kind: np.array(times, np.int64) for kind, times in edge_time.items()},
        node_time={name: np.array(times, np.int64) for name, times in node_time.items()},
        edge_weight={kind: np.array(rows, np.float64) for kind, rows in edge_weight.items()},
        keep_order=True,
    )
    wanted = typed_graph(*given)
    for name in ("indptr", "run_ptr", "indices", "edge_order"):
        assert getattr(graph, name).tolist() == wanted[name], name
    assert (graph.edge_time is None) == (not edge_time and not node_time)
    if graph.edge_time is not None:
        assert graph.edge_time.tolist() == wanted["edge_time"]
        assert graph.clock.timed.tolist() == [kind in edge_time or kind[0] in node_time for kind in edges]
    assert (graph.edge_weight is None) == (not edge_weight)
    if edge_weight:
        assert graph.edge_weight.tolist() == wanted["edge_weight"]
    if node_time:
        always = [time for name, n in num_nodes.items() for time in node_time.get(name, [ALWAYS] * n)]
        assert graph.node_time.tolist() == always


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(-3, 3)), max_size=30), st.booleans())
def test_lists_of_one_type_lie_in_the_order_of_their_times(edges, of_nodes: bool) -> None:
    src, dst, time = np.array(edges, np.int64).reshape(-1, 3).T
    node_time = np.array([0, 5, -5, 1, 1]) if of_nodes else None
    graph = Graph.from_coo(src, dst, 5, edge_time=time, node_time=node_time, edge_weight=time + 4.0, keep_order=True)
    since = np.maximum(time, node_time[src]) if of_nodes else time
    order = np.lexsort((np.arange(len(src)), since, dst))
    assert graph.edge_order.tolist() == order.tolist()
    assert graph.edge_order.dtype == np.int32
    assert graph.indices.tolist() == src[order].tolist()
    assert graph.edge_weight.tolist() == (time + 4.0)[order].tolist()
    assert graph.edge_time.tolist() == graph.clock.codes(since[order]).tolist()
    assert (graph.types, graph.run_ptr) == (None, None)


def example(**change) -> Graph:
    settings = {
        "num_nodes": {"user": 2, "item": 3},
        "edges": {BUYS: ([0, 1, 1], [2, 2, 0]), BOUGHT: ([2, 0], [1, 0])},
        "edge_time": {BUYS: [7, 5, 9]},
        "node_time": {"user": [0, 8]},
    }
    return Graph.from_hetero(**{**settings, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_time": {BUYS: ["a", "b", "c"]}}, r"edge_time of \('user', 'buys', 'item'\)"),
        ({"edge_time": {BUYS: [True, False, True]}}, r"edge_time of \('user', 'buys', 'item'\): times must be numbers"),
        ({"edge_time": {BUYS: None}}, r"edge_time of \('user', 'buys', 'item'\)"),
        ({"edge_time": {BUYS: [1.0, np.nan, 2.0]}}, r"edge_time of .*buys.*\[1\] is no time"),
        ({"edge_time": {BUYS: np.array(["2020", "NaT", "2021"], "M8[s]")}}, r"buys.*\[1\] is no time"),
        ({"edge_time": {BUYS: torch.zeros(3, dtype=torch.bfloat16)}}, r"buys.*bfloat16"),
        ({"edge_time": {BUYS: [1, 2]}}, r"edge_time of .*buys.* \[2\], but there are 3 edges"),
        ({"edge_time": {LIKES: [1, 2]}}, r"edge_time names \('user', 'likes', 'user'\), which is not one"),
        ({"edge_time": {BUYS: [1.5, 2.5, 3.5]}}, "of several kinds, out of whole numbers, fractions and dates"),
        ({"edge_time": {BUYS: np.array(["2020"] * 3, "M8[D]")}}, "of several kinds"),
        ({"node_time": {"item": [1, 2]}}, r"node_time of 'item' .* \[2\], but there are 3 nodes"),
        ({"node_time": {"tag": [1, 2]}}, "node_time names 'tag'"),
        ({"edge_weight": {BUYS: [1, 2, 3]}}, "edge_weight must be floats"),
        ({"edge_weight": {BUYS: [1.0, 2.0]}}, r"edge_weight of .*buys"),
        ({"num_nodes": {"user": 2}}, r"names the node type 'item', which is not among"),
        ({"num_nodes": {"user": 2, "item": -3}}, "one count of 0 or more"),
        ({"num_nodes": {"user": 2, "item": 2.5}}, "num_nodes of 'item' is 2.5"),
        ({"num_nodes": {"user": 2, "item": 2**62}}, "too many"),
        ({"num_nodes": {"user": 2, "item": 2}}, r"buys.*edge 0 has the target 2, but there are 2 such nodes"),
        ({"num_nodes": {"user": 2, "item": 0}}, r"buys.*edge 0 has the target 2, but there are 0 such nodes"),
        (
            {"num_nodes": {"user": 1, "item": 3}, "node_time": {"user": [1]}},
            r"buys.*edge 1 has the source 1, but there are 1 such nodes",
        ),
        ({"num_nodes": {3: 2, "user": 2, "item": 3}}, "3 is no node type"),
        ({"edges": {"buys": ([0], [0])}}, "'buys' is no edge type"),
        ({"edges": {BUYS: ([0], [0], [0])}}, r"must be \(src, dst\) or \[2, E\]: too many values"),
        ({"edges": {BUYS: ([0], [0, 1])}}, "sources has 1 entries but targets has 2"),
        ({"edges": {BUYS: ([0.5], [0])}}, "sources must be integers"),
        ({"edges": {BUYS: ([-1, 0, 0], [0, 0, 0])}}, "edge 0 has the source -1"),
        ({"edges": {BUYS: 5}}, r"buys.* must be \(src, dst\) or \[2, E\]: cannot unpack"),
        ({"edges": [BUYS]}, "edges must be a dict by type, but it is a list"),
        ({"edges": None}, "edges must be a dict by type"),
        ({"num_nodes": 5}, "num_nodes must be a dict by type, but it is a int"),
        ({"edge_weight": np.ones(3)}, "edge_weight must be a dict by type, but it is a ndarray"),
        ({"edge_time": [1, 2, 3]}, "edge_time must be a dict"),
        ({"node_time": [1, 2, 3]}, "node_time must be a dict"),
    ],
)
def test_bad_input_is_named(change, message: str) -> None:
    with pytest.raises(GnnLoadError, match=message):
        example(**change)


def test_types_without_edges_have_times_of_any_kind() -> None:
    days = np.array(["2020-01-01", "2020-01-03", "2020-01-02"], "M8[D]")
    graph = example(
        edges={BUYS: ([0, 1, 1], [2, 2, 0]), BOUGHT: ([], [])},
        edge_time={BUYS: days, BOUGHT: []},
        num_nodes={"user": 2, "item": 3, "tag": 0},
        node_time={"user": days[:2], "tag": []},
    )
    assert graph.clock.has_dates
    assert Clock.from_json(graph.clock.to_json(), None).has_dates
    assert graph.node_time.dtype == np.int64
    assert not example().clock.has_dates


def test_times_of_flat_graphs_that_cannot_be() -> None:
    with pytest.raises(GraphFormatError, match=r"edge types lie in \[-1, -1\]"):
        Graph.from_coo([0], [1], edge_type=[-1], edge_time=[3])
    with pytest.raises(GraphFormatError, match="edge_time has 2 entries for 1 edges"):
        Graph.from_coo([0], [1], edge_time=[3, 4])
    with pytest.raises(GraphFormatError, match="node_time has 1 entries for 2 nodes"):
        Graph.from_coo([0], [1], node_time=[3])
    for num_nodes in (-1, 2**48, 2**60, 2**64):
        with pytest.raises(GraphFormatError, match=f"num_nodes is {num_nodes}, but must lie"):
            Graph.from_coo([0], [1], num_nodes, node_time=[3, 4])
    with pytest.raises(GraphFormatError, match="edge 0 has the source 9, but there are 2 such nodes"):
        Graph.from_coo([9], [1], 2, node_time=[3, 4])


def spoiled(graph: Graph, **change) -> Graph:
    held = {name: getattr(graph, name) for name in (*Graph.ARRAYS, "types", "clock")}
    return Graph(**{**held, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"types": None}, "types and run_ptr come together"),
        ({"run_ptr": None}, "types and run_ptr come together"),
        ({"clock": None}, "edge_time and clock come together"),
        ({"edge_time": None}, "edge_time and clock come together"),
        ({"edge_type": np.zeros(5, np.int64)}, "edge_type"),
        ({"run_ptr": np.zeros(6, np.int32)}, "run_ptr has dtype int32"),
        ({"run_ptr": np.zeros(5, np.uint32)}, "run_ptr has 5 entries, but 6"),
        ({"run_ptr": np.array([0, 2, 1, 3, 3, 5], np.uint32)}, "run_ptr: "),
        ({"indices": np.array([2, 4, 1, 2, 1], np.int32)}, r"indices\[3\] is 2, but the sources"),
        ({"edge_time": np.array([9, 0, 9, 8, 7], np.uint32)}, r"edge_time\[4\] is 7, earlier"),
        ({"edge_time": np.zeros(5, np.int64)}, "edge_time has dtype int64"),
        ({"edge_time": np.zeros(4, np.uint32)}, "edge_time has 4 entries"),
        ({"node_time": np.array([0, 0, np.nan, 0, 0])}, r"node_time\[2\] is no time"),
        ({"edge_order": np.array([0, 1, 2, 5, 4])}, r"edge_order\[3\] is 5, which is no row of an edge list of 5"),
        ({"edge_order": np.array([0, 1, -1, 3, 4])}, r"edge_order\[2\] is -1"),
        ({"node_time": np.zeros(4)}, r"node_time must be int64 or float64 \[5\]"),
        ({"clock": Clock.of([np.array([1])])}, r"clock.timed must be bool \[2\]"),
    ],
)
def test_arrays_that_are_no_typed_graph_are_refused(change, message: str) -> None:
    graph = example()
    assert spoiled(graph).fingerprint == graph.fingerprint
    with pytest.raises(GraphFormatError, match=message):
        spoiled(graph, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"edge_time": {BUYS: [7, 5, 10]}},
        {"edge_time": {BUYS: [8, 6, 10]}, "node_time": {"user": [1, 9]}},  # the same codes, of another clock
        {"node_time": {"user": [0, 7]}},
        {"edge_time": {}, "node_time": {}},
        {"edges": {("user", "sees", "item"): ([0, 1, 1], [2, 2, 0]), BOUGHT: ([2, 0], [1, 0])}, "edge_time": {}},
    ],
)
def test_another_graph_has_another_fingerprint(change) -> None:
    assert example(**change).fingerprint != example().fingerprint


def test_a_pickled_graph_keeps_types_and_times() -> None:
    graph = example(keep_order=True)
    _ = graph.typed_lists
    copy = pickle.loads(pickle.dumps(graph))  # noqa: S301  our own bytes
    assert copy.fingerprint == graph.fingerprint
    assert copy.types == graph.types
    assert copy.node_time.tolist() == graph.node_time.tolist()
    assert copy.clock.until(np.array([8]), "<") == graph.clock.until(np.array([8]), "<")


def test_repr_names_types_and_times() -> None:
    assert repr(example()) == (
        "Graph(num_nodes=5, num_edges=5, edge_time, node_time, "
        "types=GraphTypes({user: 2, item: 3}, ['user__buys__item', 'item__bought__user']))"
    )


def test_a_type_has_times_wherever_its_first_node_was() -> None:
    graph = Graph.from_coo([0], [1], 3, node_time=[-np.inf, 4.0, 2.0])
    assert graph.node_codes_of(range(3)).tolist() == [0, 2, 1]
    assert Graph.from_coo([0], [1]).node_codes_of(range(2)) is None
    graph = example(node_time={"user": [7, 9]})
    assert graph.node_codes_of(graph.types.range_of("user")) is not None
    assert graph.node_codes_of(graph.types.range_of("item")) is None


def test_names_may_have_two_underscores() -> None:
    graph = Graph.from_hetero(
        {"a__b": 1, "c": 1}, {("a__b", "x", "c"): ([0], [0]), ("c", "rev__x", "a__b"): ([0], [0])}
    )
    assert [graph.edge_type_number(name) for name in ("c__rev__x__a__b", "rev__x", "a__b__x__c", "x")] == [1, 1, 0, 0]

"""Edges of a hop as PyG has them: equal to what NumPy makes of the same arrays."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload import ops
from lightning_gnnload.errors import GraphFormatError, SamplerConfigError

FIRST_NODE = np.array([0, 30, 30, 70])  # a type without nodes is among them
SRC_TYPE, DST_TYPE = np.array([0, 2, 2, 1], np.int32), np.array([2, 0, 2, 0], np.int32)
NUM_EDGES = 500


def hop(seed: int, num_nodes: int = 40) -> dict:
    """A hop whose edges are of types that their ends allow, in no order."""
    draw = np.random.default_rng(seed)
    nodes = ops.split_nodes(draw.permutation(70)[:num_nodes], FIRST_NODE)
    type_of = np.searchsorted(nodes.ptr, nodes.rank, side="right") - 1
    degree = draw.integers(0, 9, num_nodes - 5)
    target = np.repeat(np.arange(len(degree)), degree)
    kinds_to = [np.flatnonzero((kind == DST_TYPE) & (SRC_TYPE != 1)) for kind in range(3)]
    kind = np.array([draw.choice(kinds_to[type_of[d]]) for d in target], np.int32)
    source = np.array([draw.choice(np.flatnonzero(type_of == SRC_TYPE[k])) for k in kind], np.int32)
    return {
        "indptr": np.concatenate([[0], np.cumsum(degree)]).astype(np.int32),
        "indices": source,
        "edge_type": kind,
        "edge_ids": draw.integers(0, NUM_EDGES, len(kind)),
        "nodes": nodes,
        "src_type": SRC_TYPE,
        "dst_type": DST_TYPE,
        "num_dst": np.array([10, 10, len(degree)]),
        "num_edges": NUM_EDGES,
    }


ORDERS = {
    "none": None,
    "int32": np.random.default_rng(0).permutation(NUM_EDGES).astype(np.int32),
    "int64": np.random.default_rng(1).permutation(NUM_EDGES) + 2**40,  # what no int32 holds
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_lists_are_those_of_numpy(seed, order):
    given = hop(seed)
    target = np.repeat(np.arange(len(given["indptr"]) - 1), np.diff(given["indptr"]))
    columns = [given[name] for name in ("indptr", "indices", "edge_ids")]
    edge_index, ids = ops.list_edges(*columns, order, NUM_EDGES)
    numbers = given["edge_ids"] if order is None else order[given["edge_ids"]]
    assert edge_index.dtype == ids.dtype == np.int64
    assert np.array_equal(edge_index, [given["indices"], target])
    assert np.array_equal(ids, numbers)
    listed = ops.split_edge_list(**given, order=order)
    for k in range(len(SRC_TYPE)):
        own = given["edge_type"] == k
        ends, ids = listed.of_type(k)
        assert np.array_equal(ends[0], given["nodes"].places(given["indices"][own]))
        assert np.array_equal(ends[1], given["nodes"].places(target[own]))
        assert np.array_equal(ids, numbers[own])
        hops = np.split(own, given["indptr"][given["num_dst"][:-1]])
        assert listed.counts[:, k].tolist() == [int(of_hop.sum()) for of_hop in hops]


@pytest.mark.parametrize("typed", [False, True])
def test_lists_go_where_they_are_told(typed):
    given = hop(2) | {"order": ORDERS["int32"]}
    memory = np.full(3 * len(given["indices"]) + 2, -7)
    out = memory[1:-1]
    if typed:
        listed, wanted = ops.split_edge_list(**given, out=out), ops.split_edge_list(**given)
        found = listed.edge_index, listed.edge_ids
        assert np.array_equal(found[0], wanted.edge_index)
        assert np.array_equal(found[1], wanted.edge_ids)
    else:
        plain = [given[name] for name in ("indptr", "indices", "edge_ids", "order", "num_edges")]
        found = ops.list_edges(*plain, out=out)
        for rows, wanted in zip(found, ops.list_edges(*plain), strict=True):
            assert np.array_equal(rows, wanted)
    assert all(np.shares_memory(rows, out) for rows in found)
    assert memory[0] == memory[-1] == -7  # not an entry beyond it


def test_nodes_are_split_into_memory_that_is_given():
    nodes, local = np.array([40, 3, 69, 29]), np.full(4, -7)
    found = ops.split_nodes(nodes, FIRST_NODE, local)
    assert found.local is local
    assert local.tolist() == [3, 29, 10, 39]
    assert found.counts(np.array([0, 1, 4])).tolist() == [[0, 0, 2], [0, 0, 0], [0, 1, 2]]
    with pytest.raises(GraphFormatError, match="local has 3 entries for 4 nodes"):
        ops.split_nodes(nodes, FIRST_NODE, local[1:])


def test_memory_of_what_is_read_is_refused():
    given = hop(0) | {"order": None}
    memory = np.concatenate([given["edge_ids"]] * 3)
    given["edge_ids"] = memory[: len(given["edge_ids"])]
    with pytest.raises(SamplerConfigError, match="out and edge_ids share memory"):
        ops.split_edge_list(**given, out=memory)
    nodes = np.array([4, 2])
    with pytest.raises(SamplerConfigError, match="local and nodes share memory"):
        ops.split_nodes(nodes, FIRST_NODE, nodes)


def test_hop_without_edges():
    given = hop(0) | {"indptr": np.zeros(6, np.int32), "num_dst": np.array([5])}
    given |= {name: given[name][:0] for name in ("indices", "edge_type", "edge_ids")}
    listed = ops.split_edge_list(**given, order=ORDERS["int32"])
    assert [rows.shape for rows in listed.of_type(1)] == [(2, 0), (0,)]
    assert ops.list_edges(given["indptr"], given["indices"], given["edge_ids"], None, 0)[0].shape == (2, 0)


def changed(name: str, at: int, value: int):
    def change(given: dict) -> dict:
        given[name] = given[name].copy()
        given[name][at] = value
        return given

    return change


WRONG = {
    "an id beyond the graph": (changed("edge_ids", 3, NUM_EDGES), r"edge_ids\[3\] is 500"),
    "an id below 0": (changed("edge_ids", -1, -1), "is -1, but the graph has 500 edges"),
    "a node that is not there": (changed("indices", 4, 40), "edge 4 of the hop comes from node 40"),
    "a type that is not there": (changed("edge_type", 5, 4), "edge 5 of the hop has the type 4"),
    "an edge of another type": (lambda given: given | {"edge_type": (given["edge_type"] + 1) % 3}, "but its edge type"),
    "too few destinations": (changed("num_dst", -1, 20), "must ascend to the number of destinations, 35"),
    "destinations that descend": (changed("num_dst", 0, 20), "must ascend"),
    "a short order": (lambda given: given | {"order": np.arange(3)}, "order has 3 entries"),
    "more edges than 64 bits count": (lambda given: given | {"num_edges": 2**63}, "num_edges is 9223372036854775808"),
    "memory for fewer edges": (lambda given: given | {"out": np.empty(3, np.int64)}, "out has 3 entries"),
    "memory for other numbers": (lambda given: given | {"out": np.empty(3, np.int32)}, "out"),
    "a bad indptr": (changed("indptr", 1, 10_000), "does not ascend at 1"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_refused(change, message):
    given = change(hop(1) | {"order": None})
    with pytest.raises(GraphFormatError, match=message):
        ops.split_edge_list(**given)


@pytest.mark.parametrize("case", ["an id beyond the graph", "an id below 0", "a short order", "a bad indptr"])
def test_lists_without_types_refuse_the_same(case):
    change, message = WRONG[case]
    given = change(hop(1) | {"order": None})
    with pytest.raises(GraphFormatError, match=message):
        ops.list_edges(*(given[name] for name in ("indptr", "indices", "edge_ids", "order", "num_edges")))

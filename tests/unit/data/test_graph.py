import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_gnnload import Graph, ops
from lightning_gnnload.errors import GnnLoadError, GraphFormatError

INDPTR = np.array([0, 2, 2, 3])
INDICES = np.array([1, 2, 0])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("of", [np.asarray, torch.as_tensor])
def test_from_csc_shares_memory(dtype, of) -> None:
    # A cast or an ascontiguousarray of a strided view would double a graph that fills half the machine.
    indptr, indices, weight = INDPTR.copy(), INDICES.astype(dtype), np.ones(3, np.float32)
    graph = Graph.from_csc(of(indptr), of(indices), edge_weight=of(weight))
    assert np.shares_memory(graph.indptr, indptr)
    assert np.shares_memory(graph.indices, indices)
    assert np.shares_memory(graph.edge_weight, weight)
    assert graph.indices.dtype == dtype


def test_a_read_only_memory_map_is_taken_as_it_is(tmp_path) -> None:
    INDPTR.tofile(tmp_path / "indptr")
    INDICES.tofile(tmp_path / "indices")
    indptr = np.memmap(tmp_path / "indptr", np.int64, "r")
    indices = np.memmap(tmp_path / "indices", np.int64, "r")
    graph = Graph.from_csc(indptr, indices)
    assert np.shares_memory(graph.indptr, indptr)
    assert np.shares_memory(graph.indices, indices)
    assert not graph.indices.flags.writeable
    assert graph.in_neighbors(0).tolist() == [1, 2]


def test_lists_lie_by_type_and_edges_say_where_they_were() -> None:
    indptr, indices, kinds = np.array([0, 3, 3, 5]), np.array([1, 2, 0, 0, 1]), np.array([1, 0, 0, 2, 2], np.uint8)
    weight, time = np.arange(5.0), np.array([7, 3, 1, 4, 2])
    graph = Graph.from_csc(indptr, indices, weight, kinds)
    assert graph.indices.tolist() == [2, 0, 1, 0, 1]
    assert graph.edge_type.tolist() == [0, 0, 1, 2, 2]
    assert graph.edge_weight.tolist() == [1, 2, 0, 3, 4]
    assert graph.edge_order.tolist() == [1, 2, 0, 3, 4]
    assert Graph.from_csc(indptr, indices, edge_type=np.sort(kinds)).edge_order is None  # nothing had to move
    timed = Graph.from_coo(indices, [0, 0, 0, 2, 2], edge_type=kinds, edge_time=time, keep_order=True)
    assert timed.edge_order.tolist() == [2, 1, 0, 4, 3]  # within a type by time
    lost = Graph.from_coo(indices, [0, 0, 0, 2, 2], edge_type=kinds)
    assert lost.edge_order is None
    assert lost.lost_order
    # Types by which nothing can be drawn are no error, as samplers of whole lists do not look at them.
    odd = Graph.from_csc(indptr, indices, edge_type=kinds.astype(np.int64) - 10**6)
    assert odd.indices.tolist() == indices.tolist()
    with pytest.raises(GraphFormatError, match="edge types lie in"):
        _ = odd.typed_lists


def test_the_former_index_of_edge_types() -> None:
    graph = Graph.from_csc(INDPTR, INDICES, edge_type=[0, 1, 0])
    with pytest.warns(DeprecationWarning, match=r"write Graph\.typed_lists"):
        assert graph.edge_type_index is graph.typed_lists


def test_an_edge_makes_its_source_an_in_neighbour_of_its_destination() -> None:
    graph = Graph.from_coo(src=[4, 0, 4, 1], dst=[1, 1, 1, 3])
    assert graph.num_nodes == 5
    # The order of one destination's edges is kept, repeated edges too; swapped ends fail here.
    assert [graph.in_neighbors(v).tolist() for v in range(5)] == [[], [4, 0, 4], [], [1], []]
    assert graph.in_degrees.tolist() == [0, 3, 0, 1, 0]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60), st.booleans())
def test_from_coo_keeps_each_edge_with_what_belongs_to_it(edges, wide: bool) -> None:
    src, dst = np.array(edges, np.int64 if wide else np.int32).reshape(-1, 2).T
    positions = np.arange(len(edges))
    graph = Graph.from_coo(src, dst, num_nodes=10, edge_weight=positions / 4, edge_type=positions, keep_order=True)
    assert graph.edge_order is not None
    order = graph.edge_order
    assert sorted(order) == list(positions)
    assert graph.indices.tolist() == src[order].tolist()
    owner = np.repeat(np.arange(10), graph.in_degrees)
    assert owner.tolist() == dst[order].tolist()
    assert graph.edge_type.tolist() == order.tolist()
    assert graph.edge_weight.tolist() == (order / 4).tolist()
    # Stable: within a destination, positions ascend.
    assert all(np.all(np.diff(order[owner == v]) > 0) for v in range(10))


def test_order_is_kept_only_when_asked_for() -> None:
    assert Graph.from_coo([1], [0], edge_weight=[1.0]).edge_order is None


def test_ids_are_stored_narrow_where_they_fit() -> None:
    for dtype in (np.int16, np.uint8, np.int32, np.int64, np.uint64):
        assert Graph.from_coo(np.array([1], dtype), np.array([0], dtype)).indices.dtype == np.int32


def test_graphs_without_edges_or_nodes() -> None:
    assert repr(Graph.from_coo([], [], num_nodes=4)) == "Graph(num_nodes=4, num_edges=0)"
    assert Graph.from_coo([], []).num_nodes == 0
    assert Graph.from_csc([0], np.empty(0, np.int32)).num_nodes == 0


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 2, 1, 3], INDICES, r"indptr.*(falls|decreas|1)"),
        ([1, 2, 2, 3], INDICES, r"indptr\[0\].*1"),
        ([0, 2, 2, 4], INDICES, r"indptr\[-1\] is 4 but indices has 3 edges.*from_coo"),
        ([0, 2, 2, 3], np.array([1, 3, 0]), r"indices\[1\].*3"),
        ([0, 2, 2, 3], np.array([1, 2, -1]), r"indices\[2\].*-1"),
        ([0, 2, 2, 3], np.array([1, 2, -(2**33)]), r"indices\[2\].*-8589934592"),
        ([], INDICES, r"indptr must be int64 \[N \+ 1\]"),
        (np.array([0, 2, 2, 3], np.int32), INDICES, r"indptr must be int64.*int32.*astype"),
        ([0.0, 2.0, 2.0, 3.0], INDICES, r"indptr must be int64.*float64"),
        ([0, 2, 2, 3], INDICES.astype(np.uint32), r"indices must be int32 or int64.*uint32.*astype"),
        ([0, 2, 2, 3], INDICES.reshape(3, 1), r"indices must be.*\[3, 1\]"),
    ],
)
def test_arrays_that_are_no_graph_are_named(indptr, indices, message: str) -> None:
    # Every kernel trusts what passed here: one missing check is a crash later.
    for dtype in {indices.dtype, np.dtype(np.int32)} if indices.dtype == np.int64 else {indices.dtype}:
        if indices.min(initial=0) >= np.iinfo(dtype).min:
            with pytest.raises(GraphFormatError, match=message):
                Graph.from_csc(np.asarray(indptr, None if len(indptr) else np.int64), indices.astype(dtype))


@given(st.lists(st.integers(-3, 8), min_size=1, max_size=6), st.lists(st.integers(-2, 7), max_size=6))
def test_only_graphs_pass(indptr, indices) -> None:
    num_nodes = len(indptr) - 1
    sound = indptr[0] == 0 and indptr[-1] == len(indices) and indptr == sorted(indptr)
    sound = sound and all(0 <= v < num_nodes for v in indices)
    try:
        Graph.from_csc(np.array(indptr), np.array(indices, np.int64))
    except GraphFormatError:
        assert not sound
    else:
        assert sound


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("src", "dst", "num_nodes", "message"),
    [
        ([0, 5], [1, 1], 3, r"edge 1 has the source 5.*\[0, 3\)"),
        ([0, 1], [1, -1], 3, r"edge 1 has the target -1.*\[0, 3\)"),
        ([0, 1], [1, -1], None, r"edge 1 has the target -1"),
        ([0, 1, 2], [1, 1], None, r"src has 3 entries but dst has 2"),
        ([0], [0], -1, r"num_nodes is -1"),
        ([0], [0], 2.0, r"num_nodes is 2\.0, but must be an integer"),
        ([0], [0], "2", r"num_nodes is '2', but must be an integer"),
        ([0], [0], np.array([2, 3]), r"num_nodes is .*, but must be an integer"),
        ([0], [0], 2**47, r"140737488355328 runs.* 1048576\.0 GiB"),
    ],
)
def test_edges_that_name_no_nodes(dtype, src, dst, num_nodes, message: str) -> None:
    with pytest.raises(GraphFormatError, match=message):
        Graph.from_coo(np.array(src, dtype), np.array(dst, dtype), num_nodes)


def test_a_wide_id_is_not_wrapped_into_a_good_one() -> None:
    with pytest.raises(GraphFormatError, match=r"edge 0 has the source 4294967296"):
        Graph.from_coo([2**32], [0], num_nodes=2)
    with pytest.raises(GraphFormatError, match=r"edge 0 has the source -1"):
        Graph.from_coo(np.array([2**64 - 1], np.uint64), [0], num_nodes=2)


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ({"edge_weight": [1.0, np.nan, 1.0]}, r"edge_weight must be finite.*nan"),
        ({"edge_weight": [1.0, np.inf, 1.0]}, r"edge_weight must be finite.*inf"),
        ({"edge_weight": [1.0, -0.5, 1.0]}, r"not negative.*-0\.5"),
        ({"edge_weight": [1.0, 1.0]}, r"edge_weight must be .*\[3\].*\[2\]"),
        ({"edge_weight": [1, 2, 3]}, r"edge_weight must be floats.*int64"),
        ({"edge_type": [0.5, 1.0, 1.0]}, r"edge_type must be integers.*float64"),
        ({"edge_type": [[0], [1], [1]]}, r"edge_type must be .*\[3\].*\[3, 1\]"),
    ],
)
def test_edge_values_that_do_not_fit(extras, message: str) -> None:
    with pytest.raises(GraphFormatError, match=message):
        Graph.from_csc(INDPTR, INDICES, **extras)
    with pytest.raises(GraphFormatError, match=message):
        Graph.from_coo([1, 2, 0], [0, 0, 2], **extras)


@pytest.mark.parametrize(
    "ids",
    [
        ["a"],
        [[0], [1, 2]],
        [0.5],
        [True],
        torch.tensor([1.0], dtype=torch.bfloat16),
        torch.tensor([0, 1]).to_sparse(),
        np.array([0], ">i8"),
    ],
)
def test_ids_that_are_no_integers(ids) -> None:
    # torch and NumPy would raise errors of their own, without the argument's name.
    with pytest.raises(GnnLoadError, match="src"):
        Graph.from_coo(ids, [0])


def test_importances_are_computed_once_and_left_behind_in_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_csc(INDPTR, INDICES)
    calls = []
    make = ops.importance_tree

    def slowly(*topology: np.ndarray) -> np.ndarray:
        calls.append(topology)
        time.sleep(0.05)  # the other threads come meanwhile
        return make(*topology)

    monkeypatch.setattr(ops, "importance_tree", slowly)
    with ThreadPoolExecutor(4) as threads:
        trees = list(threads.map(lambda _: graph.importance_tree(), range(8)))
    assert len(calls) == 1
    assert all(tree is trees[0] for tree in trees)
    copied = pickle.loads(pickle.dumps(graph))  # noqa: S301  as Lightning's spawn launcher does
    assert copied.indices.tolist() == graph.indices.tolist()
    assert copied.importance_tree().tolist() == trees[0].tolist()
    assert len(calls) == 2


def test_lists_of_out_neighbours_are_turned_round() -> None:
    random = np.random.default_rng(3)
    src, dst, weight = random.integers(20, size=100), random.integers(20, size=100), random.random(100)
    order = np.argsort(src, kind="stable")
    indptr = np.concatenate([[0], np.bincount(src, minlength=20).cumsum()])
    found = Graph.from_csr(indptr, dst[order], weight[order], np.arange(100)[order], keep_order=True)
    wanted = Graph.from_coo(src[order], dst[order], 20, weight[order], np.arange(100)[order], keep_order=True)
    for name in Graph.ARRAYS:
        assert np.array_equal(getattr(found, name), getattr(wanted, name)), name
    with pytest.raises(GraphFormatError, match="indices"):
        Graph.from_csr([0, 1], [7])


def test_a_sparse_matrix_is_no_array() -> None:
    with pytest.raises(GraphFormatError, match=r"indptr is a sparse matrix.*A\.tocsc\(\)"):
        Graph.from_csc(torch.eye(3).to_sparse(), [])


@pytest.mark.parametrize("largest", [4095, 2**45, 2**63])
def test_types_that_are_no_numbers_of_types_are_refused_before_they_take_memory(largest: int) -> None:
    graph = Graph.from_coo([0, 1], [1, 0], edge_type=np.array([0, largest], np.uint64))
    with pytest.raises(GraphFormatError, match="number them from 0"):
        _ = graph.typed_lists

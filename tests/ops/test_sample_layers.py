"""The kernel equals the oracle: ids, order, indptr, edge ids and weights, bit for bit."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import GraphFormatError, SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey, SamplerInput, Workspace, importance_tree, sample_layers
from lightning_gnnload.ops.philox import stream_keys
from tests import oracle

from .graphs import KEY, Arena, Batch, random_graph, random_weights, sample_with
from .layers import METHODS, assert_same, sample
from .names import any_key, any_names

SEEDS = [17, 3, 44, 0, 101]


def assert_equals_oracle(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: Any,
    budgets: list[int],
    method: Any = "ladies",
    key: DrawKey = KEY,
    table: Any = "auto",
    **options: Any,
) -> Batch:
    batch = sample(indptr, indices, seeds, budgets, method, key, Workspace(len(indptr) - 1, table), **options)
    nodes, hops = oracle.sample_layers(indptr, indices, np.asarray(seeds), budgets, method, key, **options)
    np.testing.assert_array_equal(batch.nodes, nodes)
    assert len(batch.hops) == len(hops)
    for got, want in zip(batch.hops, hops, strict=True):
        assert got.num_src == want.num_src
        np.testing.assert_array_equal(got.indptr, want.indptr)
        np.testing.assert_array_equal(got.indices, want.indices)
        np.testing.assert_array_equal(got.edge_ids, want.edge_ids)
        np.testing.assert_array_equal(got.edge_weights, want.edge_weights)
        assert got.edge_weights.dtype == np.float32
    return batch


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_weights_that_are_alike_and_other_tables_change_nothing(expand, replace, method):
    budgets = [20, 30, 40]
    indptr, indices = random_graph(120, 1500, seed=3, dtype=np.int64)
    for normalize, keep_known in [(False, False), (True, False), (False, True)]:
        if keep_known and method == "dsp":
            continue
        options = {"replace": replace, "expand": expand, "normalize": normalize, "keep_known": keep_known}
        batch = assert_equals_oracle(indptr, indices, SEEDS, budgets, method, table="stamp", **options)
        alike = np.full(len(indices), 0.5, np.float32)
        assert_same(sample(indptr, indices, SEEDS, budgets, method, weights=alike, **options), batch)
        options["weights"] = random_weights(len(indices), np.float32 if replace else np.float64)
        by_weight = assert_equals_oracle(indptr, indices, SEEDS, budgets, method, table="stamp", **options)
        for dtype, table in [(np.int32, "stamp"), (np.int32, "hash"), (np.int64, "hash")]:
            workspace = Workspace(len(indptr) - 1, table)
            again = sample(indptr, indices.astype(dtype), SEEDS, budgets, method, KEY, workspace, **options)
            assert_same(again, by_weight)


@settings(max_examples=300)
@given(data=st.data())
def test_equals_the_oracle_on_any_graph(data):
    num_nodes = data.draw(st.integers(1, 40) | st.just(120))
    num_edges = data.draw(st.integers(0, 150) | st.just(1500))
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    indptr, indices = random_graph(num_nodes, num_edges, seed=data.draw(st.integers(0, 99)), dtype=dtype)
    method = data.draw(st.sampled_from(METHODS))
    seeds = data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=num_nodes))
    assert_equals_oracle(
        indptr,
        indices,
        seeds,
        data.draw(st.lists(st.sampled_from([-1, 1, 2, 3, 8, 30, 1000]), max_size=3)),
        method,
        any_key(data),
        table=data.draw(st.sampled_from(["stamp", "hash"])),
        expand=data.draw(st.sampled_from(["all", "new"])),
        replace=data.draw(st.booleans()),
        normalize=data.draw(st.booleans()),
        keep_known=method != "dsp" and data.draw(st.booleans()),
        num_drawn=data.draw(st.integers(0, len(seeds))),
        weights=data.draw(st.sampled_from([None, *_weights_of(len(indices))])),
        names=any_names(data, num_nodes),
    )


def _weights_of(num_edges: int) -> list[np.ndarray]:
    one = np.zeros(num_edges)
    one[: num_edges // 3] = 1
    return [random_weights(num_edges, np.float32), random_weights(num_edges, np.float64, 1), one, np.zeros(num_edges)]


@settings(max_examples=100)
@given(num_nodes=st.integers(0, 70), num_edges=st.integers(0, 300), seed=st.integers(0, 99))
def test_the_tree_equals_the_oracle(num_nodes, num_edges, seed):
    indptr, indices = random_graph(num_nodes, num_edges if num_nodes else 0, seed, np.int32)
    tree = importance_tree(indptr, indices)
    np.testing.assert_array_equal(tree, oracle.importance_tree(indptr, indices))
    assert not tree.flags.writeable  # threads share it
    for weights in _weights_of(len(indices)):
        tree = importance_tree(indptr, indices, weights)
        np.testing.assert_array_equal(tree, oracle.importance_tree(indptr, indices, weights))


@pytest.mark.parametrize("method", ["ladies", "fastgcn"])
@pytest.mark.parametrize("replace", [False, True])
def test_draws_that_must_be_made_again(method, replace, monkeypatch):
    # 43 leaves of importance 2**56 or 2**55: of 2**64, up to a sixth is left over. Of 40 draws some are made again;
    # a missing or wrong retry fails here.
    attempts = []
    words = oracle.NodeDraws.words

    def count(self, count, attempt=0):
        attempts.append(attempt)
        return words(self, count, attempt)

    monkeypatch.setattr(oracle.NodeDraws, "words", count)
    indptr = np.concatenate([np.arange(44), np.full(43, 43)])
    assert_equals_oracle(indptr, np.arange(43, 86), np.arange(43), [40], method, replace=replace)
    assert max(attempts) > 0


def test_hubs_of_more_than_two_to_the_31_edges(tmp_path):
    # Arithmetic on positions in fewer than 64 bits fails here. The indices are a file with a hole: all zero.
    degree = 3_000_000_000
    indices = np.memmap(tmp_path / "indices", np.int32, "w+", shape=(degree + 1,))
    indices[-1] = 1
    indptr = np.array([0, 0, 0, degree, degree + 1])
    [hop] = sample(indptr, indices, [2, 3], [50], "dsp").hops
    np.testing.assert_allclose(hop.edge_weights, (degree + 1) / 50 / degree)
    assert 2**31 < hop.edge_ids.max() < degree
    with pytest.raises(SamplerConfigError, match=r"3000000001 edges, but at most .* method=\"dsp\""):
        sample(indptr, indices, [2, 3], [5], "ladies")


def test_every_edge_has_an_importance():
    # 2**39 units for 2**22 nodes: by the square of the hub's in-degree, half a unit an edge.
    num_nodes, degree = 2**22, 2**20
    indptr = np.zeros(num_nodes + 1, np.int64)
    indptr[-1] = degree
    indices = np.arange(degree)
    tree = importance_tree(indptr, indices)
    assert tree[[0, 1, 2, degree, num_nodes]].tolist() == [degree, 1, 2, degree, degree]
    # A place on a line of single units is an item; a search that stops one unit early or late fails here.
    seed = num_nodes - 1
    batch = sample(indptr, indices, [seed], [9], "fastgcn", replace=True)
    draws = oracle.NodeDraws(stream_keys(KEY.seed, KEY.epoch)[0], KEY.step, 0, seed)
    assert batch.nodes[1:].tolist() == sorted(draws.below64(j, degree) for j in range(9))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("expand", ["all", "new"])
def test_graphs_with_little_in_them(method, expand):
    nothing = np.empty(0, np.int64)
    assert_equals_oracle(np.array([0]), nothing, nothing, [3, 2], method, expand=expand)
    for replace in (False, True):
        options = {"expand": expand, "replace": replace}
        assert_equals_oracle(np.zeros(6, np.int64), nothing, [4, 0], [3, -1, 2], method, **options)
        assert_equals_oracle(np.array([0, 1]), np.array([0]), [0], [3, 3], method, **options)  # one loop
        assert_equals_oracle(np.array([0, 1, 1]), np.array([1]), [1], [3], method, **options)  # no edge to the seed
        if method != "dsp":  # nothing is left to draw
            assert_equals_oracle(np.array([0, 1, 1]), np.array([1]), [0, 1], [3], method, keep_known=True, **options)


@pytest.mark.parametrize("replace", [False, True])
def test_drawing_from_a_graph_of_many_nodes(replace):
    # Beyond 2**14 nodes, what a search reads is partly copied, partly noted beside the tree.
    indptr, indices = random_graph(40_000, 30_000, seed=2, dtype=np.int32)
    assert_equals_oracle(indptr, indices, np.arange(3000), [40], "fastgcn", replace=replace)


@pytest.mark.parametrize("method", ["ladies", "fastgcn"])
def test_no_item_is_drawn_twice(method):
    # All but one of many: the oracle would take too long. The notes beside the tree outgrow their first table.
    num_leaves = 70_000
    indptr = np.concatenate([[0], np.full(num_leaves + 1, num_leaves)])
    indices = np.random.default_rng(0).permutation(num_leaves) + 1
    batch = sample(indptr, indices, [0], [num_leaves - 1], method)
    assert len(batch.hops[0].edge_ids) == batch.hops[0].num_src - 1 == num_leaves - 1


def test_layers_beyond_the_tables_first_numbers():
    # 2**22 local ids are a stamp table's first share of its numbers, 2**16 slots a hash table's first size.
    num_leaves = 2**22 + 1000
    indptr = np.concatenate([[0], np.full(num_leaves + 1, num_leaves)])
    indices = np.random.default_rng(0).permutation(num_leaves).astype(np.int32) + 1
    stamp, hashed = (
        sample(indptr, indices, [5, 0], [50, 20], workspace=Workspace(num_leaves + 1, table))
        for table in ("stamp", "hash")
    )
    assert stamp.hops[1].num_src > 50
    assert_same(stamp, hashed)


@pytest.mark.parametrize("table", ["stamp", "hash"])
def test_a_workspace_serves_many_batches(table):
    # What one batch leaves in the table or in scratch memory shows in a later one, be it 1,500 later, when a stamp
    # table's numbers have run out.
    graphs = [random_graph(60, 400, seed) for seed in range(2)]
    workspace = Workspace(60, table)
    for step in range(700):
        key, method = DrawKey(0, 0, step), METHODS[step % 3]
        graph, budgets = graphs[step % 2], [5 + step % 40, 9]
        batch = sample(*graph, [step % 60, (step + 7) % 60], budgets, method, key, workspace)
        if step % 50 < 6 or step > 650:
            assert_same(batch, sample(*graph, [step % 60, (step + 7) % 60], budgets, method, key))


# What a batch must be, whatever the oracle says.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("keep_known", [False, True])
def test_all_edges_between_chosen_nodes_are_there(method, replace, expand, keep_known):
    if keep_known and method == "dsp":
        return
    indptr, indices = random_graph(200, 4000, seed=1)
    budgets = [12, 25, 40]
    options = {"replace": replace, "expand": expand, "keep_known": keep_known}
    batch = sample(indptr, indices, [5, 3, 100], budgets, method, **options)
    known, expanded = 3, 0
    for hop, budget in zip(batch.hops, budgets, strict=True):
        dst = np.repeat(np.arange(known), np.diff(hop.indptr))
        nodes = batch.nodes
        np.testing.assert_array_equal(nodes[hop.indices], indices[hop.edge_ids])
        assert np.all((indptr[nodes[dst]] <= hop.edge_ids) & (hop.edge_ids < indptr[nodes[dst] + 1]))
        assert len(np.unique(hop.edge_ids)) == len(hop.edge_ids)
        assert hop.num_src - known <= budget
        first = 0 if expand == "all" else expanded
        of_hop = hop.indptr[first]
        sources = np.unique(hop.indices[of_hop:])
        if method == "dsp":
            assert len(hop.edge_ids) - of_hop <= budget
        else:
            chosen = np.union1d(sources, np.arange(known)) if keep_known else sources
            wanted = sum(
                int(np.isin(indices[indptr[v] : indptr[v + 1]], nodes[chosen]).sum()) for v in nodes[first:known]
            )
            assert len(hop.edge_ids) - of_hop == wanted
            assert len(sources) <= budget + (known if keep_known else 0)
        known, expanded = hop.num_src, known


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [-1, 10**6])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_large_budget_takes_all(method, budget, normalize):
    indptr, indices = random_graph(80, 900, seed=6)
    batch = sample(indptr, indices, np.arange(80)[::-1].copy(), [budget], method, normalize=normalize)
    degrees = np.diff(indptr)[::-1]
    np.testing.assert_array_equal(np.diff(batch.hops[0].indptr), degrees)
    np.testing.assert_array_equal(
        batch.hops[0].edge_weights, np.repeat(1 / np.maximum(degrees, 1), degrees).astype("f")
    )


@pytest.mark.parametrize("method", METHODS)
def test_normalized_weights_add_up_to_one(method):
    indptr, indices = random_graph(80, 900, seed=6)
    plain, normalized = (
        sample(indptr, indices, np.arange(40), [30], method, normalize=flag).hops[0] for flag in (False, True)
    )
    np.testing.assert_array_equal(plain.indices, normalized.indices)
    rows = np.repeat(np.arange(40), np.diff(plain.indptr))
    sums = np.bincount(rows, plain.edge_weights, 40)
    assert not np.allclose(sums[sums > 0], 1, atol=0.05)
    np.testing.assert_allclose(normalized.edge_weights, plain.edge_weights / sums[rows], rtol=1e-6)


def test_what_is_drawn_repeatedly_is_there_once():
    # One leaf: every draw is of it.
    for method in METHODS:
        batch = sample(np.array([0, 1, 1]), np.array([1]), [0], [5], method, replace=True)
        assert batch.hops[0].edge_ids.tolist() == [0]
        assert batch.hops[0].edge_weights.tolist() == [1.0]


def test_known_nodes_are_kept_at_their_exact_weight():
    indptr, indices = random_graph(80, 900, seed=6)
    seeds = np.arange(20)
    for method in ("ladies", "fastgcn"):
        hop = sample(indptr, indices, seeds, [5], method, keep_known=True).hops[0]
        rows = np.repeat(np.arange(20), np.diff(hop.indptr))
        known = hop.indices < 20
        assert known.sum() == np.isin(indices[: indptr[20]], seeds).sum() > 0
        np.testing.assert_array_equal(hop.edge_weights[known], (1 / np.diff(indptr)[rows[known]]).astype(np.float32))


def test_edge_ids_do_not_change_the_batch():
    indptr, indices = random_graph(100, 1000, seed=2)
    for method in METHODS:
        with_ids, without = (sample(indptr, indices, [1, 2], [9, 9], method, edge_ids=flag) for flag in (True, False))
        for a, b in zip(with_ids.hops, without.hops, strict=True):
            assert b.edge_ids is None
            np.testing.assert_array_equal(a.indices, b.indices)
            np.testing.assert_array_equal(a.edge_weights, b.edge_weights)


# Wrong input


@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize(
    ("seeds", "message"),
    [([4, 100], r"seeds\[1\] is 100, but the graph has 100 nodes"), ([7, 8, 7], r"seeds\[2\] is 7, the same node")],
)
def test_bad_seeds_leave_the_workspace_clean(table, seeds, message):
    indptr, indices = random_graph(100, 1000, seed=2)
    workspace = Workspace(100, table)
    with pytest.raises(SeedError, match=message):
        sample(indptr, indices, seeds, [3], workspace=workspace)
    assert_same(sample(indptr, indices, [7, 4], [3, 3], workspace=workspace), sample(indptr, indices, [7, 4], [3, 3]))


def test_batches_beyond_int32_are_refused():
    # The limit is lowered, since a real case would take 8 GiB. Ten hubs with the same eight in-neighbours.
    indptr = np.concatenate([np.arange(11) * 8, np.full(8, 80)])
    indices = np.tile(np.arange(10, 18), 10)
    workspace = Workspace(18)

    def sample_up_to(max_local: int, method: Any = "ladies", budget: int = 8) -> Any:
        inputs = SamplerInput(workspace, indptr, indices, np.arange(10), KEY, Arena.of(1 << 14).bytes)
        inputs.native.max_local = max_local
        return sample_layers(inputs, [budget], method)

    assert sample_up_to(90).num_nodes == 18
    with pytest.raises(SamplerConfigError, match=r"budgets\[0\]: the hop's 10 destinations have 80 edges"):
        sample_up_to(89)
    assert sample_up_to(80, method="dsp", budget=80).num_nodes == 18
    with pytest.raises(SamplerConfigError, match="more than 79 edges"):
        sample_up_to(79, method="dsp", budget=80)
    assert_same(sample(indptr, indices, [3], [5], workspace=workspace), sample(indptr, indices, [3], [5]))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("table", ["stamp", "hash"])
def test_a_tree_of_another_graph_is_found_out_or_harmless(replace, table):
    # It decides what memory is read.
    indptr, indices = random_graph(100, 1000, seed=2)
    workspace = Workspace(100, table)
    for tree in (np.zeros(101, np.int64), np.full(101, 90), -importance_tree(indptr, indices)):
        options = {"importance_tree": tree, "replace": replace, "workspace": workspace}
        for budget in (1, 80):
            with contextlib.suppress(SamplerConfigError):
                batch = sample(indptr, indices, [1, 2], [budget], "fastgcn", **options)
                assert np.all((batch.nodes >= 0) & (batch.nodes < 100))
    empty = np.zeros(101, np.int64)
    with pytest.raises(SamplerConfigError, match="importance_tree: draw 0 of 5 finds no item left"):
        sample(indptr, indices, [1, 2], [5], "fastgcn", importance_tree=empty, replace=True)
    assert_same(sample(indptr, indices, [3], [5], workspace=workspace), sample(indptr, indices, [3], [5]))


@pytest.mark.parametrize("budgets", [[0], [3, 0], [-2], [2**25 + 1], [2**40], [1] * (2**16 + 1), [2.0], ["5"]])
def test_bad_budgets(budgets):
    indptr, indices = random_graph(10, 20, seed=0)
    with pytest.raises(SamplerConfigError, match="budgets"):
        sample(indptr, indices, [1], budgets)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"indptr": np.zeros(11, np.int32)}, GraphFormatError, "indptr has dtype int32, but must be int64"),
        ({"seeds": np.arange(8)[::2]}, SeedError, "seeds is not contiguous"),
        ({"method": "labor"}, SamplerConfigError, "method is 'labor'"),
        ({"expand": "both"}, SamplerConfigError, "expand is 'both'"),
        ({"method": "dsp", "keep_known": True}, SamplerConfigError, "keep_known does not go with"),
        ({"method": "fastgcn"}, SamplerConfigError, "importance_tree is a NoneType"),
        ({"method": "fastgcn", "importance_tree": np.zeros(10)}, SamplerConfigError, "importance_tree has dtype"),
        (
            {"method": "fastgcn", "importance_tree": np.zeros(10, np.int64)},
            SamplerConfigError,
            "importance_tree has 10 entries, but a graph of 10 nodes needs 11",
        ),
        ({"workspace": Workspace(9)}, SamplerConfigError, "9 nodes, but this graph has 10"),
    ],
)
def test_wrong_arguments(change, error, message):
    indptr, indices = random_graph(10, 20, seed=0)
    arguments = {
        "workspace": Workspace(10),
        "indptr": indptr,
        "indices": indices,
        "seeds": np.array([1]),
        "budgets": [2],
        "method": "ladies",
        "key": KEY,
        "arena": Arena.of(4096).bytes,
    }
    with pytest.raises(error, match=message):
        sample_with(sample_layers, **(arguments | change))

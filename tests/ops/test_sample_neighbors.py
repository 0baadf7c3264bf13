"""The kernel equals the oracle: ids, order, indptr and edge ids."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import GraphFormatError, SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey, SamplerInput, Workspace, instruction_sets, sample_neighbors
from tests import oracle

from .graphs import KEY, Arena, instruction_set, random_graph, sample, sample_with, star_graph
from .names import any_key, any_names


def assert_equals_oracle(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: Any,
    fanouts: list[int],
    key: DrawKey = KEY,
    table: Any = "auto",
    **options: Any,
) -> None:
    nodes, hops = oracle.sample_neighbors(indptr, indices, np.asarray(seeds), fanouts, key, **options)
    workspace = Workspace(len(indptr) - 1, table)
    for name in instruction_sets():
        with instruction_set(name):
            batch = sample(indptr, indices, seeds, fanouts, key, workspace, edge_ids=True, **options)
        np.testing.assert_array_equal(batch.nodes, nodes, name)
        assert len(batch.hops) == len(hops)
        for got, want in zip(batch.hops, hops, strict=True):
            assert got.num_src == want.num_src
            np.testing.assert_array_equal(got.indptr, want.indptr, name)
            np.testing.assert_array_equal(got.indices, want.indices, name)
            np.testing.assert_array_equal(got.edge_ids, want.edge_ids, name)


@settings(max_examples=300)
@given(data=st.data())
def test_equals_the_oracle_on_any_graph(data):
    num_nodes = data.draw(st.integers(1, 40) | st.just(120))
    num_edges = data.draw(st.integers(0, 150) | st.just(1500))
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    indptr, indices = random_graph(num_nodes, num_edges, seed=data.draw(st.integers(0, 99)), dtype=dtype)
    seeds = data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=num_nodes))
    fanouts = data.draw(st.lists(st.sampled_from([-1, 1, 2, 3, 5, 8, 17, 70]), max_size=3))
    key = any_key(data)
    assert_equals_oracle(
        indptr,
        indices,
        seeds,
        fanouts,
        key,
        table=data.draw(st.sampled_from(["stamp", "hash"])),
        expand=data.draw(st.sampled_from(["all", "new"])),
        replace=data.draw(st.booleans()),
        names=any_names(data, num_nodes),
    )


@pytest.mark.parametrize("fanout", [1, 4, 5, 15, 16, 17, 31, 32, 33, 64, 65, 100, 1000])
def test_degrees_around_the_fanout(fanout):
    # 35 hubs: chunks are filled in part. Loops that stop one short, or unroll past the fanout, fail here.
    for more in (-1, 0, 1, 2, 500):
        indptr, indices = star_graph(hubs=35, degree=fanout + more)
        assert_equals_oracle(indptr, indices, np.arange(35), [fanout])


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [1, 3, 4, 8, 12, 15, 16, 17, 25, 32, 40, 63, 64])
def test_instruction_sets_agree_on_many_draws(fanout, replace):
    # 20,000 destinations whose degrees pass the fanout by little, where most draws repeat, or by much. The oracle is
    # too slow for so many; that the portable code equals it, the tests above show.
    degrees = fanout + np.random.default_rng(fanout).geometric(0.05, 20_000)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    indices = np.arange(indptr[-1]) % len(degrees)
    batches = []
    for name in instruction_sets():
        with instruction_set(name):
            batches.append(sample(indptr, indices, np.arange(len(degrees)), [fanout], replace=replace, edge_ids=True))
    for batch in batches[1:]:
        np.testing.assert_array_equal(batch.hops[0].edge_ids, batches[0].hops[0].edge_ids)


@pytest.mark.parametrize("fanout", [1, 5, 16, 30])
def test_runs_of_destinations_that_draw_or_do_not(fanout):
    # Chunks grow while few destinations draw, up to 64, and then many of one chunk do: a second group of sixteen
    # that is left out, or put beside the wrong destination, fails here.
    runs = [(fanout + 30, 20), (fanout, 200), (fanout + 1, 70), (0, 130), (fanout + 7, 50), (1, 40), (3 * fanout, 90)]
    degrees = np.concatenate([np.full(count, degree) for degree, count in runs])
    degrees[::9] = fanout + 2
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    indices = np.random.default_rng(fanout).integers(0, len(degrees), indptr[-1])
    for replace in (False, True):
        assert_equals_oracle(indptr, indices, np.arange(len(degrees)), [fanout, 2], replace=replace)


@pytest.mark.parametrize("num_edges", [0, 1, 127, 128, 129, 223, 224, 225, 226, 1023, 1024, 1248, 1249, 5000])
def test_hops_of_any_number_of_edges(num_edges):
    # Edges are read 128 and inserted 224 behind where they are fetched, from a buffer that forgets by the thousand:
    # one edge too many or too few in any stage fails here.
    for num_destinations, expand in itertools.product((1, 16, 17, 40), ("all", "new")):
        degrees = np.full(num_destinations, num_edges // num_destinations)
        degrees[-1] += num_edges - degrees.sum()
        indptr = np.concatenate([[0], np.cumsum(degrees), np.full(400, num_edges)])
        indices = np.random.default_rng(num_edges).integers(0, len(indptr) - 1, num_edges)
        assert_equals_oracle(indptr, indices, np.arange(num_destinations), [-1, 3], expand=expand)


@pytest.mark.parametrize("degree", [2**31 + 1, 3_000_000_000, 2**32 - 1])
def test_draws_that_must_be_made_again(degree, tmp_path):
    # Near n = 2**31 half of all words are rejected: a missing or wrong retry fails here, and so does any
    # arithmetic on degrees or positions in fewer than 64 bits. The indices are a file with a hole: all zero.
    indices = np.memmap(tmp_path / "indices", np.int32, "w+", shape=(degree,))
    indptr = np.array([0, 0, 0, 0, degree])
    for replace, fanout in itertools.product([False, True], [40, 70]):
        assert_equals_oracle(indptr, indices, [3, 1], [fanout], replace=replace)


@pytest.mark.parametrize("expand", ["all", "new"])
def test_graphs_with_little_in_them(expand):
    nothing = np.empty(0, np.int64)
    assert_equals_oracle(np.array([0]), nothing, nothing, [3, 2], expand=expand)
    assert_equals_oracle(np.zeros(6, np.int64), nothing, [4, 0], [3, -1, 2], expand=expand)
    assert_equals_oracle(np.array([0, 1]), np.array([0]), [0], [3, 3], expand=expand)  # one loop


def test_stamps_of_many_batches():
    # The numbers that tell batches apart run out after 1,023, and start again.
    indptr, indices = random_graph(50, 400, seed=2)
    workspace = Workspace(50, "stamp")
    want = [sample(indptr, indices, [i], [3, 3]).nodes for i in range(50)]
    for i in range(2_100):
        batch = sample(indptr, indices, [i % 50], [3, 3], workspace=workspace)
        np.testing.assert_array_equal(batch.nodes, want[i % 50])


def test_stamps_widen_in_mid_batch():
    # More than 2**22 nodes in one batch. The next batch must not take its stamps for its own.
    num_nodes = 5_000_000
    indptr = np.concatenate([[0, num_nodes - 1], np.full(num_nodes - 1, num_nodes)])
    indices = np.random.default_rng(0).permutation(num_nodes).astype(np.int32)
    workspace = Workspace(num_nodes, "stamp")
    every = sample(indptr, indices, [1, 0], [-1], workspace=workspace)
    assert np.array_equal(np.bincount(every.nodes), np.ones(num_nodes))
    np.testing.assert_array_equal(every.nodes[every.hops[0].indices], np.roll(indices, 1))
    for _ in range(1_100):
        np.testing.assert_array_equal(sample(indptr, indices, [7], [2], workspace=workspace).nodes, [7])


def test_hash_table_grows_in_mid_batch():
    # 2**17 nodes do not fit a table of 2**16 slots.
    num_nodes = 1 << 17
    indptr = np.concatenate([[0], np.full(num_nodes, num_nodes)])
    indices = np.random.default_rng(0).permutation(num_nodes)
    stamp, hashed = (
        sample(indptr, indices, [0], [-1], workspace=Workspace(num_nodes, table)) for table in ("stamp", "hash")
    )
    np.testing.assert_array_equal(hashed.nodes, stamp.nodes)
    np.testing.assert_array_equal(hashed.hops[0].indices, stamp.hops[0].indices)


def test_hash_table_takes_ids_beyond_32_bits(tmp_path):
    # Ids that agree in their low 32 bits are different nodes. indptr is a file with a hole, mostly zero.
    num_nodes = 2**32 + 100
    indptr = np.memmap(tmp_path / "indptr", np.int64, "w+", shape=(num_nodes + 1,))
    indices = np.array([5, 2**32 + 5, 6, 2**32 + 6, 5, 2**32 + 99])
    indptr[-1] = len(indices)
    for fanout in (-1, 4):
        assert_equals_oracle(indptr, indices, [num_nodes - 1, 6], [fanout, 3], table="hash")


@pytest.mark.parametrize("expand", ["all", "new"])
def test_each_hop_is_a_prefix_of_the_nodes(expand):
    indptr, indices = random_graph(200, 2000, seed=1)
    batch = sample(indptr, indices, [5, 3, 100], [3, 3, 3], expand=expand, edge_ids=True)
    known = 3
    for hop in batch.hops:
        assert len(hop.indptr) - 1 == known
        assert hop.indices.max() < hop.num_src
        dst = batch.nodes[np.repeat(np.arange(known), np.diff(hop.indptr))]
        np.testing.assert_array_equal(batch.nodes[hop.indices], indices[hop.edge_ids])
        assert np.all((indptr[dst] <= hop.edge_ids) & (hop.edge_ids < indptr[dst + 1]))
        known = hop.num_src
    if expand == "new":
        assert len({(h.indptr_offset, h.indices_offset, h.edge_ids_offset) for h in batch.layout.hops}) == 1


def test_edge_ids_do_not_change_the_batch():
    indptr, indices = random_graph(100, 1000, seed=2)
    with_ids, without = (sample(indptr, indices, [1, 2], [5, 5], edge_ids=flag) for flag in (True, False))
    assert all(hop.edge_ids is None for hop in without.hops)
    for a, b in zip(with_ids.hops, without.hops, strict=True):
        np.testing.assert_array_equal(a.indices, b.indices)


# Wrong input


@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([4, 100], r"seeds\[1\] is 100, but the graph has 100 nodes"),
        ([-1], r"seeds\[0\] is -1"),
        ([0, 2**62], r"seeds\[1\] is 4611686018427387904"),
        ([7, 8, 7], r"seeds\[2\] is 7, the same node as seeds\[0\]"),
    ],
)
def test_bad_seeds_are_named_and_leave_the_workspace_clean(table, seeds, message):
    indptr, indices = random_graph(100, 1000, seed=2)
    workspace = Workspace(100, table)
    with pytest.raises(SeedError, match=message):
        sample(indptr, indices, seeds, [3], workspace=workspace)
    # A stamp left behind by the failed call would make its seeds look known.
    after = sample(indptr, indices, [7, 4, 8], [3, 3], workspace=workspace)
    fresh = sample(indptr, indices, [7, 4, 8], [3, 3])
    np.testing.assert_array_equal(after.nodes, fresh.nodes)


@pytest.mark.parametrize("fanouts", [[0], [3, 0], [-2], [2**26 + 1], [2**40], [1] * (2**16 + 1), [2.0], ["5"]])
def test_bad_fanouts(fanouts):
    indptr, indices = random_graph(10, 20, seed=0)
    with pytest.raises(SamplerConfigError, match="fanouts"):
        sample(indptr, indices, [1], fanouts)


def test_numpy_integers_are_integers():
    indptr, indices = random_graph(10, 20, seed=0)
    key = DrawKey(np.uint64(2**63), np.int32(1), np.int64(2))
    batch = sample(indptr, indices, [1], [np.int64(2)], key, Workspace(np.int32(10)), replace=np.bool_(True))
    np.testing.assert_array_equal(
        batch.nodes, sample(indptr, indices, [1], [2], DrawKey(2**63, 1, 2), replace=True).nodes
    )


@pytest.mark.parametrize("field", ["seed", "epoch", "step", "hop"])
@pytest.mark.parametrize("value", [-1, 2**64, 0.5])
def test_keys_out_of_range(field, value):
    with pytest.raises(SamplerConfigError, match=field):
        DrawKey(**{"seed": 0, "epoch": 0, "step": 0, field: value})


def test_batches_beyond_int32_are_refused():
    # The limit is lowered, since a real case would take 8 GiB.
    indptr, indices = star_graph(hubs=10, degree=8)
    arena = Arena.of(1 << 14)

    def sample_up_to(max_local: int) -> Any:
        inputs = SamplerInput(Workspace(18), indptr, indices, np.arange(10), KEY, arena.bytes)
        inputs.native.max_local = max_local
        return sample_neighbors(inputs, [8])

    assert sample_up_to(80).num_nodes == 18
    with pytest.raises(SamplerConfigError, match="more than 79 edges"):
        sample_up_to(79)
    with pytest.raises(SamplerConfigError, match="more than 9 nodes"):
        sample_up_to(9)


def misaligned(values) -> np.ndarray:
    """int64 numbers from an odd address on, as in a packed file that was read as bytes."""
    array = np.zeros(8 * len(values) + 1, np.uint8)[1:].view(np.int64)
    array[:] = values
    return array


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"indptr": np.zeros(11, np.int32)}, GraphFormatError, "indptr has dtype int32, but must be int64"),
        ({"indices": np.zeros(20, np.float32)}, GraphFormatError, "indices has dtype float32"),
        ({"indptr": np.empty(0, np.int64)}, GraphFormatError, "indptr is empty"),
        ({"indices": np.zeros(19, np.int64)}, GraphFormatError, r"indptr\[-1\] is 20 but indices has 19"),
        ({"seeds": [1]}, SeedError, "seeds is a list"),
        ({"seeds": np.array([1], np.int32)}, SeedError, "seeds has dtype int32"),
        ({"seeds": np.array([[1]])}, SeedError, "seeds has shape"),
        ({"seeds": np.arange(8)[::2]}, SeedError, "seeds is not contiguous"),
        ({"expand": "both"}, SamplerConfigError, "expand is 'both'"),
        ({"workspace": Workspace(9)}, SamplerConfigError, "9 nodes, but this graph has 10"),
        ({"workspace": None}, SamplerConfigError, "workspace is None, but must be a Workspace"),
        ({"key": (1, 2, 3)}, SamplerConfigError, r"key is \(1, 2, 3\), but must be a DrawKey"),
        ({"fanouts": 2}, SamplerConfigError, "fanouts is 2, but must be a list"),
        ({"fanouts": np.array(2)}, SamplerConfigError, "fanouts is array"),
        ({"expand": np.array(["all"])}, SamplerConfigError, 'expand is array.*must be "all" or "new"'),
        ({"replace": np.zeros(2)}, SamplerConfigError, "replace is array.*must be True or False"),
        ({"edge_ids": "no"}, SamplerConfigError, "edge_ids is 'no', but must be True or False"),
        ({"seeds": misaligned([1])}, SeedError, "seeds is not aligned in memory to its dtype"),
        ({"indptr": misaligned(range(11))}, GraphFormatError, "indptr is not aligned"),
        ({"seeds": np.ma.masked_array([1], mask=True)}, SeedError, "seeds is a MaskedArray"),
    ],
)
def test_wrong_arguments(change, error, message):
    indptr, indices = random_graph(10, 20, seed=0)
    arguments = {
        "workspace": Workspace(10),
        "indptr": indptr,
        "indices": indices,
        "seeds": np.array([1]),
        "fanouts": [2],
        "key": KEY,
        "arena": Arena.of(4096).bytes,
    }
    with pytest.raises(error, match=message):
        sample_with(sample_neighbors, **(arguments | change))


def test_an_input_that_is_none():
    with pytest.raises(SamplerConfigError, match="inputs is None, but must be a SamplerInput"):
        sample_neighbors(None, [2])


@pytest.mark.parametrize("name", ["indptr", "indices", "seeds"])
def test_an_arena_over_another_argument(name):
    # The kernel would read what it has just written: node ids beyond the graph.
    indptr, indices = random_graph(10, 64, seed=0)
    arena = Arena.of(4096).bytes
    shared = arena[: 8 * 11].view(np.int64)[:1] if name == "seeds" else arena[: 8 * 64].view(np.int64)
    arrays = {"indptr": indptr, "indices": indices, "seeds": np.array([1])}
    shared = shared[: len(arrays[name])]
    shared[:] = arrays[name]
    arrays[name] = shared
    with pytest.raises(SamplerConfigError, match=f"arena and {name} share memory"):
        SamplerInput(Workspace(10), **arrays, key=KEY, arena=arena)

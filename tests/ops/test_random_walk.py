"""Random walks equal the oracle, follow edges, and depend on nothing but their start, number and key."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload import ops
from lightning_gnnload.errors import GraphFormatError, SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey, Walks, random_walk
from lightning_gnnload.ops.walks import MAX_WALK_BLOCKS
from tests import oracle

from .graphs import KEY, instruction_set, random_graph, random_weights, star_graph
from .names import any_key, any_names


def assert_equals_oracle(
    indptr: np.ndarray,
    indices: np.ndarray,
    starts: np.ndarray,
    walks: Walks,
    key: DrawKey = KEY,
    names: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> None:
    table = None if weights is None else ops.build_alias(indptr, weights)
    traces = random_walk(indptr, indices, starts, walks, key, table=table, names=names)
    assert traces.dtype == np.int64
    expected = oracle.random_walk(indptr, indices, starts, walks, key, weights=weights, names=names)
    np.testing.assert_array_equal(traces, expected)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 31])
def test_equals_the_oracle(length):
    # 120 starts with 3 walks: two groups, the second filled in part, with a start whose walks are in both.
    indptr, indices = random_graph(120, 1500, seed=3)
    starts = np.random.default_rng(5).permutation(120)
    for probabilities in [(0, 0), (0.3, 0), (0, 0.4), (0.2, 0.5), (1, 1)]:
        walks = Walks(length, 3, *probabilities)
        for weights in [None, random_weights(len(indices))] if length <= 8 else [None]:
            table = None if weights is None else ops.build_alias(indptr, weights)
            expected = oracle.random_walk(indptr, indices, starts, walks, KEY, weights=weights)
            for isa, dtype in itertools.product(ops.instruction_sets(), [np.int32, np.int64]):
                with instruction_set(isa):
                    traces = random_walk(indptr, indices.astype(dtype), starts, walks, KEY, table=table)
                np.testing.assert_array_equal(traces, expected)


@settings(max_examples=300)
@given(data=st.data())
def test_equals_the_oracle_on_any_graph(data):
    num_nodes = data.draw(st.integers(1, 40))
    indptr, indices = random_graph(num_nodes, data.draw(st.integers(0, 150)), seed=data.draw(st.integers(0, 99)))
    starts = data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=num_nodes))
    probabilities = st.sampled_from([0.0, 1e-9, 0.1, 0.5, 0.9, 1.0])
    walks = Walks(
        data.draw(st.integers(1, 9)),
        data.draw(st.integers(1, 9)),
        data.draw(probabilities),
        data.draw(probabilities),
    )
    key = any_key(data)
    names = any_names(data, num_nodes)
    weights = data.draw(st.sampled_from([None, random_weights(len(indices)), np.zeros(len(indices))]))
    assert_equals_oracle(indptr, indices, np.array(starts, np.int64), walks, key, names, weights)


@pytest.mark.parametrize("num_walks", [255, 256, 257, 700])
def test_walks_of_one_start_in_several_groups(num_walks):
    indptr, indices = random_graph(50, 500, seed=1)
    assert_equals_oracle(indptr, indices, np.array([3, 0, 7]), Walks(3, num_walks, 0.2, 0.2))


def test_draws_that_must_be_made_again():
    # Of 2**32 words, 2**24 - 255 would make some of 2**24 + 1 neighbours come too often: 8 of these 2,000 draws.
    degree = 2**24 + 1
    indices = np.arange(degree + 15, dtype=np.int32) % 16
    indices[degree:] = 0
    indptr = np.concatenate([[0], np.arange(degree, degree + 16)])
    for hop in range(2):
        assert_equals_oracle(indptr, indices, np.array([0]), Walks(4, 500), DrawKey(7, 1, 2, hop))


@pytest.mark.parametrize("degree", [2**31 + 1, 2**32 - 1])
def test_positions_beyond_32_bits(degree, tmp_path):
    # Arithmetic on them in fewer bits reads far outside. The indices are a file with a hole: all zero.
    indices = np.memmap(tmp_path / "indices", np.int32, "w+", shape=(degree,))
    assert_equals_oracle(np.array([0, degree]), indices, np.array([0]), Walks(5, 4))


def test_ids_beyond_32_bits(tmp_path):
    # The high bits of a start name its draws. indptr is a file with a hole: only the last node has neighbours.
    num_nodes = 2**32 + 100
    indptr = np.memmap(tmp_path / "indptr", np.int64, "w+", shape=(num_nodes + 1,))
    indices = np.array([num_nodes - 1] * 3 + [5, 2**32 + 5])
    indptr[-1] = len(indices)
    assert_equals_oracle(indptr, indices, np.array([num_nodes - 1, 5]), Walks(9, 20))


def test_graphs_with_little_in_them():
    nothing = np.empty(0, np.int64)
    assert random_walk(np.array([0]), nothing, nothing, Walks(4, 3), KEY).shape == (0, 5)
    alone = random_walk(np.array([0, 0]), nothing, np.array([0]), Walks(2, 2), KEY)
    assert alone.tolist() == [[0, -1, -1], [0, -1, -1]]
    loop = random_walk(np.array([0, 1]), np.array([0]), np.array([0]), Walks(3), KEY)
    assert loop.tolist() == [[0, 0, 0, 0]]


# What a walk is, whatever it draws


def test_steps_follow_in_edges_until_there_are_none():
    indptr, indices = random_graph(100, 300, seed=2)  # skewed: about a third of the nodes have no in-neighbours
    edges = set(zip(np.repeat(np.arange(100), np.diff(indptr)).tolist(), indices.tolist(), strict=True))
    degree = np.diff(indptr)
    num_ended = 0
    for trace in random_walk(indptr, indices, np.arange(100), Walks(6, 5), KEY).tolist():
        nodes = [node for node in trace if node >= 0]
        assert trace == nodes + [-1] * (7 - len(nodes))
        assert all(edge in edges for edge in itertools.pairwise(nodes))
        assert len(nodes) == 7 or degree[nodes[-1]] == 0
        num_ended += len(nodes) < 7
    assert 0 < num_ended < 500


def test_certain_termination_and_certain_restart():
    indptr, indices = random_graph(60, 2000, seed=2)
    one_step = random_walk(indptr, indices, np.arange(5), Walks(6, 4, termination_prob=1), KEY)
    assert np.all(one_step[:, 1] >= 0)
    assert np.all(one_step[:, 2:] == -1)
    # Every step leaves from the start: all nodes of a row are neighbours of its first.
    for trace in random_walk(indptr, indices, np.arange(5), Walks(6, 4, restart_prob=1), KEY):
        assert np.isin(trace[1:], indices[indptr[trace[0]] : indptr[trace[0] + 1]]).all()


def test_a_walk_is_the_same_in_any_company():
    indptr, indices = random_graph(400, 8000, seed=1)
    walks = Walks(6, 4, 0.1, 0.1)
    order = np.random.default_rng(0).permutation(400)
    everyone = random_walk(indptr, indices, order, walks, KEY).reshape(400, 4, 7)
    for some in ([17], [300, 17, 5], order[-50:]):
        found = random_walk(indptr, indices, np.array(some), walks, KEY).reshape(len(some), 4, 7)
        np.testing.assert_array_equal(found, everyone[[np.flatnonzero(order == node)[0] for node in some]])
    first_two = random_walk(indptr, indices, order, Walks(6, 2, 0.1, 0.1), KEY).reshape(400, 2, 7)
    np.testing.assert_array_equal(first_two, everyone[:, :2])


def test_termination_cuts_walks_and_changes_nothing_else():
    indptr, indices = random_graph(200, 4000, seed=1)
    whole = random_walk(indptr, indices, np.arange(200), Walks(9, 3), KEY)
    cut = random_walk(indptr, indices, np.arange(200), Walks(9, 3, termination_prob=0.3), KEY)
    assert np.all((cut == whole) | (cut == -1))
    assert (cut == -1).any(axis=1).sum() > 300


@pytest.mark.parametrize(
    "key",
    [DrawKey(8, 1, 2), DrawKey(7 + 2**32, 1, 2), DrawKey(7, 2, 2), DrawKey(7, 1, 3), DrawKey(7, 1, 2, hop=1)],
)
def test_every_part_of_the_key_matters(key):
    # Of 200 steps to one of 30 nodes about 7 agree by chance; 30 do with probability below 1e-9.
    indptr, indices = star_graph(200, 30)
    mine = random_walk(indptr, indices, np.arange(200), Walks(1), KEY)
    other = random_walk(indptr, indices, np.arange(200), Walks(1), key)
    assert (mine[:, 1] == other[:, 1]).sum() < 30


def test_probabilities_are_thresholds():
    assert (Walks(1).end_below, Walks(1).restart_below) == (0, 0)
    assert Walks(1, 1, 0.25, 0.5).end_below == 2**30
    assert Walks(1, 1, 0.25, 0.5).restart_below == 2**30 + 3 * 2**29  # half of what does not end
    assert (Walks(1, 1, 1, 1).end_below, Walks(1, 1, 1, 1).restart_below) == (2**32, 2**32)
    assert Walks(1, 1, 1e-12).end_below == 0
    assert Walks(np.int32(1), np.int64(1), np.float32(0.5)).end_below == 2**31


# Wrong input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "the length of a walk is 0, but must be at least 1"),
        ({"length": 2.0}, "the length of a walk is 2.0, but must be an integer"),
        ({"num_walks": -1}, "num_walks is -1"),
        ({"num_walks": "3"}, "num_walks is '3'"),
        ({"termination_prob": 1.5}, r"termination_prob is 1.5, but must be a number in \[0, 1\]"),
        ({"termination_prob": float("nan")}, "termination_prob is nan"),
        ({"restart_prob": -0.1}, "restart_prob is -0.1"),
        ({"restart_prob": "0.5"}, "restart_prob is '0.5'"),
        ({"restart_prob": None}, "restart_prob is None"),
        ({"length": 2, "num_walks": MAX_WALK_BLOCKS + 1}, "more than there are draws for"),
        ({"length": 2**40}, "more than there are draws for"),
    ],
)
def test_walks_that_cannot_be(arguments, message):
    with pytest.raises(SamplerConfigError, match=message):
        Walks(**({"length": 3} | arguments))
    assert Walks(2, MAX_WALK_BLOCKS).num_walks == MAX_WALK_BLOCKS


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"starts": np.array([4, 10])}, SeedError, r"starts\[1\] is 10, but the graph has 10 nodes"),
        ({"starts": np.array([-1])}, SeedError, r"starts\[0\] is -1"),
        ({"starts": np.array([2**62])}, SeedError, r"starts\[0\] is 4611686018427387904"),
        ({"starts": np.array([7, 8, 7])}, SeedError, "node 7 more than once.*num_walks"),
        ({"starts": [1]}, SeedError, "starts is a list"),
        ({"starts": np.array([1], np.int32)}, SeedError, "starts has dtype int32"),
        ({"indptr": np.zeros(11, np.int32)}, GraphFormatError, "indptr has dtype int32"),
        ({"indices": np.zeros(19, np.int64)}, GraphFormatError, r"indptr\[-1\] is 20 but indices has 19"),
        ({"names": np.arange(7)}, GraphFormatError, "names has 7 entries"),
        ({"names": np.arange(6.0)}, GraphFormatError, "names has dtype float64"),
    ],
)
def test_wrong_arguments(change, error, message):
    indptr, indices = random_graph(10, 20, seed=0)
    arguments = {"indptr": indptr, "indices": indices, "starts": np.array([1]), "walks": Walks(3), "key": KEY}
    with pytest.raises(error, match=message):
        random_walk(**(arguments | change))

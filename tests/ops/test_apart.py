"""Ops on lists that lie apart come to what the ops on a whole graph do."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload import ops
from lightning_gnnload.errors import GraphFormatError, SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey, LineUnits, Walks
from lightning_gnnload.ops.philox import stream_keys
from tests import oracle
from tests.oracle.layers import whole_weights

from .graphs import random_graph, random_weights, sampled

KEY = DrawKey(7, 1, 2, hop=3)
NUM_NODES = 300


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("walks", [Walks(1), Walks(5, 3, 0.2, 0.4), Walks(4, 2, 0, 1)])
def test_steps_equal_the_oracle(walks: Walks, dtype: type) -> None:
    indptr, indices = random_graph(NUM_NODES, 900, seed=1, dtype=dtype)
    rng = np.random.default_rng(2)
    places, starts = rng.integers(0, NUM_NODES, 70), rng.integers(0, 2**40, 70)
    numbers = rng.integers(0, walks.num_walks, 70)
    for t in range(walks.length):
        nodes, fates = ops.step_walks(indptr, indices, places, starts, numbers, walks, KEY, t)
        want = oracle.step_walks(indptr, indices, places, starts, numbers, walks, KEY, t)
        assert (nodes.tolist(), fates.tolist()) == want
        weights = random_weights(len(indices))
        table = ops.build_alias(indptr, weights)
        nodes, fates = ops.step_walks(indptr, indices, places, starts, numbers, walks, KEY, t, table=table)
        want = oracle.step_walks(indptr, indices, places, starts, numbers, walks, KEY, t, weights=weights)
        assert (nodes.tolist(), fates.tolist()) == want


def walked(
    indptr: np.ndarray,
    indices: np.ndarray,
    starts: np.ndarray,
    walks: Walks,
    key: DrawKey,
    table: ops.AliasTable | None = None,
) -> np.ndarray:
    """Traces like those of random_walk, step by step."""
    begun = np.repeat(starts, walks.num_walks)
    numbers = np.tile(np.arange(walks.num_walks), len(starts))
    traces = np.full((len(begun), walks.length + 1), -1)
    traces[:, 0] = places = begun
    going = np.arange(len(begun))
    for t in range(walks.length):
        of_walks = places, begun[going], numbers[going]
        nodes, fates = ops.step_walks(indptr, indices, *of_walks, walks, key, t, table=table)
        traces[going, t + 1] = nodes
        places = np.where(fates == ops.RESTARTS, begun[going], nodes)[fates < ops.ENDS]
        going = going[fates < ops.ENDS]
    return traces


@pytest.mark.parametrize("walks", [Walks(1, 300), Walks(5, 3, 0.2, 0.4), Walks(4, 2, 0, 1), Walks(6, 2, 1)])
def test_steps_make_walks_and_visits_make_neighbourhoods(walks: Walks) -> None:
    indptr, indices = random_graph(NUM_NODES, 2000, seed=1)
    starts = np.random.default_rng(3).permutation(NUM_NODES)[:90]
    key = DrawKey(7, 1, 2)
    traces = walked(indptr, indices, starts, walks, key)
    np.testing.assert_array_equal(traces, ops.random_walk(indptr, indices, starts, walks, key))
    table = ops.build_alias(indptr, random_weights(len(indices)))
    by_weight = ops.random_walk(indptr, indices, starts, walks, key, table=table)
    np.testing.assert_array_equal(walked(indptr, indices, starts, walks, key, table), by_weight)
    for include_self, normalize in ((True, False), (False, True)):
        settings = {"num_neighbors": 4, "include_self": include_self, "normalize": normalize}
        visits = np.ascontiguousarray(traces[:, 1:]).reshape(len(starts), -1)
        counts, neighbors, weights = ops.rank_visits(starts, visits, **settings)
        want = oracle.rank_visits(starts, visits, **settings)
        assert (counts.tolist(), neighbors.tolist()) == want[:2]
        np.testing.assert_array_equal(weights, want[2])
        workspace = ops.Workspace(NUM_NODES)
        batch = sampled(
            lambda arena, workspace=workspace, settings=settings: ops.sample_walks(
                ops.SamplerInput(workspace, indptr, indices, starts, key, arena), walks, num_hops=1, **settings
            )
        )
        np.testing.assert_array_equal(np.diff(batch.hops[0].indptr), counts)
        np.testing.assert_array_equal(batch.nodes[batch.hops[0].indices], neighbors)
        np.testing.assert_array_equal(batch.hops[0].edge_weights, weights)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("budget", [1, 40, 5000, -1])
def test_layers_equal_those_of_the_whole_graph(budget: int, replace: bool, normalize: bool) -> None:
    indptr, indices = random_graph(NUM_NODES, 900, seed=1)
    seeds = np.random.default_rng(3).permutation(NUM_NODES)[:90]
    key, settings = DrawKey(7, 1, 2), {"replace": replace, "normalize": normalize}
    degrees = np.diff(indptr)[seeds]
    counts, places, weights = ops.draw_layer(degrees, budget, key, int(seeds[0]), **settings)
    want = oracle.draw_layer(degrees, budget, key, int(seeds[0]), **settings)
    assert (counts.tolist(), places.tolist()) == want[:2]
    np.testing.assert_array_equal(weights, want[2])
    workspace = ops.Workspace(NUM_NODES)
    batch = sampled(
        lambda arena: ops.sample_layers(
            ops.SamplerInput(workspace, indptr, indices, seeds, key, arena), [budget], "dsp", edge_ids=True, **settings
        )
    )
    np.testing.assert_array_equal(np.diff(batch.hops[0].indptr), counts)
    np.testing.assert_array_equal(batch.hops[0].edge_ids, np.repeat(indptr[seeds], counts) + places)
    np.testing.assert_array_equal(batch.hops[0].edge_weights, weights)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_layer_that_lies_apart_is_one_line(dtype: type) -> None:
    indptr, indices = random_graph(NUM_NODES, 900, seed=1)
    weights = random_weights(len(indices), dtype)
    rows = np.random.default_rng(3).permutation(NUM_NODES)[:60]
    edges = [range(indptr[row], indptr[row + 1]) for row in rows]
    layer = [float(weights[edge]) for each in edges for edge in each]
    units, line = LineUnits(max(layer), len(layer)), iter(whole_weights(layer))
    lengths, num_positive = ops.measure_lists(indptr, weights, rows, units)
    assert num_positive == sum(weight > 0 for weight in layer)
    assert units.num_edges > 100
    asked: list[tuple[int, int]] = []
    wanted = []
    for row, each, length in zip(rows.tolist(), edges, lengths.tolist(), strict=True):
        begin, of_list = 0, whole_weights([float(weights[edge]) for edge in each])
        for number in range(len(each)):
            end = begin + next(line)
            places = [begin, end - 1] if end > begin else []
            asked += [(row, place) for place in places]
            wanted += [(number, begin, end - begin, float(of_list[number]), float(sum(of_list)))] * len(places)
            begin = end
        assert begin == length
    for order in (np.arange(len(asked)), np.random.default_rng(4).permutation(len(asked))):  # lists in one pass, or not
        rows_asked, places = np.array(asked).T[:, order]
        found = ops.find_on_line(indptr, weights, rows_asked.copy(), units, places.copy())
        assert list(zip(*(column.tolist() for column in found), strict=True)) == [wanted[at] for at in order]


def test_later_waves_draw_other_places() -> None:
    draws = oracle.NodeDraws(stream_keys(7, 1)[0], 2, 3, 9)
    for wave in range(3):
        places = ops.draw_places(10**18, 10, KEY, 9, wave)
        assert places.tolist() == [draws.of_wave(wave).below64(j, 10**18) for j in range(10 + 1 + 16)]


def test_the_hop_decides_as_well() -> None:
    degrees = np.full(50, 9)
    drawn = [ops.draw_layer(degrees, 20, DrawKey(7, 1, 2, hop), 3)[1].tolist() for hop in (0, 1)]
    assert drawn[0] != drawn[1]
    assert ops.draw_layer(degrees[:0], 20, KEY, 0)[0].shape == (0,)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda one: ops.step_walks(one, one[:0], one[:1] + 1, one[:1], one[:1], Walks(2), KEY, 0),
            SeedError,
            r"places\[0\] is 1",
        ),
        (lambda one: ops.step_walks(one, one[:0], one[:1], one, one[:1], Walks(2), KEY, 0), SeedError, "starts has 2"),
        (
            lambda one: ops.step_walks(one, one[:0], one[:1], one[:1], one[:1] + 1, Walks(2), KEY, 0),
            SamplerConfigError,
            r"numbers\[0\] is 1",
        ),
        (
            lambda one: ops.step_walks(one, one[:0], one[:1], one[:1], one[:1], Walks(2), KEY, 2),
            SamplerConfigError,
            "t is 2",
        ),
        (lambda one: ops.rank_visits(one, one[None], num_neighbors=1), SamplerConfigError, "a row a start"),
        (lambda one: ops.rank_visits(one[:1], one[None] - 2, num_neighbors=1), SamplerConfigError, r"visits\[0\]\[0\]"),
        (lambda one: ops.draw_layer(one - 1, 1, KEY, 0), SamplerConfigError, r"degrees\[0\] is -1"),
        (lambda one: ops.draw_layer(one, 0, KEY, 0), SamplerConfigError, "budget"),
        (lambda one: ops.draw_layer(one + 2**32 - 1, -1, KEY, 0), SamplerConfigError, "int32"),
        (lambda one: ops.draw_layer(one, 1, KEY, -1), SamplerConfigError, "first_seed"),
        (lambda one: ops.draw_places(0, 1, KEY, 0), SamplerConfigError, "length is 0"),
        (lambda one: ops.measure_lists(one, np.ones(1), one, LineUnits(1, 1)), GraphFormatError, "weights has 1"),
        (lambda one: ops.measure_lists(one, np.ones(0), one + 1, LineUnits(1, 1)), SeedError, "rows span"),
        (lambda one: ops.measure_lists(one, np.ones(0), one, LineUnits(np.inf, 1)), SamplerConfigError, "greatest"),
        (
            lambda one: ops.measure_lists(np.arange(2), np.array([np.nan]), one[:1], LineUnits(1, 1)),
            GraphFormatError,
            "edge_weight holds",
        ),
        (
            lambda one: ops.find_on_line(np.arange(2), np.ones(1), one[:1], LineUnits(1, 1), one[:1] + 2**62),
            SamplerConfigError,
            r"places\[0\] is 4611686018427387904, beyond",
        ),
    ],
)
def test_what_does_not_fit(call, error, message: str) -> None:
    with pytest.raises(error, match=message):
        call(np.zeros(2, np.int64))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_nodes_that_are_drawn_apart_make_the_layer(replace: bool, weighted: bool) -> None:
    indptr, indices = random_graph(NUM_NODES, 2000, seed=1)
    weights = random_weights(len(indices)) if weighted else None
    key, seeds = DrawKey(7, 1, 2), np.random.default_rng(3).permutation(NUM_NODES)[:40]
    # Of two halves of the lists, as if each lay elsewhere.
    sums = np.zeros(NUM_NODES, np.int64)
    for half in (np.arange(NUM_NODES) % 2 == 0, np.arange(NUM_NODES) % 2 == 1):
        edges = np.repeat(half, np.diff(indptr))
        own = np.append(0, np.cumsum(np.where(half, np.diff(indptr), 0)))
        sums += ops.importances(own, indices[edges], NUM_NODES, None if weights is None else weights[edges])
    tree = ops.importance_tree(indptr, indices, weights)
    np.testing.assert_array_equal(ops.tree_of(sums), tree)
    draws = ops.draw_nodes(tree, 60, key, int(seeds[0]), replace=replace)
    layers = []
    for settings in ({"importance_tree": tree, "replace": replace}, {"draws": draws}):
        workspace = ops.Workspace(NUM_NODES)
        layers.append(
            sampled(
                lambda arena, workspace=workspace, settings=settings: ops.sample_layers(
                    ops.SamplerInput(workspace, indptr, indices, seeds, key, arena),
                    [60],
                    "fastgcn",
                    edge_ids=True,
                    weights=weights,
                    **settings,
                )
            )
        )
    whole, apart = layers
    assert len(whole.nodes) > len(seeds)
    np.testing.assert_array_equal(apart.nodes, whole.nodes)
    for name in ("indptr", "indices", "edge_ids", "edge_weights"):
        np.testing.assert_array_equal(getattr(apart.hops[0], name), getattr(whole.hops[0], name))


def test_draws_that_cannot_be_are_refused() -> None:
    tree = ops.importance_tree(*random_graph(NUM_NODES, 900, seed=1))
    for bad, budget in ((np.zeros(4, np.int64), 1), (tree, int(tree[0]) + 1), (np.empty(0, np.int64), 1)):
        with pytest.raises(SamplerConfigError, match="have any importance"):
            ops.draw_nodes(bad, budget, KEY, 0)
    indptr, indices = random_graph(NUM_NODES, 900, seed=1)
    for nodes, factors in (
        (np.array([NUM_NODES]), np.ones(1)),
        (np.array([3]), np.ones(2)),
        (np.array([-1]), np.ones(1)),
    ):
        with pytest.raises(SamplerConfigError, match="drawn"):
            sampled(
                lambda arena, draws=(nodes, factors): ops.sample_layers(
                    ops.SamplerInput(ops.Workspace(NUM_NODES), indptr, indices, np.array([0]), KEY, arena),
                    [-1],
                    "fastgcn",
                    draws=draws,
                )
            )

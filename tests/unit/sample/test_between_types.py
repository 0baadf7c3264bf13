"""Samplers on graphs with types: walks along metapaths, draws by weight and by shared draws from each run, and those
that draw from all types together. Random graphs have seeds of their own; nothing here is statistical."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_gnnload import (
    Graph,
    HGTSampler,
    LaborSampler,
    LayerSampler,
    MiniBatch,
    RandomWalkSampler,
    ShadowSampler,
    WeightedNeighborSampler,
    random_walk,
)
from lightning_gnnload.errors import GraphFormatError, SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey, Walks
from tests import oracle

BUYS, REV_BUYS = ("user", "buys", "item"), ("item", "rev_buys", "user")
VIEWS, KNOWS, SELLS = ("user", "views", "item"), ("user", "knows", "user"), ("shop", "sells", "item")
KEY = DrawKey(seed=3, epoch=2, step=7)
NUM_GRAPHS = 25


def typed_graph(seed: int) -> tuple[Graph, np.ndarray]:
    """A random graph with weights, some of them zero, and the edge type of each position in its lists, found by
    counting and not from the graph's own runs. Some edge types are empty, and shops have no in-neighbours of any
    type."""
    rng = np.random.default_rng(seed)
    num_nodes = {"user": int(rng.integers(1, 12)), "shop": 3, "item": int(rng.integers(1, 9))}
    edges, weights = {}, {}
    for kind in (BUYS, REV_BUYS, VIEWS, KNOWS, SELLS):
        count = int(rng.integers(0, 60))
        edges[kind] = (rng.integers(0, num_nodes[kind[0]], count), rng.integers(0, num_nodes[kind[2]], count))
        if kind != VIEWS:
            weights[kind] = rng.integers(0, 4, count).astype(np.float32)
    graph = Graph.from_hetero(num_nodes, edges, edge_weight=weights)
    assert graph.types is not None
    if seed % 2:  # the other width of offsets
        assert graph.run_ptr is not None
        graph.run_ptr = graph.run_ptr.astype(np.int64)
    types = [
        np.full(np.count_nonzero(edges[kind][1] == local), number)
        for name in num_nodes
        for local in range(num_nodes[name])
        for number, kind in enumerate(graph.types.edge_types)
        if kind[2] == name
    ]
    edge_type = np.concatenate(types)
    assert len(edge_type) == graph.num_edges
    return graph, edge_type


def lists_along(graph: Graph, edge_type: np.ndarray, metapath: list[Any]) -> list[oracle.Lists]:
    assert graph.types is not None
    numbers = [graph.types.edge_types.index(kind) for kind in metapath]

    def list_of(node: int, number: int) -> range:
        begin, end = int(graph.indptr[node]), int(graph.indptr[node + 1])
        own = begin + np.flatnonzero(edge_type[begin:end] == number)
        return range(own[0], own[-1] + 1) if len(own) else range(0)

    return [lambda node, number=number: list_of(node, number) for number in numbers]  # type: ignore[misc]


def nodes_of_type(graph: Graph, name: str) -> np.ndarray:
    assert graph.types is not None
    return np.array(graph.types.range_of(name), np.int64)


def assert_equal(batch: MiniBatch, nodes: np.ndarray, hops: list[Any], edge_type: np.ndarray | None = None) -> None:
    assert batch.nodes.tolist() == nodes.tolist()
    for block, hop in zip(batch.blocks[::-1], hops, strict=True):
        assert block.indptr.tolist() == hop.indptr.tolist()
        assert block.indices.tolist() == hop.indices.tolist()
        if edge_type is not None:
            assert block.edge_ids.tolist() == hop.edge_ids.tolist()
            assert block.edge_type.tolist() == edge_type[hop.edge_ids].tolist()


# Walks


@pytest.mark.parametrize("metapath", [[BUYS], [BUYS, REV_BUYS], [VIEWS, KNOWS, KNOWS, REV_BUYS]])
@pytest.mark.parametrize("weighted", [False, True])
def test_walks_along_a_metapath_equal_the_oracle(metapath, weighted) -> None:
    for seed in range(NUM_GRAPHS):
        graph, edge_type = typed_graph(seed)
        rounds = 1 if metapath == [BUYS] else 3
        starts = nodes_of_type(graph, "item")[::-1]
        options = {"num_walks": 5, "termination_prob": 0.2, "restart_prob": 0.3}
        got = random_walk(
            graph, starts, rounds, metapath=metapath, weighted=weighted, **options, seed=3, epoch=2, step=7
        )
        wanted = oracle.random_walk(
            graph.indptr,
            graph.indices,
            starts,
            Walks(rounds * len(metapath), **options),
            KEY,
            weights=graph.edge_weight if weighted else None,
            lists=lists_along(graph, edge_type, metapath),
        )
        np.testing.assert_array_equal(got.numpy(), wanted)


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("weighted", [False, True])
def test_pinsage_along_a_metapath_equals_the_oracle(expand, weighted) -> None:
    metapath = [BUYS, KNOWS, REV_BUYS]
    sampler = RandomWalkSampler(
        2, num_neighbors=3, num_walks=6, walk_length=2, expand=expand, weighted=weighted, metapath=metapath
    )
    found = 0
    for seed in range(NUM_GRAPHS):
        graph, edge_type = typed_graph(seed)
        seeds = nodes_of_type(graph, "item")[:3]
        batch = sampler.sample(graph, seeds, seed=3, epoch=2, step=7)
        nodes, hops = oracle.sample_walks(
            graph.indptr,
            graph.indices,
            seeds,
            Walks(6, 6, termination_prob=0.5),
            KEY,
            num_hops=2,
            num_neighbors=3,
            expand=expand,
            weights=graph.edge_weight if weighted else None,
            lists=lists_along(graph, edge_type, metapath),
        )
        assert_equal(batch, nodes, hops)
        for block, hop in zip(batch.blocks[::-1], hops, strict=True):
            assert block.edge_weight.tolist() == hop.weights.tolist()
            assert block.edge_type is None
            assert block.edge_ids is None
            found += block.num_edges
        assert set(batch.nodes.tolist()) <= set(nodes_of_type(graph, "item").tolist())
    assert found > 0


def test_a_metapath_of_the_only_edge_type_walks_as_without_types() -> None:
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 50, 400), rng.integers(0, 50, 400)
    flat = Graph.from_coo(src, dst, 50)
    typed = Graph.from_hetero({"node": 50}, {("node", "to", "node"): (src, dst)})
    options: dict[str, Any] = {"num_walks": 300, "termination_prob": 0.1, "restart_prob": 0.1, "step": 5}
    walked = random_walk(flat, np.arange(50), 7, **options)
    assert walked.tolist() == random_walk(typed, np.arange(50), 7, metapath=["to"], **options).tolist()
    plain, along = RandomWalkSampler(2), RandomWalkSampler(2, metapath=["to"])
    assert str(plain.sample(flat, [3, 9]).nodes.tolist()) == str(along.sample(typed, [3, 9]).nodes.tolist())


def test_walks_end_and_restart_after_whole_rounds() -> None:
    # One way to go: item 0 <- user 0 <- item 1 <- user 1 <- item 2.
    graph = Graph.from_hetero({"user": 2, "item": 3}, {BUYS: ([0, 1], [0, 1]), REV_BUYS: ([1, 2], [0, 1])})
    walk: dict[str, Any] = {"metapath": [BUYS, REV_BUYS], "length": 2}
    assert random_walk(graph, [2], **walk).tolist() == [[2, 0, 3, 1, 4]]
    assert random_walk(graph, [2], **walk, termination_prob=1).tolist() == [[2, 0, 3, -1, -1]]
    assert random_walk(graph, [2], **walk, restart_prob=1).tolist() == [[2, 0, 3, 0, 3]]
    assert random_walk(graph, [3], **walk).tolist() == [[3, 1, 4, -1, -1]]
    [block] = (
        RandomWalkSampler(1, walk_length=2, termination_prob=0, metapath=[BUYS, REV_BUYS]).sample(graph, [2]).blocks
    )
    assert block.edge_weight.tolist() == [4.0, 4.0]  # users are passed, and not visited


@pytest.mark.parametrize(
    ("metapath", "starts", "error", "message"),
    [
        ([BUYS, BUYS], [2], SamplerConfigError, r"metapath\[1\].*ends in 'item'.*reaches 'user'"),
        ([BUYS, KNOWS], [2], SamplerConfigError, "leads from 'item' to 'user'.*come back to 'item'"),
        (["rents"], [2], SamplerConfigError, "'rents' names no edge type"),
        ([], [2], SamplerConfigError, "a list of edge types is needed"),
        ("buys", [2], SamplerConfigError, "a list of edge types is needed"),
        ([BUYS, REV_BUYS], [2, 1], SeedError, r"s\[1\] is 1, but .* nodes 2 to 4"),
        ([BUYS, REV_BUYS], [5], SeedError, "5"),
    ],
)
def test_metapaths_that_lead_nowhere(metapath, starts, error, message: str) -> None:
    graph = Graph.from_hetero({"user": 2, "item": 3}, {BUYS: ([0], [0]), REV_BUYS: ([1], [0]), KNOWS: ([0], [1])})
    with pytest.raises(error, match=message):
        random_walk(graph, starts, 2, metapath=metapath)
    with pytest.raises(error, match=message):
        RandomWalkSampler(metapath=metapath).sample(graph, starts)


def test_what_metapaths_need() -> None:
    flat = Graph.from_coo([0], [1])
    with pytest.raises(SamplerConfigError, match="no types of nodes"):
        random_walk(flat, [1], metapath=["buys"])
    with pytest.raises(SamplerConfigError, match="needs a length"):
        random_walk(flat, [1])
    sampler = RandomWalkSampler(metapath=[BUYS, REV_BUYS])
    assert repr(sampler).endswith(f"metapath={[BUYS, REV_BUYS]})")
    assert "walk_length=3" in repr(sampler)
    assert sampler.reach is None, "runs are numbered as in the whole graph"
    assert sampler.presence(flat, np.ones(2)) is None
    timed = Graph.from_hetero(None, {BUYS: ([0], [0])}, edge_time={BUYS: np.array([5])})
    with pytest.raises(SamplerConfigError, match="the graph has them"):
        random_walk(timed, [1], metapath=[BUYS])


# Draws from each run


FANOUTS = [[3, 2], [{"buys": 2, "knows": -1, "sells": 1}, 4], {BUYS: [1, 0], REV_BUYS: [-1, 2], VIEWS: [2, 50]}]


def by_number(graph: Graph, fanouts: Any) -> list[dict[int, int]]:
    """The fanouts of each hop by the numbers of edge types, 0 left out."""
    types = graph.types
    assert types is not None
    if isinstance(fanouts, dict):
        numbers = {types.edge_types.index(kind): hops for kind, hops in fanouts.items()}
        return [{number: hops[hop] for number, hops in numbers.items() if hops[hop]} for hop in range(2)]
    every = range(len(types.edge_types))
    return [
        {types.edge_type_number(name): fanout for name, fanout in hop.items()}
        if isinstance(hop, dict)
        else dict.fromkeys(every, hop)
        for hop in fanouts
    ]


@pytest.mark.parametrize("fanouts", FANOUTS)
@pytest.mark.parametrize(("replace", "expand"), [(False, "all"), (True, "all"), (False, "new"), (True, "new")])
def test_draws_by_weight_equal_the_oracle(fanouts, replace, expand) -> None:
    for seed in range(NUM_GRAPHS):
        graph, edge_type = typed_graph(seed)
        sampler = WeightedNeighborSampler(fanouts, replace, expand, edge_ids=True)
        seeds = np.random.default_rng(seed).permutation(graph.num_nodes)[:5]
        batch = sampler.sample(graph, seeds, seed=3, epoch=2, step=7)
        nodes, hops = oracle.sample_weighted(
            graph.indptr,
            graph.indices,
            graph.edge_weight,
            seeds,
            by_number(graph, fanouts),
            KEY,
            replace=replace,
            expand=expand,
            edge_type=edge_type,
        )
        assert_equal(batch, nodes, hops, edge_type)


@pytest.mark.parametrize("fanouts", FANOUTS)
@pytest.mark.parametrize(
    "settings", [{}, {"fixed_count": True}, {"layer_dependency": True}, {"estimate": "sum"}, {"expand": "new"}]
)
def test_shared_draws_equal_the_oracle(fanouts, settings) -> None:
    for seed in range(NUM_GRAPHS):
        graph, edge_type = typed_graph(seed)
        seeds = np.random.default_rng(seed).permutation(graph.num_nodes)[:5]
        batch = LaborSampler(fanouts, **settings, edge_ids=True).sample(graph, seeds, seed=3, epoch=2, step=7)
        nodes, hops = oracle.sample_labor(
            graph.indptr, graph.indices, seeds, by_number(graph, fanouts), KEY, **settings, edge_type=edge_type
        )
        assert_equal(batch, nodes, hops, edge_type)
        if "estimate" in settings:
            for block, hop in zip(batch.blocks[::-1], hops, strict=True):
                assert block.edge_weight.tolist() == hop.weights.tolist()


def test_a_source_has_a_draw_for_each_edge_type() -> None:
    users = np.tile(np.arange(64), 2)
    items = np.repeat([0, 1], 64)
    graph = Graph.from_hetero(None, {BUYS: (users, items), VIEWS: (users, items)})
    [block] = LaborSampler([16], fixed_count=True, edge_ids=True).sample(graph, [64, 65]).blocks
    sources = block.indices.reshape(2, 2, 16).tolist()  # by item, by edge type
    assert sources[0] == sources[1]  # shared among items
    assert set(sources[0][0]) != set(sources[0][1])  # but not between types


def test_nodes_whose_edges_of_a_type_weigh_nothing() -> None:
    graph = Graph.from_hetero(
        None,
        {BUYS: ([0, 0, 1], [0, 1, 1]), VIEWS: ([0, 1], [0, 2])},
        edge_weight={BUYS: np.array([0.0, 0.0, 1.0]), VIEWS: np.array([1.0, 0.0])},
    )
    message = r"2 nodes \(2, 4\) have in-neighbours, but only edges of weight zero"
    with pytest.raises(SamplerConfigError, match=message):
        WeightedNeighborSampler([2], on_zero="error").sample(graph, [3])
    with pytest.warns(UserWarning, match=message):
        WeightedNeighborSampler([2], on_zero="warn").sample(graph, [3])


@pytest.mark.parametrize("sampler", [WeightedNeighborSampler, LaborSampler])
def test_fanouts_by_type_that_a_graph_does_not_have(sampler) -> None:
    graph, _ = typed_graph(0)
    with pytest.raises(SamplerConfigError, match="'rents' names no edge type"):
        sampler([{"rents": 2}]).sample(graph, [0])
    flat = Graph.from_coo([0], [1], edge_weight=[1.0])
    with pytest.raises(GraphFormatError, match="there are no edge types"):
        sampler([{"buys": 2}]).sample(flat, [0])
    with pytest.raises(SamplerConfigError, match="17 hops, but at most 16"):
        sampler([1] * 17).sample(graph, [0])
    unweighted = Graph.from_hetero(None, {BUYS: ([0], [0])})
    with pytest.raises(SamplerConfigError, match=r"no edge weights|importance=2 is solved for whole lists"):
        (sampler([2]) if sampler is WeightedNeighborSampler else sampler([2], importance=2)).sample(unweighted, [1])


# Draws from all types together


@pytest.mark.parametrize(
    "sampler",
    [
        ShadowSampler([3, 2], num_layers=2, edge_ids=True),
        LayerSampler([6, 6], edge_ids=True),
        LayerSampler([6, 6], "dsp", edge_ids=True),
        LayerSampler([6, 6], "fastgcn", edge_ids=True, weighted=False),
        RandomWalkSampler(2),
    ],
)
def test_all_types_together_as_in_the_flat_graph(sampler) -> None:
    for seed in range(5):
        graph, edge_type = typed_graph(seed)
        assert graph.types is not None
        flat = Graph(graph.indptr, graph.indices, graph.edge_weight)
        seeds = np.unique(np.random.default_rng(seed).integers(0, graph.num_nodes, 4))
        batch, wanted = sampler.sample(graph, seeds, seed=4), sampler.sample(flat, seeds, seed=4)
        assert batch.nodes.tolist() == wanted.nodes.tolist()
        for block, other in zip(batch.blocks, wanted.blocks, strict=True):
            assert (block.indptr.tolist(), block.indices.tolist()) == (other.indptr.tolist(), other.indices.tolist())
            if block.edge_ids is None:
                continue
            # The place of an edge says its type, and so do its ends.
            assert graph.run_ptr is not None
            run = np.searchsorted(graph.run_ptr, block.edge_ids.numpy(), side="right") - 1
            dst = np.repeat(batch.nodes[: block.num_dst].numpy(), np.diff(block.indptr.numpy()))
            assert graph.types.nodes_of_runs(run).tolist() == dst.tolist()
            src = batch.nodes.numpy()[block.indices.numpy()]
            ends = np.array(
                [
                    [graph.types.node_type_number(k[0]), graph.types.node_type_number(k[2])]
                    for k in graph.types.edge_types
                ]
            )
            kind = edge_type[block.edge_ids.numpy()]
            assert ends[kind, 0].tolist() == graph.types.number_of(src).tolist()
            assert ends[kind, 1].tolist() == graph.types.number_of(dst).tolist()


# Times and rows of their own


@pytest.mark.parametrize(
    "sampler",
    [
        RandomWalkSampler(metapath=[BUYS, REV_BUYS]),
        WeightedNeighborSampler([2]),
        LaborSampler([2]),
        ShadowSampler([2], num_layers=2),
        LayerSampler([2]),
        HGTSampler([2]),
    ],
)
def test_seeds_with_times_are_refused_by_name(sampler) -> None:
    name = type(sampler).__name__
    edges = {BUYS: ([0], [0]), REV_BUYS: ([0], [0])}
    timed = Graph.from_hetero(None, edges, edge_time={BUYS: np.array([5])}, edge_weight={BUYS: np.array([1.0])})
    with pytest.raises(SamplerConfigError, match=f"{name}.*NeighborSampler"):
        sampler.sample(timed, [1], times=[9])

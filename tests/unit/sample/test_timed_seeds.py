"""What seeds with times see: nothing later than they may, in any mode, and all that they may where they take all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lightning_gnnload import Graph, MiniBatch, NeighborSampler
from lightning_gnnload.errors import SamplerConfigError, SeedError
from tests.unit.toy import content

TO_B, TO_A, IN_A = ("a", "to", "b"), ("b", "back", "a"), ("a", "in", "a")
ALWAYS = -1  # the code of edges of types without times


def random_graph(seed: int) -> Graph:
    """Two node types; edges of two types with times, some of them equal, of one without; loops and repeats."""
    rng = np.random.default_rng(seed)
    counts = {"a": 7, "b": 5}
    edges = {
        kind: (rng.integers(0, counts[kind[0]], size), rng.integers(0, counts[kind[2]], size))
        for kind, size in ((TO_B, 40), (TO_A, 30), (IN_A, 20))
    }
    times = {TO_B: rng.integers(0, 12, 40), TO_A: rng.integers(0, 12, 30)}
    node_time = {"a": rng.integers(0, 6, 7)} if seed % 2 else None
    return Graph.from_hetero(counts, edges, edge_time=times, node_time=node_time)


def edges_of(graph: Graph, batch: MiniBatch) -> list[list[tuple[int, int, int, int, int]]]:
    """Returns the edges of each hop, nearest first: (destination, query, type, source, position in ``indices``)."""
    hops = []
    for block in reversed(batch.blocks):
        dst, src, rows = block.edge_dst().tolist(), block.indices.tolist(), batch.rows
        for d, s in zip(dst, src, strict=True):
            assert rows is None or rows[d] == rows[s]  # a query has nodes of its own
        nodes, query = batch.nodes.tolist(), [0] * batch.num_nodes if rows is None else rows.tolist()
        found = zip(dst, src, block.edge_type.tolist(), block.edge_ids.tolist(), strict=True)
        hops.append([(nodes[d], query[d], kind, nodes[s], at) for d, s, kind, at in found])
    return hops


def code_of(graph: Graph, at: int, kind: int) -> int:
    return int(graph.edge_time[at]) if graph.clock.timed[kind] else ALWAYS


SETTINGS = list(
    itertools.product(["disjoint", "time"], ["<=", "<"], [None, 4], ["uniform", "last"], [[-1, -1], [2, 3]])
)


@pytest.mark.parametrize(("sharing", "before", "window", "pick", "fanouts"), SETTINGS)
def test_no_seed_sees_what_comes_later(sharing, before, window, pick, fanouts) -> None:
    settings = {"sharing": sharing, "before": before, "window": window, "pick": pick}
    sampler = NeighborSampler(fanouts, edge_ids=True, **settings)
    for seed in range(4):
        graph, rng = random_graph(seed), np.random.default_rng(seed)
        pairs = rng.permutation(12 * 15)[:9]
        seeds, times = pairs % 12, pairs // 12 - 1
        batch = sampler.sample(graph, seeds, seed, 1, 2, times=times, rows=np.arange(9))
        assert batch.seeds.tolist() == seeds.tolist()
        of_query = dict(zip(batch.rows[:9].tolist(), times.tolist(), strict=True))
        assert len(of_query) == (9 if sharing == "disjoint" else len(np.unique(times)))
        reached = {(int(node), int(query)) for node, query in zip(seeds, batch.rows[:9], strict=True)}
        for hop, edges in enumerate(edges_of(graph, batch)):
            counted: dict[tuple[int, int, int], int] = {}
            for dst, query, kind, src, at in edges:
                time, code = of_query[query], code_of(graph, at, kind)
                assert graph.indices[at] == src
                assert graph.indptr[dst] <= at < graph.indptr[dst + 1]
                when = code + graph.clock.first  # the time of the edge, or of its source if that is later
                assert code == ALWAYS or (when <= time if before == "<=" else when < time)
                assert code == ALWAYS or window is None or when >= time - window
                counted[dst, query, kind] = counted.get((dst, query, kind), 0) + 1
            for node, query in reached:
                for kind in range(3):
                    wanted = len(eligible(graph, node, kind, of_query[query], before, window))
                    wanted = wanted if fanouts[hop] == -1 else min(wanted, fanouts[hop])
                    assert counted.get((node, query, kind), 0) == wanted
            reached |= {(src, query) for _, query, _, src, _ in edges}


def eligible(graph: Graph, node: int, kind: int, time: int, before: str, window: int | None) -> list[int]:
    """All positions of edges of a type into a node that count at a time, by looking at each."""
    types = graph.types
    t = int(types.number_of(np.array([node]))[0])
    if kind not in types.slots[t]:
        return []
    run = types.first_run[t] + (node - types.first_node[t]) * len(types.slots[t]) + types.slots[t].index(kind)
    found = []
    for at in range(int(graph.run_ptr[run]), int(graph.run_ptr[run + 1])):
        code = code_of(graph, at, kind)
        when = code + graph.clock.first
        is_early = when <= time if before == "<=" else when < time
        if code == ALWAYS or (is_early and (window is None or when >= time - window)):
            found.append(at)
    return found


@pytest.mark.parametrize("before", ["<=", "<"])
@pytest.mark.parametrize("fanouts", [[-1, -1, -1], [2, 2, 2]])
def test_a_path_never_goes_forward_in_time(before, fanouts) -> None:
    sampler = NeighborSampler(fanouts, expand="new", edge_ids=True, order="path", before=before)
    for seed in range(4):
        graph = random_graph(seed)
        batch = sampler.sample(graph, [7, 8, 7], times=[11, 9, 5], rows=[0, 1, 2])
        # The earliest that each place of the batch may see: its seed's time, then that of the edges that led there.
        latest = dict(enumerate([{11}, {9}, {5}]))
        outermost = batch.blocks[0]
        dst, src = outermost.edge_dst().tolist(), outermost.indices.tolist()
        kinds, ids = outermost.edge_type.tolist(), outermost.edge_ids.tolist()
        assert len(ids) > 0
        for d, s, kind, at in zip(dst, src, kinds, ids, strict=True):
            when = code_of(graph, at, kind)
            bounds = latest[d]
            if when == ALWAYS:
                latest.setdefault(s, set()).update(bounds)
                continue
            when += graph.clock.first
            assert any(when <= bound if before == "<=" else when < bound for bound in bounds)
            latest.setdefault(s, set()).add(when)
        assert all(len(bounds) == 1 for bounds in latest.values())  # who is reached at two times is there twice


@pytest.mark.parametrize("settings", [{}, {"pick": "last"}, {"order": "path"}, {"window": 5, "before": "<"}])
def test_a_row_draws_alike_alone_among_others_and_in_any_step(settings) -> None:
    graph, sampler = random_graph(1), NeighborSampler([2, 2], edge_ids=True, **settings)
    seeds, times, rows = [7, 8, 0, 7], [9, 9, 7, 3], [40, 41, 3, 9]

    def of_row(batch: MiniBatch, at: int) -> list[list[tuple[int, ...]]]:
        return [
            [(dst, kind, src, edge) for dst, query, kind, src, edge in hop if query == at]
            for hop in edges_of(graph, batch)
        ]

    together = sampler.sample(graph, seeds, 5, 1, 2, times=times, rows=rows)
    reverse = sampler.sample(graph, seeds[::-1], 5, 1, 77, times=times[::-1], rows=rows[::-1])
    for at in range(4):
        alone = sampler.sample(graph, [seeds[at]], 5, 1, 9, times=[times[at]], rows=[rows[at]])
        assert of_row(alone, 0) == of_row(together, at) == of_row(reverse, 3 - at)
    other = sampler.sample(graph, seeds, 5, 2, 2, times=times, rows=rows)
    if settings != {"pick": "last"}:
        assert [of_row(other, at) for at in range(4)] != [of_row(together, at) for at in range(4)]


def test_rows_of_one_time_are_one_plain_batch() -> None:
    # All at one time: nodes are there once, as without times in the graph of that time.
    graph = random_graph(0)
    batch = NeighborSampler([-1, -1], sharing="time").sample(graph, [7, 8, 9], times=[6, 6, 6])
    assert len(set(batch.nodes.tolist())) == batch.num_nodes
    assert set(batch.rows.tolist()) == {0}


def test_last_takes_the_newest() -> None:
    graph = random_graph(0)
    [block] = NeighborSampler([2], pick="last", edge_ids=True).sample(graph, [7, 9], times=[8, 5], rows=[0, 1]).blocks
    for at, (node, time) in enumerate([(7, 8), (9, 5)]):
        picked = block.edge_ids[block.indptr[at] : block.indptr[at + 1]].tolist()
        assert picked == eligible(graph, node, 0, time, "<=", None)[-2:]  # ascending, as the list is


@pytest.mark.parametrize(("before", "newest"), [("<=", [1, 4]), (None, [4, 6])])
def test_last_draws_edges_of_types_without_times(before, newest) -> None:
    num = 7
    ends = np.arange(num), np.zeros(num, int)
    graph = Graph.from_hetero(
        {"user": 1, "item": num},
        {("item", "bought", "user"): ends, ("item", "likes", "user"): ends},
        edge_time={("item", "bought", "user"): [5, 8, 2, 1, 8, 3, 12]},
    )
    drawn = set()
    for epoch in range(20):
        picked = {}
        for pick in ("last", "uniform"):
            sampler = NeighborSampler([2], before=before, pick=pick)
            batch = sampler.sample(graph, [0], epoch=epoch, times=[9])
            [block] = batch.blocks
            items = batch.nodes[block.indices] - 1  # the user comes first
            picked[pick] = {kind: items[block.edge_type == kind].tolist() for kind in (0, 1)}
        assert sorted(picked["last"][0]) == newest
        assert picked["last"][1] == picked["uniform"][1]
        drawn |= {*picked["last"][1]}
    assert drawn == {*range(num)}


def test_times_are_ignored_on_demand() -> None:
    graph = random_graph(0)
    batch = NeighborSampler([-1], before=None).sample(graph, [7, 8])
    assert batch.rows is None
    assert batch.blocks[0].num_edges == int(graph.in_degrees[[7, 8]].sum())
    newest = NeighborSampler([1], before=None, pick="last", edge_ids=True).sample(graph, [7]).blocks[0]
    assert newest.edge_ids.tolist() == [int(graph.indptr[8]) - 1]


def test_fanouts_by_the_names_of_types() -> None:
    graph = random_graph(0)
    options = {"before": None, "edge_ids": True}
    by_hop = NeighborSampler([{"to": 2, "in": -1}, {TO_A: 1}], **options).sample(graph, [7, 0])
    by_type = NeighborSampler({TO_B: [2, 0], "a__in__a": [-1, 0], TO_A: [0, 1]}, **options).sample(graph, [7, 0])
    assert content(by_hop) == content(by_type)
    kinds = [set(block.edge_type.tolist()) for block in by_hop.blocks]
    assert kinds == [{1}, {0, 2}]


@pytest.mark.parametrize("sharing", [None, "disjoint"])
def test_a_graph_without_types_has_seeds_of_their_own(sharing) -> None:
    from tests.unit.toy import toy_graph

    batch = NeighborSampler([3, 2], sharing=sharing).sample(toy_graph(), [5, 17])
    if sharing is None:
        assert batch.rows is None
    else:
        assert batch.rows[:2].tolist() == [0, 1]
        twice = NeighborSampler([3], sharing=sharing).sample(toy_graph(), [5, 5], rows=[0, 1])
        assert twice.nodes[:2].tolist() == [5, 5]
    assert all(block.edge_type is None for block in batch.blocks)


def test_what_cannot_be_sampled_says_so() -> None:
    graph = random_graph(0)
    with pytest.raises(SeedError, match="7"):
        NeighborSampler([2], sharing="plain", before=None).sample(graph, [7, 7])
    with pytest.raises(SeedError, match="rows 0 and 1"):
        NeighborSampler([2], sharing="time").sample(graph, [7, 7], times=[3, 3])
    with pytest.raises(SamplerConfigError, match="no times"):
        NeighborSampler([2], pick="last").sample(Graph.from_coo([0], [1]), [1])

"""Negatives, and the edges that they must not be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import GnnLoadError, GraphFormatError, SamplerConfigError, SeedError
from lightning_gnnload.ops import (
    CORRUPT,
    DrawKey,
    build_alias,
    draw_negatives,
    find_edges,
    instruction_sets,
    mark_edges,
    num_corrupt_dst,
)
from tests import oracle

from .graphs import instruction_set


@dataclass
class Case:
    """A random graph, the edges of one of its types as tuples, and pairs of nodes to ask about."""

    graph: Graph
    edge_type: int
    sources: range
    destinations: range
    edges: list[oracle.Edge]
    ends: tuple[np.ndarray, np.ndarray]
    until: np.ndarray | None
    times: tuple[np.ndarray | None, np.ndarray | None]

    @property
    def lists(self):
        return self.graph.typed_lists, self.graph.indices, self.edge_type

    @property
    def pairs(self):
        return list(zip(*(end.tolist() for end in self.ends), strict=True))

    def times_of_nodes(self):
        """What the oracle is told; a type without times is there before all codes."""
        times = {}
        for nodes, codes in zip((self.sources, self.destinations), self.times, strict=True):
            times |= dict(zip(nodes, [-1] * len(nodes) if codes is None else codes.tolist(), strict=True))
        return times


def random_case(rng, typed=True):
    sizes = {"a": int(rng.integers(1, 30)), "b": int(rng.integers(1, 30))}
    kinds = [("a", "to", "b"), ("b", "back", "a"), ("a", "among", "a"), ("b", "twice", "b")]
    kinds = [kinds[k] for k in rng.permutation(4)[: rng.integers(1, 5)]]
    span = int(rng.choice([3, 1000]))
    edges, edge_time = {}, {}
    for src, relation, dst in kinds:
        count = int(rng.integers(0, 300))
        hub = rng.random(count) ** int(rng.integers(1, 5))  # lists of any length, and edges that recur
        edges[src, relation, dst] = rng.integers(0, sizes[src], count), (hub * sizes[dst]).astype(np.int64)
        if rng.random() < 0.6:
            edge_time[src, relation, dst] = rng.integers(0, span, count)
    node_time = {name: rng.integers(0, span, count) for name, count in sizes.items() if rng.random() < 0.4}
    if not typed:
        kinds = [("a", "to", "a")]
        ends = rng.integers(0, sizes["a"], (2, int(rng.integers(0, 300))))
        graph, whole = Graph.from_coo(*ends, sizes["a"], keep_order=True), range(sizes["a"])
        sources = destinations = whole
        times, k = (None, None), 0
    else:
        graph = Graph.from_hetero(sizes, edges, edge_time=edge_time, node_time=node_time, keep_order=True)
        k = int(rng.integers(len(kinds)))
        sources, destinations = (graph.types.range_of(kinds[k][end]) for end in (0, 2))
        times = tuple(
            graph.clock.codes(node_time[kinds[k][end]]) if kinds[k][end] in node_time else None for end in (0, 2)
        )
    found = []
    for node in destinations:
        first = graph.indptr[node]
        for position in range(first, graph.indptr[node + 1]):
            found.append((int(graph.indices[position]), node, position))
    if typed:  # of all edges into these nodes, those of the type: known by their ends and their order within the type
        place = graph.typed_lists.places[k]
        bounds = [place[0] + (node - place[2]) * place[1] for node in destinations]
        inside = {p for run in bounds for p in range(int(graph.run_ptr[run]), int(graph.run_ptr[run + 1]))}
        found = [edge for edge in found if edge[2] in inside]
        given = sorted(
            (src + sources.start, dst + destinations.start) for src, dst in zip(*edges[kinds[k]], strict=True)
        )
        assert sorted(edge[:2] for edge in found) == given
    timed = graph.clock is not None and graph.clock.timed[k]
    tuples = [(src, dst, int(graph.edge_time[p]) if timed else -1) for src, dst, p in found]
    num = int(rng.integers(1, 9))
    ends = tuple(rng.integers(nodes.start, nodes.stop, num) for nodes in (sources, destinations))
    until = rng.integers(0, span + 2, num).astype(np.uint32) if graph.clock is not None and rng.random() < 0.8 else None
    return Case(graph, k, sources, destinations, tuples, ends, until, times)


def test_negatives_equal_the_oracle():
    rng = np.random.default_rng(0)
    masked = late = 0
    for number in range(250):
        case = random_case(rng, typed=number % 5 > 0)
        rows = rng.integers(0, 1 << 48, len(case.ends[0]))
        key = DrawKey(int(rng.integers(1 << 62)), int(rng.integers(1 << 32)), 0)
        num, tries = int(rng.integers(1, 8)), int(rng.choice([1, 2, 16]))
        corrupt = str(rng.choice(CORRUPT))
        weights = tuple(
            (rng.random(len(nodes)) * (rng.random(len(nodes)) < 0.8) + 1e-9 if rng.random() < 0.3 else None)
            for nodes in (case.sources, case.destinations)
        )
        tables = tuple(None if each is None else build_alias(np.array([0, len(each)]), each) for each in weights)
        if number % 7 == 0:  # ids of either width
            case.graph.indices = case.graph.indices.astype(np.int64)
        wanted = oracle.draw_negatives(
            case.edges,
            0 if case.graph.types is None else case.edge_type + 1,
            case.sources,
            case.destinations,
            rows.tolist(),
            key,
            num,
            ends=case.pairs,
            until=None if case.until is None else case.until.tolist(),
            times=case.times_of_nodes(),
            num_dst=num_corrupt_dst(num, corrupt),
            tries=tries,
            weights=tuple(None if each is None else each.tolist() for each in weights),
        )
        for isa in instruction_sets():
            with instruction_set(isa):
                ours = draw_negatives(
                    *case.lists,
                    case.sources,
                    rows,
                    key,
                    num,
                    src=case.ends[0],
                    dst=case.ends[1],
                    until=case.until,
                    src_time=case.times[0],
                    dst_time=case.times[1],
                    src_table=tables[0],
                    dst_table=tables[1],
                    corrupt=corrupt,
                    tries=tries,
                )
            np.testing.assert_array_equal(ours, wanted)
        masked += (wanted < 0).sum()
        late += case.until is not None and (wanted >= 0).any()
    assert masked > 100  # what gives up is compared
    assert late > 50  # and what has bounds


def test_many_negatives_equal_those_drawn_alone():
    """Of chunks, rows and blocks of four draws, none shows."""
    rng = np.random.default_rng(1)
    n = 3000
    graph = Graph.from_coo(*(rng.random((2, 200_000)) ** 3 * n).astype(np.int64), n)
    lists = graph.typed_lists, graph.indices, 0
    ends = rng.integers(0, n, 700), rng.integers(0, n, 700)
    rows = rng.permutation(700)
    whole = draw_negatives(*lists, range(n), rows, DrawKey(3, 1, 0), 9, src=ends[0], dst=ends[1], corrupt="both")
    other = rng.permutation(700)
    again = draw_negatives(
        *lists, range(n), rows[other], DrawKey(3, 1, 9), 9, src=ends[0][other], dst=ends[1][other], corrupt="both"
    )
    np.testing.assert_array_equal(again, whole[other])
    for i in (0, 455, 699):
        alone = draw_negatives(
            *lists, range(n), rows[[i]], DrawKey(3, 1, 0), 9, src=ends[0][[i]], dst=ends[1][[i]], corrupt="both"
        )
        np.testing.assert_array_equal(alone[0], whole[i])
    assert (
        draw_negatives(*lists, range(n), rows, DrawKey(3, 2, 0), 9, src=ends[0], dst=ends[1]) != whole
    ).mean() > 0.99


def test_every_node_that_may_be_drawn_is_drawn_equally_often():
    n, trials = 50, 40_000
    graph = Graph.from_coo(src=[0] * 20, dst=list(range(20)), num_nodes=n)  # 0 leads to 0 .. 19
    rows = np.arange(trials)
    ends = np.zeros(trials, np.int64), np.full(trials, 20)
    drawn = draw_negatives(
        graph.typed_lists, graph.indices, 0, range(n), rows, DrawKey(0, 0, 0), 1, src=ends[0], dst=ends[1], tries=64
    )
    counts = np.bincount(drawn.ravel(), minlength=n)
    assert counts[:21].sum() == 0  # its neighbours, and the edge's own end, which is none of them
    p = 1 / 29
    # 29 nodes beyond 5 sigma: a false alarm in 60,000 seeds.
    assert np.abs(counts[21:] - trials * p).max() < 5 * np.sqrt(trials * p * (1 - p))


def test_nodes_are_drawn_in_proportion_to_their_weights():
    n, trials = 20, 40_000
    graph = Graph.from_coo(src=[0], dst=[5], num_nodes=n)
    weight = np.arange(n, dtype=np.float64)
    ends = np.zeros(trials, np.int64), np.full(trials, 19)
    table = build_alias(np.array([0, n]), weight)
    lists = graph.typed_lists, graph.indices, 0
    drawn = draw_negatives(
        *lists, range(n), np.arange(trials), DrawKey(1, 0, 0), 1, src=ends[0], dst=ends[1], tries=64, dst_table=table
    )
    counts = np.bincount(drawn.ravel(), minlength=n)
    weight[[5, 19]] = 0  # a known edge, and the edge's own end
    p = weight / weight.sum()
    assert counts[[0, 5, 19]].sum() == 0
    # 17 nodes beyond 5 sigma: a false alarm in 100,000 seeds.
    assert (np.abs(counts - trials * p) <= 5 * np.sqrt(trials * p * (1 - p))).all()


def test_where_every_pair_is_an_edge_all_negatives_are_masked():
    src, dst = np.divmod(np.arange(100), 10)
    graph = Graph.from_coo(src, dst)
    ends = np.arange(10), np.arange(10)
    drawn = draw_negatives(
        graph.typed_lists, graph.indices, 0, range(10), np.arange(10), DrawKey(0, 0, 0), 3, src=ends[0], dst=ends[1]
    )
    assert (drawn == -1).all()


def test_pairs_that_are_edges_are_found():
    rng = np.random.default_rng(2)
    num_known = 0
    for number in range(200):
        case = random_case(rng, typed=number % 5 > 0)
        sources, destinations = case.ends[0], rng.integers(case.destinations.start, case.destinations.stop, 40)
        known = mark_edges(*case.lists, sources, destinations, case.until)
        for i, src in enumerate(sources.tolist()):
            bound = None if case.until is None else int(case.until[i])
            wanted = [oracle.is_known(case.edges, src, dst, bound) for dst in destinations.tolist()]
            assert known[i].tolist() == wanted
            num_known += sum(wanted)
    assert num_known > 1000


@pytest.mark.parametrize("isa", instruction_sets())
def test_edges_are_found_by_their_ends_and_by_their_ids(isa):
    rng = np.random.default_rng(3)
    for number in range(100):
        case = random_case(rng, typed=number % 5 > 0)
        graph, (first, stride, begin, _) = case.graph, case.graph.typed_lists.places[case.edge_type]
        run_ptr = case.graph.typed_lists.run_ptr.astype(np.int64)
        for dst in case.destinations:
            run = first + (dst - begin) * stride
            positions = np.arange(run_ptr[run], run_ptr[run + 1])
            to = np.full(len(positions), dst)
            ids = graph.edge_order[positions].astype(np.int64)
            with instruction_set(isa):
                found = find_edges(*case.lists, to, edge_ids=ids, edge_order=graph.edge_order)
                np.testing.assert_array_equal(found, positions)
                sources = graph.indices[positions].astype(np.int64)
                firsts = find_edges(*case.lists, to, sources=sources)
                np.testing.assert_array_equal(firsts, [positions[sources == src][0] for src in sources])
                nexts = find_edges(*case.lists, to, sources=sources, begins=positions + 1)
                assert nexts.tolist() == [
                    next((q for q in positions[p + 1 :].tolist() if graph.indices[q] == src), -1)
                    for p, src in enumerate(sources)
                ]
                none = find_edges(*case.lists, to, edge_ids=np.full(len(to), 1 << 40), edge_order=graph.edge_order)
                assert (none == -1).all()


def test_wrong_arguments():
    graph = Graph.from_hetero(
        {"a": 3, "b": 2}, {("a", "to", "b"): ([0, 1], [0, 1])}, edge_time={("a", "to", "b"): [5, 6]}
    )
    lists = graph.typed_lists
    good = {
        "rows": np.array([0, 1]),
        "key": DrawKey(0, 0, 0),
        "num": 2,
        "src": np.array([0, 1]),
        "dst": np.array([3, 4]),
    }

    def draw(lists=lists, indices=graph.indices, edge_type=0, sources=range(3), **changes):
        return draw_negatives(lists, indices, edge_type, sources, **(good | changes))

    assert draw().shape == (2, 2)
    wrong: list[tuple[type[GnnLoadError], dict, str]] = [
        (SeedError, {"src": np.array([0, 3])}, r"src\[1\] is 3"),
        (SeedError, {"dst": np.array([3, -1])}, r"dst\[1\] is -1"),
        (SeedError, {"src": np.array([0])}, "src has 1 entries"),
        (SeedError, {"src": None}, "give both, or none"),
        (SeedError, {"rows": np.array([0, 1 << 48])}, r"rows\[1\]"),
        (SeedError, {"rows": np.array([0.0, 1])}, "dtype"),
        (SeedError, {"until": np.array([1, 2])}, "until has dtype int64"),
        (SeedError, {"until": np.zeros(2, np.uint32), "dst_time": np.zeros(5, np.uint32)}, "dst_time has 5"),
        (SamplerConfigError, {"num": 0}, "num is 0"),
        (SamplerConfigError, {"tries": 0}, "tries is 0"),
        (SamplerConfigError, {"corrupt": "all"}, "corrupt is 'all'"),
        (SamplerConfigError, {"edge_type": 1}, "edge_type is 1"),
        (SamplerConfigError, {"dst_table": build_alias(np.array([0, 3]), np.ones(3))}, "one of 2 is needed"),
        (SamplerConfigError, {"src_table": build_alias(np.array([0, 3]), np.zeros(3))}, "all weights are 0"),
        (SamplerConfigError, {"sources": range(2, 6)}, "the graph's 5 nodes"),
        (SamplerConfigError, {"sources": range(0)}, "lead from 0 nodes"),
        (GraphFormatError, {"indices": graph.indices[:1]}, "of one graph"),
    ]
    for error, changes, message in wrong:
        with pytest.raises(error, match=message):
            draw(**changes)
    with pytest.raises(SeedError, match=r"destinations\[0\] is 2"):
        mark_edges(lists, graph.indices, 0, np.array([0]), np.array([2]))
    with pytest.raises(SeedError, match=r"destinations\[1\] is 5"):
        find_edges(lists, graph.indices, 0, np.array([3, 5]), sources=np.array([0, 0]))
    with pytest.raises(SamplerConfigError, match="edge_order"):
        find_edges(lists, graph.indices, 0, np.array([3]), edge_ids=np.array([0]))
    assert not mark_edges(lists, graph.indices, 0, np.array([-7, 1 << 60]), np.array([3, 4])).any()


@pytest.mark.parametrize("seed", range(4))
def test_negatives_go_on_where_they_are_told_to(seed):
    """Without lists, each begun by the try at which the lists left it: the same negatives."""
    case = random_case(np.random.default_rng(seed))
    src, dst = case.ends
    asked = {"src": src, "dst": dst, "corrupt": "both", "tries": 5}
    rows, key, tried = np.arange(len(src)), DrawKey(1, 2, 3), np.zeros((len(src), 3), np.int64)
    whole = draw_negatives(*case.lists, case.sources, rows, key, 3, **asked, tried=tried)
    assert whole.tolist() == draw_negatives(*case.lists, case.sources, rows, key, 3, **asked).tolist()
    assert tried[whole < 0].tolist() == [5] * int((whole < 0).sum())
    graph = case.graph
    empty = Graph.from_hetero(
        dict(zip(graph.types.node_types, graph.types.num_nodes, strict=True)),
        {kind: ([], []) for kind in graph.types.edge_types},
    )
    lists = empty.typed_lists, empty.indices, case.edge_type
    assert draw_negatives(*lists, case.sources, rows, key, 3, **asked, tried=tried.copy()).tolist() == whole.tolist()
    for wrong in (np.full_like(tried, 6), np.full_like(tried, -1)):
        with pytest.raises(SeedError, match=r"tried\[0, 0\] is (6|-1), but must lie in \[0, 5\]"):
            draw_negatives(*lists, case.sources, rows, key, 3, **asked, tried=wrong)
    for wrong in (tried[:, :2].copy(), tried.astype(np.int32), tried.ravel()):
        with pytest.raises(GnnLoadError, match="tried"):
            draw_negatives(*lists, case.sources, rows, key, 3, **asked, tried=wrong)

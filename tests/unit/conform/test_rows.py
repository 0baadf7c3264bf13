"""Types, times and links: right samplers keep contract and law, and each planted fault is found and named.

Seeds are fixed. A right sampler fails a check with probability below 1e-6 for other seeds; each wrong one here lies so
far off that it passes with probability below 1e-6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import Graph, NeighborSampler, WeightedNeighborSampler
from lightning_gnnload.conform import Promise, check_sampler, timed_graphs, typed_graphs
from lightning_gnnload.conform.draw import Draw
from lightning_gnnload.conform.suites import Check, Law, run, suite
from lightning_gnnload.errors import ConformanceError
from lightning_gnnload.ops import DrawKey, Queries
from lightning_gnnload.sample.seeds.negatives import Negatives
from tests.laws.amid import WINDOW, amid_times, amid_types, amid_types_and_times, draw_amid
from tests.laws.links import EVERY_MODE, negatives_draw, no_leaks, uniform_negatives

from . import samplers

PROMISE = Promise(max_in_degree=[4, 3], alone=True)


def asking(change: Callable[[Queries, DrawKey], dict[str, Any]]) -> type[NeighborSampler]:
    """A sampler that asks for something else than it should."""

    class Asks(NeighborSampler):
        def draw(self, graph, draw, memory):
            if draw.queries is not None:
                draw = draw._replace(queries=replace(draw.queries, **change(draw.queries, draw.key)))
            return super().draw(graph, draw, memory)

    return Asks


a_little_later = asking(lambda queries, key: {"until": queries.until + np.uint32(1)})
no_window = asking(lambda queries, key: {"since": None})
no_paths = asking(lambda queries, key: {"along_path": False})
by_place = asking(lambda queries, key: {"name": np.arange(len(queries.name), dtype=np.uint32)})
by_step = asking(lambda queries, key: {"name": queries.name ^ np.uint32(key.step)})
nothing_left_out = asking(lambda queries, key: {"excluded": None, "excluded_query": None})


class OneQuery(NeighborSampler):
    """All rows share the first one's query, as if they were one."""

    def draw(self, graph, draw, memory):
        if draw.queries is not None and len(np.unique(draw.seeds)) == len(draw.seeds):
            draw = draw._replace(queries=replace(draw.queries, of_seed=np.zeros_like(draw.queries.of_seed)))
        return super().draw(graph, draw, memory)


class TakesOthers(NeighborSampler):
    """The last edge comes from the same node as it should, but from that of another row, where one has found it."""

    def draw(self, graph, draw, memory):
        layout = super().draw(graph, draw, memory)
        if draw.queries is None:
            return layout
        hop = layout.hops[-1]
        nodes = memory[: 8 * layout.num_nodes].view(np.int64)
        indices = memory[hop.indices_offset : hop.indices_offset + 4 * hop.num_edges].view(np.int32)
        if len(indices):
            indices[-1] = np.flatnonzero(nodes == nodes[indices[-1]])[0]
        return layout


class SaysLast(NeighborSampler):
    """Takes any edges, and says that it takes the newest."""

    pick = property(lambda self: "last", lambda self, value: None)  # type: ignore[assignment]

    def draw(self, graph, draw, memory):
        return NeighborSampler(self.fanouts, edge_ids=True).draw(graph, draw, memory)


class PoolsTypes(NeighborSampler):
    """Draws from a node's edges of all types together."""

    def draw(self, graph, draw, memory):
        return super().draw(Graph(graph.indptr, graph.indices), draw, memory)


class TypedFloyd(samplers.FloydSampler):
    """Draws from each run by itself, in graphs of one node type."""

    short = False

    def span(self, last: np.ndarray) -> np.ndarray:
        return last + (np.arange(len(last)) % 3 == 0) if self.short else last + 1

    def draw_hop(self, graph, nodes, fanout, hop, key):
        if graph.types is None:
            return super().draw_hop(graph, nodes, fanout, hop, key)
        num_types, run_ptr = len(graph.types.edge_types), graph.run_ptr.astype(np.int64)
        runs = (nodes[:, None] * num_types + np.arange(num_types)).ravel()
        counts, picks = super().draw_hop(Graph(run_ptr, graph.indices), runs, fanout, hop, key)
        begins = (run_ptr[runs].reshape(-1, num_types) - graph.indptr[nodes][:, None]).ravel()
        return counts.reshape(-1, num_types).sum(axis=1), picks + np.repeat(begins, counts)


class ShortInSome(TypedFloyd):
    """Draws j over [0, j) instead of [0, j] in all types but the first."""

    short = True


def failing(draw: Draw, law: Law, *names: str) -> list[str]:
    checks = [check for check in suite(law, quick=True) if check.name in names]
    assert len(checks) == len(names)
    return [result.name for result in run(draw, checks) if not result.passed]


@pytest.mark.parametrize("options", [{}, {"edge_ids": True}, {"sharing": "disjoint", "expand": "all"}])
def test_typed_graphs(options: dict[str, Any]) -> None:
    check_sampler(NeighborSampler([4, 3], **options), typed_graphs(), promise=PROMISE)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"before": "<", "window": 12, "edge_ids": True},
        {"sharing": "time"},
        {"order": "path", "edge_ids": True, "expand": "new"},
        {"before": None},
    ],
)
def test_timed_graphs(options: dict[str, Any]) -> None:
    promise = replace(PROMISE, max_in_degree=[3, 4])
    check_sampler(NeighborSampler([3, 4], **options), timed_graphs(), promise=promise)


@pytest.mark.parametrize("options", [{}, {"order": "path"}, {"before": "<", "window": 12}])
def test_the_newest_edges(options: dict[str, Any]) -> None:
    sampler = NeighborSampler([4, 3], pick="last", edge_ids=True, **options)
    check_sampler(sampler, timed_graphs(), promise=replace(PROMISE, random=False))


def test_counts_are_those_of_each_type() -> None:
    with pytest.raises(ConformanceError, match=r"'counts are kept'.*at most 3 edges a destination.*found 4"):
        check_sampler(NeighborSampler([4, 4]), typed_graphs(), promise=replace(PROMISE, max_in_degree=[4, 3]))


@pytest.mark.parametrize(
    ("broken", "options", "name"),
    [
        (a_little_later, {}, "nothing is later"),
        (a_little_later, {"edge_ids": True}, "nothing is later"),
        (a_little_later, {"edge_ids": True, "before": "<"}, "nothing is later"),
        (a_little_later, {"edge_ids": True, "sharing": "time"}, "nothing is later"),
        (no_window, {"edge_ids": True, "window": 12}, "nothing is later"),
        (no_paths, {"edge_ids": True, "order": "path"}, "nothing is later"),
        (SaysLast, {"edge_ids": True}, "the newest are taken"),
        (OneQuery, {}, "rows do not mix"),
        (TakesOthers, {}, "rows do not mix"),
        (by_place, {}, "a row alone"),
        (by_step, {}, "a row alone"),
    ],
)
def test_a_broken_sampler_is_found(broken, options: dict[str, Any], name: str) -> None:
    with pytest.raises(ConformanceError, match=f"breaks its contract, '{name}'.*times .*expected.*found"):
        check_sampler(broken([4, 3], **options), timed_graphs(), promise=replace(PROMISE, alone=False))


AMONG = {"types": amid_types, "times": amid_times, "both": amid_types_and_times}
LAW = ("edges exist", "counts", "inclusion", "subsets", "between hops", "between steps")


@pytest.mark.parametrize("among", AMONG)
@pytest.mark.parametrize("expand", ["all", "new"])
def test_neighbor_sampler_draws_uniformly(among: str, expand: str) -> None:
    options = {} if among == "types" else {"window": WINDOW}
    draw = draw_amid(partial(NeighborSampler, expand=expand, **options), AMONG[among])
    assert failing(draw, "uniform", *LAW) == []


def test_a_weight_counts_within_its_type() -> None:
    assert failing(draw_amid(WeightedNeighborSampler, amid_types), "weighted", "counts", "outcomes") == []


def test_a_typed_sampler_in_python_draws_uniformly() -> None:
    assert failing(draw_amid(TypedFloyd, amid_types), "uniform", "counts", "inclusion", "subsets") == []


@pytest.mark.parametrize(
    ("sampler_of", "among", "name"),
    [
        (partial(PoolsTypes, edge_ids=True), "types", "counts"),
        (ShortInSome, "types", "subsets"),
        (ShortInSome, "types", "inclusion"),
        (partial(a_little_later, window=WINDOW), "times", "counts"),
        (partial(a_little_later, window=WINDOW), "both", "edges exist"),
        (NeighborSampler, "times", "counts"),  # which needs a window
        (partial(NeighborSampler, window=WINDOW, pick="last"), "times", "subsets"),
    ],
)
def test_a_wrong_draw_is_found(sampler_of, among: str, name: str) -> None:
    assert failing(draw_amid(sampler_of, AMONG[among]), "uniform", name) == [name]


class Unchecked(Negatives):
    """Takes every destination, whatever is known of it."""

    def draw(self, graph, edge_type, rows, src, dst, until, key, given=None, weights=None, lookup=None):
        first, last = graph.types.first_node[1:3]
        return np.random.default_rng(int(rows[0])).integers(first, last, (len(rows), self.num))


def leaks(sampler, *settings: Negatives) -> list[str]:
    [result] = run(None, [Check("no leaks", partial(no_leaks, sampler=sampler, every=settings))])  # type: ignore[arg-type]
    return [each.worst for each in result.evidence if each.worst]


def test_negatives_are_false_and_links_left_out() -> None:
    assert leaks(NeighborSampler([-1, -1], edge_ids=True), *EVERY_MODE) == []
    # By two hops a seed's node is found again, where the edge in question leads into it once more.
    assert leaks(NeighborSampler([-1, -1], expand="new", order="path"), EVERY_MODE[0]) == []


def test_leaks_are_found() -> None:
    sampler = NeighborSampler([-1], edge_ids=True)
    assert "negative" in leaks(sampler, Unchecked("triplet", num=3))[0]
    assert "in its own batch" in leaks(nothing_left_out([-1]), EVERY_MODE[1])[0]


def test_negatives_are_equally_likely_among_the_rest() -> None:
    names = ("outcomes", "proportions", "coincidences", "between nodes", "between epochs", "over time")
    assert failing(negatives_draw(uniform_negatives), "uniform, replaced", *names) == []
    unchecked = negatives_draw(lambda num: Unchecked("triplet", num=num))
    assert failing(unchecked, "uniform, replaced", "proportions") == ["proportions"]

"""Graphs with types and times over parts of 0 hops: mini-batches equal, id for id, those of the whole graph."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lightning_gnnload import (
    Graph,
    HGTSampler,
    LaborSampler,
    LayerSampler,
    NeighborSampler,
    RandomWalkSampler,
    Sampler,
    SeedTable,
    ShadowSampler,
    WeightedNeighborSampler,
)
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.errors import ExchangeError, SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.base import draw_here
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.sample.parts.collective_walks import collective_random_walk
from lightning_gnnload.sample.seeds.links import LinkSettings, seed_kind
from lightning_gnnload.sample.walk import random_walk
from tests.unit.sample.parts.graphs import BACK, IN, TO, flat_graph, typed_graph
from tests.unit.sample.ranks import disjoint, over_parts
from tests.unit.seed_tables import KINDS as SEED_KINDS
from tests.unit.seed_tables import kind_of_seeds
from tests.unit.toy import content


def parts_of(graph: Graph, num_parts: int, seed: int = 0) -> Any:
    return disjoint(graph, np.random.default_rng(seed).integers(0, num_parts, graph.num_nodes), num_parts)


def assert_equal(sampler: Sampler, graph: Graph, num_parts: int, paradigm: Any, **asked: Any) -> None:
    """Each rank's mini-batches of seeds that are its own to choose."""

    def batches(sampler: Sampler, graph: Graph | None, rank: int) -> list[Any]:
        found = []
        for step in range(2):
            rng = np.random.default_rng([rank, step])
            if asked.get("times") == "random":
                pairs = rng.permutation(29 * 15)[:9]  # of a node and a time
                rows = {"times": (pairs // 29 - 1) / asked.get("unit", 1), "rows": pairs + 2**33}
                rows["times"] = rows["times"] if asked.get("unit") else pairs // 29 - 1
                found.append(content(sampler.sample(graph, pairs % 29, 7, 1, step, **rows)))
            else:
                found.append(content(sampler.sample(graph, rng.permutation(29)[: 6 + rank], 7, 1, step)))
        return found

    def work(colleagues: SamplingGroup) -> Any:
        return batches(CollectiveSampler(sampler, colleagues, paradigm), None, colleagues.rank)

    for rank, found in enumerate(over_parts(parts_of(graph, num_parts), work)):
        assert found == batches(sampler, graph, rank)


TYPED: list[Sampler] = [
    NeighborSampler([3, 2], edge_ids=True),
    NeighborSampler([{"to": 2, "back": 1}, {IN: -1}, 2], expand="new", edge_ids=True),
    NeighborSampler({TO: [2, 1], BACK: [1, -1]}, replace=True),
    NeighborSampler([{0: 2, 2: 1}, -1], sharing="disjoint"),
    WeightedNeighborSampler([2, 3], edge_ids=True),
    WeightedNeighborSampler([{"to": 2}, {"back": 2, "in": -1}], expand="new", sharing="disjoint"),
    LaborSampler([3, 2], edge_ids=True),
    LaborSampler([{"to": 3}, 2], estimate="sum", expand="new"),
    ShadowSampler([3, 2], 2, edge_ids=True),
    LayerSampler([9, 5], "dsp", edge_ids=True),
    LayerSampler([9, 5], "ladies"),
    LayerSampler([9, 5], "fastgcn", edge_ids=True, keep_known=True),
    RandomWalkSampler(2),
    HGTSampler([4, 3], edge_ids=True),
    HGTSampler({"a": [3, 0, 2], "none": [1, 1, 1], "b": [2, 4, 1]}, num_layers=1, edge_ids=True),
    HGTSampler([5], max_neighbors=2),
]


@pytest.mark.parametrize("paradigm", ["push", "pull"])
@pytest.mark.parametrize("sampler", TYPED, ids=repr)
def test_types(sampler: Sampler, paradigm: str) -> None:
    for seed, num_parts in ((0, 1), (1, 3)):
        assert_equal(sampler, typed_graph(seed, weighted=True), num_parts, paradigm)


@pytest.mark.parametrize("paradigm", ["push", "pull"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(
    ("metapath", "options"),
    [
        ([IN], {"length": 4}),
        ([BACK, TO], {"length": 3, "termination_prob": 0.2, "restart_prob": 0.3}),
        (["back", "to", "in"], {"length": 2, "restart_prob": 0.5}),
        ([IN, BACK], {}),
    ],
)
def test_metapaths(metapath: Any, options: dict[str, Any], weighted: bool, paradigm: Any) -> None:
    for seed, num_parts in ((0, 1), (1, 3)):
        graph, seeds = typed_graph(seed, weighted=True), [3, 0, 16, 9]
        settings: dict[str, Any] = {"num_walks": 5, "seed": 3, "step": 1, "weighted": weighted, **options}
        samplers = []
        if graph.types.edge_type_number(metapath[-1]) != 1:  # which leads to another type than it began at
            rounds = {"walk_length": options.get("length", 1), "num_walks": 4, "num_neighbors": 3}
            rounds |= {name: options[name] for name in options if name != "length"}
            for more in ({}, {"expand": "new", "include_self": False, "normalize": True}):
                samplers.append(RandomWalkSampler(2, metapath=metapath, weighted=weighted, **rounds, **more))
        parts = parts_of(graph, num_parts)

        def work(
            colleagues: SamplingGroup, samplers: Any = samplers, settings: Any = settings, seeds: Any = seeds
        ) -> Any:
            walks = collective_random_walk(colleagues, seeds, metapath=metapath, paradigm=paradigm, **settings)
            ours = [CollectiveSampler(sampler, colleagues, paradigm) for sampler in samplers]
            return walks.tolist(), [content(sampler.sample(None, seeds, 1, 2, 3)) for sampler in ours]

        walks = random_walk(graph, seeds, metapath=metapath, **settings).tolist()
        assert any(node >= 0 for walk in walks for node in walk[1:])
        expected = walks, [content(sampler.sample(graph, seeds, 1, 2, 3)) for sampler in samplers]
        assert over_parts(parts, work) == [expected] * num_parts


def test_metapaths_that_cannot_be_are_refused() -> None:
    graph = typed_graph(1)

    def work(colleagues: SamplingGroup) -> None:
        with pytest.raises(SamplerConfigError, match="must come back to 'a'"):
            CollectiveSampler(RandomWalkSampler(metapath=[BACK]), colleagues)
        with pytest.raises(
            SeedError, match=r"starts\[1\] is 20, but the first edge type of the metapath ends in nodes 0"
        ):
            collective_random_walk(colleagues, [3, 20], metapath=[BACK])
        nodes, names = np.arange(29), {"names": np.arange(29), "numbers": np.zeros(29, np.int64)}
        about = {"walks": [1, 1, 0.0, 0.0], "key": [0, 0, 0, 0], "weighted": False, "t": 0}
        for edge_type in (4, -1, "to"):
            with pytest.raises((ExchangeError, SamplerConfigError), match="which this part does not have"):
                colleagues.ask("step", nodes, {**about, "edge_type": edge_type}, names)

    over_parts(parts_of(graph, 1), work)


BY_TIME = list(
    itertools.product(
        ["disjoint", "time"], ["root", "path"], ["<=", "<"], [None, 4], ["uniform", "last"], [[-1, 2], [2, 3, 2]]
    )
)


@settings(max_examples=40)
@given(
    which=st.integers(0, len(BY_TIME) - 1),
    seed=st.integers(0, 10**6),
    num_parts=st.integers(1, 4),
    graph=st.sampled_from(["int", "float", "flat", "flat by type"]),
    expand=st.sampled_from(["all", "new"]),
    paradigm=st.sampled_from(["push", "pull"]),
)
@example(which=9, seed=1, num_parts=3, graph="float", expand="all", paradigm="push")
@example(which=25, seed=0, num_parts=2, graph="flat by type", expand="new", paradigm="pull")
def test_times(which: int, seed: int, num_parts: int, graph: str, expand: Any, paradigm: str) -> None:
    sharing, order, before, window, pick, fanouts = BY_TIME[which]
    made = typed_graph(seed, timed=graph) if "flat" not in graph else flat_graph(seed, by_type=graph != "flat")
    sampler = NeighborSampler(
        fanouts,
        sharing=sharing,
        order=order,
        before=before,
        window=window,
        pick=pick,
        expand=expand,
        edge_ids=seed % 2 > 0,
    )
    unit = {"unit": 7} if graph == "float" else {}
    assert_equal(sampler, made, num_parts, paradigm, times="random", **unit)


@pytest.mark.parametrize("paradigm", ["push", "pull"])
def test_times_of_nodes_and_none(paradigm: str) -> None:
    """Seeds without times have their nodes'; and a sampler may ignore times, or go by them without seeds' own."""
    flat = flat_graph(3, by_type=False)
    for sampler in (NeighborSampler([2, 2]), NeighborSampler([2, 2], sharing="time", order="path", edge_ids=True)):
        assert_equal(sampler, flat, 3, paradigm)
    for graph in (flat, typed_graph(1, timed="int")):
        for sampler in (
            NeighborSampler([2, 2], before=None),
            NeighborSampler([2, 2], before=None, pick="last", edge_ids=True),
            NeighborSampler([2, 2], before=None, sharing="disjoint"),
        ):
            assert_equal(sampler, graph, 3, paradigm)


def drawn(sampler: Sampler, graph: Graph | None, draw: Any) -> list[Any]:
    arena, layout = draw_here(sampler, graph, draw)  # type: ignore[arg-type]
    return content(MiniBatch.view(arena, layout, len(draw.seeds)))


@pytest.mark.parametrize("paradigm", ["push", "pull"])
@pytest.mark.parametrize("kind", SEED_KINDS)
def test_rows_of_tables_and_links(kind: str, paradigm: Any) -> None:
    data, settings = kind_of_seeds(kind)
    ask = seed_kind(data.graph, settings["sampler"], data.table("train"), settings["links"]).ask
    draws = [ask(rows, DrawKey(3, 1, step)).draw for step, rows in enumerate(np.arange(100).reshape(4, 25))]

    def work(colleagues: SamplingGroup) -> list[Any]:
        collective = CollectiveSampler(settings["sampler"], colleagues, paradigm)
        assert not seed_kind(data.graph, collective, data.table("train"), settings["links"]).needs - collective.heeds
        return [drawn(collective, None, draw) for draw in draws[colleagues.rank :]]

    for rank, found in enumerate(over_parts(parts_of(data.graph, 3), work)):
        assert found == [drawn(settings["sampler"], data.graph, draw) for draw in draws[rank:]]


EXCLUDING = [
    NeighborSampler([4, 4, 4], expand="all", edge_ids=True),
    NeighborSampler([-1, 3], expand="new", order="path"),
    NeighborSampler([3, 3, 3], expand="all", order="path", sharing="time", pick="last"),
    NeighborSampler([4, 4], before=None),
    NeighborSampler([4, 4], before=None, sharing="disjoint", replace=True),
]


@pytest.mark.parametrize("paradigm", ["push", "pull"])
@pytest.mark.parametrize("sampler", EXCLUDING, ids=repr)
def test_edges_left_out_of_whatever_asks(sampler: Sampler, paradigm: Any) -> None:
    """All edges of a few nodes are asked about, so that most are left out; of a node that is no seed of the query, the
    same edges stay."""
    for graph in (typed_graph(1, timed="int"), flat_graph(2, by_type=False)):
        rng = np.random.default_rng(0)
        edges = rng.permutation(graph.num_edges)[:60]
        dst = np.searchsorted(graph.indptr, edges, side="right") - 1
        src, kind = graph.indices[edges].astype(np.int64), 0 if graph.types is None else graph.edge_types_of(edges)
        table: dict[str, Any] = {"src": src, "dst": dst}
        if graph.types is not None:
            among = kind == 0
            first = [graph.types.range_of(name).start for name in ("a", "b")]
            table = {"src": src[among] - first[0], "dst": dst[among] - first[1], "edge_type": "to"}
        rows = len(table["src"])
        if graph.clock is not None and sampler.before is not None:  # type: ignore[attr-defined]
            table["time"] = torch.from_numpy(rng.integers(3, 12, rows))
        links = LinkSettings(exclude="self" if graph.types is not None else "reverse")
        draw = seed_kind(graph, sampler, SeedTable(**table), links).ask(np.arange(rows), DrawKey(1, 2, 3)).draw
        assert draw.queries is not None
        assert len(draw.queries.excluded) > 10

        def work(colleagues: SamplingGroup, draw: Any = draw) -> Any:
            return drawn(CollectiveSampler(sampler, colleagues, paradigm), None, draw)

        expected = drawn(sampler, graph, draw)
        assert over_parts(parts_of(graph, 3), work) == [expected] * 3
        without = draw._replace(queries=replace(draw.queries, excluded=None, excluded_query=None))
        assert expected != drawn(sampler, graph, without)

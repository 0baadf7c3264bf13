"""Subject: something that samples, and the contracts and checks that it is examined by."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lightning_gnnload.conform.case import Promise
from lightning_gnnload.conform.draw import Draw, DrawnEdges, drawn_edges, sampler_draw
from lightning_gnnload.conform.graphs import example_graphs, timed_graphs, typed_graphs
from lightning_gnnload.conform.suites import Check, Law, suite
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.plugin.commands.conform import graphs_for, sampler_of
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.hgt import HGTSampler
from lightning_gnnload.sample.labor import LaborSampler
from lightning_gnnload.sample.layerwise import LayerSampler
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.shadow import ShadowSampler
from lightning_gnnload.sample.walk import RandomWalkSampler
from lightning_gnnload.sample.weighted import WeightedNeighborSampler
from tests.laws.amid import WINDOW, Amid, amid_types, amid_types_and_times, draw_amid
from tests.laws.links import EVERY_MODE, negatives_draw, no_leaks, uniform_negatives, weighted_negatives


@dataclass(frozen=True)
class Contract:
    """A contract is a sampler with its promises, and the graphs that it is checked on: None for the examples, else
    those that it can sample."""

    sampler: Sampler
    promise: Promise
    graphs: Mapping[str, Graph] | None = None


@dataclass(frozen=True)
class Subject:
    """A subject is what ``python -m tests.laws`` examines: a sampler of ours or of a peer.

    Attributes:
        name: as reports print it.
        contracts: those that it has to keep.
        draw: draws its choices; None makes no statistics.
        law: how it should draw; None where no law is put to the test.
        suite_of: the checks of its draws, ``suite_of(quick)``.
        peer: it is of another library: its failures are reported and count for nothing.
        known: why some of its checks fail, where that is known.
    """

    name: str
    contracts: Sequence[Contract] = ()
    draw: Draw | None = None
    law: Law | None = None
    suite_of: Callable[[bool], Sequence[Check]] = lambda quick: []
    peer: bool = False
    known: str = ""


def own_subjects() -> list[Subject]:
    """Lists the samplers of this package."""
    typed = {name: graph for name, graph in example_graphs().items() if {0, 1, 2} <= _edge_types(graph)}
    by_type, by_time = typed_graphs(), timed_graphs()
    few = Promise(max_in_degree=[4, 3], alone=True)
    contracts = [
        Contract(NeighborSampler([4, 3]), Promise(max_in_degree=[4, 3], alone=True)),
        Contract(NeighborSampler([4, 3], edge_ids=True), Promise(max_in_degree=[4, 3], alone=True)),
        Contract(NeighborSampler([3, 4], expand="new", edge_ids=True), Promise(max_in_degree=[3, 4], alone=True)),
        Contract(NeighborSampler([-1, 2]), Promise(max_in_degree=[-1, 2], alone=True)),
        Contract(NeighborSampler([-1], edge_ids=True), Promise(random=False, alone=True)),
        Contract(NeighborSampler([{0: 2, 2: 3}, 1], edge_ids=True), Promise(max_in_degree=[5, 3], alone=True), typed),
    ]
    walks = Promise(edges_exist=False, max_in_degree=[5, 5], alone=True)
    replaced = Promise(distinct_edges=False, max_in_degree=[4, 3], alone=True)
    return [
        _subject("NeighborSampler", NeighborSampler, "uniform", contracts),
        _subject(
            "NeighborSampler",
            partial(NeighborSampler, replace=True),
            "uniform, replaced",
            [Contract(NeighborSampler([4, 3], replace=True), replaced)],
        ),
        Subject(
            "RandomWalkSampler",
            [
                Contract(RandomWalkSampler(num_layers=2), walks),
                Contract(RandomWalkSampler(num_layers=2, include_self=False, normalize=True), walks),
                Contract(RandomWalkSampler(num_layers=2, restart_prob=0.3, expand="new"), walks),
                Contract(RandomWalkSampler(num_layers=2, weighted=False), walks),
            ],
            first_steps,
            "weighted, replaced",
            lambda quick: suite("weighted, replaced", quick=quick),
        ),
        _subject(
            "WeightedNeighborSampler",
            WeightedNeighborSampler,
            "weighted",
            [
                Contract(WeightedNeighborSampler([4, 3], edge_ids=True), Promise(max_in_degree=[4, 3], alone=True)),
                Contract(WeightedNeighborSampler([3, 4], expand="new"), Promise(max_in_degree=[3, 4], alone=True)),
                Contract(WeightedNeighborSampler([-1], edge_ids=True), Promise(random=False, alone=True)),
            ],
        ),
        _subject(
            "WeightedNeighborSampler",
            partial(WeightedNeighborSampler, replace=True),
            "weighted, replaced",
            [Contract(WeightedNeighborSampler([4, 3], replace=True), replaced)],
        ),
        *_subjects_by_type(by_type, few),
        *_subjects_by_time(by_time, few),
        *_links(),
        Subject(
            "LaborSampler",
            [
                Contract(LaborSampler([4, 3], edge_ids=True), Promise(alone=True), by_type),
                Contract(LaborSampler([3, 4], fixed_count=True, expand="new"), Promise(alone=True), by_type),
                Contract(LaborSampler([4, 3], edge_ids=True), Promise(alone=True)),
                Contract(LaborSampler([3, 4], importance=1, expand="new", edge_ids=True), Promise()),
                Contract(LaborSampler([4, 3], estimate="sum", layer_dependency=True), Promise(alone=True)),
            ],
        ),
        Subject(
            "ShadowSampler",
            [Contract(ShadowSampler([4, 3], num_layers=3, edge_ids=True), Promise())],
        ),
        Subject(
            "HGTSampler",
            [
                Contract(HGTSampler([9, 12], edge_ids=True), Promise(), by_type),
                Contract(HGTSampler([7], num_layers=3, max_neighbors=5), Promise(), by_type),
            ],
        ),
        Subject(
            "LayerSampler",
            [
                Contract(LayerSampler([9, 12], edge_ids=True), Promise()),
                Contract(LayerSampler([9, 12], "fastgcn", replace=True, keep_known=True, edge_ids=True), Promise()),
                Contract(LayerSampler([9, 12], "dsp", expand="new", edge_ids=True), Promise()),
                Contract(LayerSampler([9, 12], edge_ids=True, weighted=False), Promise()),
            ],
        ),
    ]


def _subjects_by_type(graphs: Mapping[str, Graph], few: Promise) -> list[Subject]:
    shop = {"users, items and tags": graphs["users, items and tags"]}
    named = NeighborSampler({"buys": [4, 2], ("tag", "of", "user"): [1, 3]}, edge_ids=True)
    return [
        _subject(
            "NeighborSampler, by type",
            NeighborSampler,
            "uniform",
            [
                Contract(NeighborSampler([4, 3]), few, graphs),
                Contract(
                    NeighborSampler([3, 4], expand="new", edge_ids=True), replace(few, max_in_degree=[3, 4]), graphs
                ),
                Contract(NeighborSampler([-1, 2], edge_ids=True), replace(few, max_in_degree=[-1, 2]), graphs),
                Contract(NeighborSampler([4, 3], replace=True), replace(few, distinct_edges=False), graphs),
                Contract(NeighborSampler([4, 3], sharing="disjoint", edge_ids=True), few, graphs),
                Contract(named, few, shop),
            ],
            amid_types,
        ),
        _subject(
            "NeighborSampler, by type", partial(NeighborSampler, replace=True), "uniform, replaced", [], amid_types
        ),
        _subject(
            "WeightedNeighborSampler, by type",
            WeightedNeighborSampler,
            "weighted",
            [Contract(WeightedNeighborSampler([4, 3], edge_ids=True), few, graphs)],
            amid_types,
        ),
    ]


def _subjects_by_time(graphs: Mapping[str, Graph], few: Promise) -> list[Subject]:
    settings: list[dict[str, Any]] = [
        {},
        {"before": "<", "window": 12},
        {"sharing": "time"},
        {"order": "path"},
        {"order": "path", "sharing": "time", "window": 15},
        {"before": None},
    ]
    contracts = [Contract(NeighborSampler([4, 3], edge_ids=True, **each), few, graphs) for each in settings]
    contracts += [
        Contract(NeighborSampler([3, 4], expand="new"), replace(few, max_in_degree=[3, 4]), graphs),
        Contract(NeighborSampler([4, 3], pick="last", edge_ids=True), replace(few, random=False), graphs),
    ]
    name, sampler = "NeighborSampler, by time", partial(NeighborSampler, window=WINDOW)
    return [
        _subject(name, sampler, "uniform", contracts, amid_types_and_times),
        _subject(f"{name}, shared", partial(sampler, sharing="time"), "uniform", [], amid_types_and_times),
        _subject(f"{name}, along paths", partial(sampler, order="path"), "uniform", [], amid_types_and_times),
    ]


def _links() -> list[Subject]:
    sampler = NeighborSampler([-1, -1], edge_ids=True)
    leaks = Check("no leaks", partial(no_leaks, sampler=sampler, every=EVERY_MODE))

    def of_links(law: Law, rules: list[Check], quick: bool) -> list[Check]:
        # But for checks of graphs that are no stars, and of hops.
        others = ("edges exist", "counts", "between hops")
        return [*rules, *(check for check in suite(law, quick=quick) if check.name not in others)]

    return [
        Subject(
            "Negatives: uniform",
            draw=negatives_draw(uniform_negatives),
            suite_of=partial(of_links, "uniform, replaced", [leaks]),
        ),
        Subject(
            "Negatives: weighted",
            draw=negatives_draw(weighted_negatives),
            suite_of=partial(of_links, "weighted, replaced", []),
        ),
    ]


def first_steps(graph: Graph, seeds: np.ndarray, fanouts: Sequence[int], key: DrawKey) -> list[DrawnEdges]:
    """Draws by RandomWalkSampler: ``fanout`` walks of one step from each node, each of which draws an in-neighbour."""
    sampler = RandomWalkSampler(len(fanouts), fanouts[0], fanouts[0], walk_length=1, termination_prob=0)
    batch, hops = sampler.sample(graph, seeds, key.seed, key.epoch, key.step), []
    for block in reversed(batch.blocks):
        assert block.edge_weight is not None
        visits = block.edge_weight.numpy().astype(np.int64)
        hops.append(DrawnEdges(*(np.repeat(ends, visits) for ends in drawn_edges(batch, block))))
    return hops


def _edge_types(graph: Graph) -> set[int]:
    return set() if graph.edge_type is None else set(graph.edge_type.tolist())


def subjects_of(options: argparse.Namespace) -> list[Subject]:
    """Makes the subjects of a user's own sampler, on the graphs that it takes.

    Raises:
        SamplerConfigError: no such class, not one of a Sampler, or arguments that do not fit.
    """
    sampler_class, sampler, promise = sampler_of(options)
    amid = {", by type": amid_types, ", by time": partial(amid_types_and_times, past=False)}
    of_fanouts, law, found = partial(sampler_class, **options.args), options.law, []
    for kind, graphs in graphs_for(sampler).items():
        name, contracts = sampler_class.__name__ + kind, [Contract(sampler, promise, graphs)]
        if law is None:
            found.append(Subject(name, contracts))
        else:
            found.append(_subject(name, of_fanouts, law, contracts, amid.get(kind)))
    return found


def _subject(
    name: str,
    sampler_of: Callable[[Sequence[int]], Sampler],
    law: Law,
    contracts: Sequence[Contract],
    amid: Amid | None = None,
) -> Subject:
    draw = sampler_draw(sampler_of) if amid is None else draw_amid(sampler_of, amid)
    shown = law if amid is None else None  # the figure is of plain graphs
    return Subject(f"{name}: {law}", contracts, draw, shown, lambda quick: suite(law, quick=quick))

"""Subject: something that samples, and the contracts and checks that it is examined by."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lightning_gnnload.conform.case import Promise
from lightning_gnnload.conform.draw import Draw, DrawnEdges, edges_of, sampler_draw
from lightning_gnnload.conform.graphs import example_graphs
from lightning_gnnload.conform.suites import Check, Law, suite
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.labor import LaborSampler
from lightning_gnnload.sample.layerwise import LayerSampler
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.shadow import ShadowSampler
from lightning_gnnload.sample.walk import RandomWalkSampler
from lightning_gnnload.sample.weighted import WeightedNeighborSampler


@dataclass(frozen=True)
class Contract:
    """A contract is a sampler with its promises, and the graphs that it is checked on: None for the examples, else
    those that it can sample."""

    sampler: Sampler
    promise: Promise
    graphs: Mapping[str, Graph] | None = None


@dataclass(frozen=True)
class Subject:
    """A subject is what ``gnnload conform`` examines: a sampler of ours or of a peer.

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
        Subject(
            "LaborSampler",
            [
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
            "LayerSampler",
            [
                Contract(LayerSampler([9, 12], edge_ids=True), Promise()),
                Contract(LayerSampler([9, 12], "fastgcn", replace=True, keep_known=True, edge_ids=True), Promise()),
                Contract(LayerSampler([9, 12], "dsp", expand="new", edge_ids=True), Promise()),
                Contract(LayerSampler([9, 12], edge_ids=True, weighted=False), Promise()),
            ],
        ),
    ]


def first_steps(graph: Graph, seeds: np.ndarray, fanouts: Sequence[int], key: DrawKey) -> list[DrawnEdges]:
    """Draws by RandomWalkSampler: ``fanout`` walks of one step from each node, each of which draws an in-neighbour."""
    sampler = RandomWalkSampler(len(fanouts), fanouts[0], fanouts[0], walk_length=1, termination_prob=0)
    batch, hops = sampler.sample(graph, seeds, key.seed, key.epoch, key.step), []
    for block in reversed(batch.blocks):
        assert block.edge_weight is not None
        visits = block.edge_weight.numpy().astype(np.int64)
        hops.append(DrawnEdges(*(np.repeat(ends, visits) for ends in edges_of(batch, block))))
    return hops


def _edge_types(graph: Graph) -> set[int]:
    return set() if graph.edge_type is None else set(graph.edge_type.tolist())


def subject_of(
    path: str, fanouts: Sequence[int], arguments: Mapping[str, Any], promise: Promise, law: Law | None
) -> Subject:
    """Makes the subject of a user's own sampler.

    Args:
        path: ``module.Class``; the class takes ``fanouts`` first, where there are any.
        fanouts: for the contract; statistics give others.
        arguments: the constructor's other arguments.
        promise: what the sampler says of its batches.
        law: how it draws; None makes no statistics.

    Raises:
        SamplerConfigError: no such class, or not one of a Sampler.
    """
    module, _, name = path.rpartition(".")
    try:
        sampler_class = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SamplerConfigError(
            f"--sampler {path}: no such class ({error}). Give package.module.Class, importable from this folder."
        ) from error
    sampler = sampler_class(*([list(fanouts)] if fanouts else []), **arguments)
    if not isinstance(sampler, Sampler):
        raise SamplerConfigError(f"--sampler {path}: {name} is no subclass of lightning_gnnload.Sampler.")
    if law is None:
        return Subject(name, [Contract(sampler, promise)])
    return _subject(name, partial(sampler_class, **arguments), law, [Contract(sampler, promise)])


def _subject(
    name: str,
    sampler_of: Callable[[Sequence[int]], Sampler],
    law: Law,
    contracts: Sequence[Contract],
) -> Subject:
    draw = sampler_draw(sampler_of)
    return Subject(f"{name}: {law}", contracts, draw, law, lambda quick: suite(law, quick=quick))

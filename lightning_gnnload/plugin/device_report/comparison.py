"""Comparisons of a device's kernels with the CPU's, whose results must be equal, bit for bit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.conform.graphs import example_graphs, timed_graphs, typed_graphs
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import CudaUnavailableError
from lightning_gnnload.ops import DrawKey, Walks
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling.walks import random_walk
from lightning_gnnload.plugin.device_report.row_comparison import ROW_COMPARISONS
from lightning_gnnload.sample.base import Sampler, draw_here
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler, can_sample, differences, draws_by_tables
from lightning_gnnload.sample.hgt import HGTSampler
from lightning_gnnload.sample.labor import LaborSampler
from lightning_gnnload.sample.layerwise import LayerSampler
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.seeds.rows import NodeSeeds
from lightning_gnnload.sample.shadow import ShadowSampler
from lightning_gnnload.sample.walk import RandomWalkSampler
from lightning_gnnload.sample.weighted import WeightedNeighborSampler

_NUM_SEEDS = 64
_NUM_NODES = 1000
_STEPS = 4  # the first two may be made launch by launch, and others by one native call
_LARGE = "random, skewed, with isolated nodes", "60 hubs of degree 500", "random, int64 ids"

Outcome = Literal["equal", "differs", "refused", "failed"]


class Comparison(NamedTuple):
    """A comparison of what a device and the CPU make of the same."""

    subject: str
    outcome: Outcome  # refused: the device does not do it, and the CPU does
    why: str = ""
    num_cases: int = 0

    @property
    def is_bad(self) -> bool:
        """Whether the device's kernels must not be used."""
        return self.outcome in ("differs", "failed")


def quick_comparisons(device: Device) -> Iterator[Comparison]:
    """Compares mini-batches of a plain graph, and by type and time: a second's work once kernels are compiled."""
    plain = {"random, int64 ids": example_graphs()["random, int64 ids"]}
    yield _sampled(device, "neighbours", NeighborSampler([5, 3]), plain)
    yield _sampled(device, "neighbours by type and time", NeighborSampler([5, 3]), {"timed": _timed_graph()})


def comparisons(device: Device) -> Iterator[Comparison]:
    """Compares all kernels: every sampler on graphs of all shapes, graphs in all places, rows of all dtypes, the cache
    that evicts, dropout."""
    graphs = example_graphs()
    for subject, sampler in _samplers().items():
        yield _sampled(device, subject, sampler, graphs)
    times_of_nodes = "one type, times of nodes"
    relations = _two_relations()
    two = {"two relations": Graph.from_hetero({"node": _NUM_NODES}, relations)}
    timed = {"timed": _timed_graph(), times_of_nodes: timed_graphs()[times_of_nodes]}
    for subject, sampler, hetero in (
        ("neighbours by type", NeighborSampler([4, 3]), typed_graphs()),
        ("neighbours by type and weight", WeightedNeighborSampler([4, 3], edge_ids=True), typed_graphs()),
        ("neighbours by type and time", NeighborSampler([4, 3]), timed),
        ("last neighbours by time", NeighborSampler([4, 3], pick="last"), timed),
        ("neighbours by the time of paths", NeighborSampler([4, 3], order="path"), timed),
        ("walks along a metapath", RandomWalkSampler(num_layers=2, metapath=list(relations), weighted=False), two),
        ("HGT", HGTSampler([8, 8]), typed_graphs()),
    ):
        yield _sampled(device, subject, sampler, hetero)
    for subject, share in (("lists on the host, the hottest on the device", 0.4), ("all of a graph on the host", 0.0)):
        large = {name: graphs[name] for name in _LARGE}
        yield _sampled(device, subject, NeighborSampler([40, 3]), large, share_on_device=share)
    yield _guarded("paths of walks", partial(_walk_both, device))
    for subject, compare in ROW_COMPARISONS.items():
        yield _guarded(subject, partial(compare, device))


def _samplers() -> dict[str, Sampler]:
    """Lists samplers for graphs without types, by what they draw."""
    return {
        "neighbours": NeighborSampler([5, 3]),
        "neighbours, with replacement": NeighborSampler([5, 3], replace=True),
        "neighbours of new nodes alone, with edge ids": NeighborSampler([5, 3], expand="new", edge_ids=True),
        "all neighbours": NeighborSampler([-1, 4]),
        "many neighbours": NeighborSampler([40, 17]),
        "neighbours by weight": WeightedNeighborSampler([5, 3], edge_ids=True),
        "neighbours by weight, with replacement": WeightedNeighborSampler([5, 3], replace=True),
        "many neighbours by weight": WeightedNeighborSampler([100, 3]),
        "walks": RandomWalkSampler(num_layers=2, weighted=False),
        "walks that restart, normalised": RandomWalkSampler(
            num_layers=2, restart_prob=0.3, normalize=True, weighted=False
        ),
        "walks by weight": RandomWalkSampler(num_layers=2),
        **{
            f"layers of {method}{', with replacement' if replace else ''}": LayerSampler(
                [40, 30], method, replace=replace, weighted=False, edge_ids=True
            )
            for method in ("ladies", "fastgcn", "dsp")
            for replace in (False, True)
        },
        "layers by weight": LayerSampler([40, 30]),
        "LABOR": LaborSampler([5, 3]),
        "ShaDow": ShadowSampler([5, 3], num_layers=2),
    }


def _two_relations() -> dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]]:
    """Makes the edges of two types between nodes of one."""
    src, dst = np.random.default_rng(0).integers(0, _NUM_NODES, (2, 8 * _NUM_NODES))
    return {("node", name, "node"): (src[part::2], dst[part::2]) for part, name in enumerate(("to", "on"))}


def _timed_graph() -> Graph:
    """Makes a graph of two relations whose edges and nodes have times."""
    rng, edges = np.random.default_rng(1), _two_relations()
    edge_time = {edge_type: rng.integers(0, 100, len(src)) for edge_type, (src, _) in edges.items()}
    node_time = {"node": rng.integers(0, 100, _NUM_NODES)}
    return Graph.from_hetero({"node": _NUM_NODES}, edges, edge_time=edge_time, node_time=node_time)


def _sampled(
    device: Device, subject: str, sampler: Sampler, graphs: Mapping[str, Graph], *, share_on_device: float | None = None
) -> Comparison:
    """Compares mini-batches of those graphs that the sampler takes."""
    return _guarded(subject, lambda: _sample_both(device, sampler, graphs, share_on_device))


def _sample_both(
    device: Device, sampler: Sampler, graphs: Mapping[str, Graph], share_on_device: float | None
) -> Iterator[str]:
    refusal = can_sample(sampler)
    if refusal is not None:
        raise CudaUnavailableError(refusal)
    for name, graph in graphs.items():
        num_bytes = graph.indptr.nbytes + graph.indices.nbytes
        budget = None if share_on_device is None else int(share_on_device * num_bytes)
        topology = place(graph, device, weighted=draws_by_tables(sampler, graph), budget_bytes=budget)
        draws = DeviceSampler(sampler, topology, device)
        seeds = np.random.default_rng(len(name)).permutation(graph.num_nodes)[:_NUM_SEEDS]
        rows = NodeSeeds(graph, sampler, seeds)
        for step in range(_STEPS):
            draw = rows.ask(seeds[: len(seeds) - step // 2], DrawKey(seed=1, epoch=2, step=step)).draw
            arena, layout = draw_here(sampler, graph, draw)
            expected = MiniBatch.view(arena, layout, len(draw.seeds))
            with _heard_warnings() as warnings:
                differing = differences(device, draws.sample(draw), expected)
            where = f"of step {step}, graph {name!r}"
            yield f"{differing[0]} {where}" if differing else f"{warnings[0]} {where}" if warnings else ""


@contextmanager
def _heard_warnings() -> Iterator[list[str]]:
    """Lists what is warned of meanwhile: a batch that one native call makes otherwise is launched kernel by kernel."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("lightning_gnnload")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def _walk_both(device: Device) -> Iterator[str]:
    walks, key = Walks(6, 4, restart_prob=0.2), DrawKey(seed=1, epoch=2, step=3)
    for name, graph in example_graphs().items():
        starts = np.arange(min(graph.num_nodes, _NUM_SEEDS))
        mine = device.read(random_walk(device, place(graph, device), starts, walks, key))
        is_equal = np.array_equal(mine, ops.random_walk(graph.indptr, graph.indices, starts, walks, key))
        yield "" if is_equal else f"graph {name!r}"


def _guarded(subject: str, compare: Callable[[], Iterator[str]]) -> Comparison:
    """Goes through cases, each of which is "" where both are equal, to the first that is not."""
    num_cases = 0
    try:
        for difference in compare():
            num_cases += 1
            if difference:
                return Comparison(subject, "differs", difference, num_cases)
    except CudaUnavailableError as error:
        return Comparison(subject, "refused", str(error), num_cases)
    except Exception as error:  # what drivers and torch raise has many classes
        return Comparison(subject, "failed", f"{type(error).__name__}: {error}", num_cases)
    return Comparison(subject, "equal", num_cases=num_cases)

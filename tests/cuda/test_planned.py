"""Batches made by one native call are those that launches one by one make: for every sampler, other keys, other seeds
and fewer of them, and whatever order the driver runs streams in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.cuda.neighbors import sample_neighbors
from lightning_gnnload.ops.cuda.planned import PlannedBatches
from lightning_gnnload.ops.cuda.typed import sample_typed_neighbors
from lightning_gnnload.ops.cuda.walks import sample_walks
from lightning_gnnload.ops.cuda.weighted import sample_weighted_neighbors
from lightning_gnnload.ops.cuda.workspace import DeviceWorkspace
from lightning_gnnload.ops.walks import Walks
from tests.ops.typed_graphs import random_queries, random_typed_graph
from tests.ops.weighted_graphs import WeightedGraph

from .emulated import EmulatedDevice
from .emulated_libcuda import EmulatedLibcuda
from .sampled import skewed_graph, topology_of
from .test_typed import placed
from .test_weighted import weighted_topology

NUM_NODES = 400
UNIFORM = {
    "[3, 2]": lambda w, t, d: sample_neighbors(w, t, d.seeds, [3, 2], d.key),
    "[10, 25]": lambda w, t, d: sample_neighbors(w, t, d.seeds, [10, 25], d.key),
    "new": lambda w, t, d: sample_neighbors(w, t, d.seeds, [5, 4, 3], d.key, expand="new", edge_ids=True, replace=True),
    "no hops": lambda w, t, d: sample_neighbors(w, t, d.seeds, [], d.key),
    "walks": lambda w, t, d: sample_walks(w, t, d.seeds, Walks(3, 5), d.key, num_hops=2, num_neighbors=3),
}
WEIGHTED = {
    "weighted": lambda w, t, d: sample_weighted_neighbors(w, t, d.seeds, [3, 2], d.key, edge_ids=True),
    "weighted, many": lambda w, t, d: sample_weighted_neighbors(w, t, d.seeds, [40, 3], d.key, edge_ids=True),
}


@pytest.fixture(params=[0, 1], ids=["in order", "deferred"])
def device(request: pytest.FixtureRequest) -> EmulatedDevice:
    return EmulatedDevice(library=EmulatedLibcuda(deferred=bool(request.param), seed=3), num_processors=2)


def arrays(sample) -> list:
    hops = [
        (hop.num_dst, hop.num_src, *(None if a is None else (a.dtype, a.tolist()) for a in _columns(hop)))
        for hop in sample.hops
    ]
    return [sample.nodes.tolist(), None if sample.queries is None else sample.queries.tolist(), hops]


def _columns(hop):
    return hop.indptr, hop.indices, hop.edge_ids, hop.edge_weights, hop.edge_types


def check(device: EmulatedDevice, topology, eager, draws: list[Draw], table: str) -> int:
    """Returns how many batches were made by one call."""
    made, other = PlannedBatches(device, topology, eager, table), DeviceWorkspace(device, topology.num_nodes, table)
    num_made = 0
    for trial, draw in enumerate(draws):
        before = device.num_launches
        sample = arrays(made.draw(draw))
        num_made += device.num_launches == before
        assert sample == arrays(eager(other, topology, draw)), trial
    return num_made


@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize("name", [*UNIFORM, *WEIGHTED])
def test_a_batch_of_one_call_is_that_of_many(device: EmulatedDevice, name: str, table: str) -> None:
    rng = np.random.default_rng(0)
    indptr, indices = skewed_graph(3, np.int64, NUM_NODES, 6000)
    if name in WEIGHTED:
        topology = weighted_topology(device, WeightedGraph.of(indptr, indices, rng.random(6000)))
    else:
        topology = topology_of(device, indptr, indices)
    draws = [
        Draw(rng.permutation(NUM_NODES)[:num_seeds], DrawKey(2**63 + trial, trial, 7 * trial))
        for trial, num_seeds in enumerate([32, 32, 32, 31, 32, 31, 5, 5, 32])
    ]
    # The first batch of 32 seeds and of 5 are recorded; the very first not where it makes tables for those that follow.
    num_by_hand = 2 + (table == "hash" or name in WEIGHTED)
    assert check(device, topology, (UNIFORM | WEIGHTED)[name], draws, table) == len(draws) - num_by_hand


@pytest.mark.parametrize("number", range(16))
def test_a_batch_of_queries_of_one_call_is_that_of_many(device: EmulatedDevice, number: int) -> None:
    """Queries of one form: with other names, times, seeds and edges left out."""
    rng = np.random.default_rng(number)
    graph = random_typed_graph(rng, untyped=number % 5 == 0)
    seeds, queries, _ = random_queries(rng, graph, min(33, graph.size))
    fanouts = rng.choice([0, 1, 2, 3, 5], (2, len(graph.ends)))
    options = {
        "edge_ids": True,
        "expand": str(rng.choice(["all", "new"])),
        "pick": str(rng.choice(["uniform", "last"])),
    }

    def eager(workspace, topology, draw):
        return sample_typed_neighbors(
            workspace, topology, draw.seeds, fanouts, draw.key, queries=draw.queries, **options
        )

    draws = []
    for trial in range(5):
        order = rng.permutation(len(seeds))[: len(seeds) - trial % 2]
        lots = {name: getattr(queries, name) for name in ("name", "since", "until")}
        others = {name: None if lot is None else np.roll(lot, trial) for name, lot in lots.items()}
        draws.append(
            Draw(
                seeds[order],
                DrawKey(trial, 2**32 - 1, number),
                replace(queries, of_seed=queries.of_seed[order], **others),
            )
        )
    topology = placed(device, graph, graph.lists(untyped=number % 5 == 0))
    assert check(device, topology, eager, draws, "hash") > 0
    if number % 3 == 0:  # one query for all
        draws = [Draw(rng.permutation(graph.size)[: len(seeds)], draw.key) for draw in draws]
        assert check(device, topology, eager, draws, "stamp") > 2

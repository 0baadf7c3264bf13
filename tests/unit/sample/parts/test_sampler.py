"""PartSampler: mini-batches of parts are those of the whole graph; what parts cannot serve is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import (
    Graph,
    GraphData,
    LaborSampler,
    LayerSampler,
    NeighborSampler,
    RandomWalkSampler,
    Sampler,
    ShadowSampler,
    WeightedNeighborSampler,
    partition_graph,
)
from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import PartitionError, PartitionMismatchError, PartReachError, SeedError
from lightning_gnnload.sample.parts.sampler import PartSampler, PartWorkload
from lightning_gnnload.sample.workload import Workload
from tests.unit.partition.by_id import Given
from tests.unit.parts import partition_of
from tests.unit.toy import content

NUM_NODES, NUM_PARTS = 200, 3
SAMPLERS: dict[str, Sampler] = {
    "all": NeighborSampler([3, 2], edge_ids=True),
    "new": NeighborSampler([3, -1], expand="new", edge_ids=True),
    "replace": NeighborSampler([4, 2], replace=True),
    "typed": NeighborSampler([{0: 1, 2: 2}, 2], edge_ids=True),
    "weighted": WeightedNeighborSampler([3, 2], edge_ids=True),
    "labor": LaborSampler([3, 2], edge_ids=True),
    "shadow": ShadowSampler([2], num_layers=3, edge_ids=True),
    "walks": RandomWalkSampler(num_layers=1, num_neighbors=3, num_walks=4, walk_length=2),
    "ladies": LayerSampler([30, 20], edge_ids=True),
    "dsp": LayerSampler([30, 20], "dsp", edge_ids=True),
    "none": NeighborSampler([]),
}


def graph_of(seed: int) -> Graph:
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, NUM_NODES, (2, 900))
    return Graph.from_coo(
        src, dst, num_nodes=NUM_NODES, edge_weight=random.random(900), edge_type=random.integers(0, 3, 900)
    )


def partition(graph: Graph, hops: int = 2, phases: tuple[str, ...] = ("train", "val")) -> Partition:
    random = np.random.default_rng(0)
    nodes = random.permutation(NUM_NODES)
    seeds = {"train": nodes[:60], "val": nodes[60:80]}
    return partition_of(graph, random.integers(0, NUM_PARTS, NUM_NODES), {p: seeds[p] for p in phases}, hops)


@pytest.mark.parametrize("name", SAMPLERS)
def test_batches_of_parts_are_those_of_the_whole_graph(name: str) -> None:
    for seed in range(3):
        graph = graph_of(seed)
        parts, whole = partition(graph), SAMPLERS[name]
        sampler = PartSampler(whole, parts)
        for part in parts.parts:
            for step, phase in enumerate(("train", "val")):
                seeds = np.random.default_rng(step).permutation(part.seeds[phase])
                where: dict[str, Any] = {"seed": 5, "epoch": 1, "step": step}
                assert content(sampler.sample(graph, seeds, **where)) == content(whole.sample(graph, seeds, **where))


def test_a_seed_may_be_another_parts_node_that_this_one_holds() -> None:
    graph = graph_of(0)
    parts = partition(graph, phases=("train",))
    part = parts.parts[1]
    assert part.graph.origin is not None
    deep_mirrors = np.flatnonzero(part.graph.origin.reach[part.num_own :] >= 1) + part.num_own
    seeds = np.array([*part.seeds["train"], *part.graph.origin.node_ids[deep_mirrors[:3]]])
    whole = NeighborSampler([3], edge_ids=True)
    assert content(PartSampler(whole, parts).sample(graph, seeds)) == content(whole.sample(graph, seeds))


def test_a_node_of_two_phases_may_be_a_seed_of_a_part_that_does_not_own_it(tmp_path: Path) -> None:
    """Node 0 trains part 0, which owns it, and is evaluated with part 1, for balance."""
    graph = Graph.from_coo([7, 0, 1, 7], [0, 1, 4, 5], num_nodes=8)
    data = GraphData(graph, train=[0, 1, 2, 3], val=[0, 1, 4, 5])
    owner = np.array([0, 0, 1, 1, 0, 1, 0, 1], np.int32)
    made = partition_graph(data, tmp_path / "parts", 2, Given(owner), hops=1, phases=("train", "val"), progress=False)
    part = made.parts[1]
    assert part.seeds["val"].tolist() == [0, 5]
    assert made.part_of(np.array([0, 5])).tolist() == [0, 1]
    whole = NeighborSampler([2], edge_ids=True)
    sampler = PartSampler(whole, made)
    order = LocalOrder(made.seeds_of("val") or [], Sequential())
    workload = Workload(graph, sampler, data.val, batch_size=2, order=order, num_ranks=2)
    for request in workload.requests(0):
        seeds = workload.seeds_of(request)
        assert content(sampler.sample(graph, seeds)) == content(whole.sample(graph, seeds))
        # Whoever looks at a rank's workload alone gets ids of that rank's part, whoever owns the nodes.
        of_rank = made.parts[request.rank]
        local = PartWorkload(workload, whole, of_rank, "val").seeds_of(request)
        assert of_rank.graph.names_of(local).tolist() == seeds.tolist()


def test_it_looks_like_the_sampler_and_can_be_copied() -> None:
    inner = NeighborSampler([3, 2], expand="new", edge_ids=True)
    sampler = PartSampler(inner, partition(graph_of(0)))
    for each in (sampler, copy.deepcopy(sampler)):
        assert each.num_layers == each.reach == 2
        assert (each.fanouts, each.expand, each.edge_ids) == (inner.fanouts, "new", True)
    with pytest.raises(AttributeError, match="nothing"):
        _ = sampler.nothing


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (NeighborSampler([2, 2, 2]), "3 hops.*but the parts hold 2.*--hops 3"),
        (ShadowSampler([2, 2], num_layers=1), "3 hops"),
        (RandomWalkSampler(num_layers=2, num_neighbors=3, walk_length=2), "4 hops"),
        (LayerSampler([20], method="fastgcn"), "may read any node"),
    ],
)
def test_samplers_that_look_further_than_the_parts(sampler: Sampler, message: str) -> None:
    with pytest.raises(PartReachError, match=message):
        PartSampler(sampler, partition(graph_of(0)))


def test_seeds_that_no_part_can_serve() -> None:
    graph = graph_of(0)
    parts = partition(graph, phases=("train",))
    sampler = PartSampler(SAMPLERS["all"], parts)
    mixed = [parts.parts[0].seeds["train"][0], parts.parts[2].seeds["train"][0]]
    with pytest.raises(PartitionError, match=r"of the parts \[0, 2\].*3 trainers"):
        sampler.sample(graph, mixed)
    part = parts.parts[1]
    assert part.graph.origin is not None
    shallow = part.graph.origin.node_ids[: part.num_own][part.graph.origin.reach[: part.num_own] == 0][0]
    with pytest.raises(PartReachError, match=rf"part 1 holds 0 hops .* node {shallow}, but 2 .*of train"):
        sampler.sample(graph, [shallow])
    absent = np.setdiff1d(parts.node_ids[parts.starts[1] : parts.starts[2]], part.graph.origin.node_ids)
    with pytest.raises(PartReachError, match=rf"part 1 does not hold node {absent[0]}"):
        sampler.sample(graph, absent)
    for bad in (-1, NUM_NODES):
        with pytest.raises(SeedError, match=r"ids must lie in \[0, 200\)"):
            sampler.sample(graph, [bad])
    seed = mixed[0]
    with pytest.raises(SeedError, match="the same node"):
        sampler.sample(graph, [seed, seed])
    with pytest.raises(PartitionMismatchError, match="200 nodes, but this one has 3"):
        sampler.sample(Graph.from_coo([0], [2]), [0])

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, MiniBatch, RandomWalkSampler, random_walk
from lightning_gnnload.conform.suites import run, suite
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GnnLoadError, SamplerConfigError, SeedError
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.slots import Slot
from tests.laws.subjects import first_steps
from tests.runif import RunIf
from tests.unit.toy import content, toy_data, toy_graph, toy_source

GRAPH = toy_graph()
SEEDS = [17, 3, 250, 99]


def whole(batch: MiniBatch) -> list[Any]:
    """All that the batch holds, as plain numbers."""
    return [*content(batch), [block.edge_weight.tolist() for block in batch.blocks]]


def nodes_within(node: int, num_steps: int) -> set[int]:
    """The nodes that one to ``num_steps`` steps along in-edges reach."""
    reached, last = set[int](), {node}
    for _ in range(num_steps):
        last = {neighbor for v in last for neighbor in GRAPH.in_neighbors(v).tolist()}
        reached |= last
    return reached


# random_walk


@pytest.mark.parametrize("as_given", [list, np.array, torch.tensor])
def test_walks_from_any_kind_of_ids(as_given) -> None:
    traces = random_walk(GRAPH, as_given(SEEDS), 6, num_walks=3, seed=1, epoch=2, step=3)
    assert traces.dtype == torch.int64
    assert traces.shape == (12, 7)
    assert traces[::3, 0].tolist() == SEEDS
    assert traces[:, 0].tolist() == np.repeat(SEEDS, 3).tolist()
    assert set(traces.flatten().tolist()) - {-1} <= set(range(300))
    assert torch.equal(traces, random_walk(GRAPH, SEEDS, 6, num_walks=3, seed=1, epoch=2, step=3))
    assert not torch.equal(traces, random_walk(GRAPH, SEEDS, 6, num_walks=3, seed=1, epoch=2, step=4))


def test_walks_end_and_restart() -> None:
    ring = Graph.from_coo(src=[1, 2, 3, 0], dst=[0, 1, 2, 3])
    assert random_walk(ring, [0], 3, termination_prob=1).tolist() == [[0, 1, -1, -1]]
    assert random_walk(ring, [0], 3, restart_prob=1).tolist() == [[0, 1, 1, 1]]
    assert random_walk(Graph.from_coo(src=[1], dst=[0]), [0, 1], 2).tolist() == [[0, 1, -1], [1, -1, -1]]


def test_walks_go_by_weight() -> None:
    # One of 20 edges has 98 % of the weight, and 5 % of the steps if these were alike. Five sigma: by chance 6e-7.
    weight = np.full(20, 2 / 19)
    weight[7] = 98
    star = Graph.from_coo(np.arange(1, 21), np.zeros(20, int), edge_weight=weight)
    taken = random_walk(star, [0], 1, num_walks=2000)[:, 1].tolist()
    assert abs(taken.count(8) - 1960) <= 5 * np.sqrt(2000 * 0.98 * 0.02)
    assert random_walk(star, [0], 1, num_walks=2000, weighted=False)[:, 1].tolist().count(8) < 150
    sampler = RandomWalkSampler(1, num_neighbors=1, num_walks=2000, walk_length=1, termination_prob=0)
    [block] = sampler.sample(star, [0]).blocks
    assert block.edge_weight.item() > 1900


def test_walks_end_where_all_edges_weigh_nothing() -> None:
    path = Graph.from_coo([1, 2, 3], [0, 1, 1], edge_weight=[1.0, 0.0, 0.0])
    assert random_walk(path, [0], 3).tolist() == [[0, 1, -1, -1]]
    assert random_walk(path, [0], 3, weighted=False)[0, 2] > 1


def test_walks_by_equal_weights_or_none_asked_for() -> None:
    # Words are shared out otherwise where weights are read, so equal ones give the same in law and not in number.
    weighted = Graph.from_csc(GRAPH.indptr, GRAPH.indices, edge_weight=np.random.default_rng(0).random(GRAPH.num_edges))
    assert whole(RandomWalkSampler(weighted=False).sample(weighted, SEEDS)) == whole(
        RandomWalkSampler().sample(GRAPH, SEEDS)
    )
    assert whole(RandomWalkSampler().sample(weighted, SEEDS)) != whole(RandomWalkSampler().sample(GRAPH, SEEDS))


def test_steps_by_weight_follow_the_law() -> None:
    # A right sampler fails with probability below 1e-6 for other seeds; conform says what each check would find.
    failed = [result.name for result in run(first_steps, suite("weighted, replaced", quick=True)) if not result.passed]
    assert failed == []


def test_more_walks_by_weight_than_there_are_draws_for() -> None:
    weighted = Graph.from_csc(GRAPH.indptr, GRAPH.indices, edge_weight=np.ones(GRAPH.num_edges))
    with pytest.raises(SamplerConfigError, match=r"by weight: num_walks \* length must be at most 16777216"):
        random_walk(weighted, [0], 2**13, num_walks=2**12)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"starts": [0, 300]}, SeedError, "300"),
        ({"starts": [4, 5, 4]}, SeedError, "node 4 more than once"),
        ({"starts": [0.5]}, GnnLoadError, "integer"),
        ({"length": 0}, SamplerConfigError, "length"),
        ({"num_walks": 0}, SamplerConfigError, "num_walks"),
        ({"restart_prob": 2}, SamplerConfigError, "restart_prob"),
        ({"seed": -1}, SamplerConfigError, "seed"),
    ],
)
def test_walks_that_cannot_be(arguments, error, message: str) -> None:
    with pytest.raises(error, match=message):
        random_walk(**({"graph": GRAPH, "starts": SEEDS, "length": 3} | arguments))


# RandomWalkSampler


def test_the_defaults_are_gnnlabs() -> None:
    assert repr(RandomWalkSampler()) == (
        "RandomWalkSampler(num_layers=3, num_neighbors=5, num_walks=4, walk_length=3, termination_prob=0.5, "
        "restart_prob=0.0, include_self=True, normalize=False, expand='all')"
    )
    assert RandomWalkSampler().num_layers == 3


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("include_self", [False, True])
def test_blocks_join_nodes_that_walks_reach(expand, include_self: bool) -> None:
    sampler = RandomWalkSampler(expand=expand, include_self=include_self, restart_prob=0.2)
    batch = sampler.sample(GRAPH, SEEDS, 1, 2, 3)
    assert batch.seeds.tolist() == SEEDS
    assert len(batch.nodes.unique()) == batch.num_nodes
    known = len(SEEDS)
    for block in reversed(batch.blocks):
        assert block.num_dst == known
        assert block.edge_weight.dtype == torch.float32
        assert block.edge_ids is None
        assert block.in_degrees.max() <= 5
        for dst in range(block.num_dst):
            edges = slice(block.indptr[dst], block.indptr[dst + 1])
            node, found = int(batch.nodes[dst]), batch.nodes[block.indices[edges].long()].tolist()
            visits = block.edge_weight[edges].tolist()
            assert set(found) <= nodes_within(node, 3) - (set() if include_self else {node})
            assert sum(visits) <= 12
            assert list(zip(visits, found, strict=True)) == sorted(
                zip(visits, found, strict=True), key=lambda edge: (-edge[0], edge[1])
            )
        known = block.num_src
    assert known == batch.num_nodes


@pytest.mark.parametrize(("include_self", "wanted"), [(True, [0, 1]), (False, [1])])
def test_a_destination_may_be_its_own_neighbour(include_self: bool, wanted: list[int]) -> None:
    pair = Graph.from_coo(src=[0, 1], dst=[1, 0])
    sampler = RandomWalkSampler(1, walk_length=2, termination_prob=0, include_self=include_self)
    block = sampler.sample(pair, [0]).blocks[0]
    assert block.indices.tolist() == wanted
    assert block.edge_weight.tolist() == [4.0] * len(wanted)


def test_normalized_weights_sum_to_one() -> None:
    batch = RandomWalkSampler(normalize=True).sample(GRAPH, SEEDS)
    for block in batch.blocks:
        sums = torch.zeros(block.num_dst).index_add(0, block.edge_dst(), block.edge_weight)
        assert torch.allclose(sums[block.in_degrees > 0], torch.ones(()))
        assert (block.in_degrees > 0).any()


def test_a_batch_is_a_pure_function() -> None:
    sampler = RandomWalkSampler()
    wanted = whole(sampler.sample(GRAPH, SEEDS, 1, 2, 3))
    sampler.sample(GRAPH, [0, 1], 9, 9, 9)  # a generator with state would move here
    torch.manual_seed(5)
    assert whole(sampler.sample(GRAPH, torch.tensor(SEEDS), 1, 2, 3)) == wanted
    assert all(whole(sampler.sample(GRAPH, SEEDS, *key)) != wanted for key in [(2, 2, 3), (1, 3, 3), (1, 2, 4)])
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(whole(sampler.sample(GRAPH, SEEDS, 1, 2, 3)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_layers": 0}, "num_layers=0"),
        ({"num_layers": 2.0}, "num_layers=2.0"),
        ({"num_neighbors": -1}, "num_neighbors=-1"),
        ({"num_walks": 0}, "num_walks is 0"),
        ({"walk_length": 0}, "the length of a walk is 0"),
        ({"walk_length": None}, "the length of a walk is None"),
        ({"termination_prob": 50}, "termination_prob is 50"),
        ({"restart_prob": -0.5}, "restart_prob is -0.5"),
        ({"num_walks": 30_000}, "visit up to 90000 nodes"),
        ({"expand": "some"}, "expand='some'.*'all'.*'new'"),
    ],
)
def test_settings_that_cannot_work(settings, message: str) -> None:
    with pytest.raises(SamplerConfigError, match=message):
        RandomWalkSampler(**settings)


@pytest.mark.parametrize("seeds", [[0, 300], [-1], [4, 5, 4]])
def test_seeds_that_are_no_nodes(seeds) -> None:
    with pytest.raises(SeedError):
        RandomWalkSampler().sample(GRAPH, seeds)
    assert RandomWalkSampler().sample(GRAPH, [0, 299]).num_seeds == 2  # the scratch memory is still sound


# On the way to a model


@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_loader_gives_the_same_stream_for_any_number_of_threads(num_threads: int) -> None:
    source = toy_source(batch_size=8, sampler=RandomWalkSampler(num_layers=2))
    threaded, alone = SampledLoader(source, num_threads=num_threads), SampledLoader(source, num_threads=0)
    found = [whole(batch) for batch in threaded]
    assert len(found) == 13
    assert found == [whole(batch) for batch in alone]


@pytest.mark.parametrize("num_bytes", [1, 1 << 12, 1 << 22])
def test_weights_travel_through_a_slot(num_bytes: int) -> None:
    # As between ranks: the description goes as JSON, the numbers stay where they were written.
    data, sampler, slot = toy_data(), RandomWalkSampler(normalize=True), Slot(num_bytes)
    made = toy_source(data, sampler=sampler).make(BatchRequest(0, 1, 0, 1), slot)
    batch = Payload.from_json(made.to_json()).view(slot.buffer())
    alone = sampler.sample(data.graph, batch.seeds, seed=3, epoch=0, step=1)
    assert whole(batch)[:5] == whole(alone)[:5]
    assert whole(batch)[-1] == whole(alone)[-1]
    assert torch.equal(batch.x, data.x.rows[batch.nodes])


@RunIf(extras="dgl")
def test_dgl_blocks_carry_the_visits() -> None:
    from lightning_gnnload.adapters.dgl.write import ToDGL

    batch = RandomWalkSampler().sample(GRAPH, SEEDS)
    _, _, blocks = ToDGL()(batch)
    for block, mine in zip(blocks, batch.blocks, strict=True):
        assert torch.equal(block.edata["edge_weights"], mine.edge_weight)
        assert torch.equal(block.edges()[0].int(), mine.indices)


@RunIf(extras="pyg")
def test_pyg_data_carries_the_visits() -> None:
    from lightning_gnnload.adapters.pyg.write import to_pyg

    batch = RandomWalkSampler(expand="new").sample(GRAPH, SEEDS)
    data = to_pyg(batch)
    assert torch.equal(data.edge_weight, batch.blocks[0].edge_weight)
    assert torch.equal(data.edge_index[0].int(), batch.blocks[0].indices)

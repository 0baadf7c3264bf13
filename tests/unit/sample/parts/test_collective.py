"""CollectiveSampler: id for id what one rank samples from the whole graph, for any parts, ranks and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload import Graph, LaborSampler, NeighborSampler, Sampler, WeightedNeighborSampler
from lightning_gnnload.errors import PartitionError, PartitionMismatchError, SamplerConfigError, SeedError
from lightning_gnnload.sample.group.exchange import ThreadExchange
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.parts.collective import CollectiveSampler, open_colleagues
from tests.unit.parts import partition_of
from tests.unit.sample.ranks import Slow, disjoint, on_ranks, over_parts
from tests.unit.toy import content

SAMPLERS = [
    NeighborSampler([3, 2], edge_ids=True),
    NeighborSampler([2, -1, 2], expand="new", edge_ids=True),
    NeighborSampler([3, 2], replace=True),
    NeighborSampler([{1: 2, 4: -1}, 1], edge_ids=True),
    NeighborSampler([]),
    WeightedNeighborSampler([3, 2], edge_ids=True),
    WeightedNeighborSampler([3, -1], replace=True, expand="new"),
    LaborSampler([3, 2], edge_ids=True),
    LaborSampler([3, 2], fixed_count=True, expand="new"),
    LaborSampler([3, 2], importance=2, edge_ids=True),
    LaborSampler([2, 2, -1], importance=-1, layer_dependency=True, estimate="sum", expand="new"),
]


def random_graph(seed: int, num_nodes: int = 60, num_edges: int = 400) -> Graph:
    """Repeated edges, loops, nodes without lists; a fifth of the weights are zero; types from 0 to 4."""
    rng = np.random.default_rng(seed)
    dst = (num_nodes * rng.random(num_edges) ** 2).astype(np.int64)
    weight = rng.random(num_edges).astype(np.float32) * (rng.random(num_edges) < 0.8)
    return Graph.from_coo(
        rng.integers(0, num_nodes, num_edges),
        dst,
        num_nodes=num_nodes,
        edge_weight=weight,
        edge_type=rng.integers(0, 5, num_edges),
    )


def sample_all(sampler: Sampler, graph: Graph, rank: int, num_steps: int = 2) -> list[Any]:
    """Of each step what a rank samples; every rank has other seeds, and rank 1 has one step more."""
    found = []
    for step in range(num_steps + (rank == 1)):
        seeds = np.random.default_rng([rank, step]).permutation(graph.num_nodes)[: 8 + rank]
        found.append(content(sampler.sample(graph, seeds, seed=9, epoch=3, step=step)))
    return found


@pytest.mark.parametrize("paradigm", ["push", "pull"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_equals_the_single_rank(sampler: Sampler, paradigm: Any) -> None:
    graph = random_graph(0)
    for num_parts in (1, 3):
        part_of = np.random.default_rng(num_parts).integers(0, num_parts, graph.num_nodes)

        def work(colleagues: SamplingGroup) -> Any:
            return sample_all(CollectiveSampler(sampler, colleagues, paradigm), graph, colleagues.rank)

        for rank, found in enumerate(over_parts(disjoint(graph, part_of, num_parts), work)):
            assert found == sample_all(sampler, graph, rank)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    num_parts=st.integers(1, 5),
    num_nodes=st.integers(1, 30),
    num_edges=st.integers(0, 90),
    which=st.integers(0, len(SAMPLERS) - 1),
    paradigm=st.sampled_from(["push", "pull"]),
)
def test_any_graph_in_any_parts(
    seed: int, num_parts: int, num_nodes: int, num_edges: int, which: int, paradigm: Any
) -> None:
    """Parts of no nodes, and parts without edges, among them."""
    graph, sampler = random_graph(seed, num_nodes, num_edges), SAMPLERS[which]
    if isinstance(sampler, NeighborSampler) and num_edges and graph.edge_type is not None:
        sampler = SAMPLERS[0] if graph.edge_type.max() < 4 else sampler
    elif not num_edges:
        sampler = SAMPLERS[-1]
    part_of = np.random.default_rng(seed).integers(0, num_parts, num_nodes)

    def work(colleagues: SamplingGroup) -> Any:
        return sample_all(CollectiveSampler(sampler, colleagues, paradigm), graph, colleagues.rank, 1)

    for rank, found in enumerate(over_parts(disjoint(graph, part_of, num_parts), work)):
        assert found == sample_all(sampler, graph, rank, 1)


def test_three_threads_on_each_of_three_slow_ranks() -> None:
    """Threads of a rank share its rounds, and none gets what another asked for."""
    graph, sampler = random_graph(4), NeighborSampler([3, 2, 2], edge_ids=True)
    partition = disjoint(graph, np.arange(graph.num_nodes) % 3, 3)

    def work(colleagues: SamplingGroup) -> list[Any]:
        collective = CollectiveSampler(sampler, colleagues)
        return on_ranks(lambda thread: sample_all(collective, graph, 10 * colleagues.rank + thread), range(3))

    exchanges = [Slow(exchange) for exchange in ThreadExchange.connect(3, timeout_s=20)]
    for rank, found in enumerate(over_parts(partition, work, exchanges)):
        assert found == [sample_all(sampler, graph, 10 * rank + thread) for thread in range(3)]


def test_a_hop_of_no_nodes_keeps_its_columns() -> None:
    """Seeds without lists, after which no node is new, and no seeds at all: edge ids, weights and types are still
    there, none of them or those of the hop before."""
    graph = Graph.from_coo([1, 0, 2], [0, 1, 1], num_nodes=6, edge_weight=[1.0, 2.0, 1.0], edge_type=[4, 1, 0])
    partition, batches = disjoint(graph, np.arange(6) % 2, 2), ([3, 4], [0, 1, 2], [])

    def work(colleagues: SamplingGroup) -> None:
        for sampler in SAMPLERS:
            for paradigm in ("push", "pull"):
                collective = CollectiveSampler(sampler, colleagues, paradigm)  # type: ignore[arg-type]
                for seeds in batches:
                    assert content(collective.sample(None, seeds)) == content(sampler.sample(graph, seeds))

    over_parts(partition, work)


def test_an_arena_too_small_gives_the_same_batch() -> None:
    graph, sampler = random_graph(1, num_nodes=4000, num_edges=60_000), NeighborSampler([20, 20], edge_ids=True)
    partition = disjoint(graph, np.arange(4000) % 2, 2)
    seeds = np.arange(3500)  # more than a first arena holds

    def work(colleagues: SamplingGroup) -> Any:
        return content(CollectiveSampler(sampler, colleagues).sample(None, seeds))

    assert over_parts(partition, work) == [content(sampler.sample(graph, seeds))] * 2


def test_push_moves_less_than_pull_by_weight() -> None:
    """Bytes are counted: for lists of 50 and fanout 5, and ids of 4 bytes, pull moves over twice as much."""
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(
        rng.integers(0, 2000, 100_000),
        np.arange(100_000) % 2000,
        edge_weight=rng.random(100_000).astype(np.float32),
    )
    partition = disjoint(graph, np.arange(2000) % 2, 2)

    def moved(paradigm: Any) -> int:
        def work(colleagues: SamplingGroup) -> int:
            sampler = CollectiveSampler(WeightedNeighborSampler([5, 5]), colleagues, paradigm)
            sampler.sample(None, np.arange(100))
            [traffic] = colleagues.traffic.values()
            assert 0 < traffic.num_remote < traffic.num_nodes
            assert traffic.num_tasks == 2
            return traffic.num_bytes

        return sum(over_parts(partition, work))

    assert 2 * moved("push") < moved("pull")


class OfOnesOwn(NeighborSampler):
    """Which no other rank knows."""


@pytest.mark.parametrize(
    ("sampler", "error", "message"),
    [
        (OfOnesOwn([2]), SamplerConfigError, "cannot be sampled collectively"),
        (NeighborSampler([{7: 2}]), SamplerConfigError, r"edge type 7.*\[0, 5\)"),
        (WeightedNeighborSampler([2], on_zero="error"), SamplerConfigError, "only edges of weight zero"),
    ],
)
def test_refuses_what_it_cannot_sample(sampler: Sampler, error: type[Exception], message: str) -> None:
    graph = random_graph(0, num_edges=150)
    partition = disjoint(graph, np.arange(graph.num_nodes) % 2, 2)

    def work(colleagues: SamplingGroup) -> None:
        with pytest.raises(error, match=message):
            CollectiveSampler(sampler, colleagues)

    over_parts(partition, work)


def test_bad_seeds_end_nothing() -> None:
    graph = random_graph(0)
    partition = disjoint(graph, np.arange(graph.num_nodes) % 2, 2)

    def work(colleagues: SamplingGroup) -> Any:
        sampler = CollectiveSampler(NeighborSampler([2]), colleagues)
        for seeds, message in (([60], "seeds.0. is 60"), ([4, 4], "same node")):
            with pytest.raises(SeedError, match=message):
                sampler.sample(None, seeds)
        return content(sampler.sample(None, [4]))

    assert over_parts(partition, work) == [content(NeighborSampler([2]).sample(graph, [4]))] * 2


@pytest.mark.parametrize(("other", "told"), [(np.arange(60) % 3 % 2, "starts"), (np.arange(60) < 30, "numbering")])
def test_ranks_of_other_partitions_refuse_each_other(other: np.ndarray, told: str) -> None:
    graph = random_graph(0)
    ours, theirs = (disjoint(graph, np.asarray(owners, int), 2) for owners in (np.arange(60) % 2, other))
    exchanges = ThreadExchange.connect(2, timeout_s=10)

    def meet(rank: int) -> Any:
        return open_colleagues([ours, theirs][rank], exchanges[rank])

    for error in on_ranks(meet, range(2)):
        assert isinstance(error, PartitionMismatchError)
        assert f"its {told} is" in str(error)


def test_parts_that_sample_by_themselves_are_refused() -> None:
    graph = random_graph(0)
    alone = partition_of(graph, np.zeros(graph.num_nodes, np.int64), {"train": np.arange(5)}, hops=2)
    with pytest.raises(PartitionError, match="hops=0"):
        open_colleagues(alone, *ThreadExchange.connect(1))


def test_as_many_ranks_as_parts() -> None:
    graph = random_graph(0)
    partition = disjoint(graph, np.arange(graph.num_nodes) % 3, 3)
    exchanges = ThreadExchange.connect(2, timeout_s=10)
    for error in on_ranks(lambda exchange: open_colleagues(partition, exchange), exchanges):
        assert isinstance(error, PartitionError)
        assert "3 parts, but 2 ranks" in str(error)

"""The numbers of a partition's quality, on parts small enough to be counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload import Graph, GraphData, NeighborSampler, partition_graph
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.partition.cut import SampledCut
from lightning_gnnload.partition.figure import draw_quality
from lightning_gnnload.partition.partitioner import Partitioner
from lightning_gnnload.partition.quality import CacheRates, Quality, imbalance, measure_quality
from lightning_gnnload.partition.report import findings, parts_table, stages_table
from lightning_gnnload.partition.stages import BuildStage
from lightning_gnnload.plugin.commands.partition import cache_rates
from lightning_gnnload.sample.workload import Workload
from tests.unit.toy import toy_data, toy_graph

CHAIN = Graph.from_coo(src=[1, 2, 3, 4, 5], dst=[0, 1, 2, 3, 4])
"""0 <- 1 <- 2 <- 3 <- 4 <- 5."""


class Halves(Partitioner):
    """The first half of the ids to part 0, the second to part 1."""

    name = "halves"

    def assign(self, graph: Graph, seeds: object, num_parts: int, **settings: object) -> np.ndarray:
        return (np.arange(graph.num_nodes) * num_parts // graph.num_nodes).astype(np.int32)


def test_a_chain_cut_in_two_is_counted_by_hand(tmp_path: Path) -> None:
    """With two hops, part 0 holds 0, 1, 2 for seed 0, and part 1 holds 3, 4, 5 for seed 3; the lists of 2 and 5 are
    left out. With three hops, part 0 mirrors node 3."""
    data = GraphData(CHAIN, train=[0, 3])
    quality = Quality.from_json(partition_graph(data, tmp_path / "two", 2, Halves(), hops=2, progress=False).report)
    assert (quality.num_nodes, quality.num_edges, quality.num_parts) == (6, 5, 2)
    assert quality.own_nodes == [3, 3]
    assert (quality.held_nodes, quality.mirrors, quality.held_edges) == ([3, 3], [0, 0], [2, 2])
    assert quality.seeds == {"train": [1, 1]}
    assert quality.cross_edges == 1
    assert (quality.node_share, quality.node_replication, quality.cross_share) == (0.5, 1.0, 0.2)
    assert quality.random_cross_share == 0.5
    assert (quality.edge_share, quality.edge_replication) == (0.4, 0.8)
    deeper = Quality.from_json(partition_graph(data, tmp_path / "three", 2, Halves(), hops=3, progress=False).report)
    assert (deeper.held_nodes, deeper.mirrors, deeper.held_edges) == ([4, 3], [1, 0], [3, 2])


def test_quality_comes_back_from_json(tmp_path: Path) -> None:
    stages = [BuildStage("Assigning", 1.5, 1 << 20)]
    partition = partition_graph(GraphData(CHAIN, train=[0, 3]), tmp_path / "parts", 2, Halves(), hops=1, progress=False)
    quality = measure_quality(partition, CHAIN, stages)
    whole = quality.with_samples(SampledCut(10, 4, 5, 1, 2), CacheRates(0.1, "presample", [0.5, 0.25], 0.125))
    for each in (quality, whole):
        assert Quality.from_json(json.loads(json.dumps(each.to_json()))) == each
    assert whole.to_json()["shares"]["cross_share"] == 0.2


def test_imbalance_is_the_largest_over_the_mean() -> None:
    assert imbalance([4, 2, 3]) == 4 / 3
    assert imbalance([0, 0]) == 1


def test_caches_of_parts_hit_what_their_own_trainers_visit(tmp_path: Path) -> None:
    """Two graphs in one, a part each: a cache with places for one of them serves its own trainer almost wholly (rows
    that the epoch before did not visit are guessed), and both trainers by half."""
    half = toy_graph(150, 1200)
    both = Graph.from_coo(
        np.concatenate([half.indices, half.indices + 150]),
        np.concatenate([np.repeat(np.arange(150) + start, half.in_degrees) for start in (0, 150)]),
        num_nodes=300,
    )
    data = GraphData(both, train=np.arange(0, 300, 3))
    partition = partition_graph(data, tmp_path / "parts", 2, Halves(), hops=2, progress=False)
    workload = Workload(both, NeighborSampler([4, 4]), data.train, batch_size=10, order=Sequential(), num_ranks=8)
    shares: list[float] = []
    rates = cache_rates(workload, partition, 0.5, advance=shares.append)
    assert min(rates.by_part) > 0.98
    assert 0.5 <= rates.shared < 0.9
    assert shares == [0.25, 0.5, 1.0]
    assert cache_rates(workload, partition, 0.5) == rates


@pytest.mark.parametrize(("num_parts", "sampled"), [(1, False), (2, True), (40, True)])
def test_every_number_of_parts_is_told_and_drawn(num_parts: int, sampled: bool, tmp_path: Path) -> None:
    data = toy_data()
    partition = partition_graph(data, tmp_path / "parts", num_parts, Halves(), hops=0, progress=False)
    quality = measure_quality(partition, data.graph)
    if sampled:
        quality = quality.with_samples(SampledCut(0, 0, 0, 0, 0), CacheRates(0.1, "presample", [0.0] * num_parts, 0.0))
    assert parts_table(quality, "parts").row_count == num_parts + 1
    assert len(list(findings(quality, self_reliant=False))) == (4 if sampled else 2)
    assert stages_table(quality).row_count == 1
    draw_quality(quality, "parts", tmp_path / "quality.png")
    assert (tmp_path / "quality.png").read_bytes().startswith(b"\x89PNG")

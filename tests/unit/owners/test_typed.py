"""Graphs with types and times, and links in them, over owners: mini-batches are those of the whole graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import (
    Graph,
    GraphData,
    HGTSampler,
    LaborSampler,
    Negatives,
    NeighborSampler,
    RandomWalkSampler,
    Sampler,
    SeedTable,
    WeightedNeighborSampler,
    partition_graph,
)
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.base import draw_here
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.sample.seeds.links import LinkSettings, seed_kind
from tests.unit.owners.serving import served
from tests.unit.partition.by_id import ById
from tests.unit.sample.parts.graphs import flat_graph, typed_graph
from tests.unit.toy import content

UNTIMED = [
    NeighborSampler([{"to": 2, "back": 1}, 2], expand="new", edge_ids=True),
    WeightedNeighborSampler([2, 3], sharing="disjoint"),
    LaborSampler([3, 2], edge_ids=True),
    HGTSampler([4, 3], edge_ids=True),
    RandomWalkSampler(2),
]
TIMED = [
    NeighborSampler([3, 2], edge_ids=True),
    NeighborSampler([2, 2, 2], order="path", sharing="time", window=5, pick="last", expand="new"),
]


def parts_of(graph: Graph, folder: Path) -> Any:
    return partition_graph(GraphData(graph, train=np.arange(29)), folder, 3, ById(), hops=0, progress=False)


@pytest.mark.parametrize("paradigm", ["push", "pull"])
def test_types_times_and_weights(paradigm: Any, tmp_path: Path) -> None:
    cases: list[tuple[str, Graph, list[Sampler], dict[str, Any]]] = [
        ("weighted", typed_graph(0, weighted=True), list(UNTIMED), {}),
        ("timed", typed_graph(1, timed="int"), list(TIMED), {"times": [9, 5, 2], "rows": [3, 2**32 + 3, 8]}),
        ("flat", flat_graph(1, by_type=True), list(TIMED), {"times": [9, 5, 2], "rows": [3, 2**32 + 3, 8]}),
    ]
    for name, graph, samplers, asked in cases:
        with served(parts_of(graph, tmp_path / name)) as (owners, _):
            for sampler in samplers:
                ours = CollectiveSampler(sampler, owners, paradigm).sample(None, [20, 3, 28], 1, 2, 3, **asked)
                assert content(ours) == content(sampler.sample(graph, [20, 3, 28], 1, 2, 3, **asked))


@pytest.mark.parametrize("exclude", ["self", "reverse"])
def test_a_trainer_without_the_graph_trains_on_links(exclude: Any, tmp_path: Path) -> None:
    graph, rng = typed_graph(3, timed="int"), np.random.default_rng(0)
    table = SeedTable(
        src=rng.integers(0, 17, 40), dst=rng.integers(0, 12, 40), time=rng.integers(3, 13, 40), edge_type="to"
    )
    links = LinkSettings(Negatives("triplet", num=3, corrupt="both"), exclude, {"to": "back"})
    sampler = NeighborSampler([3, 2], edge_ids=True)
    partition = partition_graph(GraphData(graph, train=table), tmp_path / "parts", 3, ById(), hops=0, progress=False)

    def batch(sampler: Sampler, graph: Graph) -> list[Any]:
        asked = seed_kind(graph, sampler, table, links).ask(np.arange(40), DrawKey(1, 2, 3))
        arena, layout = draw_here(sampler, graph, asked.draw)
        columns = {name: column.tolist() for name, column in asked.columns.items()}
        return [content(MiniBatch.view(arena, layout, len(asked.draw.seeds))), columns]

    with served(partition) as (owners, _):
        assert batch(CollectiveSampler(sampler, owners), partition.graph_data.graph) == batch(sampler, graph)
        assert {"draw", "are_links", "links_between"} <= owners.traffic.keys()

"""What any way to cut a graph makes gives the mini-batches of the whole graph, id for id."""

from __future__ import annotations

from pathlib import Path

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
    load_partition,
    partition_graph,
)
from lightning_gnnload.partition.partitioner import METHODS
from tests.runif import RunIf
from tests.unit.toy import content

SAMPLERS: list[Sampler] = [  # all of reach 3, some less
    NeighborSampler([3, 2, 2], edge_ids=True),
    NeighborSampler([-1, 2, -1], expand="new", edge_ids=True),
    NeighborSampler([{0: 1, 2: -1}, 2], replace=True),
    WeightedNeighborSampler([3, 2, 2], edge_ids=True),
    LaborSampler([3, 2, 2], edge_ids=True),
    LaborSampler([3, 2], importance=-1, layer_dependency=True),
    LayerSampler([9, 12, 15], edge_ids=True),
    LayerSampler([9, 12, 15], method="dsp", expand="new"),
    ShadowSampler([3, 2], num_layers=3, edge_ids=True),
    RandomWalkSampler(num_layers=1, num_neighbors=3, num_walks=6, walk_length=3, termination_prob=0.1),
]


def data_of(seed: int) -> GraphData:
    """Three communities; edges repeat, some are loops; seeds are many in one community, and some have no edges."""
    rng = np.random.default_rng(seed)
    community = rng.integers(0, 3, 1500)
    src = rng.integers(0, 100, 1500) + 100 * np.where(np.arange(1500) < 1300, community, 0)
    dst = (90 * rng.random(1500) ** 2).astype(np.int64) + 100 * community
    graph = Graph.from_coo(src, dst, 300, edge_weight=rng.integers(0, 5, 1500) / 4, edge_type=rng.integers(0, 3, 1500))
    seeds = rng.choice(300, 100, replace=False, p=np.repeat([4, 1, 1], 100) / 600)
    return GraphData(graph, train=seeds[:70], val=seeds[70:])


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=RunIf(extras="partition" if name == "metis" else ())) for name in METHODS]
)
def test_parts_give_the_batches_of_the_whole(method: str, tmp_path: Path) -> None:
    # Lists that are cut short, in another order, or with another's weights; and nodes under other names: all fail here.
    data = data_of(seed=len(method))
    made = partition_graph(data, tmp_path / "parts", 3, method, hops=3, phases=("train", "val"), progress=False)
    for partition in (made, load_partition(tmp_path / "parts")):
        for part in partition.parts:
            for step, sampler in enumerate(SAMPLERS):
                seeds = np.random.default_rng(step).permutation(part.seeds[("train", "val")[step % 2]])
                key = {"seed": 7, "epoch": 1, "step": step}
                wanted = sampler.sample(data.graph, seeds, **key)
                assert content(sampler.sample(part.graph, seeds, **key)) == content(wanted)

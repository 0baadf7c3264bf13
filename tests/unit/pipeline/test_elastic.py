"""One global batch size, any number of trainers: the same seeds at each step, and the same neighbourhoods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_gnnload import (
    Graph,
    GraphData,
    LaborSampler,
    LayerSampler,
    MiniBatch,
    NeighborSampler,
    RandomWalkSampler,
    Sampler,
    ShadowSampler,
    WeightedNeighborSampler,
)
from lightning_gnnload.pipeline.loader import SampledLoader
from tests.unit.toy import toy_source

GLOBAL_BATCH, NUM_NODES = 16, 300
NODE_WISE: dict[str, Sampler] = {
    "neighbor": NeighborSampler([4, 3]),
    "neighbor, with replacement": NeighborSampler([4, 3], replace=True),
    "neighbor, three hops": NeighborSampler([3, 2, 2]),
    "neighbor, all of them": NeighborSampler([2, -1]),
    "neighbor, by edge type": NeighborSampler([{0: 2, 1: 1}, {0: 1, 1: 2}]),
    "weighted": WeightedNeighborSampler([4, 3]),
    "weighted, with replacement": WeightedNeighborSampler([4, 3], replace=True),
    "random walk": RandomWalkSampler(num_layers=2, num_neighbors=3, num_walks=6, walk_length=2),
    "labor": LaborSampler([4, 3]),
    "labor, fixed count": LaborSampler([4, 3], fixed_count=True),
    "labor, layers alike": LaborSampler([4, 3], layer_dependency=True),
}
"""What a node draws depends on the node, the hop and the step alone."""

DEPEND_ON_THE_BATCH: dict[str, Sampler] = {
    "layer, ladies": LayerSampler([20, 20]),
    "layer, dsp": LayerSampler([20, 20], method="dsp"),
    "shadow": ShadowSampler([3, 2], num_layers=2),
    "labor, importance": LaborSampler([4, 3], importance=2),
}


def toy_data() -> GraphData:
    """With edge weights and types; no edge is there twice, which LABOR's fixed count refuses."""
    rng = np.random.default_rng(0)
    src, dst = np.divmod(rng.choice(NUM_NODES**2, 3000, replace=False), NUM_NODES)
    weight, kind = rng.random(3000, np.float32), rng.integers(2, size=3000)
    graph = Graph.from_coo(src, dst, num_nodes=NUM_NODES, edge_weight=weight, edge_type=kind.astype(np.uint8))
    return GraphData(graph, train=np.arange(100))


def batches(sampler: Sampler, num_ranks: int) -> list[tuple[MiniBatch, ...]]:
    """By step, the slices of all ranks."""
    source = toy_source(toy_data(), sampler=sampler, batch_size=GLOBAL_BATCH // num_ranks)
    ranks = [SampledLoader(source, num_ranks=num_ranks, rank=rank, num_threads=0) for rank in range(num_ranks)]
    return list(zip(*ranks, strict=True))


def drawn(batch: MiniBatch) -> dict[tuple[int, int], list[Any]]:
    """What each destination drew at each hop: its edges, as (source, weight), in order."""
    found = {}
    for hop, block in enumerate(reversed(batch.blocks)):
        indptr, sources = block.indptr.tolist(), batch.nodes[block.indices.long()].tolist()
        weights = [None] * block.num_edges if block.edge_weight is None else block.edge_weight.tolist()
        for dst in range(block.num_dst):
            edges = slice(indptr[dst], indptr[dst + 1])
            found[hop, int(batch.nodes[dst])] = list(zip(sources[edges], weights[edges], strict=True))
    return found


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_seeds_of_a_step_are_the_same(num_ranks: int) -> None:
    """100 seeds, 16 a step: the last one has four, which eight ranks cannot share."""
    wanted = [batch.seeds.tolist() for (batch,) in batches(NODE_WISE["neighbor"], 1)]
    steps = batches(NODE_WISE["neighbor"], num_ranks)
    found = [[seed for batch in step for seed in batch.seeds.tolist()] for step in steps]
    if num_ranks == 8:
        wanted[-2:] = [wanted[-2] + wanted[-1]]
    assert found == wanted


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("name", NODE_WISE)
def test_slices_draw_together_what_the_whole_draws(name: str, num_ranks: int) -> None:
    for (whole,), slices in zip(batches(NODE_WISE[name], 1), batches(NODE_WISE[name], num_ranks), strict=True):
        union: dict[tuple[int, int], list[Any]] = {}
        for part in slices:
            found = drawn(part)
            # A node that is met in several slices has drawn the same in each.
            assert all(union.get(key, edges) == edges for key, edges in found.items())
            union |= found
        assert union == drawn(whole)
        assert set().union(*(part.nodes.tolist() for part in slices)) == set(whole.nodes.tolist())


@pytest.mark.parametrize(
    "sampler", [NeighborSampler([4, 3, 3], expand="new"), WeightedNeighborSampler([4, 3, 3], expand="new")]
)
def test_slices_that_expand_new_nodes_draw_more_than_the_whole(sampler: Sampler) -> None:
    """A node that is near in the whole may be far in a slice, and is expanded there at another hop as well."""

    def picks(batch: MiniBatch) -> set[tuple[int, tuple[Any, ...]]]:
        """(destination, its edges); the outermost block has those of all nodes that were expanded."""
        return {(dst, tuple(edges)) for (hop, dst), edges in drawn(batch).items() if hop == 2}

    more = 0
    for (whole,), slices in zip(batches(sampler, 1), batches(sampler, 4), strict=True):
        union = set().union(*map(picks, slices))
        assert picks(whole) <= union
        more += len(union) - len(picks(whole))
    assert more > 0


@pytest.mark.parametrize("name", DEPEND_ON_THE_BATCH)
def test_some_samplers_draw_for_a_batch_as_a_whole(name: str) -> None:
    """The guide names them. Should one become node-wise, it belongs above."""
    (whole,), slices = batches(DEPEND_ON_THE_BATCH[name], 1)[0], batches(DEPEND_ON_THE_BATCH[name], 2)[0]
    assert {key: edges for part in slices for key, edges in drawn(part).items()} != drawn(whole)

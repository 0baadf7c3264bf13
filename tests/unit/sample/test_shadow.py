import numpy as np
import pytest
import torch
from torch.nn import functional

from lightning_gnnload import Graph, NeighborSampler, ShadowSampler
from lightning_gnnload.adapters.pyg.write import to_pyg
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.slots import Slot
from tests.runif import RunIf
from tests.unit.toy import content, toy_data, toy_graph, toy_source

GRAPH = toy_graph()
SEEDS = [17, 3, 250, 99]


def mean_of_neighbours(block, x: torch.Tensor) -> torch.Tensor:
    """One layer of a block-consuming model: a destination's own row plus the mean over its sources."""
    mean = functional.embedding_bag(block.indices, x, block.indptr, mode="mean", include_last_offset=True)
    return x[: block.num_dst] + mean


@pytest.mark.parametrize("num_layers", [1, 2, 3, 6])
def test_models_of_any_depth_run_on_one_subgraph(num_layers: int) -> None:
    batch = ShadowSampler([3, 2], num_layers).sample(GRAPH, SEEDS, 1, 2, 3)
    batch.expect_layers(num_layers)
    assert batch.seeds.tolist() == SEEDS
    assert [block.num_dst for block in batch.blocks] == [batch.num_nodes] * (num_layers - 1) + [len(SEEDS)]
    assert {block.num_src for block in batch.blocks} == {batch.num_nodes}
    x = torch.randn(batch.num_nodes, 4, generator=torch.Generator().manual_seed(0)).double()
    hidden = x
    for block in batch.blocks:
        hidden = mean_of_neighbours(block, hidden)
    # The same layers as a dense matrix over the subgraph, which is the whole graph cut to the batch's nodes.
    dense = torch.zeros(GRAPH.num_nodes, GRAPH.num_nodes).double()
    owner = torch.from_numpy(np.repeat(np.arange(GRAPH.num_nodes), GRAPH.in_degrees))
    dense.index_put_((owner, torch.from_numpy(GRAPH.indices).long()), torch.ones(1).double(), accumulate=True)
    adjacency = dense[batch.nodes][:, batch.nodes]
    step = torch.eye(batch.num_nodes).double() + adjacency / adjacency.sum(dim=1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(hidden, (torch.linalg.matrix_power(step, num_layers) @ x)[: len(SEEDS)])


def test_the_scope_is_that_of_neighbor_sampler() -> None:
    shadow = ShadowSampler([3, 2], 4).sample(GRAPH, SEEDS, 1, 2, 3)
    neighbor = NeighborSampler([3, 2], expand="new").sample(GRAPH, SEEDS, 1, 2, 3)
    assert torch.equal(shadow.nodes, neighbor.nodes)


def test_all_neighbours_of_k_hops() -> None:
    # A path: k hops see k nodes upstream.
    path = Graph.from_coo(src=range(1, 10), dst=range(9))
    for k in range(4):
        batch = ShadowSampler([-1] * k, 2, edge_ids=True).sample(path, [2])
        assert batch.nodes.tolist() == list(range(2, 3 + k))
        assert batch.blocks[0].edge_ids.tolist() == list(range(2, 2 + k))


def test_seeds_share_a_scope() -> None:
    # Seed 1 lies in the scope of seed 0 and has an in-neighbour that only seed 0 found.
    graph = Graph.from_coo(src=[2, 2, 3, 0], dst=[0, 1, 2, 1])
    alone, together = (ShadowSampler([-1], 2).sample(graph, seeds) for seeds in ([0], [0, 1]))
    assert alone.nodes.tolist() == [0, 2]
    assert together.nodes.tolist() == [0, 1, 2]
    assert together.blocks[-1].indices.tolist() == [2, 2, 0]


def test_blocks_share_their_memory() -> None:
    slot = Slot()
    payload = toy_source(sampler=ShadowSampler([3, 2], 5)).make(BatchRequest(0, 0, 0, 1), slot)
    view = payload.view(slot.buffer())
    assert len({block.indices.data_ptr() for block in view.blocks}) == 1
    assert payload.num_edges == view.blocks[0].num_edges


@pytest.mark.parametrize("edge_ids", [False, True])
def test_batches_of_a_loader_are_those_of_the_sampler(edge_ids: bool) -> None:
    data, sampler = toy_data(), ShadowSampler([3, 2], 3, edge_ids)
    for batch in SampledLoader(toy_source(data, sampler=sampler), num_threads=2):
        alone = sampler.sample(data.graph, batch.seeds, seed=3, epoch=0, step=batch.step)
        assert content(batch)[:5] == content(alone)[:5]
        assert torch.equal(batch.x, data.x.rows[batch.nodes])


def test_a_batch_travels_through_a_queue() -> None:
    source, slot = toy_source(sampler=ShadowSampler([3, 2], 3)), Slot()
    payload = source.make(BatchRequest(0, 0, 0, 1), slot)
    received = Payload.from_json(payload.to_json()).view(slot.buffer())
    assert content(received) == content(payload.view(slot.buffer()))


@RunIf(extras="pyg")
def test_pyg_gets_one_subgraph() -> None:
    batch = ShadowSampler([3, 2], 4).sample(GRAPH, SEEDS)
    data = to_pyg(batch)
    assert data.edge_index.shape[1] == batch.blocks[0].num_edges
    assert data.num_sampled_nodes == [4, batch.num_nodes - 4, 0, 0, 0]
    assert sum(data.num_sampled_edges) == batch.blocks[0].num_edges


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fanouts": [10, 0], "num_layers": 2}, r"\[10, 0\].*positive, or -1"),
        ({"fanouts": None, "num_layers": 2}, r"fanouts=None: a list"),
        ({"fanouts": [2], "num_layers": 0}, "num_layers is 0"),
        ({"fanouts": [2], "num_layers": "two"}, "num_layers is 'two'"),
    ],
)
def test_settings_that_cannot_work(settings, message: str) -> None:
    with pytest.raises(SamplerConfigError, match=message):
        ShadowSampler(**settings)


def test_seeds_that_are_no_nodes() -> None:
    with pytest.raises(SeedError, match="300"):
        ShadowSampler([2], 2).sample(GRAPH, [0, 300])
    assert ShadowSampler([2], 2).sample(GRAPH, []).num_nodes == 0


def test_repr() -> None:
    assert repr(ShadowSampler((3, 2), 3)) == "ShadowSampler([3, 2], num_layers=3)"
    assert repr(ShadowSampler([], 1, edge_ids=True)) == "ShadowSampler([], num_layers=1, edge_ids=True)"

import threading

import numpy as np
import pytest
import torch

from lightning_gnnload import LaborSampler, NeighborSampler
from lightning_gnnload.adapters.dgl.write import EDGE_WEIGHT_NAMES, ToDGL
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


def weights(batch) -> list[list[float] | None]:
    return [None if block.edge_weight is None else block.edge_weight.tolist() for block in batch.blocks]


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("options", [{}, {"fixed_count": True}, {"importance": 1}, {"importance": -1}])
def test_blocks_are_parts_of_the_graph(expand, options) -> None:
    fanouts = [4, -1, 2]
    batch = LaborSampler(fanouts, expand=expand, edge_ids=True, **options).sample(GRAPH, SEEDS, 1, 2, 3)
    assert batch.seeds.tolist() == SEEDS
    assert (batch.epoch, batch.step) == (2, 3)
    nodes, known, previous = batch.nodes, len(SEEDS), 0
    assert len(nodes.unique()) == len(nodes)
    for block, fanout in zip(reversed(batch.blocks), fanouts, strict=True):  # nearest hop first
        assert block.num_dst == known
        src, dst = nodes[block.indices.long()], nodes[block.edge_dst()]
        edges = block.edge_ids.numpy()
        assert src.tolist() == GRAPH.indices[edges].tolist()
        assert dst.tolist() == (np.searchsorted(GRAPH.indptr, edges, side="right") - 1).tolist()
        degrees = torch.from_numpy(GRAPH.in_degrees)[nodes[: block.num_dst]]
        few = degrees <= (fanout if fanout > 0 else degrees)
        begin = 0 if expand == "all" else previous
        assert torch.equal(block.in_degrees[begin:][few[begin:]], degrees[begin:][few[begin:]].int())
        if options.get("fixed_count"):
            assert torch.all(block.in_degrees[begin:][~few[begin:]] == fanout)
        previous, known = block.num_dst, block.num_src
    assert known == batch.num_nodes


def test_fewer_input_nodes_than_neighbor_sampler() -> None:
    graph, seeds = toy_graph(20_000, 400_000), range(300)  # thousands of nodes: by chance, never the other way
    needed = [sampler([5, 5]).sample(graph, seeds).num_nodes for sampler in (NeighborSampler, LaborSampler)]
    assert needed[1] < 0.95 * needed[0]


def test_weights_are_there_where_they_differ() -> None:
    for options, there in [
        ({}, False),
        ({"fixed_count": True}, False),
        ({"layer_dependency": True}, False),
        ({"importance": 1}, True),
        ({"estimate": "sum"}, True),
    ]:
        batch = LaborSampler([2, 2], **options).sample(GRAPH, SEEDS)
        assert all((each is not None) == there for each in weights(batch))


def test_a_batch_is_a_pure_function() -> None:
    sampler = LaborSampler([3, 2], importance=-1)
    wanted = sampler.sample(GRAPH, SEEDS, 1, 2, 3)
    sampler.sample(GRAPH, [0, 1], 9, 9, 9)
    torch.manual_seed(5)
    np.random.seed(5)  # the global generators must not matter
    found = []
    threads = [threading.Thread(target=lambda: found.append(sampler.sample(GRAPH, SEEDS, 1, 2, 3))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [content(batch) for batch in found] == [content(wanted)] * 4
    assert [weights(batch) for batch in found] == [weights(wanted)] * 4


@pytest.mark.parametrize("options", [{}, {"importance": 1, "expand": "new", "edge_ids": True}])
def test_batches_of_a_loader_are_those_of_the_sampler(options) -> None:
    data, sampler = toy_data(), LaborSampler([3, 2], **options)
    for batch in SampledLoader(toy_source(data, sampler=sampler), num_threads=2):
        alone = sampler.sample(data.graph, batch.seeds, seed=3, epoch=0, step=batch.step)
        assert content(batch)[:5] == content(alone)[:5]
        assert weights(batch) == weights(alone)
        assert torch.equal(batch.x, data.x.rows[batch.nodes])


def test_a_batch_travels_through_a_queue() -> None:
    source, slot = toy_source(sampler=LaborSampler([3, 2], importance=1)), Slot()
    payload = source.make(BatchRequest(0, 0, 0, 1), slot)
    received = Payload.from_json(payload.to_json()).view(slot.buffer())
    sent = payload.view(slot.buffer())
    assert content(received) == content(sent)
    assert weights(received) == weights(sent)
    assert None not in weights(sent)


@RunIf(extras="pyg")
def test_pyg_gets_the_weights() -> None:
    batch = LaborSampler([3, 2], importance=1, expand="new").sample(GRAPH, SEEDS)
    data = to_pyg(batch)
    assert torch.equal(data.edge_weight, batch.blocks[0].edge_weight)
    assert data.edge_index.shape[1] == len(data.edge_weight)


@RunIf(extras="dgl")
def test_dgl_gets_the_weights_under_its_own_name() -> None:
    batch = LaborSampler([3, 2], importance=1).sample(GRAPH, SEEDS)
    _, _, blocks = ToDGL()(batch)
    for theirs, ours in zip(blocks, batch.blocks, strict=True):
        assert all(torch.equal(theirs.edata[name], ours.edge_weight) for name in EDGE_WEIGHT_NAMES)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fanouts": [10, 0]}, r"\[10, 0\].*positive, or -1"),
        ({"fanouts": 10}, r"fanouts=10: a list"),
        ({"fanouts": [2], "expand": "some"}, r"expand='some'"),
        ({"fanouts": [2], "estimate": "median"}, r"estimate='median'.*'mean'.*'sum'"),
        ({"fanouts": [2], "importance": -2}, r"importance is -2"),
        ({"fanouts": [2], "importance": 1.0}, r"importance is 1\.0"),
        ({"fanouts": [2], "importance": 1, "fixed_count": True}, r"exclude each other"),
    ],
)
def test_settings_that_cannot_work(settings, message: str) -> None:
    with pytest.raises(SamplerConfigError, match=message):
        LaborSampler(**settings)


def test_seeds_that_are_no_nodes() -> None:
    with pytest.raises(SeedError, match="300"):
        LaborSampler([2]).sample(GRAPH, [0, 300])


def test_repr() -> None:
    assert repr(LaborSampler(np.array([3, 2]))) == "LaborSampler([3, 2], estimate='mean', expand='all')"
    assert repr(LaborSampler([3], importance=-1, layer_dependency=True)) == (
        "LaborSampler([3], importance=-1, layer_dependency=True, estimate='mean', expand='all')"
    )
    assert LaborSampler([3, 2]).num_layers == 2

"""Features arrive as they were given, bit for bit: written, mapped, gathered, queued and converted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    GraphDataModule,
    MiniBatch,
    NeighborSampler,
    NodeTable,
    load_graph_data,
    save_graph_data,
)
from tests.runif import RunIf
from tests.unit.pipeline.job import job
from tests.unit.toy import toy_graph, toy_source

# 3: rows that are no multiple of any vector; 50: none of a line in any dtype. Rows start anywhere in both.
SHAPES = [(dtype, 3) for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int8)]
SHAPES += [(dtype, 50) for dtype, _ in SHAPES]
every_dtype = pytest.mark.parametrize(("dtype", "width"), SHAPES, ids=lambda value: str(value).removeprefix("torch."))
NUM_NODES = 300
SAMPLER = NeighborSampler([3, 2], edge_ids=True)


def all_bits(dtype: torch.dtype, width: int) -> torch.Tensor:
    """``[NUM_NODES, width]`` of random bits: infinities, subnormals and NaNs with their payloads among them."""
    generator = torch.Generator().manual_seed(0)
    shape = (NUM_NODES, width * dtype.itemsize)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).view(dtype)


def assert_rows(given: torch.Tensor, x: torch.Tensor, nodes: torch.Tensor) -> None:
    assert given.dtype is x.dtype
    assert torch.equal(given.contiguous().view(torch.uint8), x[nodes].view(torch.uint8))


def toy(x: torch.Tensor) -> GraphData:
    """The same bits as features of all nodes, of one node type and of edges."""
    graph = toy_graph(NUM_NODES)
    tables, of_edges = {"all": x, "some": NodeTable(x[100:], 100)}, x[torch.from_numpy(graph.indices).long()]
    return GraphData(Graph.from_csc(graph.indptr, graph.indices), x, train=range(100), tables=tables, edge_x=of_edges)


def assert_batch(batch: MiniBatch, x: torch.Tensor) -> None:
    assert_rows(batch.x, x, batch.nodes)
    assert_rows(batch.tables["all"], x, batch.nodes)
    assert_rows(batch.tables["some"], x, batch.nodes[batch.positions["some"]])
    for block in batch.blocks:
        assert_rows(block.x, x, batch.nodes[block.indices.long()])


@every_dtype
@pytest.mark.parametrize("num_threads", [0, 2])
def test_through_a_folder_and_the_loader(tmp_path: Path, dtype: torch.dtype, width: int, num_threads: int) -> None:
    x = all_bits(dtype, width)
    save_graph_data(toy(x), tmp_path / "graph")
    module = GraphDataModule(load_graph_data(tmp_path / "graph"), SAMPLER, batch_size=16, num_threads=num_threads)
    batches = list(module.train_dataloader())
    assert len(batches) == 7
    for batch in batches:
        assert_batch(batch, x)


@every_dtype
def test_through_the_queue(dtype: torch.dtype, width: int) -> None:
    x = all_bits(dtype, width)
    with job(toy_source(toy(x), sampler=SAMPLER)) as running:
        num_batches = 0
        for batch in running.loader(running.queue()):
            assert_batch(batch, x)
            num_batches += 1
        assert num_batches == 7


@every_dtype
@RunIf(extras="dgl")
def test_in_the_batches_of_dgl(dtype: torch.dtype, width: int) -> None:
    x = all_bits(dtype, width)
    data = toy(x)
    del data.tables["some"]  # a frame has rows for all nodes
    module = GraphDataModule(data, SAMPLER, batch_size=50, batch_format="dgl", num_threads=0)
    for nodes, _, blocks in module.train_dataloader():
        assert_rows(blocks[0].srcdata["feat"], x, nodes)
        assert_rows(blocks[0].srcdata["all"], x, nodes)
        for block in blocks:
            assert_rows(block.edata["feat"], x, nodes[block.edges(order="eid")[0]])


@every_dtype
@RunIf(extras="pyg")
def test_in_the_batches_of_pyg(dtype: torch.dtype, width: int) -> None:
    x = all_bits(dtype, width)
    sampler = NeighborSampler([3, 2], expand="new", edge_ids=True)
    module = GraphDataModule(toy(x), sampler, batch_size=50, batch_format="pyg", num_threads=0)
    for batch in module.train_dataloader():
        assert_rows(batch.x, x, batch.n_id)
        assert_rows(batch.all, x, batch.n_id)
        assert_rows(batch.some, x, batch.n_id[batch.some_positions])
        assert_rows(batch.edge_attr, x, batch.n_id[batch.edge_index[0]])

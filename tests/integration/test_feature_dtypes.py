"""Features arrive as they were given, bit for bit: written, mapped, gathered, queued and converted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_gnnload import GraphData, GraphDataModule, NeighborSampler, load_graph_data, save_graph_data
from tests.runif import RunIf
from tests.unit.pipeline.job import job
from tests.unit.toy import toy_graph, toy_source

# 3: rows that are no multiple of any vector; 50: none of a line in any dtype. Rows start anywhere in both.
SHAPES = [(dtype, 3) for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int8)]
SHAPES += [(dtype, 50) for dtype, _ in SHAPES]
every_dtype = pytest.mark.parametrize(("dtype", "width"), SHAPES, ids=lambda value: str(value).removeprefix("torch."))
NUM_NODES = 300


def all_bits(dtype: torch.dtype, width: int) -> torch.Tensor:
    """``[NUM_NODES, width]`` of random bits: infinities, subnormals and NaNs with their payloads among them."""
    generator = torch.Generator().manual_seed(0)
    shape = (NUM_NODES, width * dtype.itemsize)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).view(dtype)


def assert_rows(given: torch.Tensor, x: torch.Tensor, nodes: torch.Tensor) -> None:
    assert given.dtype is x.dtype
    assert torch.equal(given.contiguous().view(torch.uint8), x[nodes].view(torch.uint8))


def toy(x: Any) -> GraphData:
    return GraphData(toy_graph(NUM_NODES), x, train=range(100))


@every_dtype
@pytest.mark.parametrize("num_threads", [0, 2])
def test_through_a_folder_and_the_loader(tmp_path: Path, dtype: torch.dtype, width: int, num_threads: int) -> None:
    x = all_bits(dtype, width)
    save_graph_data(toy(x), tmp_path / "graph")
    module = GraphDataModule(
        load_graph_data(tmp_path / "graph"), NeighborSampler([3, 2]), batch_size=16, num_threads=num_threads
    )
    batches = list(module.train_dataloader())
    assert len(batches) == 7
    for batch in batches:
        assert_rows(batch.x, x, batch.nodes)


@every_dtype
def test_through_the_queue(dtype: torch.dtype, width: int) -> None:
    x = all_bits(dtype, width)
    with job(toy_source(toy(x))) as running:
        num_batches = 0
        for batch in running.loader(running.queue()):
            assert_rows(batch.x, x, batch.nodes)
            num_batches += 1
        assert num_batches == 7


@every_dtype
@pytest.mark.parametrize(
    ("batch_format", "rows_and_nodes"),
    [
        pytest.param("dgl", lambda batch: (batch[2][0].srcdata["feat"], batch[0]), id="dgl", marks=RunIf(extras="dgl")),
        pytest.param("pyg", lambda batch: (batch.x, batch.n_id), id="pyg", marks=RunIf(extras="pyg")),
    ],
)
def test_in_the_batches_of_other_libraries(batch_format: Any, rows_and_nodes, dtype: torch.dtype, width: int) -> None:
    x = all_bits(dtype, width)
    expand = "new" if batch_format == "pyg" else "all"
    sampler = NeighborSampler([3, 2], expand=expand)
    module = GraphDataModule(toy(x), sampler, batch_size=50, batch_format=batch_format, num_threads=0)
    for batch in module.train_dataloader():
        assert_rows(rows_and_nodes(batch)[0], x, rows_and_nodes(batch)[1])

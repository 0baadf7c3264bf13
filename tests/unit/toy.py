"""A small graph with features and labels that tell where they came from, and equality of mini-batches."""

from __future__ import annotations

import mmap
from functools import partial
from typing import Any

import numpy as np
import torch

from lightning_gnnload import Graph, GraphData, MiniBatch, NeighborSampler, Sampler
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.sample.seeds.links import seed_kind
from lightning_gnnload.sample.workload import Workload


def toy_graph(num_nodes: int = 300, num_edges: int = 2400, seed: int = 0) -> Graph:
    """Edges drawn at random: repeated ones, loops and nodes without neighbours among them."""
    rng = np.random.default_rng(seed)
    return Graph.from_coo(*rng.integers(0, num_nodes, (2, num_edges)), num_nodes=num_nodes)


def toy_data(num_nodes: int = 300, num_train: int = 100, *, width: int = 5, **splits: Any) -> GraphData:
    """Row ``v`` of x is ``v + column / 8``, exactly; label ``v`` is ``v % 7``. Seeds are no prefix of the nodes."""
    x = torch.arange(num_nodes).unsqueeze(1) + torch.arange(width) / 8
    train = np.arange(num_nodes)[::-1][:num_train]
    return GraphData(toy_graph(num_nodes), x, torch.arange(num_nodes) % 7, train.copy(), **splits)


def toy_source(
    data: GraphData | None = None,
    *,
    sampler: Sampler | None = None,
    batch_size: int = 16,
    order: SeedOrder | None = None,
    **settings: Any,
) -> BatchSource:
    data = data or toy_data()
    return BatchSource(data, toy_workload(data, sampler=sampler, batch_size=batch_size, order=order, **settings))


def toy_workload(
    data: GraphData | None = None,
    *,
    sampler: Sampler | None = None,
    batch_size: int = 16,
    order: SeedOrder | None = None,
    seed: int = 3,
    **settings: Any,
) -> Workload:
    data = data or toy_data()
    table, links = data.table("train"), settings.pop("links", None)
    seeds = partial(seed_kind, seeds=data.train if table is None else table, settings=links)
    settings |= {"batch_size": batch_size, "order": order or Shuffled(), "seed": seed}
    return Workload(data.graph, sampler or NeighborSampler([3, 2]), seeds, **settings)


def private_pages(num_bytes: int) -> mmap.mmap:
    """Memory that has been written to, and goes back to the system when it is closed, whatever malloc keeps."""
    pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for first in range(0, num_bytes, mmap.PAGESIZE):
        pages[first] = 1
    return pages


def content(batch: MiniBatch) -> list[Any]:
    """All that a mini-batch holds, as plain numbers; it keeps no buffer."""
    tables = [None if t is None else (t.dtype, t.tolist()) for t in (batch.x, batch.y)]
    held = batch.tables, batch.positions, batch.seed_columns
    tables += [(name, t.dtype, t.tolist()) for named in held for name, t in named.items()]
    tables += [] if batch.rows is None else [batch.rows.tolist()]
    blocks = [
        (
            block.num_dst,
            block.num_src,
            block.indptr.tolist(),
            block.indices.tolist(),
            *(
                None if column is None else column.tolist()
                for column in (block.edge_ids, block.edge_weight, block.edge_type, block.x)
            ),
        )
        for block in batch.blocks
    ]
    return [batch.epoch, batch.step, batch.num_seeds, batch.nodes.tolist(), blocks, *tables]

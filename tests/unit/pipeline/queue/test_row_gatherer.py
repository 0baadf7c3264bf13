"""Rows that trainers gather themselves are those that samplers would have sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, NeighborSampler, NodeTable
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.errors import LoaderConfigError, SeedError
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue.row_gatherer import RowGatherer, gather_on_trainer
from lightning_gnnload.pipeline.queue.streams import StreamSpec
from lightning_gnnload.pipeline.source import BatchSource
from tests.unit.pipeline.job import job
from tests.unit.toy import content, toy_graph, toy_source

pytestmark = pytest.mark.timeout(60)


class Failing(FeatureStore):
    """Has rows for some mini-batches alone."""

    shape, dtype = (300, 1), torch.float32

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        raise SeedError("no such row")


def tables() -> GraphData:
    random = np.random.default_rng(0)
    named = {
        "dates": torch.arange(300),
        "users": NodeTable(random.random((100, 3)), first=20),
        "sounds": random.random((300, 2, 2), np.float32),
    }
    x = MemoryFeatureStore(torch.arange(600).view(300, 2))
    return GraphData(toy_graph(), x, torch.arange(300) % 7, np.arange(100), tables=named)


def read(source: BatchSource, num_trainers: int, limit: float = float("inf"), **settings: Any) -> list[list[Any]]:
    """What the trainers of a job read of two epochs; its samplers gather nothing."""
    opened: list[bool] = []

    def open_source(spec: Any) -> BatchSource:
        opened.append(spec.gathers)
        return source.without_features()

    read: list[list[Any]] = []
    with job(source, open_source=open_source, num_trainers=num_trainers, **settings) as running:
        loaders = [running.loader(running.queue(rank), rank=rank) for rank in range(num_trainers)]
        for loader in loaders:
            loader.local.num_threads = 2
            gather_on_trainer(loader.local)
            loader.limit = lambda: limit
        for epoch in range(2):
            for rank, loader in enumerate(loaders):
                loader.set_epoch(epoch)
                read.append([content(batch) for batch in loader])
                assert {each.tier for each in loader.last.reads} == {"memory"}
                assert read[-1] == running.wanted(rank=rank, epoch=epoch)[: len(read[-1])]
    assert all(opened)
    return read


@pytest.mark.parametrize("num_samplers", [1, 2])
def test_mini_batches_are_those_that_samplers_gather_for(num_samplers: int) -> None:
    read(toy_source(tables(), batch_size=8), 2, num_samplers=num_samplers, queue_depth=3)


def test_a_stream_that_is_left_early_leaves_nothing() -> None:
    assert [len(each) for each in read(toy_source(tables(), batch_size=8), 1, limit=3)] == [3, 3]


def test_what_was_begun_of_a_skipped_step_is_dropped() -> None:
    source = toy_source(tables(), batch_size=8)
    with job(source, open_source=lambda spec: source.without_features()) as running:
        queue = running.queue()
        gatherer = RowGatherer(source, rank=0, num_ranks=1, num_threads=2)
        stream = queue.open(StreamSpec("train", 0, 0, 0, 0, 5, True, source.fingerprint))
        while not queue.has_come(stream, 1):
            queue.pump(1.0)
        read = []
        for step in (0, 2, 3):  # 1 has come, and is gathered for beside 0
            if step == 2:
                queue.skip(stream, 1)
            delivered = gatherer.take(queue, stream, step, 5)
            assert delivered is not None
            read.append(content(delivered[0]))
            del delivered
        gatherer.forget(stream)
        queue.close_stream(stream)
        assert read == [running.wanted()[step] for step in (0, 2, 3)]


def test_what_a_store_raises_is_raised() -> None:
    data = tables()
    data.tables["none"] = Failing()
    with pytest.raises(SeedError, match="no such row"):
        read(toy_source(data, batch_size=8), 1)


def test_tables_of_edges_are_refused() -> None:
    graph = Graph.from_coo([1, 2], [0, 0], num_nodes=100, keep_order=True)
    data = GraphData(graph, None, None, np.arange(100), edge_x=torch.zeros(graph.num_edges, 2))
    with pytest.raises(LoaderConfigError, match=r"tables of edges \(edge_x\)"):
        gather_on_trainer(SampledLoader(toy_source(data, sampler=NeighborSampler([2], edge_ids=True))))

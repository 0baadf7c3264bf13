"""Owners: the mini-batches and rows of the whole graph, from owners that are lost, replaced, late, or not ours."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    LaborSampler,
    LayerSampler,
    NeighborSampler,
    ShadowSampler,
    WeightedNeighborSampler,
    load_partition,
    partition_graph,
)
from lightning_gnnload.data.features import byte_rows
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import (
    AddressError,
    ExchangeError,
    OwnerLostError,
    PartitionMismatchError,
    SecretError,
    SeedError,
    StrangerError,
)
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.owner import Owner
from lightning_gnnload.owners.tcp import TcpFront
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.sample.parts.collective_walks import collective_random_walk
from lightning_gnnload.sample.walk import random_walk
from tests.unit.owners.serving import SECRET, graph_data, served
from tests.unit.partition.by_id import Given
from tests.unit.toy import content

SAMPLERS = [
    NeighborSampler([3, 2], edge_ids=True),
    NeighborSampler([2, -1, 2], expand="new", replace=True),
    NeighborSampler([{1: 2, 2: -1}, 1], edge_ids=True),
    WeightedNeighborSampler([3, 2], edge_ids=True),
    LaborSampler([3, 2], importance=2, edge_ids=True),
    LayerSampler([20, 20], "dsp", edge_ids=True, weighted=False),
    ShadowSampler([3, 2], 2),
]


@pytest.fixture(scope="module")
def data() -> GraphData:
    return graph_data()


@pytest.fixture(scope="module")
def partition(data: GraphData, tmp_path_factory: pytest.TempPathFactory) -> Partition:
    """Three parts, of which the last owns nothing but a hub."""
    part = (np.arange(data.num_nodes) % 2).astype(np.int32)
    part[0] = 2
    return made(data, part, 3, tmp_path_factory.mktemp("three"))


def made(data: GraphData, part: np.ndarray, num_parts: int, folder: Path) -> Partition:
    partition_graph(data, folder / "parts", num_parts, Given(part), hops=0, progress=False)
    return load_partition(folder / "parts")


def rows_by(owners: Owners, ids: np.ndarray, row_bytes: int = 20) -> np.ndarray:
    out = np.full((len(ids), row_bytes), 255, np.uint8)
    owners.gather("x", ids, out)
    return out


def rows_of(data: GraphData, ids: np.ndarray) -> np.ndarray:
    out = torch.empty(len(ids), 5)
    data.stores["x"].gather(torch.from_numpy(ids), out)
    return byte_rows(out)


@pytest.mark.parametrize("paradigm", ["push", "pull"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_batches_are_those_of_the_whole_graph(data, partition, sampler, paradigm) -> None:
    with served(partition, [[0, 2], [1]]) as (owners, _):
        collective = CollectiveSampler(sampler, owners, paradigm)
        for step in range(3):
            seeds = np.random.default_rng(step).permutation(data.num_nodes)[:20]
            ours = content(collective.sample(None, seeds, seed=9, epoch=3, step=step))
            assert ours == content(sampler.sample(data.graph, seeds, seed=9, epoch=3, step=step))


def test_walks_are_those_of_the_whole_graph(data, partition) -> None:
    with served(partition) as (owners, _):
        walks = collective_random_walk(owners, np.arange(30), 4, num_walks=2, seed=5)
    assert torch.equal(walks, random_walk(data.graph, np.arange(30), 4, num_walks=2, seed=5))


@pytest.mark.parametrize("num_rows", [0, 1, 60])
def test_rows_are_those_of_the_table(data, partition, num_rows) -> None:
    ids = np.random.default_rng(1).permutation(60)[:num_rows]
    with served(partition) as (owners, _):
        assert np.array_equal(rows_by(owners, ids), rows_of(data, ids))
        out, at = np.full((90, 20), 255, np.uint8), np.random.default_rng(2).permutation(90)[:num_rows]
        owners.gather("x", ids, out, at)
    assert np.array_equal(out[at], rows_of(data, ids))
    assert (np.delete(out, at, axis=0) == 255).all()


def test_many_rows_come_in_pieces_over_several_streams(tmp_path) -> None:
    data = graph_data(30_000, 30_000, width=256)  # more than one piece, and more than one stream, an owner
    partition = made(data, (np.arange(30_000) % 3 == 0).astype(np.int32), 2, tmp_path)
    ids = np.random.default_rng(1).permutation(30_000)
    with served(partition, num_streams=3) as (owners, _):
        out = np.empty((30_000, 1024), np.uint8)
        owners.gather("x", ids, out)
        assert (out.view(np.float32)[:, 0] == ids).all()
        assert (out.view(np.float32)[:, 255] == (ids + np.float32(255 / 8))).all()
        assert owners.traffic["rows"].bytes_received == out.nbytes


def test_rows_that_are_none_are_asked_of_nobody(partition) -> None:
    owners = Owners.connect(partition, ["127.0.0.1:1"], secret=SECRET)  # nobody listens there
    for ids in ([60], [-1]):
        with pytest.raises(SeedError, match="the table has rows 0 to 59"):
            rows_by(owners, np.array(ids))
    with pytest.raises(ExchangeError, match="has no table 'y'"):
        owners.gather("y", np.array([1]), np.empty((1, 20), np.uint8))

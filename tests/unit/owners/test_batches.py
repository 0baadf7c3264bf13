"""Whole mini-batches that owners make are those of the whole graph, bit for bit, whatever happens to owners."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    LaborSampler,
    LayerSampler,
    MemoryFeatureStore,
    NeighborSampler,
    RandomWalkSampler,
    SeedTable,
    WeightedNeighborSampler,
    load_partition,
    partition_graph,
)
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import ExchangeError, SamplerConfigError
from lightning_gnnload.owners.batch_owner import BatchOwner
from lightning_gnnload.owners.batches import OwnedBatches, OwnedSampler
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.tcp import TcpFront
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.workload import Workload
from lightning_gnnload.storage.graphs import stores_by_array
from lightning_gnnload.storage.partitions import StoredPartition
from tests.unit.owners.serving import SECRET, graph_data

SAMPLERS = [
    NeighborSampler([3, 2]),
    NeighborSampler([-1, {0: 2, 2: 1}], expand="new", edge_ids=True),
    NeighborSampler([4], replace=True),
    WeightedNeighborSampler([3, 3]),
    LaborSampler([3, 2]),
    LayerSampler([8, 8]),
    RandomWalkSampler(2, num_walks=6, num_neighbors=3),
]


@contextmanager
def made_by_owners(folder: Path, num_owners: int) -> Iterator[tuple[StoredPartition, OwnedBatches, list[TcpFront]]]:
    with ExitStack() as stack:
        partition = load_partition(folder)
        assert isinstance(partition, StoredPartition)
        fronts = []
        for number in range(num_owners):
            owner = BatchOwner(partition, range(number, partition.num_parts, num_owners), SECRET.encode())
            stack.callback(owner.close)
            fronts.append(stack.enter_context(TcpFront(owner, "127.0.0.1", 0, SECRET.encode())))
        addresses = [str(front.address) for front in fronts]
        owners = Owners.connect(partition, addresses, secret=SECRET, patience_s=3)
        stack.callback(owners.close)
        yield partition, OwnedBatches(lambda: owners, lambda: addresses), fronts


def remote_source(partition: StoredPartition, batches: OwnedBatches, local: Workload) -> BatchSource:
    data = copy(partition.graph_data)
    for name, array in zip(data.stores, stores_by_array(data), strict=True):
        data.put(name, batches.store(array, partition.parted[array]))
    workload = Workload(**{**local.settings(), "sampler": OwnedSampler(local.sampler, batches), "graph": data.graph})
    return BatchSource(data, workload)


def content(source: BatchSource, step: int) -> list[torch.Tensor]:
    slot = Slot(1 << 12)
    batch = source.make(BatchRequest(1, step, 0, 1), slot).view(slot.buffer())
    tensors = [batch.nodes, batch.x, batch.y, *batch.tables.values()]
    for block in batch.blocks:
        tensors += [block.indptr, block.indices, block.edge_ids, block.edge_weight, block.edge_type]
    return [torch.empty(0) if tensor is None else tensor.clone() for tensor in tensors]


def with_tables(data: GraphData) -> GraphData:
    data.tables["none"] = MemoryFeatureStore(torch.zeros(data.graph.num_nodes, 0))
    data.tables["wide"] = MemoryFeatureStore(torch.arange(data.graph.num_nodes * 40).view(-1, 40).to(torch.int16))
    return data


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
@pytest.mark.parametrize(("num_parts", "num_owners"), [(3, 2), (1, 1)])
def test_equal_those_of_the_whole_graph(sampler: Sampler, num_parts: int, num_owners: int, tmp_path: Path) -> None:
    data = with_tables(graph_data())
    partition_graph(data, tmp_path / "parts", num_parts, "random", hops=0, progress=False)
    local = Workload(data.graph, sampler, data.split("train"), batch_size=7, seed=3, labels=data.y)
    here = BatchSource(data, local)
    with made_by_owners(tmp_path / "parts", num_owners) as (partition, batches, _):
        there = remote_source(partition, batches, local)
        for step in range(4):
            for expected, got in zip(content(here, step), content(there, step), strict=True):
                # Rows taken for another mini-batch's, or of another owner's part, fail here.
                assert torch.equal(expected, got)
        # One request a mini-batch, and one for the rows that its maker does not have.
        operations = {"batch", "rows"} if num_owners > 1 else {"batch"}
        assert set(batches.owners().traffic) - {"num_types"} == operations
        assert batches.owners().traffic["batch"].num_tasks == 4


def test_threads_have_rows_of_their_own(tmp_path: Path) -> None:
    data = graph_data()
    partition_graph(data, tmp_path / "parts", 2, "random", hops=0, progress=False)
    local = Workload(data.graph, NeighborSampler([3, 2]), data.split("train"), batch_size=3, labels=data.y)
    here, got = BatchSource(data, local), {}
    with made_by_owners(tmp_path / "parts", 2) as (partition, batches, _):
        there = remote_source(partition, batches, local)

        def make(step: int) -> None:
            got[step] = content(there, step)

        threads = [threading.Thread(target=make, args=(step,)) for step in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    for step in range(8):
        assert all(map(torch.equal, content(here, step), got[step]))


def test_another_owner_makes_those_of_one_that_is_gone(tmp_path: Path) -> None:
    data = graph_data()
    partition_graph(data, tmp_path / "parts", 2, "random", hops=0, progress=False)
    local = Workload(data.graph, NeighborSampler([3, 2]), data.split("train"), batch_size=5, labels=data.y)
    here = BatchSource(data, local)
    with ExitStack() as stack:
        partition, _, [front] = stack.enter_context(made_by_owners(tmp_path / "parts", 1))
        # A second owner of all parts.
        _, _, [spare] = stack.enter_context(made_by_owners(tmp_path / "parts", 1))
        addresses = [str(front.address), str(spare.address)]
        both = Owners.connect(partition, addresses, secret=SECRET, patience_s=10)
        stack.callback(both.close)
        there = remote_source(partition, OwnedBatches(lambda: both, lambda: addresses), local)
        assert all(map(torch.equal, content(here, 0), content(there, 0)))
        front.close()
        for step in range(1, 5):
            assert all(map(torch.equal, content(here, step), content(there, step)))


def test_rows_that_nobody_gathers_are_not_sent_again(tmp_path: Path) -> None:
    data = graph_data(width=64)
    partition_graph(data, tmp_path / "parts", 2, "random", hops=0, progress=False)
    local = Workload(data.graph, NeighborSampler([3, 2]), data.split("train"), batch_size=7, labels=data.y)
    with made_by_owners(tmp_path / "parts", 2) as (partition, batches, _):
        there = remote_source(partition, batches, local)
        traffic = batches.owners().traffic
        sizes = []
        for step in range(3):
            before = traffic["batch"].bytes_received if "batch" in traffic else 0
            there.workload.nodes_of(BatchRequest(0, step, 0, 1))
            sizes.append(traffic["batch"].bytes_received - before)
        assert sizes[1] < sizes[0] / 2
        assert sizes[2] < sizes[0] / 2
        # They come one by one where they are needed after all, and with the next mini-batch again.
        expected = BatchSource(data, local)
        for step in range(2):
            assert all(map(torch.equal, content(expected, step), content(there, step)))
        assert traffic["rows"].num_tasks == 3  # of two parts, then of the one that did not make it


def test_seeds_with_links_and_disjoint_rows(tmp_path: Path) -> None:
    data = graph_data()
    partition_graph(data, tmp_path / "parts", 3, "random", hops=0, progress=False)
    table = SeedTable(data.split("train"), y=torch.arange(len(data.split("train"))))
    sampler = NeighborSampler([3, 2], sharing="disjoint")
    local = Workload(data.graph, sampler, table, batch_size=7, seed=3)
    here = BatchSource(data, local)
    with made_by_owners(tmp_path / "parts", 2) as (partition, batches, _):
        there = remote_source(partition, batches, local)
        for step in range(3):
            assert all(map(torch.equal, content(here, step), content(there, step)))


class Unknown(NeighborSampler):
    def __init__(self, fanouts: list[int], weigh: object = None) -> None:
        super().__init__(fanouts)
        self.weigh = weigh


def test_a_sampler_that_cannot_be_described_is_refused_by_name(tmp_path: Path) -> None:
    data = graph_data()
    partition_graph(data, tmp_path / "parts", 2, "random", hops=0, progress=False)
    with (
        made_by_owners(tmp_path / "parts", 1) as (_, batches, _),
        pytest.raises(SamplerConfigError, match="none of the package's own"),
    ):
        OwnedSampler(Unknown([2], weigh=np.arange(3)), batches)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tables": ["nothing"]}, "no rows of 'nothing'"),
        ({"sampler": {"kind": "os:system", "settings": {}}}, "os:system"),
        ({"sampler": {"kind": "lightning_gnnload.sample.neighbor:NeighborSampler", "settings": {"fanouts": 3}}}, ""),
        ({"key": ["a"]}, ""),
        ({"owners": 7}, ""),
        ({"seeds": np.array([10**6])}, "whole numbers"),
    ],
)
def test_requests_that_cannot_be_are_refused(changes: dict, words: str, tmp_path: Path) -> None:
    from lightning_gnnload.sample.group.messages import Message
    from lightning_gnnload.sample.parts.settings import describe_whole

    data = graph_data()
    partition_graph(data, tmp_path / "parts", 2, "random", hops=0, progress=False)
    with made_by_owners(tmp_path / "parts", 1) as (_, batches, fronts):
        about = {
            "operation": "batch",
            "sampler": describe_whole(NeighborSampler([2])),
            "key": [0, 0, 0, 0],
            "owners": [str(fronts[0].address)],
            "tables": ["x"],
        }
        arrays = {"seeds": np.array([0, 1])}
        if "seeds" in changes:
            arrays, changes = {"seeds": changes["seeds"]}, {}
        with pytest.raises((ExchangeError, SamplerConfigError), match=words):
            batches.owners().ask_part(0, Message({**about, **changes}, arrays))
        # And the owner serves on.
        sound = Message({**about, "key": [0, 0, 0, 0]}, {"seeds": np.array([0, 1])})
        assert batches.owners().ask_part(0, sound).num_left


@pytest.mark.parametrize("layout", [[1.5, [], 0, -1], [1], "text", [2, [[0]], 16, -1], None])
def test_what_is_no_layout_is_refused(layout: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = graph_data()
    partition_graph(data, tmp_path / "parts", 2, "random", hops=0, progress=False)
    local = Workload(data.graph, NeighborSampler([2]), data.split("train"), batch_size=2, labels=data.y)
    with made_by_owners(tmp_path / "parts", 1) as (partition, batches, _):
        there = remote_source(partition, batches, local)
        monkeypatch.setattr("lightning_gnnload.owners.batch_owner.written", lambda _: layout)
        with pytest.raises(ExchangeError, match="an owner sent"):
            content(there, 0)


@pytest.mark.parametrize("is_first", [True, False])
def test_rows_are_read_in_any_order_and_the_connection_serves_on(is_first: bool, tmp_path: Path) -> None:
    data = graph_data(width=64)
    data.tables["wide"] = MemoryFeatureStore(torch.arange(2400).view(-1, 40).to(torch.int16))
    partition_graph(data, tmp_path / "parts", 2, "random", hops=0, progress=False)
    local = Workload(data.graph, NeighborSampler([3, 2]), data.split("train"), batch_size=7, labels=data.y)
    with made_by_owners(tmp_path / "parts", 2) as (partition, batches, fronts):
        there = remote_source(partition, batches, local)
        nodes = torch.from_numpy(there.workload.nodes_of(BatchRequest(0, 0, 0, 1)))
        for name in ("wide", "x") if is_first else ("x", "wide"):
            store = there.features[name]
            out = torch.empty(len(nodes), store.shape[1], dtype=store.dtype)
            reads = store.gather(nodes, out)
            assert torch.equal(out, data.stores[name].rows[nodes])
            assert reads[0].tier == "pushed"
        for step in range(1, 5):  # until each has made one, and knows the other
            content(there, step)
        counts = [len(front._clients) for front in fronts]
        for step in range(1, 5):
            content(there, step)
        assert [len(front._clients) for front in fronts] == counts


def test_a_table_of_which_its_maker_has_no_row(tmp_path: Path) -> None:
    """Nothing is left of the answer then, which has given its connection back."""
    graph = Graph.from_coo([], [], 8, keep_order=True)
    data = GraphData(graph, y=np.zeros(8), train=range(8), edge_x=torch.rand(0, 3))
    partition_graph(data, tmp_path / "parts", 2, "random", hops=0, progress=False)
    local = Workload(graph, NeighborSampler([3, 2], edge_ids=True), data.split("train"), batch_size=4, labels=data.y)
    with made_by_owners(tmp_path / "parts", 2) as (partition, batches, _):
        there = remote_source(partition, batches, local)
        for step in range(2):
            assert all(map(torch.equal, content(BatchSource(data, local), step), content(there, step)))


def test_an_owner_that_is_lost_amid_its_rows_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = graph_data(2_000, 9_000, width=4_000)  # more bytes than the system keeps for a connection
    partition_graph(data, tmp_path / "parts", 2, "random", hops=0, progress=False)
    local = Workload(data.graph, NeighborSampler([5, 5]), data.split("train"), batch_size=300, labels=data.y)
    with ExitStack() as stack:
        partition, _, [front] = stack.enter_context(made_by_owners(tmp_path / "parts", 1))
        _, _, [spare] = stack.enter_context(made_by_owners(tmp_path / "parts", 1))
        addresses, lost = [str(front.address)], []
        both = Owners.connect(partition, lambda: addresses, secret=SECRET, patience_s=10)
        stack.callback(both.close)
        batches = OwnedBatches(lambda: both, lambda: addresses)
        there, take = remote_source(partition, batches, local), batches.take

        def take_amid(name: str, ids: np.ndarray) -> object:
            addresses[:] = [str(spare.address)]
            front.close()
            lost.append(name)
            return take(name, ids)

        monkeypatch.setattr(batches, "take", take_amid)
        assert all(map(torch.equal, content(BatchSource(data, local), 0), content(there, 0)))
        assert lost == ["x"]
        assert both.traffic["rows"].num_tasks == 2  # of both parts, by the other owner


def test_a_mini_batch_that_nobody_reads_is_left_with_its_connection(tmp_path: Path) -> None:
    data = graph_data(width=64)
    partition_graph(data, tmp_path / "parts", 2, "random", hops=0, progress=False)
    local = Workload(data.graph, NeighborSampler([3, 2]), data.split("train"), batch_size=7, labels=data.y)
    with made_by_owners(tmp_path / "parts", 1) as (partition, batches, [front]):
        there = remote_source(partition, batches, local)
        thread = threading.Thread(target=there.workload.nodes_of, args=(BatchRequest(0, 0, 0, 1),))
        thread.start()
        thread.join(20)
        gc.collect()
        until = time.monotonic() + 10
        while len(front._clients) > 1 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(front._clients) == 1  # the owner itself, which asks who knows the graph's columns

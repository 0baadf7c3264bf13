"""Rows of seed tables on every way from the data to the batch."""

from itertools import chain

import numpy as np
import pytest
import torch

from lightning_gnnload import GraphDataModule
from lightning_gnnload.data.orders.proximity import ProximityOrder
from lightning_gnnload.data.orders.seeds import Sequential, TimeOrder
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.slots import Slot
from tests.unit.pipeline.job import job
from tests.unit.seed_tables import KINDS, kind_of_seeds
from tests.unit.toy import content, toy_source

NUM_STEPS = 13  # of 100 rows, 8 a step


def loader(kind: str, num_threads: int = 0) -> SampledLoader:
    data, settings = kind_of_seeds(kind)
    return SampledLoader(toy_source(data, **settings, batch_size=8), num_threads=num_threads)


def stream(loader: SampledLoader) -> list:
    return [content(batch) for batch in loader]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_brings_its_own(kind: str) -> None:
    data, _ = kind_of_seeds(kind)
    table, ends = data.table("train"), data.table("train").nodes_in(data.graph)
    seen = []
    for batch in loader(kind):
        rows = batch.seed_columns["input_id"]
        seen += rows.tolist()
        assert batch.y.tolist() == table.y[rows].tolist()
        for name, column in table.columns.items():
            assert batch.seed_columns[name].dtype == column.dtype
            assert batch.seed_columns[name].tolist() == column[rows].tolist()
        if table.kind == "links":
            for end, wanted in zip(("src", "dst"), ends[rows].T, strict=True):
                assert batch.seeds[batch.seed_columns[end]].tolist() == wanted.tolist()
        else:
            assert batch.seeds.tolist() == ends[rows, 0].tolist()
        assert torch.equal(batch.x, data.x.rows[batch.nodes])
    assert sorted(seen) == list(range(100))


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_threads_gives_the_same_stream(kind: str) -> None:
    wanted = stream(loader(kind))
    assert len(wanted) == NUM_STEPS
    assert stream(loader(kind, 1)) == wanted
    assert stream(loader(kind, 3)) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_samplers_give_the_same_stream(kind: str) -> None:
    data, settings = kind_of_seeds(kind)
    with job(toy_source(data, **settings, batch_size=8), num_samplers=2, num_trainers=2) as running:
        loaders = [running.loader(running.queue(rank), rank=rank) for rank in range(2)]
        streams = zip(*[[content(batch) for batch in step] for step in zip(*loaders, strict=True)], strict=True)
        for rank, found in enumerate(streams):
            assert list(found) == running.wanted(rank=rank)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_resumes_in_mid_epoch(kind: str) -> None:
    whole = loader(kind)
    whole.set_epoch(3)
    wanted = stream(whole)
    for done in (1, 6, NUM_STEPS - 1):
        interrupted = loader(kind, 2)
        interrupted.set_epoch(3)
        reading = iter(interrupted)
        for _ in range(done):
            next(reading)
        state = interrupted.state_dict()
        del reading
        resumed = loader(kind, 1)
        resumed.load_state_dict(state)
        resumed.set_epoch(3)
        assert stream(resumed) == wanted[done:]


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_share_the_rows(kind: str) -> None:
    data, settings = kind_of_seeds(kind)
    source = toy_source(data, **settings, batch_size=4)
    ranks = [SampledLoader(source, num_ranks=2, rank=rank) for rank in range(2)]
    rows = [batch.seed_columns["input_id"].tolist() for each in ranks for batch in each]
    assert sorted(chain.from_iterable(rows)) == list(range(100))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_bytes", [1, 1 << 12, 1 << 22])
def test_the_first_size_of_a_slot_changes_nothing(kind: str, num_bytes: int) -> None:
    data, settings = kind_of_seeds(kind)
    source, request = toy_source(data, **settings, batch_size=50), BatchRequest(0, 1, 0, 1)

    def made(num_bytes: int) -> list:
        slot = Slot(num_bytes)
        return content(source.make(request, slot).view(slot.buffer()))

    assert made(num_bytes) == made(1 << 24)


@pytest.mark.parametrize("kind", KINDS)
def test_a_payload_survives_its_message(kind: str) -> None:
    data, settings = kind_of_seeds(kind)
    source, slot = toy_source(data, **settings), Slot()
    payload = source.make(BatchRequest(0, 0, 0, 1), slot)
    told = Payload.from_json(payload.to_json())
    assert told == payload
    batch = told.view(slot.buffer())
    ends = [
        tensor.data_ptr() + tensor.nbytes - slot.array.ctypes.data
        for tensor in (batch.nodes, batch.rows, batch.y, *batch.seed_columns.values(), batch.blocks[0].indices)
        if tensor is not None and tensor.numel()
    ]
    assert max(ends) <= payload.header.end <= slot.num_bytes
    moved = batch.to("meta")
    assert all(rows.is_meta for rows in moved.seed_columns.values())


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_draws_alike_whatever_the_epoch_and_batch_size(kind: str) -> None:
    def neighbours(batch_size: int, epoch: int) -> dict[int, list]:
        data, settings = kind_of_seeds(kind)
        settings |= {"order": Sequential(), "fixed_draws": True, "batch_size": batch_size}
        each = SampledLoader(toy_source(data, **settings), num_threads=0)
        each.set_epoch(epoch)
        found = {}
        for batch in each:
            block, columns = batch.blocks[-1], batch.seed_columns
            ends = columns.get("dst", torch.arange(batch.num_seeds))
            for row, at in zip(columns["input_id"].tolist(), ends.tolist(), strict=True):
                picks = block.indices[block.indptr[at] : block.indptr[at + 1]].long()
                found[row] = batch.nodes[picks].tolist()
        return found

    wanted = neighbours(8, 0)
    assert len(wanted) == 100
    assert neighbours(8, 4) == wanted
    assert neighbours(33, 0) == wanted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [ProximityOrder(sequences=4), TimeOrder()])
def test_orders_are_of_rows(kind: str, order) -> None:
    data, settings = kind_of_seeds(kind)
    source = toy_source(data, **settings, batch_size=8, order=order)
    requests = [BatchRequest(epoch, step, 0, 1) for epoch in (0, 1) for step in range(NUM_STEPS)]
    rows = np.concatenate([source.workload.seeds_of(request) for request in requests])
    assert sorted(rows[:100]) == sorted(rows[100:]) == list(range(100))
    assert rows[:100].tolist() != rows[100:].tolist()


def test_rows_of_near_nodes_come_together() -> None:
    data, settings = kind_of_seeds("timed nodes")
    nodes = data.table("train").nodes_in(data.graph)[:, 0]
    source = toy_source(data, **settings, batch_size=100, order=ProximityOrder(sequences=1))
    ordered = nodes[source.workload.seeds_of(BatchRequest(0, 0, 0, 1))]
    # Each node's rows follow each other: as many changes as there are nodes, less one.
    assert (np.diff(ordered) != 0).sum() == len(np.unique(nodes)) - 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_module_serves_rows(kind: str) -> None:
    data, settings = kind_of_seeds(kind)
    table = data.table("train")
    links = settings["links"]
    of_links = {"negatives": links.negatives, "exclude": links.exclude}
    module = GraphDataModule(data, settings["sampler"], 16, num_threads=0, predict=table, seed=3, **of_links)
    # Of graphs with types the module's own loaders give batches by type; the sources' are flat.
    predicted, trained = (SampledLoader(module.source(phase), num_threads=0) for phase in ("predict", "train"))
    found = [batch.seed_columns["input_id"].tolist() for batch in predicted]
    assert list(chain.from_iterable(found)) == list(range(100))
    assert stream(trained) == stream(SampledLoader(toy_source(data, **settings, batch_size=16), num_threads=0))
    assert len(module.train_dataloader()) == len(found) == 7

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from lightning_gnnload import GraphData, NeighborSampler, SeedTable
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import QueueProtocolError, SeedError
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.sample.workload import FIXED_DRAWS_EPOCH
from tests.unit.toy import content, toy_data, toy_graph, toy_source


def made(source, epoch: int = 0, step: int = 0, rank: int = 0, num_ranks: int = 1, num_bytes: int = 1 << 20):
    slot = Slot(num_bytes)
    return source.make(BatchRequest(epoch, step, rank, num_ranks), slot).view(slot.buffer())


@pytest.mark.parametrize("expand", ["all", "new"])
def test_features_and_labels_belong_to_their_nodes(expand) -> None:
    data = toy_data()
    source = toy_source(data, sampler=NeighborSampler([3, 2], expand=expand))
    for step in range(3):
        batch = made(source, step=step)
        assert torch.equal(batch.x, data.x.rows[batch.nodes])
        assert torch.equal(batch.y, data.y[batch.seeds])
        assert (batch.epoch, batch.step) == (0, step)


def test_a_batch_is_what_its_sampler_draws() -> None:
    data = toy_data()
    batch = made(toy_source(data), epoch=4, step=2)
    alone = NeighborSampler([3, 2]).sample(data.graph, batch.seeds, seed=3, epoch=4, step=2)
    assert content(batch)[:5] == content(alone)[:5]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_an_epoch_has_each_seed_once(num_ranks: int) -> None:
    data = toy_data(num_train=101)
    source = toy_source(data, batch_size=7)
    for epoch in (0, 1):
        requests = [
            BatchRequest(epoch, step, rank, num_ranks)
            for step in range(source.plan(num_ranks).num_steps)
            for rank in range(num_ranks)
        ]
        seeds = np.concatenate([source.workload.seeds_of(request) for request in requests])
        assert sorted(seeds) == sorted(data.train)


@pytest.mark.parametrize("num_bytes", [1, 1 << 12, 3 << 12, 1 << 16, 1 << 22])
@pytest.mark.parametrize("width", [0, 1, 700])
def test_the_first_size_of_a_slot_changes_nothing(num_bytes: int, width: int) -> None:
    # The wrong code keeps a layout from before the growth, or lets features run into the hops.
    data = toy_data(width=width)
    source = toy_source(data, sampler=NeighborSampler([5, 5], edge_ids=True), batch_size=50)
    assert content(made(source, num_bytes=num_bytes)) == content(made(source, num_bytes=1 << 24))


def test_a_slot_is_written_over_without_a_trace() -> None:
    source, slot = toy_source(), Slot()
    fresh = content(made(source, step=1))
    slot.array[:] = 0xA5
    source.make(BatchRequest(0, 0, 0, 1), slot)
    assert content(source.make(BatchRequest(0, 1, 0, 1), slot).view(slot.buffer())) == fresh


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.float64])
def test_features_keep_their_dtype(dtype: torch.dtype) -> None:
    x = torch.arange(300).unsqueeze(1).remainder(100).to(dtype)
    data = GraphData(toy_graph(), x, torch.rand(300, 3), train=range(50))
    batch = made(toy_source(data))
    assert batch.x.dtype is dtype
    assert torch.equal(batch.x, x[batch.nodes])
    assert torch.equal(batch.y, data.y[batch.seeds])


def test_a_graph_alone_is_enough() -> None:
    batch = made(toy_source(GraphData(toy_graph(), train=[1, 2, 3])))
    assert batch.x is None
    assert batch.y is None


def test_fixed_draws_do_not_depend_on_epoch_step_or_batch_size() -> None:
    def neighbours(source, epoch: int) -> dict[int, list[int]]:
        found = {}
        for step in range(source.plan(1).num_steps):
            batch = made(source, epoch, step)
            assert batch.epoch == FIXED_DRAWS_EPOCH
            block = batch.blocks[-1]
            for at, seed in enumerate(batch.seeds.tolist()):
                picks = block.indices[block.indptr[at] : block.indptr[at + 1]].long()
                found[seed] = batch.nodes[picks].tolist()
        return found

    settings = {"order": Sequential(), "fixed_draws": True}
    wanted = neighbours(toy_source(batch_size=16, **settings), 0)
    assert len(wanted) == 100
    assert neighbours(toy_source(batch_size=16, **settings), 5) == wanted
    assert neighbours(toy_source(batch_size=33, **settings), 0) == wanted
    assert neighbours(toy_source(batch_size=16, seed=4, **settings), 0) != wanted


def test_threads_share_a_source() -> None:
    source = toy_source(batch_size=3)
    requests = [BatchRequest(epoch, step, 0, 1) for step in range(30) for epoch in (0, 1)]  # the memo is contended
    alone = [content(made(toy_source(batch_size=3), r.epoch, r.step)) for r in requests]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda r: content(made(source, r.epoch, r.step)), requests)) == alone


def test_a_payload_survives_its_message() -> None:
    source, slot = toy_source(), Slot()
    payload = source.make(BatchRequest(0, 0, 0, 1), slot)
    assert Payload.from_json(payload.to_json()) == payload
    assert payload.num_edges == sum(block.num_edges for block in payload.view(slot.buffer()).blocks)


def test_shared_edges_count_once() -> None:
    slot = Slot()
    payload = toy_source(sampler=NeighborSampler([3, 2], expand="new")).make(BatchRequest(0, 0, 0, 1), slot)
    assert payload.num_edges == payload.view(slot.buffer()).blocks[0].num_edges


def test_a_schema_that_is_known_is_not_read_again() -> None:
    source, slot = toy_source(), Slot()
    one, other = (source.make(BatchRequest(0, step, 0, 1), slot).to_json() for step in range(2))
    assert one["schema"] == other["schema"]
    assert Payload.from_json(one).header.schema is Payload.from_json(other).header.schema


def test_moments_of_another_machine_become_moments_of_this_one() -> None:
    payload = toy_source().make(BatchRequest(0, 0, 0, 1), Slot())
    read = Payload.from_json(json.loads(json.dumps(payload.to_json())), clock_s=1000.0)
    assert read.timing.began_s == payload.timing.began_s + 1000.0
    assert read.timing.made_s - read.timing.began_s == pytest.approx(payload.timing.made_s - payload.timing.began_s)
    assert read.header == payload.header


@pytest.mark.parametrize(
    "damage",
    [
        lambda fields: fields.pop("header"),
        lambda fields: fields.update(schema=None),
        lambda fields: fields.update(schema=[]),
        lambda fields: fields.update(schema="{"),
        lambda fields: fields.update(schema="[" * 10**5),
        lambda fields: fields.update(header=3),
        lambda fields: fields.update(header={}),
        lambda fields: fields.update(timing=3),
        lambda fields: fields.update(timing=[0, "main", 1.0, 1.0]),
        lambda fields: fields["timing"].append(1.0),
        lambda fields: fields["timing"].__setitem__(0, "0"),
        lambda fields: fields["timing"].__setitem__(1, 0),
        lambda fields: fields["timing"].__setitem__(2, float("nan")),
        lambda fields: fields["timing"].__setitem__(3, "1"),
        lambda fields: fields["timing"].__setitem__(5, None),
        lambda fields: fields.update(reads=[["memory", 3]]),
        lambda fields: fields.update(reads=[["memory", -3, 12]]),
        lambda fields: fields.update(reads=[[7, 3, 12]]),
        lambda fields: fields.update(reads=None),
    ],
)
def test_a_malformed_payload_is_a_protocol_error(damage) -> None:
    fields = json.loads(json.dumps(toy_source().make(BatchRequest(0, 0, 0, 1), Slot()).to_json()))
    damage(fields)
    with pytest.raises(QueueProtocolError, match="malformed"):
        Payload.from_json(fields)


def test_a_seed_that_is_no_node_is_an_error() -> None:
    source = toy_source()
    source.workload.seeds = np.array([1, 300])
    with pytest.raises(SeedError, match="300"):
        made(source)


def test_ranks_that_would_draw_by_other_seeds_do_not_agree() -> None:
    assert toy_source(seed=1).fingerprint == toy_source(seed=1).fingerprint != toy_source(seed=2).fingerprint
    # Hard negatives that each rank's script has drawn for itself.
    graph = toy_graph()
    tables = [SeedTable(src=[0, 1], dst=[2, 3], columns={"negatives": [[n], [n]]}) for n in (1, 2, 1)]
    first, second, again = (toy_source(GraphData(graph, train=table), batch_size=1) for table in tables)
    assert first.fingerprint == again.fingerprint != second.fingerprint

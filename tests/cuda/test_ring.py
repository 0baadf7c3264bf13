"""Mini-batches cross from a sampler's device to a trainer's, through device memory or the host's, and are the CPU's."""

from __future__ import annotations

import itertools
import os
import signal

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, NeighborSampler
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline.device_slots import DeviceReader, DeviceSlot
from lightning_gnnload.pipeline.queue.sampler_peer import SamplerPeer
from lightning_gnnload.pipeline.queue.streams import SharedSlot, StreamSpec, TrainerPeer
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from tests.cuda.emulated import EmulatedDevice
from tests.cuda.fake_runtime import FakeRuntime
from tests.cuda.ring import DONE, SEEN, TRAINER_DIED, LateDevice, LateRuntime, Ring, ring, samplers, wanted
from tests.forked import in_child
from tests.unit.toy import content, toy_data, toy_source

BLOCK_BYTES = 2 << 20  # that memory is exported by
NUM_STEPS = 13  # 100 seeds, 8 a batch


def source(**settings) -> BatchSource:
    return toy_source(batch_size=8, **settings)


def tables() -> GraphData:
    age = np.arange(300, dtype=np.int16).reshape(300, 1)
    return toy_data(tables={"age": age, "year": age[:, 0], "track": np.arange(1800.0).reshape(300, 2, 3)})


@pytest.mark.parametrize(
    ("data", "sampler"),
    [
        (None, NeighborSampler([3, 2])),
        (None, NeighborSampler([3, 2], expand="new", edge_ids=True)),
        (tables(), NeighborSampler([4])),
    ],
)
def test_mini_batches_cross_from_device_to_device(data, sampler) -> None:
    made, ends = source(data=data, sampler=sampler), []
    with ring(made, num_samplers=2, ends=ends) as joined:
        loader = joined.loader()
        assert [content(batch) for batch in loader] == wanted(made)
        assert all(joined.slots_on_device)
        assert len(joined.slots_on_device) <= 2 * (2 + 1)  # of two samplers: two slots, and one for what is awaited
        assert {loader.last.made_by} <= {1, 2}
    assert joined.runtime.num_held == 0
    assert ends == [DONE, DONE]


def apart() -> FakeRuntime:
    return FakeRuntime(SEEN, 1, apart=[frozenset(SEEN)])


def blind() -> FakeRuntime:
    return FakeRuntime(SEEN[1:], 0)


def full() -> FakeRuntime:
    return FakeRuntime(SEEN, 1, room_bytes=1 << 20)


@pytest.mark.parametrize("sampler", [apart, blind, full])
def test_mini_batches_go_over_the_host_where_devices_do_not_reach_each_other(sampler) -> None:
    made, ends = source(), []
    with ring(made, sampler=sampler, ends=ends) as joined:
        assert [content(batch) for batch in joined.loader()] == wanted(made)
        assert not any(joined.slots_on_device)
    assert ends == [DONE]


@pytest.mark.parametrize("fault", ["broken", "astray"])
def test_what_a_trainer_cannot_open_comes_again_over_the_host(fault: str) -> None:
    # The sampler believes that the trainer's device reaches its own; that shows only when the trainer opens it.
    made, ends = source(), []
    runtime = FakeRuntime(SEEN, 0, **{fault: SEEN[1:]})
    with ring(made, trainer=runtime, ends=ends) as joined:
        loader = joined.loader()
        for epoch in range(2):
            assert [content(batch) for batch in loader] == wanted(made, epoch)
        assert not any(joined.slots_on_device)
    assert runtime.num_held == 0
    assert ends == [DONE]


def test_samplers_gather_what_a_trainer_does_not() -> None:
    made, ends = source(), []
    with ring(made, ends=ends) as joined:
        assert [content(batch) for batch in joined.loader(gathers=False)] == wanted(made)
        assert not any(joined.slots_on_device)
    assert ends == [DONE]


def test_slots_grow_and_what_they_were_is_freed() -> None:
    # Seed v has v in-neighbours: each mini-batch is larger than the one before. The sampler's device has no room for
    # what its slots were, but for a moment.
    dst = np.repeat(np.arange(100), np.arange(100))
    graph = Graph.from_coo((dst * 7 + np.arange(len(dst))) % 300, dst, num_nodes=300)
    data = GraphData(graph, torch.rand(300, 3), train=np.arange(100))
    made, ends = source(data=data, sampler=NeighborSampler([-1]), order=Sequential()), []
    with ring(
        made, first_slot_bytes=256, sampler=lambda: FakeRuntime(SEEN, 1, room_bytes=4 * BLOCK_BYTES), ends=ends
    ) as joined:
        assert [content(batch) for batch in joined.loader()] == wanted(made)
        assert joined.slots_on_device == [True, True]
        assert joined.runtime.num_opened > 6
        assert joined.runtime.num_held == 2  # what was replaced is closed
    assert ends == [DONE]


@pytest.mark.parametrize("queue_depth", [1, 2])
def test_a_slot_is_not_written_over_before_its_copy_is_done(queue_depth: int) -> None:
    # The trainer's copies happen when it waits for them. Were slots given back with the last tensor, or with the copy
    # that is under way, samplers would have written the next mini-batch by then.
    made, ends = source(), []
    runtime = LateRuntime(SEEN, 0)
    with ring(made, queue_depth=queue_depth, trainer=runtime, device=LateDevice(runtime), ends=ends) as joined:
        batches = list(joined.loader())  # all are held
        assert [content(batch) for batch in batches] == wanted(made)
        assert len(joined.slots_on_device) == queue_depth
    assert ends == [DONE]


def test_a_slot_is_held_until_its_copy_is_done_though_its_tensors_are_gone() -> None:
    made, ends = source(), []
    runtime = LateRuntime(SEEN, 0)
    with ring(made, trainer=runtime, device=LateDevice(runtime), ends=ends) as joined:
        queue = joined.queue
        stream = queue.open(StreamSpec("train", 0, 0, 0, 0, 1, gathers=True))
        batch = queue.take(stream, 0)
        del batch
        assert queue.fill(stream).ready == 0
        assert [peer.num_slots_used for peer in queue._pool.peers] == [1]
        queue._pool.finish_copies()
        assert [peer.num_slots_used for peer in queue._pool.peers] == [0]
        queue.close_stream(stream)
    assert ends == [DONE]


def test_a_killed_samplers_mini_batches_are_made_again() -> None:
    made, ends = source(), []
    with ring(made, num_samplers=2, ends=ends) as joined:
        reading = iter(joined.loader())
        first = [content(batch) for batch in itertools.islice(reading, 2)]
        os.kill(joined.pids[0], signal.SIGKILL)
        assert first + [content(batch) for batch in reading] == wanted(made)
    assert joined.runtime.num_held == 0
    assert ends == [-signal.SIGKILL, DONE]


def test_nothing_is_read_from_the_device_of_a_lost_sampler() -> None:
    made, ends = source(), []
    with ring(made, num_samplers=2, ends=ends) as joined:
        queue = joined.queue
        stream = queue.open(StreamSpec("train", 0, 0, 0, 0, NUM_STEPS, gathers=True))
        while queue.fill(stream).ready < 4:  # both samplers have filled their slots
            queue.pump(0.1)
        os.kill(joined.pids[0], signal.SIGKILL)
        while queue.gone != [1]:
            queue.pump(0.1)
        makers = []
        for step in range(NUM_STEPS):
            batch, payload = queue.take(stream, step)
            makers.append(payload.timing.made_by)
            assert batch.nodes.tolist() == wanted(made)[step][3]
        assert set(makers) == {2}
        queue.close_stream(stream)
    assert joined.runtime.num_held == 0
    assert ends == [-signal.SIGKILL, DONE]


def test_a_killed_trainers_sampler_frees_its_slots() -> None:
    made, ends = source(), []
    with samplers(made, ends=ends) as (name, pids):

        def train() -> None:
            joined = Ring(name, made, pids, 2, EmulatedDevice(), FakeRuntime(SEEN, 0))
            next(iter(joined.loader()))
            assert joined.slots_on_device
            os.kill(os.getpid(), signal.SIGKILL)

        assert in_child(train)[0] == -signal.SIGKILL
    assert ends == [TRAINER_DIED]


def test_a_trainer_without_samplers_samples_itself() -> None:
    made, ends = source(), []
    with ring(made, ends=ends) as joined:
        reading = iter(joined.loader())
        first = [content(next(reading))]
        os.kill(joined.pids[0], signal.SIGKILL)
        assert first + [content(batch) for batch in reading] == wanted(made)
    assert ends == [-signal.SIGKILL]


# What a broken sampler sends, and a broken trainer.


def test_tickets_that_open_nothing() -> None:
    runtime = FakeRuntime(SEEN, 0)
    owner = DeviceSlot(FakeRuntime(SEEN, 1), 4096)
    peer = SamplerPeer(0, 7)
    reader = DeviceReader(EmulatedDevice(), runtime)
    batch = {"slot": 0, "slot_bytes": 4096, "memory_handle": {**owner.memory_handle, "num_bytes": -1}}
    for memory_handle, text in (
        ({**owner.memory_handle, "num_bytes": -1}, "malformed ticket"),
        ({**owner.memory_handle, "handle": "00"}, "malformed ticket"),
        ({"handle": 5}, "malformed ticket"),
    ):
        with pytest.raises(QueueProtocolError, match=text):
            peer.fill({**batch, "memory_handle": memory_handle}, [os.dup(owner.fd)], pinned=False, reader=reader)
    known = {**batch, "memory_handle": owner.memory_handle}
    for fds, its_reader in (([], reader), ([os.dup(owner.fd)], None)):
        with pytest.raises(QueueProtocolError, match="sent a ticket for slot 0, which is none"):
            peer.fill(known, fds, pinned=False, reader=its_reader)
    owner.close()  # waits for every copy of its descriptor to be closed
    assert runtime.num_held == 0


def test_a_mini_batch_beyond_its_slot_is_not_copied() -> None:
    made = source()
    payload = made.make(BatchRequest(0, 0, 0, 1), Slot())
    with ring(made) as joined:
        stream = joined.queue.open(StreamSpec("train", 0, 0, 0, 0, 1, gathers=True))
        while not joined.queue.has_come(stream, 0):
            joined.queue.pump(0.1)
        (peer,) = joined.queue._pool.peers
        with pytest.raises(QueueProtocolError, match=r"of \d+ bytes does not lie in its slot, of 65536 bytes"):
            peer.lend(0, payload)  # which lies in 1 MiB
        joined.queue.close_stream(stream)


@pytest.mark.parametrize("slot", [SharedSlot(0, Slot()), SharedSlot(0, Slot(), stream=object())])
def test_only_a_device_slot_that_is_out_can_be_refused(slot: SharedSlot) -> None:
    with pytest.raises(QueueProtocolError, match="refused slot 0, which is none of a device"):
        TrainerPeer(None, 0, 5).refuse(slot, "no reason")

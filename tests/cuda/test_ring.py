"""Mini-batches cross from a sampler's device to a trainer's, through device memory or the host's, and are the CPU's."""

from __future__ import annotations

import itertools
import os
import signal

import numpy as np
import pytest

from lightning_gnnload import GraphData, NeighborSampler
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.pipeline.streams import StreamSpec
from tests.cuda.fake_runtime import FakeRuntime
from tests.cuda.ring import SEEN, LateDevice, LateRuntime, ring, wanted
from tests.unit.toy import content, toy_data, toy_source

NUM_STEPS = 13  # 100 seeds, 8 a batch


def source(**settings) -> BatchSource:
    return toy_source(batch_size=8, **settings)


def tables() -> GraphData:
    age = np.arange(300, dtype=np.int16).reshape(300, 1)
    return toy_data(tables={"age": age})


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
        assert len(joined.slots_on_device) == 4  # two samplers, of two slots each
        assert {loader.last.made_by} <= {1, 2}
    assert joined.runtime.num_held == 0
    assert ends == [0, 0]


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
    assert ends == [0]


@pytest.mark.parametrize("fault", ["broken", "astray"])
def test_what_a_trainer_cannot_open_comes_again_over_the_host(fault: str) -> None:
    # The sampler believes that the trainer's device reaches its own; that shows only when the trainer opens it.
    made, ends = source(), []
    runtime = FakeRuntime(SEEN, 0, **{fault: SEEN[1:]})
    with ring(made, trainer=runtime, ends=ends) as joined:
        loader = joined.loader()
        for _ in range(2):
            assert [content(batch) for batch in loader] == wanted(made)
        assert not any(joined.slots_on_device)
    assert runtime.num_held == 0
    assert ends == [0]


def test_samplers_gather_what_a_trainer_does_not() -> None:
    made, ends = source(), []
    with ring(made, ends=ends) as joined:
        assert [content(batch) for batch in joined.loader(gathers=False)] == wanted(made)
        assert not any(joined.slots_on_device)
    assert ends == [0]


def test_slots_grow_and_what_they_were_is_freed() -> None:
    made, ends = source(order=None), []
    with ring(made, first_slot_bytes=256, ends=ends) as joined:
        for _ in range(2):
            assert [content(batch) for batch in joined.loader()] == wanted(made)
        assert all(joined.slots_on_device)
        assert joined.runtime.num_held == len(joined.slots_on_device)  # what was replaced is closed
    assert ends == [0]


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
    assert ends == [0]


def test_a_slot_is_held_until_its_copy_is_done_though_its_tensors_are_gone() -> None:
    made, ends = source(), []
    runtime = LateRuntime(SEEN, 0)
    with ring(made, trainer=runtime, device=LateDevice(runtime), ends=ends) as joined:
        queue = joined.queue
        stream = queue.open(StreamSpec("train", 0, 0, 0, 0, 1, gathers=True))
        batch = queue.take(stream, 0)
        del batch
        assert queue.fill(stream).ready == 0
        assert [peer.num_slots_used for peer in queue._crew.peers] == [1]
        queue._crew.finish_copies()
        assert [peer.num_slots_used for peer in queue._crew.peers] == [0]
        queue.close_stream(stream)
    assert ends == [0]


def test_a_killed_samplers_mini_batches_are_made_again() -> None:
    made, ends = source(), []
    with ring(made, num_samplers=2, ends=ends) as joined:
        reading = iter(joined.loader())
        first = [content(batch) for batch in itertools.islice(reading, 2)]
        os.kill(joined.pids[0], signal.SIGKILL)
        assert first + [content(batch) for batch in reading] == wanted(made)
    assert joined.runtime.num_held == 0
    assert ends == [-signal.SIGKILL, 0]


def test_a_trainer_without_samplers_samples_itself() -> None:
    made, ends = source(), []
    with ring(made, ends=ends) as joined:
        reading = iter(joined.loader())
        first = [content(next(reading))]
        os.kill(joined.pids[0], signal.SIGKILL)
        assert first + [content(batch) for batch in reading] == wanted(made)
    assert ends == [-signal.SIGKILL]

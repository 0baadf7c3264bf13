"""Samplers are lost; the streams stay the same."""

import logging
import os
import threading
import time
import uuid

import numpy as np
import pytest

from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.errors import QueueStalledError, SamplerFailedError, TrainerDiedError
from lightning_gnnload.host import flags, processes
from lightning_gnnload.host.flags import Flag
from lightning_gnnload.pipeline.queue import wire
from lightning_gnnload.pipeline.source import BatchSource
from tests.unit.pipeline.job import job, lone_service, num_slots
from tests.unit.pipeline.queue.test_service import SPEC, connected, played_sampler
from tests.unit.toy import content, toy_data, toy_source, toy_workload

NUM_STEPS = 13  # of 100 seeds, 8 a step


class BreakingError(Exception):
    pass


class Breaking(BatchSource):
    """Raises from some step on."""

    def __init__(self, step: int) -> None:
        data = toy_data()
        super().__init__(data, toy_workload(data, batch_size=8, order=Sequential()))
        self.step = step

    def make(self, request, slot):
        if request.step >= self.step:
            raise BreakingError(f"at step {request.step}")
        return super().make(request, slot)


def sequential() -> BatchSource:
    return Breaking(NUM_STEPS)


@pytest.fixture(autouse=True)
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Who would have been killed: here, this process."""
    pids: list[int] = []
    monkeypatch.setattr(processes, "send_signal", lambda pid, number: pids.append(pid))
    return pids


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("queue_depth", [1, 2, 4])
@pytest.mark.parametrize("step", [0, 5, NUM_STEPS - 1])
@pytest.mark.parametrize("num_samplers", [1, 2, 3])
def test_one_sampler_raises(num_samplers: int, step: int, queue_depth: int, num_threads: int) -> None:
    settings = {"num_samplers": num_samplers, "num_trainers": 2, "queue_depth": queue_depth, "num_threads": num_threads}
    with job(sequential(), broken={0: Breaking(step)}, takeover=True, **settings) as running:
        loaders = [running.loader(running.queue(rank), rank=rank) for rank in range(2)]
        for epoch in (0, 1):
            for loader in loaders:
                loader.set_epoch(epoch)
            streams = zip(
                *[[content(batch) for batch in batches] for batches in zip(*loaders, strict=True)], strict=True
            )
            for rank, stream in enumerate(streams):
                assert list(stream) == running.wanted(rank=rank, epoch=epoch)
        running.part()
        running.join()
        assert list(running.ends.values()) == [None] * num_samplers  # the one that raised ends well, too


@pytest.mark.parametrize("start", [0, 3])
def test_samplers_of_parts_make_all_steps_when_one_is_lost(start: int) -> None:
    data = toy_data()
    order = LocalOrder(np.split(data.train, [30]), num_ranks=1)
    source = BatchSource(data, toy_workload(data, batch_size=8, order=order))
    owners = source.workload.owners(num_ranks=1, num_owners=2)
    assert owners is not None
    broken = Breaking(6)
    broken.workload = source.workload
    for lost, until in (({}, len(owners)), ({1: broken}, broken.step)):
        with job(source, broken=lost, num_samplers=2, takeover=True) as running:
            loader, made_by, contents = running.loader(running.queue()), [], []
            loader.load_state_dict({**loader.state_dict(), "step": start})
            for batch in loader:
                assert loader.last is not None
                made_by.append(loader.last.made_by - 1)
                contents.append(content(batch))
        assert contents == running.wanted()[start:]
        # An idle sampler makes what another is late with, so where the steps were made depends on time.
        assert not any(made_by[until - start :])


@pytest.mark.parametrize("queue_depth", [1, 2, 4])
def test_all_samplers_raise_one_after_the_other(queue_depth: int) -> None:
    broken = {0: Breaking(4), 1: Breaking(7), 2: Breaking(10)}
    with job(sequential(), broken=broken, num_samplers=3, queue_depth=queue_depth, takeover=True) as running:
        queue = running.queue()
        lost: list[int] = []
        queue.lost.append(lost.append)
        assert [content(batch) for batch in running.loader(queue)] == running.wanted()
        assert sorted(lost) == [0, 1, 2]
        assert queue.alive == []
        assert [content(batch) for batch in running.loader(queue)] == running.wanted()  # a later stream
        assert len(list(running.loader(queue, limit=3))) == 3


@pytest.mark.parametrize("queue_depth", [1, 2, 4])
def test_who_has_all_slots_filled_with_later_steps_can_take_over(queue_depth: int) -> None:
    # The survivor's slots hold what comes after the lost one's steps, or are kept by the consumer: without a slot more,
    # it could never make what is needed next.
    with job(sequential(), broken={1: Breaking(0)}, num_samplers=2, queue_depth=queue_depth, takeover=True) as running:
        queue = running.queue(stall_timeout_s=5)
        reading = iter(running.loader(queue))
        kept = [next(reading)]
        time.sleep(0.2)
        kept += reading
        assert queue.alive == [0]
        assert [content(batch) for batch in kept] == running.wanted()


def test_evaluation_with_a_sampler_lost_interrupts_training() -> None:
    val = toy_source(batch_size=5, order=Sequential(), fixed_draws=True)
    with job(sequential(), val=val, broken={1: Breaking(5)}, num_samplers=2, takeover=True) as running:
        queue = running.queue()
        training = iter(running.loader(queue))
        held = [next(training) for _ in range(3)]
        assert [content(batch) for batch in running.loader(queue, "val")] == running.wanted("val")
        assert [content(batch) for batch in [*held, *training]] == running.wanted()


def test_the_datas_own_fault_is_raised_in_the_trainer_with_the_samplers_report() -> None:
    with job(Breaking(5), takeover=True) as running:
        reading = iter(running.loader(running.queue()))
        assert [next(reading).step for _ in range(5)] == list(range(5))
        with pytest.raises(BreakingError, match="at step 5") as caught:
            next(reading)
        assert isinstance(caught.value.__cause__, SamplerFailedError)
        assert "sampler rank 1 failed in stage 'sample (train, epoch 0, step 5)'" in str(caught.value.__cause__)


def test_a_sampler_that_raised_still_tells_of_trainers() -> None:
    with job(sequential(), broken={0: Breaking(0)}, num_trainers=2, takeover=True) as running:
        dying, other = running.queue(0), running.queue(1)
        list(running.loader(other, rank=1))
        dying._pool.close()
        running.queues.remove(dying)
        error = other.failure_behind(timeout_s=5)
        assert isinstance(error, TrainerDiedError)
        assert "trainer rank 0 is gone" in str(error)


def test_with_no_sampler_left_a_trainers_end_is_seen_by_its_flag() -> None:
    name = uuid.uuid4().hex
    queues = [
        connected(name, trainer=rank, rank=4 + rank, num_trainers=3, has_ended=lambda _: True, takeover=True)
        for rank in range(3)
    ]
    queues[1].goodbye()
    error = queues[0].failure_behind(timeout_s=0.1)
    assert isinstance(error, TrainerDiedError)
    assert "trainer rank 5" in str(error)
    for queue in (queues[0], queues[2]):
        queue.goodbye()


@pytest.mark.parametrize("trainer", [0, 1])
def test_the_loss_is_told_once_by_the_first_trainer(trainer: int, caplog: pytest.LogCaptureFixture) -> None:
    with played_sampler(b"") as name, caplog.at_level(logging.DEBUG):
        queue = connected(name, takeover=True, trainer=trainer, first_sampler_rank=7)
        assert queue.take(queue.open(SPEC), 0) is None
        queue.goodbye()
    (record,) = [record for record in caplog.records if "sampler rank 7 is gone without a word" in record.message]
    assert record.levelno == (logging.WARNING if trainer == 0 else logging.DEBUG)
    assert "The trainers sample themselves from here on" in record.message


def test_a_silent_sampler_is_ended(killed: list[int], caplog: pytest.LogCaptureFixture) -> None:
    with played_sampler() as name:
        queue = connected(name, stall_timeout_s=0.3, takeover=True)
        began = time.monotonic()
        assert queue.take(queue.open(SPEC), 0) is None
        assert 0.3 <= time.monotonic() - began < 5
        assert killed == [os.getpid()]
        assert flags.is_up(flags.sampler_stalled(name, os.getpid()))  # for the other trainers
        queue.goodbye()
    assert "nothing came from sampler rank 7 for 0 s (step 0)" in caplog.text
    assert "stall_timeout_s" in caplog.text


def test_a_sampler_that_another_trainer_ended_is_not_called_crashed(caplog: pytest.LogCaptureFixture) -> None:
    with played_sampler(b"") as name:
        flag = Flag(flags.sampler_stalled(name, os.getpid()))
        queue = connected(name, takeover=True)
        assert queue.take(queue.open(SPEC), 0) is None
        queue.goodbye()
        flag.lower()
    assert "stall_timeout_s" in caplog.text
    assert "crashed" not in caplog.text


def test_a_slow_consumer_is_no_reason_to_lose_a_sampler(killed: list[int]) -> None:
    # Longer than the limit between two batches: nothing is owed meanwhile.
    with job(takeover=True, queue_depth=1) as running:
        queue = running.queue(stall_timeout_s=0.2)
        found = []
        for batch in running.loader(queue):
            found.append(content(batch))
            time.sleep(0.25 if len(found) < 4 else 0)
        assert found == running.wanted()
    assert not killed


def test_without_takeover_a_silent_sampler_is_an_error(killed: list[int]) -> None:
    with played_sampler() as name:
        queue = connected(name, stall_timeout_s=0.2)
        with pytest.raises(QueueStalledError):
            queue.take(queue.open(SPEC), 0)
        queue.goodbye()
    assert not killed


def test_a_late_step_is_made_by_another_sampler_and_its_slot_is_free_again_when_it_comes() -> None:
    wakes = threading.Event()

    class Hanging(Breaking):
        def make(self, request, slot):
            wakes.wait(20)
            return super().make(request, slot)

    with job(sequential(), broken={1: Hanging(NUM_STEPS)}, num_samplers=2, takeover=True) as running:
        queue = running.queue()
        loader = running.loader(queue)
        assert [content(batch) for batch in loader] == running.wanted()
        assert not wakes.is_set()
        wakes.set()
        for epoch in (0, 1):
            loader.set_epoch(epoch)
            assert [content(batch) for batch in loader] == running.wanted(epoch=epoch)
        assert queue.alive == [0, 1]
        queue.pump(0)
        assert [peer.num_slots_used for peer in queue._pool.peers] == [0, 0]
        assert num_slots() <= 2 * 2 * (2 + 1)  # two samplers, two streams, one slot beyond the depth


def test_flags_are_seen_while_they_are_up() -> None:
    name = uuid.uuid4().hex
    assert not flags.is_up(name)
    flag = Flag(name)
    again = Flag(name)
    assert all(flags.is_up(name) for _ in range(300))  # looking uses nothing up
    again.lower()
    assert flags.is_up(name)
    flag.lower()
    assert not flags.is_up(name)


def test_an_idle_service_says_so() -> None:
    service = lone_service()
    assert service.wait_until_idle(0)
    service.close()


def test_further_kinds_of_messages_reach_their_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wire.KINDS, "ping", {"number": int})
    with job() as running:
        queue = running.queue()
        heard: list[tuple] = []
        arrived = threading.Event()
        running.services[0].handlers["ping"] = lambda trainer, message: (
            trainer.channel.send("ping", [0], number=message["number"] + 1),
            arrived.set(),
        )

        def keep(sampler: int, message: wire.Message, fds: list[int]) -> None:
            heard.append((sampler, message["number"], len(fds)))
            for fd in fds:
                os.close(fd)

        queue.handlers["ping"] = keep
        queue.send(0, "ping", number=4)
        assert arrived.wait(5)
        queue.pump(5)
        assert heard == [(0, 5, 1)]

import gc
import threading
import time

import pytest

from lightning_gnnload import NeighborSampler
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.errors import ForkError
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue.loader import QueueLoader
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.pipeline.stats import QueueFill
from tests.forked import in_child
from tests.unit.pipeline.job import job, num_slots, settles
from tests.unit.toy import content, toy_data, toy_source, toy_workload

NUM_STEPS = 13  # of 100 seeds, 8 a step


class Counting(BatchSource):
    """Notes what it makes."""

    def __init__(self) -> None:
        data = toy_data()
        super().__init__(data, toy_workload(data, batch_size=8, order=Sequential()))
        self.made: list[int] = []

    def make(self, request, slot):
        self.made.append(request.step)
        return super().make(request, slot)


class Widening(NeighborSampler):
    """Small batches first, then some that do not fit into the slots of the small ones, then small ones again."""

    def __init__(self) -> None:
        super().__init__([-1, -1])

    def draw(self, graph, draw, memory):
        sampler = super() if draw.key.step in (5, 6, 9) else NeighborSampler([1])
        return sampler.draw(graph, draw, memory)


@pytest.mark.parametrize("num_threads", [1, 2, 4])
@pytest.mark.parametrize("num_trainers", [1, 2])
@pytest.mark.parametrize("num_samplers", [1, 2])
def test_any_division_of_work_gives_the_same_streams(num_samplers: int, num_trainers: int, num_threads: int) -> None:
    with job(num_samplers=num_samplers, num_trainers=num_trainers, num_threads=num_threads) as running:
        loaders = [running.loader(running.queue(rank), rank=rank) for rank in range(num_trainers)]
        for epoch in (0, 1):
            for loader in loaders:
                loader.set_epoch(epoch)
            together = zip(*loaders, strict=True)  # trainers go on step by step
            streams = zip(*[[content(batch) for batch in step] for step in together], strict=True)
            for rank, stream in enumerate(streams):
                assert list(stream) == running.wanted(rank=rank, epoch=epoch)


def test_a_trainer_that_lags_does_not_stop_the_other() -> None:
    with job(num_trainers=2) as running:
        slow, fast = (running.loader(running.queue(rank), rank=rank) for rank in range(2))
        reading = iter(slow)
        next(reading)
        assert [content(batch) for batch in fast] == running.wanted(rank=1)
        assert len(list(reading)) == len(slow) - 1


@pytest.mark.parametrize("queue_depth", [1, 2, 4])
def test_no_more_slots_are_out_than_the_queue_is_deep(queue_depth: int) -> None:
    source = Counting()
    with job(source, queue_depth=queue_depth, num_threads=2) as running:
        reading = iter(running.loader(running.queue()))
        batch = next(reading)
        # One batch is held, in a slot of its own unless the depth is 1; the sampler may fill the others.
        held = queue_depth > 1
        assert settles(lambda: len(source.made), queue_depth + 1 - held)
        del batch
        for step in range(1, 5):
            next(reading)
            # A slot goes back with the call after its batch's end: this batch's is out, unless it was a copy.
            assert settles(lambda: len(source.made), queue_depth + 1 - held + step)
        assert sorted(source.made) == list(range(queue_depth + 1 - held + 4))


@pytest.mark.parametrize("num_samplers", [1, 2])
@pytest.mark.parametrize("queue_depth", [1, 2, 4])
def test_who_keeps_all_batches_neither_stops_the_samplers_nor_sees_them_change(
    queue_depth: int, num_samplers: int
) -> None:
    # Predictions that are views of their batches, or a list of a loader.
    with job(queue_depth=queue_depth, num_samplers=num_samplers) as running:
        kept = list(running.loader(running.queue(stall_timeout_s=5)))
        assert [content(batch) for batch in kept] == running.wanted()
    assert [content(batch) for batch in kept] == running.wanted()  # after the queue is gone, too


@pytest.mark.parametrize("queue_depth", [1, 2])
@pytest.mark.parametrize("num_samplers", [1, 2])
def test_evaluation_interrupts_training(queue_depth: int, num_samplers: int) -> None:
    val = toy_source(batch_size=5, order=Sequential(), fixed_draws=True)
    with job(val=val, queue_depth=queue_depth, num_samplers=num_samplers) as running:
        queue = running.queue()
        training = iter(running.loader(queue))
        held = [next(training) for _ in range(3)]
        assert [content(batch) for batch in running.loader(queue, "val")] == running.wanted("val")
        other = running.loader(queue, "val", loader=1)
        assert len(list(zip(range(2), other, strict=False))) == 2  # a second one, left in the middle
        assert [content(batch) for batch in [*held, *training]] == running.wanted()


@pytest.mark.parametrize("num_read", [0, 1, 4])
def test_closing_in_mid_stream(num_read: int) -> None:
    with job(queue_depth=4, num_samplers=2, num_threads=2) as running:
        queue = running.queue()
        for _ in range(5):
            reading = iter(running.loader(queue))
            for _ in range(num_read):
                next(reading)
            del reading
        assert [content(batch) for batch in running.loader(queue)] == running.wanted()
        # Slots of closed streams came back: each of the two samplers has no more than two streams' worth.
        assert num_slots() <= 2 * (2 * 4)
        assert not queue._inbox


def test_a_fork_neither_reads_nor_closes_its_parents_stream() -> None:
    with job(queue_depth=2, num_samplers=2, num_threads=2) as running:
        reading = iter(running.loader(running.queue()))
        read = [content(next(reading)) for _ in range(3)]

        def go_on() -> None:
            with pytest.raises(ForkError, match="The queue of mini-batches works in process"):
                next(reading)

        assert in_child(go_on) == (0, "")
        assert [*read, *map(content, reading)] == running.wanted()


def test_the_depth_follows_a_wait_from_epoch_to_epoch() -> None:
    class Late(Counting):
        """Step 4 is made when it is waited for, and another 0.2 s after."""

        awaited = threading.Event()

        def make(self, request, slot):
            if request.step == 4:
                assert self.awaited.wait(20)
                time.sleep(0.2)
            return super().make(request, slot)

    source = Late()
    with job(source, queue_depth=2) as running:
        loader = running.loader(running.queue(queue_memory_bytes=1 << 40))
        batches = iter(loader)
        for step in range(4):
            del_me = next(batches)
            del del_me
            assert settles(lambda: len(source.made), min(step + 2, 4))  # one is held, until the next is asked for
        source.awaited.set()
        for batch in batches:
            del batch
            break
        # Had two slots been all, steps 4 and 5 would be.
        assert settles(lambda: len(source.made), 4 + 4)
        assert content(next(batches)) == running.wanted()[5]
        batches.close()
        loader.set_epoch(1)
        batches = iter(loader)
        next(batches)
        assert loader.last is not None
        assert loader.last.fill.slots == 4
        batches.close()


def test_a_limit_ends_the_stream_early() -> None:
    source = Counting()
    with job(source, queue_depth=4) as running:
        assert len(list(running.loader(running.queue(), limit=3))) == 3
        assert settles(lambda: len(source.made), 3)  # nothing is made that is never read
        assert len(list(running.loader(running.queues[0], limit=0))) == 0


def test_a_stream_resumes_at_a_step() -> None:
    with job(num_samplers=2) as running:
        queue = running.queue()
        for done in (1, 6):
            loader = running.loader(queue)
            loader.load_state_dict(loader.state_dict() | {"step": done})
            assert [content(batch) for batch in loader] == running.wanted()[done:]
        loader.load_state_dict(loader.state_dict() | {"step": NUM_STEPS})
        assert [content(batch) for batch in loader] == running.wanted(epoch=1)


def test_making_and_iterating_open_no_stream() -> None:
    opened = []

    def open_source(spec):
        opened.append(spec)
        return running.sources[spec.phase]

    with job(open_source=open_source) as running:
        loader = running.loader(running.queue())
        iter(loader)
        iter(loader)
        assert len(list(loader)) == NUM_STEPS
        assert len(opened) == 1
        spec = opened[0]
        assert (spec.phase, spec.loader, spec.reload, spec.epoch, spec.start, spec.stop) == (
            "train",
            0,
            0,
            0,
            0,
            NUM_STEPS,
        )


def test_batches_that_outgrow_their_slots() -> None:
    source = toy_source(toy_data(width=2000), sampler=Widening(), batch_size=8)
    with job(source, queue_depth=3, num_threads=2) as running:
        loader = running.loader(running.queue())
        reading = iter(loader)
        first = next(reading)
        assert max(slot.num_bytes for slot in running.queues[0]._pool.peers[0]._slots.values()) == 1 << 20
        batches = [first, *reading]
        # Held all the while: the first batch's map must not have moved when other slots grew.
        assert [content(batch) for batch in batches] == running.wanted()
        assert max(batch.x.nbytes for batch in batches) > 1 << 20


def test_tensors_lie_in_the_slot_and_slots_are_used_again() -> None:
    with job(queue_depth=3) as running:
        queue = running.queue()
        loader = running.loader(queue)
        for epoch in range(6):
            loader.set_epoch(epoch)
            for batch in loader:
                places = [(s.array.ctypes.data, s.num_bytes) for s in queue._pool.peers[0]._slots.values()]
                for tensor in (batch.nodes, batch.x, batch.y, batch.blocks[0].indices):
                    assert any(begin <= tensor.data_ptr() < begin + size for begin, size in places)
                del batch, tensor
        # 78 batches; the first of an epoch may be made before the last of the one before has come back.
        assert 3 <= num_slots() <= 4
    assert num_slots() == 0


def test_tensors_outlive_the_queue_and_come_back_to_nobody() -> None:
    with job() as running:
        batch = next(iter(running.loader(running.queue())))
        wanted = content(batch)
    assert content(batch) == wanted
    del batch
    gc.collect()  # its slot is given back to a queue that is closed: no exception, not even an unraisable one


def test_slots_are_given_back_from_any_thread() -> None:
    with job(queue_depth=4) as running:
        queue = running.queue()
        for epoch in range(3):
            loader = running.loader(queue)
            loader.set_epoch(epoch)
            for batch in loader:
                holder = [batch]
                del batch
                thread = threading.Thread(target=holder.clear)
                thread.start()
                thread.join()
        queue._pool.free_returned()
        assert queue._pool.peers[0].num_lent == 0


def test_statistics_come_with_the_batches() -> None:
    with job() as running:
        loader = running.loader(running.queue())
        batches = list(loader)
        assert loader.stats.num_batches == NUM_STEPS
        assert loader.stats.num_nodes == sum(batch.num_nodes for batch in batches)
        assert loader.stats.sample_ms > 0


def test_a_deep_queue_does_not_choke_on_its_messages() -> None:
    # More batches are ready than a socket holds messages: the sampler waits, and must go on when they are read.
    source = toy_source(toy_data(1200, 1200), batch_size=1, sampler=NeighborSampler([1]))
    with job(source, queue_depth=1200) as running:
        queue = running.queue()
        reading = iter(running.loader(queue))
        next(reading)
        time.sleep(0.3)
        assert sum(1 for _ in reading) == 1199


def test_a_delivery_tells_who_made_a_batch_and_who_converted_it() -> None:
    def convert(batch):
        time.sleep(0.004)
        return batch

    with job(num_samplers=2, num_trainers=1, num_threads=2, queue_depth=3) as running:
        loader = running.loader(running.queue())
        loader.convert = convert
        makers = set()
        for step, batch in enumerate(loader):
            last = loader.last
            assert last is not None
            assert (last.step, last.num_seeds, last.num_nodes) == (step, batch.num_seeds, batch.num_nodes)
            assert last.began_s < last.made_s <= last.taken_s == last.convert_s[0]
            assert last.trainer_converts
            assert last.convert_ms >= 4
            makers.add(last.made_by)
        assert makers == {1, 2}  # global ranks, after the one trainer's


def test_a_delivery_tells_how_full_the_queue_is() -> None:
    with job(Counting(), queue_depth=4) as running:
        loader = running.loader(running.queue())
        reading = iter(loader)
        held = [next(reading), next(reading)]
        assert settles(lambda: len(running.sources["train"].made), 4)
        held.append(next(reading))
        assert loader.last.fill == (2, 2, 4)  # ready, held, slots
        del held[:]
        assert settles(lambda: running.queues[0].fill(0).lent, 0)
        assert settles(lambda: running.queues[0].fill(0).ready, 4)


def test_deliveries_go_on_where_no_sampler_is_left() -> None:
    class Deserted:
        """A queue whose samplers are all lost."""

        report = None

        def __getattr__(self, name):
            return lambda *_: {"open": 0, "fill": QueueFill(0)}.get(name)

    source = toy_source(batch_size=8)
    loader = QueueLoader(
        Deserted(), SampledLoader(source), phase="train", loader=0, reload=0, limit=lambda: float("inf")
    )
    for step, batch in enumerate(loader):
        assert (loader.last.step, loader.last.num_nodes) == (step, batch.num_nodes)
        assert not loader.last.trainer_converts
    assert loader.stats.num_batches == NUM_STEPS

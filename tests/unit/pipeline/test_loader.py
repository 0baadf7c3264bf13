import gc
import os
import sys
import threading
import time
from itertools import chain

import pytest

from lightning_gnnload import NeighborSampler
from lightning_gnnload.errors import CheckpointError, ForkError, SeedError
from lightning_gnnload.pipeline.loader import Progress, SampledLoader
from tests import guards
from tests.forked import in_child
from tests.unit.pipeline.job import settles
from tests.unit.toy import content, toy_data, toy_source

NUM_STEPS = 13  # 100 seeds, 8 a batch


class BoomError(Exception):
    pass


class Failing(NeighborSampler):
    """Raises when it draws for one step."""

    def __init__(self, step: int) -> None:
        super().__init__([2, 2])
        self.step = step

    def draw(self, graph, draw, memory):
        if draw.key.step == self.step:
            raise BoomError(f"at step {self.step}")
        return super().draw(graph, draw, memory)


class Slow(NeighborSampler):
    """The earlier the step, the longer it takes: threads finish in the opposite order."""

    def draw(self, graph, draw, memory):
        time.sleep(0.004 * (3 - draw.key.step % 4))
        return super().draw(graph, draw, memory)


def loader(num_threads: int = 1, **settings) -> SampledLoader:
    return SampledLoader(toy_source(batch_size=8, **settings), num_threads=num_threads)


def stream(loader: SampledLoader) -> list:
    return [content(batch) for batch in loader]


def place(loader: SampledLoader) -> tuple[int, int]:
    state = loader.state_dict()
    return state["epoch"], state["step"]


def sampling_threads() -> list[threading.Thread]:
    return guards.our_threads()


@pytest.mark.parametrize("num_threads", [1, 2, 4])
@pytest.mark.parametrize("sampler", [NeighborSampler([3, 2]), Slow([3, 2])])
def test_any_number_of_threads_gives_the_same_stream(num_threads: int, sampler) -> None:
    threaded, alone = loader(num_threads, sampler=sampler), loader(0)
    for epoch in (0, 1):
        threaded.set_epoch(epoch)
        alone.set_epoch(epoch)
        found = stream(threaded)
        assert [batch[1] for batch in found] == list(range(NUM_STEPS))
        assert found == stream(alone)


def test_ranks_share_each_step() -> None:
    data = toy_data()
    source = toy_source(data, batch_size=4)
    loaders = [SampledLoader(source, num_ranks=2, rank=rank) for rank in range(2)]
    assert [len(each) for each in loaders] == [NUM_STEPS] * 2
    seeds = [seed for each in loaders for batch in each for seed in batch.seeds.tolist()]
    assert sorted(seeds) == sorted(data.train)


def test_making_and_iterating_start_nothing() -> None:
    # Lightning makes loaders, asks their length and calls iter() on them without ever reading them.
    each = loader(4, sampler=Failing(step=0))
    assert len(each) == NUM_STEPS
    iter(each)
    iter(each)
    assert not sampling_threads()
    assert place(each) == (0, 0)


@pytest.mark.parametrize("num_threads", [0, 1, 3])
@pytest.mark.parametrize("step", [0, 5, NUM_STEPS - 1])
def test_an_exception_reaches_the_consumer_at_its_step(num_threads: int, step: int) -> None:
    reading = iter(loader(num_threads, sampler=Failing(step)))
    found = [next(reading).step for _ in range(step)]
    with pytest.raises(BoomError, match=f"at step {step}"):
        next(reading)
    assert found == list(range(step))
    assert not sampling_threads()


@pytest.mark.parametrize("num_read", [1, 5])
def test_an_abandoned_iterator_leaves_no_threads(num_read: int) -> None:
    iterator = iter(loader(3))
    for _ in range(num_read):
        next(iterator)
    assert sampling_threads()
    del iterator
    assert not sampling_threads()


def test_a_fork_does_not_go_on_with_its_parents_iterator() -> None:
    wanted = stream(loader(2))
    reading = iter(loader(2))
    read = [content(next(reading)) for _ in range(4)]

    def go_on() -> None:
        with pytest.raises(ForkError, match="a fork has neither the threads"):
            next(reading)
        assert stream(loader(2)) == wanted
        reading.close()

    assert in_child(go_on) == (0, "")
    assert [*read, *map(content, reading)] == wanted


def test_an_iterator_may_be_collected_by_a_thread_of_its_own(monkeypatch) -> None:
    unraisable, armed, dropped, made = [], threading.Event(), threading.Event(), []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def convert(batch):
        if armed.is_set():
            assert dropped.wait(20)
            gc.collect()
        made.append(batch)
        return batch

    cycle = [iter(SampledLoader(toy_source(batch_size=8), num_threads=2, convert=convert))]
    cycle.append(cycle)
    gc.disable()  # so that nobody else collects it
    try:
        next(cycle[0])
        assert settles(lambda: len(made), 3)  # one for each thread, and one that waits
        armed.set()
        next(cycle[0])  # is there, and another is begun
        del cycle
        dropped.set()
        assert settles(lambda: len(sampling_threads()), 0)
    finally:
        gc.enable()
    assert [str(each.exc_value) for each in unraisable] == []


def test_a_consumer_that_raises_ends_the_threads() -> None:
    def consume() -> None:
        for _ in loader(3):
            raise BoomError

    with pytest.raises(BoomError):
        consume()
    assert not sampling_threads()


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_run_resumes_at_any_step(num_threads: int) -> None:
    whole = loader(num_threads)
    whole.set_epoch(3)
    wanted = stream(whole)
    for done in range(NUM_STEPS):
        interrupted = loader(num_threads)
        interrupted.set_epoch(3)
        iterator = iter(interrupted)
        for _ in range(done):
            next(iterator)
        state = interrupted.state_dict()
        assert place(interrupted) == (3, done)  # batches made ahead do not count
        del iterator
        resumed = loader(num_threads)
        resumed.load_state_dict(state)
        resumed.set_epoch(3)  # Lightning announces the epoch after it has loaded the state
        assert stream(resumed) == wanted[done:]
        assert place(resumed) == (3, NUM_STEPS)
        resumed.set_epoch(3)
        assert stream(resumed) == wanted  # the place counts once


def epochs_of(batches) -> list[int]:
    """The epochs, in their order."""
    return list(dict.fromkeys(batch.epoch for batch in batches))


@pytest.mark.parametrize("num_threads", [0, 2])
def test_each_loop_by_hand_is_the_next_epoch(num_threads: int) -> None:
    each = loader(num_threads)
    found = [stream(each) for _ in range(3)]
    for epoch, batches in enumerate(found):
        chosen = loader(num_threads)
        chosen.set_epoch(epoch)
        assert stream(chosen) == batches
    assert next(iter(each)).epoch == 3  # broken off
    assert epochs_of(each) == [4]
    each.set_epoch(2)
    assert [epochs_of(each), epochs_of(each)] == [[2], [3]]
    first, second = iter(each), iter(each)
    assert [(one.epoch, other.epoch) for one, other in zip(first, second, strict=True)] == [(4, 5)] * NUM_STEPS


@pytest.mark.parametrize("step", [0, 5, NUM_STEPS])
def test_a_loop_by_hand_goes_on_where_it_was(step: int) -> None:
    """Nobody has to set the epoch, which the state has; of an epoch that is over, the next one comes."""
    whole = loader()
    wanted = [stream(whole) for _ in range(5)]
    each = loader()
    each.load_state_dict(each.state_dict() | {"epoch": 3, "step": step})
    assert stream(each) == (wanted[3][step:] or wanted[4])


def test_a_batch_at_work_is_not_done() -> None:
    """A checkpoint made because of an error in a step has its batch again."""
    each = loader()
    each.progress = lambda: Progress(0, 2)
    reading = iter(each)
    for done in range(3):
        assert place(each) == (0, done)
        next(reading)
    assert place(each) == (0, 2)


def test_a_new_epoch_has_nothing_done_before_its_first_batch() -> None:
    each = loader()
    stream(each)
    each.progress = lambda: Progress(0, NUM_STEPS)  # Lightning's count is of the last epoch still
    assert place(each) == (0, NUM_STEPS)
    each.set_epoch(1)
    assert place(each) == (1, 0)


def test_the_consumer_knows_whether_its_epoch_goes_on() -> None:
    whole = loader()
    whole.set_epoch(1)
    wanted = stream(whole)
    state = {**whole.state_dict(), "step": 5}
    for progress, goes_on in ((Progress(2, 5), True), (Progress(2, 0), False), (Progress(1, 0), False)):
        resumed = loader()
        resumed.progress = lambda progress=progress: progress
        resumed.load_state_dict(state)
        resumed.set_epoch(9)  # Lightning may announce another one than it is in
        epochs = [batch.epoch for batch in resumed]
        assert epochs == ([1] * (NUM_STEPS - 5) if goes_on else [progress.epoch] * NUM_STEPS)
    resumed.progress = lambda: Progress(1, 5)
    resumed.load_state_dict(state)
    assert stream(resumed) == wanted[5:]


def test_a_state_that_was_not_read_from_is_kept() -> None:
    resumed = loader()
    state = {**resumed.state_dict(), "epoch": 3, "step": 5}
    resumed.load_state_dict(state)
    resumed.progress = lambda: Progress(3, 5)
    assert resumed.state_dict() == state
    resumed.set_epoch(3)
    iter(resumed)
    assert resumed.state_dict() == state


def test_other_numbers_of_trainers_go_on_where_the_global_batch_is_the_same() -> None:
    loaders = {ranks: ranks_of_one_global_batch(ranks) for ranks in (1, 2, 4)}
    wanted = seeds_by_step(loaders[1])
    for before in (1, 2, 4):
        states = [each.state_dict() | {"step": 2} for each in loaders[before]]
        assert states == [states[0]] * before  # Lightning keeps that of rank 0
        for after in (1, 2, 4):
            resumed = ranks_of_one_global_batch(after)
            for each in resumed:
                each.load_state_dict(states[0])
            assert seeds_by_step(resumed) == wanted[2:]


def ranks_of_one_global_batch(num_ranks: int) -> list[SampledLoader]:
    source = toy_source(batch_size=8 // num_ranks)
    return [SampledLoader(source, num_ranks=num_ranks, rank=rank) for rank in range(num_ranks)]


def seeds_by_step(ranks: list[SampledLoader]) -> list[list[int]]:
    return [list(chain.from_iterable(batch.seeds.tolist() for batch in step)) for step in zip(*ranks, strict=True)]


def test_another_global_batch_is_refused_in_mid_epoch_alone() -> None:
    after = SampledLoader(toy_source(batch_size=6))
    after.load_state_dict(loader().state_dict() | {"step": 2})
    with pytest.raises(CheckpointError, match=r"global_batch_size=8 then and 6 now.*batch_size=8"):
        next(iter(after))
    after.set_epoch(1)
    assert next(iter(after)).num_seeds == 6


def test_a_state_of_an_epochs_end_resumes_at_the_next_ones_begin() -> None:
    first = loader()
    stream(first)
    assert place(first) == (0, NUM_STEPS)
    resumed = loader()
    resumed.load_state_dict(first.state_dict())
    resumed.set_epoch(1)
    first.set_epoch(1)
    assert stream(resumed) == stream(first)


def test_the_epoch_comes_by_the_path_lightning_uses() -> None:
    each = loader()
    each.batch_sampler.sampler.set_epoch(7)
    assert next(iter(each)).epoch == 7
    assert not hasattr(each, "sampler")


def test_too_few_seeds_for_the_ranks() -> None:
    with pytest.raises(SeedError, match="100 seeds cannot be shared by 101"):
        len(SampledLoader(toy_source(), num_ranks=101))


@pytest.mark.parametrize("num_threads", [1, 4])
def test_batches_that_are_kept_stay_as_they_were(num_threads: int) -> None:
    # A slot that is used again too early shows here.
    kept = list(loader(num_threads))
    assert [content(batch) for batch in kept] == stream(loader(0))


@pytest.mark.parametrize("num_threads", [0, 2])
def test_buffers_are_used_again(num_threads: int) -> None:
    each = loader(num_threads)
    places = set()
    for epoch in range(4):
        each.set_epoch(epoch)
        for batch in each:
            places.add(batch.nodes.data_ptr())
    # One in use, one a thread in work, two a thread made ahead: fresh memory for each of 52 batches would show.
    assert len(places) <= 2 + 3 * num_threads


@pytest.mark.parametrize("num_threads", [0, 1])
def test_threads_that_sample_interrupt_no_other_and_the_callers_stays_as_it_is(num_threads: int) -> None:
    policies = set()

    def policy_of(batch):
        policies.add(os.sched_getscheduler(0))
        return batch

    before = os.sched_getscheduler(0)
    assert list(SampledLoader(toy_source(batch_size=8), num_threads=num_threads, convert=policy_of))
    assert policies == {os.SCHED_BATCH if num_threads and before == os.SCHED_OTHER else before}
    assert os.sched_getscheduler(0) == before


def test_threads_sample_where_the_system_lets_none_change_its_policy(monkeypatch) -> None:
    def refuse(*_):
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert len(stream(loader(1))) == len(loader())


@pytest.mark.parametrize("num_threads", [0, 2])
def test_what_is_converted_is_what_comes(num_threads: int) -> None:
    each = SampledLoader(toy_source(batch_size=8), num_threads=num_threads, convert=lambda batch: batch.step)
    assert list(each) == list(range(NUM_STEPS))


def test_a_failure_to_convert_reaches_the_consumer() -> None:
    def convert(batch):
        raise BoomError

    with pytest.raises(BoomError):
        list(SampledLoader(toy_source(), num_threads=2, convert=convert))


def test_statistics_count_what_was_delivered() -> None:
    each = loader(2)
    batches = list(each)
    stats = each.stats
    assert stats.num_batches == NUM_STEPS
    assert stats.num_nodes == sum(batch.num_nodes for batch in batches)
    assert stats.num_edges == sum(block.num_edges for batch in batches for block in batch.blocks)
    assert stats.sample_ms > 0
    before = type(stats)(**vars(stats))
    next(iter(each))
    assert (stats - before).num_batches == 1


@pytest.mark.parametrize("num_threads", [0, 1, 3])
def test_a_delivery_tells_a_batchs_way_from_its_maker_to_the_trainer(num_threads: int) -> None:
    def convert(batch):
        time.sleep(0.004)
        return batch

    each = SampledLoader(toy_source(batch_size=8), num_threads=num_threads, convert=convert, num_ranks=2, rank=1)
    assert each.last is None
    began, previous = time.monotonic(), None
    for step, batch in enumerate(each):
        last = each.last
        assert last is not None
        assert last is not previous
        assert (last.step, last.num_seeds, last.num_nodes) == (step, batch.num_seeds, batch.num_nodes)
        assert last.num_edges == sum(block.num_edges for block in batch.blocks)
        assert last.made_by == 1
        name = threading.current_thread().name if num_threads == 0 else "gnnload-sample_"
        assert last.thread.startswith(name)
        # The order of what happened, on one clock.
        assert began <= last.began_s < last.sampled_s < last.made_s <= last.convert_s[0]
        assert last.convert_s[1] <= last.taken_s <= time.monotonic()
        assert last.asked_s <= last.taken_s
        assert last.convert_ms >= 4
        assert not last.trainer_converts
        assert 0 < last.cpu_ms < last.sample_ms + last.gather_ms + 1  # the clocks of threads are coarser
        previous = last


def test_a_delivery_tells_how_many_were_ready() -> None:
    made = []
    each = SampledLoader(toy_source(batch_size=8), num_threads=2, convert=made.append)
    reading = iter(each)
    next(reading)
    assert settles(lambda: len(made), 3)  # the one delivered, and two ahead
    next(reading)
    assert each.last is not None
    assert each.last.fill.ready == 2

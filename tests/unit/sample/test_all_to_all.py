"""AllToAll: every task comes to its rank and every result back, whoever asks when; failures end all, and hang none."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from lightning_gnnload.errors import ExchangeError, ForkError
from lightning_gnnload.sample.group.all_to_all import AllToAll
from lightning_gnnload.sample.group.exchange import ThreadExchange
from lightning_gnnload.sample.group.messages import Message, narrow
from tests.forked import in_child
from tests.unit.sample.ranks import Slow, on_ranks


def task_of(number: int) -> np.ndarray:
    return np.array([number], np.int64).view(np.uint8)


def number_of(data: np.ndarray) -> int:
    return int(data.view(np.int64)[0])


def ask_for_ever(rounds: AllToAll) -> None:
    for number in range(10**6):
        rounds.ask({0: task_of(number)}).wait()


def answer(rank: int) -> Any:
    """Serves a task by what nobody else would answer."""
    return lambda asker, task: task_of(1000 * number_of(task) + 10 * asker + rank)


def test_three_threads_on_each_of_three_ranks_beside_other_collectives() -> None:
    """Ranks ask at random times, another number of times each, come to rounds late and serve late, while another group
    of the same ranks meets as trainers do: nothing waits for ever, and each answer is the right rank's to the right
    task."""
    exchanges = [Slow(exchange) for exchange in ThreadExchange.connect(3, timeout_s=20)]
    trainers = ThreadExchange.connect(3, timeout_s=20)

    def work(rank: int) -> list[Any]:
        def serve(asker: int, task: np.ndarray) -> np.ndarray:
            exchanges[rank].dawdle()
            return answer(rank)(asker, task)

        rounds, chance = AllToAll(exchanges[rank], serve), random.Random(rank)

        def ask(thread: int) -> int:
            for i in range(10 + 5 * rank):
                ranks = chance.sample(range(3), chance.randrange(4))
                number = 100 * thread + i
                found = rounds.ask({each: task_of(number) for each in ranks}).wait()
                expected = {each: 1000 * number + 10 * rank + each for each in ranks}
                assert {each: number_of(data) for each, data in found.items()} == expected
                time.sleep(chance.choice([0, 0.002]))
            return 10 + 5 * rank

        threads = [threading.Thread(target=lambda t=thread: done.append(ask(t))) for thread in range(3)]
        done: list[int] = []
        for thread in threads:
            thread.start()
        for step in range(20):  # the trainers' all-reduces
            assert trainers[rank].all_to_all([task_of(step)] * 3)[0].tolist() == task_of(step).tolist()
        for thread in threads:
            thread.join()
        rounds.close()
        return done

    results = on_ranks(work, range(3))
    assert results == [[10 + 5 * rank] * 3 for rank in range(3)]


def test_an_idle_rank_serves_and_closing_waits_for_all() -> None:
    first, second = ThreadExchange.connect(2, timeout_s=10)
    asker, idle = AllToAll(first, answer(0)), AllToAll(second, answer(1))
    closing = threading.Thread(target=idle.close)
    closing.start()
    time.sleep(0.05)  # it says that it leaves, and serves on
    assert closing.is_alive()
    assert number_of(asker.ask({1: task_of(7)}).wait()[1]) == 7001
    with pytest.raises(ExchangeError, match="has closed its exchange"):
        idle.ask({0: task_of(1)})
    asker.close()
    closing.join(5)
    assert not closing.is_alive()
    asker.close()
    with pytest.raises(ExchangeError, match="has closed its exchange"):
        asker.ask({1: task_of(1)})


def test_a_fork_neither_asks_nor_ends_the_rounds() -> None:
    first, second = ThreadExchange.connect(2, timeout_s=10)
    rounds, other = AllToAll(first, answer(0)), AllToAll(second, answer(1))

    def go_on() -> None:
        with pytest.raises(ForkError, match="The exchange between ranks works in process"):
            rounds.ask({1: task_of(3)}).wait()
        rounds.close()
        rounds._exit()

    with ThreadPoolExecutor(1) as holder:  # of a lock, when the process forks
        holder.submit(rounds._changed.acquire).result()
        assert in_child(go_on) == (0, "")
        holder.submit(rounds._changed.release).result()
    assert number_of(rounds.ask({1: task_of(7)}).wait()[1]) == 7001
    closing = threading.Thread(target=other.close)
    closing.start()
    rounds.close()
    closing.join()


def test_rounds_pause_while_nobody_asks() -> None:
    """Be it that all are open, or that one has closed already: a round every millisecond would take a core."""
    first, second = ThreadExchange.connect(2, timeout_s=10)
    rounds, other = AllToAll(first, answer(0)), AllToAll(second, answer(1))
    closing = threading.Thread(target=other.close)
    for begin in (lambda: None, closing.start):
        begin()
        num_rounds = rounds.num_rounds
        time.sleep(0.3)
        assert 0 < rounds.num_rounds - num_rounds < 100
    rounds.close()
    closing.join()


def test_closing_while_a_thread_waits_ends_its_wait() -> None:
    first, second = ThreadExchange.connect(2, timeout_s=10)
    served = threading.Event()

    def slowly(asker: int, task: np.ndarray) -> np.ndarray:
        served.wait(5)
        return task

    asker, server = AllToAll(first, answer(0)), AllToAll(second, slowly)
    pending = asker.ask({1: task_of(1)})

    def close(rounds: AllToAll) -> None:
        rounds.close()

    closing = threading.Thread(target=close, args=(asker,))
    closing.start()
    with pytest.raises(ExchangeError, match="closed its exchange while it sampled"):
        pending.wait()
    served.set()
    server.close()
    closing.join(5)
    assert not closing.is_alive()


def test_a_task_that_cannot_be_served_ends_the_tasks_of_all() -> None:
    exchanges = ThreadExchange.connect(3, timeout_s=10)

    def broken(asker: int, task: np.ndarray) -> np.ndarray:
        raise MemoryError("no room")

    def work(rank: int) -> Any:
        rounds = AllToAll(exchanges[rank], broken if rank == 1 else answer(rank))
        try:
            for i in range(10**6):  # rank 2 asks rank 0 alone, and fails with the others
                rounds.ask({1 if rank == 0 and i == 3 else 0: task_of(i)}).wait()
        finally:
            with pytest.raises(ExchangeError, match="rank 1"):
                rounds.ask({0: task_of(0)})

    for error in on_ranks(work, range(3)):
        assert isinstance(error, ExchangeError)
        assert "rank 1: it cannot serve rank 0: MemoryError: no room" in str(error)


def test_a_rank_that_fails_tells_the_others_and_waits_for_none() -> None:
    exchanges = ThreadExchange.connect(2, timeout_s=10)
    rounds = [AllToAll(exchange, answer(exchange.rank)) for exchange in exchanges]
    rounds[0].fail("its model diverged.")
    rounds[0].fail("again")
    [error] = on_ranks(ask_for_ever, [rounds[1]])
    assert isinstance(error, ExchangeError)
    assert "rank 0: its model diverged" in str(error)
    with pytest.raises(ExchangeError, match="rank 0: its model diverged"):
        rounds[1].close()
    rounds[1].close()


def test_a_rank_that_never_comes_is_an_error_that_names_it() -> None:
    exchange, _, _ = ThreadExchange.connect(3, timeout_s=0.05)
    rounds = AllToAll(exchange, answer(0))
    with pytest.raises(ExchangeError, match=r"rank 0 waited 0\.05 s for ranks 1, 2"):
        rounds.ask({1: task_of(0)}).wait()
    rounds.fail("")


def test_bytes_of_a_message_are_read_as_they_were_written() -> None:
    arrays = {"rows": narrow(np.array([0, 255])), "weights": np.array([0.5], np.float32), "none": np.empty(0, np.int64)}
    message = Message({"fanout": [[5, -1]], "key": [2**64 - 1, 0]}, arrays)
    data = message.to_bytes()
    read = Message.from_bytes(data)
    assert dict(read.about) == dict(message.about)
    for name, array in arrays.items():
        assert read.arrays[name].dtype == array.dtype
        assert read.arrays[name].tolist() == array.tolist()
    assert read.arrays["rows"].dtype == np.uint8
    for damaged in (data[:20], np.zeros(8, np.uint8), np.full(40, 255, np.uint8)):
        with pytest.raises(ExchangeError, match="no message"):
            Message.from_bytes(damaged)


@pytest.mark.parametrize(
    ("largest", "dtype"), [(255, np.uint8), (256, np.uint16), (2**32 - 1, np.uint32), (2**32, np.int64)]
)
def test_numbers_travel_in_the_smallest_dtype(largest: int, dtype: type) -> None:
    assert narrow(np.array([3, largest])).dtype == dtype
    assert narrow(np.array([3]), bound=largest + 1).dtype == dtype

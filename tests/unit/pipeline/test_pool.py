from __future__ import annotations

import threading

import torch

from lightning_gnnload.pipeline.slots import SlotPool


def tensor_over(buffer, count: int = 4) -> torch.Tensor:
    return torch.frombuffer(buffer, dtype=torch.int64, count=count)


def test_a_pool_gives_the_same_slots_again() -> None:
    pool = SlotPool()
    first = pool.take()
    tensor = tensor_over(pool.lend(first))
    second = pool.take()
    assert second is not first  # lent slots are not given twice
    pool.give(second)
    del tensor
    assert {id(pool.take()), id(pool.take())} == {id(first), id(second)}


def test_new_slots_start_as_large_as_earlier_ones_grew() -> None:
    pool = SlotPool()
    first, second = pool.take(), pool.take()
    first.grow(5 << 20)
    pool.give(first)
    assert pool.take() is first
    assert pool.take().num_bytes == first.num_bytes
    assert second.num_bytes < first.num_bytes


def test_a_pool_used_by_many_threads_holds_as_many_slots_as_were_in_use() -> None:
    pool, seen, lock = SlotPool(), set(), threading.Lock()
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            slot = pool.take()
            with lock:
                seen.add(id(slot))
            slot.array[:8] = number
            tensor = tensor_over(pool.lend(slot), 1).view(torch.uint8)
            if tensor.tolist() != [number] * 8:  # two threads had one slot
                wrong.append(number)
            del tensor, slot

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(seen) <= 8  # each thread holds one, and may drop the last while it takes the next

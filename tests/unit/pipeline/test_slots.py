import fcntl
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import SlotMemoryError
from lightning_gnnload.pipeline.slots import LentBuffers, Slot, SlotPool
from tests import guards


def tensor_over(buffer, count: int = 4) -> torch.Tensor:
    return torch.frombuffer(buffer, dtype=torch.int64, count=count)


@pytest.mark.parametrize("make", [Slot, Slot.shared])
def test_growth_keeps_lent_tensors_valid(make) -> None:
    slot = make(1 << 12)
    tensor = tensor_over(slot.buffer())
    tensor.copy_(torch.arange(4))
    slot.grow(64 << 20)
    assert slot.num_bytes >= 64 << 20
    slot.array[-1] = 1  # the whole of it is there
    gc.collect()
    assert tensor.tolist() == [0, 1, 2, 3]  # an unmapped page would end the process
    slot.close()


def test_a_slot_never_shrinks() -> None:
    slot = Slot(1 << 16)
    slot.grow(1)
    assert slot.num_bytes == 1 << 16


@pytest.mark.parametrize("num_bytes", [0, 1, 4096, 4097, (2 << 20) - 1, (2 << 20) + 1])
def test_slots_are_whole_aligned_pages(num_bytes: int) -> None:
    slot = Slot(num_bytes)
    assert slot.num_bytes >= max(num_bytes, 1)
    assert slot.num_bytes % 4096 == 0
    assert slot.array.ctypes.data % 64 == 0  # what kernels ask for
    assert slot.array.flags.writeable


def test_a_reader_follows_a_writer_that_grows() -> None:
    writer = Slot.shared(1 << 12)
    reader = Slot(writer.num_bytes, os.dup(writer.fd))
    writer.array[:4] = [1, 2, 3, 4]
    assert reader.array[:4].tolist() == [1, 2, 3, 4]
    assert reader.array.ctypes.data != writer.array.ctypes.data
    old = tensor_over(reader.buffer())
    writer.grow(1 << 22)
    writer.array[1 << 21] = 9
    reader.remap()
    assert reader.num_bytes == writer.num_bytes
    assert reader.array[1 << 21] == 9
    assert old.numpy().view(np.uint8)[:4].tolist() == [1, 2, 3, 4]
    writer.close()
    reader.close()


def test_shared_memory_cannot_be_cut_under_a_reader() -> None:
    slot = Slot.shared(1 << 13)
    with pytest.raises(PermissionError):
        os.ftruncate(slot.fd, 1 << 12)  # a reader of the lost page would die of SIGBUS
    assert fcntl.fcntl(slot.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    slot.close()


def test_tensors_outlive_a_closed_slot() -> None:
    slot = Slot.shared()
    tensor = tensor_over(slot.buffer())
    tensor.fill_(7)
    slot.close()
    slot.close()  # once more does nothing: the descriptor may be another file's by now
    del slot
    gc.collect()
    assert tensor.tolist() == [7] * 4


@pytest.mark.parametrize("num_bytes", [1 << 60, 1 << 70])
@pytest.mark.parametrize("make", [Slot, Slot.shared])
def test_memory_that_is_not_there_is_an_error_that_helps(make, num_bytes: int) -> None:
    before = guards.num_fds()
    with pytest.raises(SlotMemoryError, match=r"MiB.*batch_size.*queue_depth"):
        make(num_bytes)
    assert guards.num_fds() == before
    slot = make(1 << 12)
    slot.array[0] = 5
    with pytest.raises(SlotMemoryError):
        slot.grow(num_bytes)
    assert slot.array[0] == 5  # it still is what it was
    slot.close()


class FakeDriver:
    """Counts page locks, as a machine without a GPU can.

    Attributes:
        current: the device of the thread.
        unlocked_on: the devices on which locks were undone.
    """

    def __init__(self, refuses: bool = False, current: int = 0) -> None:
        self.locked: set[int] = set()
        self.refuses = refuses
        self.current = current
        self.unlocked_on: list[int] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "cudart", lambda: self)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.current)
        monkeypatch.setattr(torch.cuda, "device", self.device)

    @contextmanager
    def device(self, number: int) -> Iterator[None]:
        before, self.current = self.current, number
        yield
        self.current = before

    def cudaHostRegister(self, address: int, num_bytes: int, flags: int) -> int:  # noqa: N802  CUDA's name
        if self.refuses:
            return 2
        assert address not in self.locked
        self.locked.add(address)
        return 0

    def cudaHostUnregister(self, address: int) -> None:  # noqa: N802  CUDA's name
        self.locked.remove(address)
        self.unlocked_on.append(self.current)


def test_a_pinned_slot_is_locked_while_it_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver(current=3)
    driver.install(monkeypatch)
    slot = Slot(pinned=True)
    driver.current = 0  # as in every new thread
    assert driver.locked == {slot.array.ctypes.data}
    slot.grow(1 << 22)  # the old mapping's lock must go before the mapping does
    assert driver.locked == {slot.array.ctypes.data}
    slot.close()
    assert not driver.locked
    del slot
    forgotten = Slot(pinned=True)
    del forgotten
    assert not driver.locked
    assert driver.unlocked_on == [3, 3, 0]  # each on its slot's device


def test_a_slot_that_cannot_be_pinned_serves_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver(refuses=True).install(monkeypatch)
    slot = Slot(pinned=True)
    slot.array[:] = 7
    slot.close()


# Lent buffers.


def lend(lent: LentBuffers[str], token: str) -> torch.Tensor:
    return torch.frombuffer(lent.lend(Slot(), token), dtype=torch.int64, count=4)


def test_a_buffer_returns_after_its_last_tensor() -> None:
    lent: LentBuffers[str] = LentBuffers()
    tensor = lend(lent, "first")
    part = tensor[2:].view(1, 2)
    del tensor
    gc.collect()
    assert list(lent.returned()) == []  # a view is a user as well
    del part
    assert list(lent.returned()) == ["first"]
    assert list(lent.returned()) == []


def test_what_ends_in_another_thread_or_in_a_cycle_returns_too() -> None:
    lent: LentBuffers[str] = LentBuffers()
    holder = [lend(lent, "thread")]
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    cycle: list[object] = [lend(lent, "cycle")]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert sorted(lent.returned()) == ["cycle", "thread"]
    assert len(lent) == 0


def test_buffers_outlive_those_who_lent_them() -> None:
    lent: LentBuffers[str] = LentBuffers()
    tensor = lend(lent, "orphan")
    tensor.fill_(7)
    del lent
    gc.collect()
    assert tensor.tolist() == [7] * 4


def test_interrupts_are_not_lost_where_a_buffer_returns() -> None:
    # A handler that raises inside a finalizer's Python code is reported and forgotten: a callback by
    # weakref.finalize loses about half of these interrupts. A few may be lost in others' callbacks, such as those of
    # the garbage collector. Were half lost, at most 5 of 50 would be with probability 2e-9.
    lent, slot = LentBuffers[str](), Slot()

    def is_interrupted() -> bool:
        timer = threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while timer.is_alive():
                tensor = torch.frombuffer(lent.lend(slot, "interrupted"), dtype=torch.int64, count=4)
                del tensor
                list(lent.returned())
            time.sleep(0.01)  # it has been sent by now, and must not come when nobody expects it
        except KeyboardInterrupt:
            return True
        finally:
            timer.join()
        return False

    num_lost = sum(not is_interrupted() for _ in range(50))
    assert num_lost <= 5


# A loader's slots.


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


def test_a_room_is_as_large_as_asked_and_recycled_once_nobody_uses_it() -> None:
    pool, count = SlotPool(), 1 << 19
    first = tensor_over(pool.room(8 * count), count)
    second = tensor_over(pool.room(8))
    first.fill_(1)
    second.fill_(2)
    assert first.sum() == count  # no one else has it
    address = first.data_ptr()
    del first
    assert tensor_over(pool.room(8 * count), count).data_ptr() == address


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

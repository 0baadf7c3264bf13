import fcntl
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import SlotMemoryError
from lightning_gnnload.pipeline.slots import Slot


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
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SlotMemoryError, match=r"MiB.*batch_size.*queue_depth"):
        make(num_bytes)
    assert len(os.listdir("/proc/self/fd")) == before
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

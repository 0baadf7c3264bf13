"""Host memory that a device reads: registered while it is used, page for page."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import DeviceMemoryError
from lightning_gnnload.host.pages import private_bytes
from lightning_gnnload.ops.cuda.launch.host_memory import HostMemory

from .fakes import FakeRuntime


def pages(count):
    """An array that begins with a page."""
    raw = np.zeros((count + 1) * 4096, np.uint8)
    begin = -raw.ctypes.data % 4096
    return raw[begin : begin + count * 4096]


def test_mapped_memory_is_registered_while_it_is_used():
    runtime, waits = FakeRuntime(), []
    memory = HostMemory(runtime, lambda: nullcontext(waits.append(len(runtime.registered))))
    array = pages(4)
    begin = array.ctypes.data
    whole = memory.map(array[: 2 * 4096].view(np.int32))
    assert whole.address == begin == whole.tensor.data_ptr()
    assert runtime.registered == {begin: 2 * 4096}
    rest = memory.map(array[4096:])  # its first page is there already
    assert runtime.registered == {begin: 2 * 4096, begin + 2 * 4096: 2 * 4096}
    assert memory.num_registered_bytes == 4 * 4096
    del whole
    assert len(runtime.registered) == 2
    assert not waits
    del rest
    assert not runtime.registered
    assert waits == [2]  # before the first page went


@pytest.mark.parametrize(("begin", "end"), [(100, 5000), (100, 2 * 4096), (4096, 4100)])
def test_memory_beside_a_small_array_can_be_copied(begin: int, end: int) -> None:
    """As by anybody's .cpu(): the heap lays other memory on the first and the last page of an array."""
    runtime, heap = FakeRuntime(), pages(4)
    heap[:] = np.arange(heap.size) % 251
    array = heap[begin:end]
    array.flags.writeable = False
    mapped = HostMemory(runtime, nullcontext).map(array)
    assert mapped.tensor.tolist() == array.tolist()
    assert mapped.address != array.ctypes.data
    assert mapped.address == mapped.tensor.data_ptr()
    for first, last in ((0, begin), (end, heap.size), (0, heap.size)):
        runtime.memcpy(heap.ctypes.data + first, last - first)
    [pages_of_its_own] = runtime.registered.items()
    assert pages_of_its_own == (mapped.address, -(-array.nbytes // 4096) * 4096)
    del mapped
    assert not runtime.registered


def test_what_has_its_pages_to_itself_is_mapped_in_place(tmp_path, monkeypatch) -> None:
    runtime = FakeRuntime()
    memory = HostMemory(runtime, nullcontext)
    np.save(tmp_path / "x.npy", np.arange(1000))  # behind a header, on the file's pages
    file = np.load(tmp_path / "x.npy", mmap_mode="r")
    private = private_bytes(5000)
    monkeypatch.setattr("lightning_gnnload.ops.cuda.launch.host_memory.HEAP_BYTES", 3 * 4096)
    large = pages(5)[16 : 16 + 3 * 4096]
    for array in (file, file.reshape(10, 100), private, large):
        assert memory.map(array).address == array.ctypes.data
    for array in (file[600:], private[:3000].view(np.int16)):  # the rest is somebody's
        mapped = memory.map(array)
        assert mapped.address != array.ctypes.data
        assert np.array_equal(mapped.tensor.numpy(), array)


def test_large_memory_is_registered_in_chunks(monkeypatch):
    monkeypatch.setattr("lightning_gnnload.ops.cuda.launch.host_memory.CHUNK_BYTES", 2 * 4096)
    runtime = FakeRuntime()
    array = pages(5)
    mapped = HostMemory(runtime, nullcontext).map(array)
    assert sorted(runtime.registered.values()) == [4096, 2 * 4096, 2 * 4096]
    del mapped
    assert not runtime.registered


def test_refused_memory_leaves_nothing_registered(monkeypatch):
    monkeypatch.setattr("lightning_gnnload.ops.cuda.launch.host_memory.CHUNK_BYTES", 4096)
    runtime = FakeRuntime(limit_bytes=3 * 4096)
    memory = HostMemory(runtime, nullcontext)
    held = memory.map(pages(1))
    with pytest.raises(DeviceMemoryError, match=r"16,384 bytes.*MemoryAllocation.*4,096 bytes are already.*ulimit"):
        memory.map(pages(4))
    assert len(runtime.registered) == 1
    del held


def test_memory_that_must_not_be_written(recwarn):
    runtime = FakeRuntime()
    array = pages(1).view(np.int64)
    array[3] = 7
    array.flags.writeable = False
    mapped = HostMemory(runtime, nullcontext).map(array)
    assert mapped.tensor[3] == 7
    assert mapped.tensor.dtype == torch.int64
    assert list(runtime.flags.values()) == [1 | 8]
    assert not recwarn.list
    unregistered = HostMemory(runtime, nullcontext, is_coherent=True).map(array)
    assert unregistered.address == array.ctypes.data
    with pytest.raises(DeviceMemoryError, match="without gaps"):
        HostMemory(runtime, nullcontext).map(array[::2])


def test_the_array_lives_as_long_as_its_mapping():
    mapped = HostMemory(FakeRuntime(), nullcontext).map(np.full(10_000, 3, np.int64))
    assert int(mapped.tensor.sum()) == 30_000

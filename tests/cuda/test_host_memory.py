"""Host memory that a device reads: registered while it is used, page for page."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import DeviceMemoryError
from lightning_gnnload.ops.cuda.host_memory import HostMemory

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
    whole = memory.map(array[100:5000].view(np.int32))
    assert whole.address == begin + 100 == whole.tensor.data_ptr()
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


def test_large_memory_is_registered_in_chunks(monkeypatch):
    monkeypatch.setattr("lightning_gnnload.ops.cuda.host_memory.CHUNK_BYTES", 2 * 4096)
    runtime = FakeRuntime()
    array = pages(5)
    mapped = HostMemory(runtime, nullcontext).map(array)
    assert sorted(runtime.registered.values()) == [4096, 2 * 4096, 2 * 4096]
    del mapped
    assert not runtime.registered


def test_refused_memory_leaves_nothing_registered(monkeypatch):
    monkeypatch.setattr("lightning_gnnload.ops.cuda.host_memory.CHUNK_BYTES", 4096)
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

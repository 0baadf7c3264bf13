"""The emulated libcuda does what a device does, in any order that a device may, and finds what is done too early."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload.ops.cuda.launch.arguments import KernelArguments
from lightning_gnnload.ops.cuda.launch.signatures import parse
from tests.forked import in_child

from .emulated import parameter_pointers
from .emulated_libcuda import EmulatedLibcuda, Held, image_of

RAMPS = Path(__file__).parent / "kernels" / "ramps.cu"
FIRST, SECOND = 7, 8  # streams
SEEDS = range(20)


class RefusedError(Exception):
    pass


class Client:
    """A C program that calls the driver, with one context."""

    def __init__(self, libcuda: EmulatedLibcuda) -> None:
        self._library = ctypes.CDLL(libcuda.path)
        self._kept: list[Any] = []  # what launches that wait read and write
        self._kernels = parse("ramps", RAMPS.read_text())
        self.cuInit(0)
        context, self._module = ctypes.c_void_p(), ctypes.c_void_p()
        self.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.cuCtxSetCurrent(context)
        self.cuModuleLoadData(ctypes.byref(self._module), image_of(RAMPS))

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            given = [ctypes.c_uint64(value) if isinstance(value, int) else value for value in arguments]
            if status := getattr(self._library, name)(*given):
                text = ctypes.c_char_p()
                self._library.cuGetErrorString(status, ctypes.byref(text))
                raise RefusedError(f"{status}: {(text.value or b'').decode()}")

        return call

    def query(self, event: ctypes.c_void_p) -> bool:
        return {0: True, 600: False}[self._library.cuEventQuery(event)]

    def event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.cuEventCreate(ctypes.byref(event), 2)
        return event

    def launch(
        self,
        stream: int,
        name: str,
        types: tuple[str, ...] = (),
        threads: int = 32,
        shared_bytes: int = 0,
        **given: Any,
    ) -> None:
        kernel = self._kernels[name]
        packed = KernelArguments(kernel, types, torch.device("cpu"))
        memory = ctypes.create_string_buffer(packed.pack(given))
        parameters = parameter_pointers(memory, packed.offsets)
        self._kept.append(given)
        function = ctypes.c_void_p()
        self.cuModuleGetFunction(ctypes.byref(function), self._module, kernel.expression(types).encode())
        self.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, shared_bytes, stream, parameters, None)
        memory[:] = bytes(len(memory))  # the driver has copied them

    def ramp(self, stream: int, out: torch.Tensor, first: int, more: torch.Tensor | None = None) -> None:
        ramp = SimpleNamespace(first=first, count=len(out), by=1)
        types = ("int32_t",) if out.dtype == torch.int32 else ("int64_t",)
        self.launch(stream, "write_ramp", types, out=out, ramp=ramp, scale=1, more=more)


def client(deferred: bool = True, seed: int = 0) -> tuple[EmulatedLibcuda, Client]:
    libcuda = EmulatedLibcuda(deferred, seed)
    return libcuda, Client(libcuda)


@pytest.mark.parametrize("deferred", [False, True])
def test_kernels_get_their_parameters_as_they_were_at_the_call(deferred: bool) -> None:
    libcuda, driver = client(deferred)
    out, wide, more = torch.zeros(5, dtype=torch.int32), torch.zeros(3, dtype=torch.int64), torch.arange(3) * 100
    ramp = SimpleNamespace(first=4, count=5, by=-2)
    driver.launch(FIRST, "write_ramp", ("int32_t",), out=out, ramp=ramp, scale=3.0, more=None)
    ramp = SimpleNamespace(first=2**40, count=3, by=1)
    driver.launch(SECOND, "write_ramp", ("int64_t",), out=wide, ramp=ramp, scale=1.0, more=more)
    assert (not out.any()) == deferred
    driver.cuStreamSynchronize(FIRST)
    driver.cuStreamSynchronize(SECOND)
    assert out.tolist() == [12, 6, 0, -6, -12]
    assert wide.tolist() == [2**40, 2**40 + 101, 2**40 + 202]
    assert libcuda.count("cuLaunchKernel") == 2
    assert libcuda.count("write_ramp<int64_t>") == 1


@pytest.mark.parametrize("deferred", [False, True])
def test_copies_read_and_write_the_host_when_they_run(deferred: bool) -> None:
    """A staging buffer that is used again too early gives wrong bytes, where operations are deferred."""
    _, driver = client(deferred)
    staged, device, back = np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    driver.cuMemcpyHtoDAsync_v2(device.ctypes.data, staged.ctypes.data, 64, FIRST)
    driver.cuMemcpyDtoDAsync_v2(device.ctypes.data + 32, device.ctypes.data, 16, FIRST)
    driver.cuMemsetD8Async(device.ctypes.data, 9, 2, FIRST)
    driver.cuMemcpyDtoHAsync_v2(back.ctypes.data, device.ctypes.data, 64, FIRST)
    staged[:] = 200
    driver.cuStreamSynchronize(FIRST)
    expected = np.full(64, 200) if deferred else np.arange(64)
    expected[32:48], expected[:2] = expected[:16].copy(), 9
    np.testing.assert_array_equal(back, expected)


def crossed(seed: int, waits: bool) -> list[int]:
    """What a stream reads that another one writes."""
    _, driver = client(seed=seed)
    written, read = torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
    event = driver.event()
    driver.ramp(FIRST, written, 10)
    driver.cuEventRecord(event, FIRST)
    driver.ramp(FIRST, torch.zeros(4, dtype=torch.int64), 1)
    if waits:
        driver.cuStreamWaitEvent(SECOND, event, 0)
    driver.ramp(SECOND, read, 0, more=written)
    driver.cuStreamSynchronize(SECOND)
    driver.cuStreamSynchronize(FIRST)
    driver.cuEventDestroy_v2(event)
    return read.tolist()


def test_streams_run_in_any_order_that_events_allow() -> None:
    ordered, torn = [10, 12, 14, 16], [0, 1, 2, 3]
    assert {tuple(crossed(seed, waits=True)) for seed in SEEDS} == {tuple(ordered)}
    unordered = [crossed(seed, waits=False) for seed in SEEDS]
    # Odds of fewer than three of either kind in 20: 4e-4.
    assert min(unordered.count(ordered), unordered.count(torn)) >= 3
    assert unordered == [crossed(seed, waits=False) for seed in SEEDS]


def test_a_wait_is_for_the_last_record_before_it() -> None:
    _, driver = client()
    event, out = driver.event(), torch.zeros(2, dtype=torch.int64)
    driver.cuStreamWaitEvent(SECOND, event, 0)  # never recorded
    driver.ramp(SECOND, out, 5)
    driver.cuEventSynchronize(event)
    driver.cuStreamSynchronize(SECOND)
    assert out.tolist() == [5, 6]
    driver.cuStreamWaitEvent(FIRST, event, 0)
    driver.ramp(FIRST, out, 7)
    driver.cuEventRecord(event, FIRST)  # waited for by nobody: no deadlock
    driver.cuEventSynchronize(event)
    assert out.tolist() == [7, 8]


def test_queries_go_on_step_by_step() -> None:
    _, driver = client()
    event, out = driver.event(), torch.zeros(2, dtype=torch.int64)
    assert driver.query(event)
    for first in range(3):
        driver.ramp(FIRST, out, first)
    driver.cuEventRecord(event, FIRST)
    driver.ramp(FIRST, out, 50)
    assert [driver.query(event) for _ in range(5)] == [False, False, False, True, True]
    assert out.tolist() == [2, 3]


def test_a_wait_runs_no_more_than_it_needs() -> None:
    libcuda, driver = client()
    event, outs = driver.event(), torch.zeros(2, 2, dtype=torch.int64)
    driver.ramp(FIRST, outs[0], 1)
    driver.cuEventRecord(event, FIRST)
    driver.ramp(FIRST, outs[1], 1)
    driver.cuEventSynchronize(event)
    assert outs.tolist() == [[1, 2], [0, 0]]
    assert libcuda.held().operations == 1


@pytest.mark.parametrize("call", range(1, 8))
def test_a_call_that_is_to_fail_does_nothing(call: int) -> None:
    libcuda, driver = client(deferred=False)
    memory = np.zeros(8, np.uint8)
    libcuda.fail(call, "CUDA_ERROR_ILLEGAL_ADDRESS")
    for at in range(8):
        if at + 1 == call:
            with pytest.raises(RefusedError, match="700: as the test wants of cuMemsetD8Async"):
                driver.cuMemsetD8Async(memory.ctypes.data + at, 1, 1, FIRST)
        else:
            driver.cuMemsetD8Async(memory.ctypes.data + at, 1, 1, FIRST)
    assert memory.tolist() == [int(at + 1 != call) for at in range(8)]


@pytest.mark.parametrize("deferred", [False, True])
def test_a_kernel_that_fails_is_named_and_ends_the_context(deferred: bool) -> None:
    _, driver = client(deferred)
    words, out = torch.zeros(1, dtype=torch.uint64), torch.zeros(1, dtype=torch.int64)

    def fail() -> None:
        driver.launch(FIRST, "overrun", words=words)
        driver.cuStreamSynchronize(FIRST)

    with pytest.raises(RefusedError, match="719: overrun: block 0: wrote behind its 0 bytes"):
        fail()
    with pytest.raises(RefusedError, match="719"):
        driver.ramp(SECOND, out, 1)
    _, driver = client(deferred)
    driver.ramp(SECOND, out, 1)
    driver.cuStreamSynchronize(SECOND)
    assert out.tolist() == [1]


def test_shared_memory_is_allowed_before_it_is_used() -> None:
    _, driver = client(deferred=False)
    words = torch.arange(7000).to(torch.uint64)
    function = ctypes.c_void_p()
    driver.launch(FIRST, "turn", words=words, count=6000, shared_bytes=48000)
    with pytest.raises(RefusedError, match="1: turn: more shared memory"):
        driver.launch(FIRST, "turn", words=words, count=7000, shared_bytes=56000)
    driver.cuModuleGetFunction(ctypes.byref(function), driver._module, b"turn")
    with pytest.raises(RefusedError, match="1: attribute 8 of 300000"):
        driver.cuFuncSetAttribute(function, 8, 300000)
    assert words.tolist() == [*range(5999, -1, -1), *range(6000, 7000)]


@pytest.mark.parametrize("changed", [{1: 0}, {1: 2**31}, {2: 2}, {4: 0}, {4: 1025}, {6: 2}])
def test_grids_that_no_device_takes(changed: dict[int, int]) -> None:
    _, driver = client(deferred=False)
    function = ctypes.c_void_p()
    driver.cuModuleGetFunction(ctypes.byref(function), driver._module, b"turn")
    grid = [function, 1, 1, 1, 32, 1, 1, 0, FIRST, None, None]
    for place, value in changed.items():
        grid[place] = value
    with pytest.raises(RefusedError, match="1: turn: a grid"):
        driver.cuLaunchKernel(*grid)


def test_memory_that_is_not_the_devices() -> None:
    libcuda, driver = client()
    device, host = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    libcuda.own(device)
    begin = device.ctypes.data
    driver.cuMemsetD8Async(begin, 1, 64, FIRST)
    for refused in (
        lambda: driver.cuMemsetD8Async(host.ctypes.data, 1, 8, FIRST),
        lambda: driver.cuMemsetD8Async(begin + 60, 1, 8, FIRST),
        lambda: driver.cuMemcpyDtoDAsync_v2(begin, host.ctypes.data, 8, FIRST),
        lambda: driver.cuMemcpyHtoDAsync_v2(begin - 1, host.ctypes.data, 8, FIRST),
        lambda: driver.cuMemcpyDtoHAsync_v2(host.ctypes.data, begin + 1, 64, FIRST),
    ):
        with pytest.raises(RefusedError, match=r"700: .* at the call"):
            refused()
    libcuda.disown(device)
    with pytest.raises(RefusedError, match=r"700: .* given back too early"):
        driver.cuStreamSynchronize(FIRST)


def test_host_memory_and_events_are_counted() -> None:
    libcuda, driver = client()
    before = libcuda.held()
    memory, device, event = ctypes.c_void_p(), np.zeros(64, np.uint8), driver.event()
    driver.cuMemHostAlloc(ctypes.byref(memory), 10, 0)
    assert ctypes.string_at(memory, 10) == b"\xa5" * 10
    driver.cuMemcpyHtoDAsync_v2(device.ctypes.data, memory.value + 4, 4, FIRST)
    assert libcuda.held() == Held(1, before.events + 1, before.host_blocks + 1)
    with pytest.raises(RefusedError, match="1: host memory is freed before it has been copied"):
        driver.cuMemFreeHost(memory)
    driver.cuStreamSynchronize(FIRST)
    driver.cuMemFreeHost(memory)
    driver.cuEventDestroy_v2(event)
    for again in (lambda: driver.cuMemFreeHost(memory), lambda: driver.cuEventRecord(event, FIRST)):
        with pytest.raises(RefusedError, match="no such"):
            again()
    assert libcuda.held() == before


def test_calls_of_several_threads() -> None:
    libcuda, driver = client()
    context = ctypes.c_void_p()
    driver.cuCtxGetCurrent(ctypes.byref(context))
    outs = torch.zeros(4, 50, 2, dtype=torch.int64)
    refused: list[str] = []

    def work(index: int) -> None:
        try:
            driver.ramp(index, outs[index, 0], 0)
        except RefusedError as error:  # a thread begins without a context
            refused.append(str(error))
        driver.cuCtxSetCurrent(context)
        for turn in range(50):
            driver.ramp(index, outs[index, turn], turn)
            if turn % 10 == 9:
                driver.cuStreamSynchronize(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outs[..., 0].tolist() == [list(range(50))] * 4
    assert len(refused) == 4
    assert "201" in refused[0]
    assert libcuda.count("cuLaunchKernel") == 200
    libcuda.forget_counts()
    assert libcuda.count("cuLaunchKernel") == 0


def test_a_call_takes_the_time_that_it_is_told() -> None:
    libcuda, driver = client(deferred=False)
    memory = np.zeros(1, np.uint8)
    taken = []
    for us in (0, 2000):
        libcuda.spend(us)
        begin = time.perf_counter()
        for _ in range(10):
            driver.cuMemsetD8Async(memory.ctypes.data, 1, 1, FIRST)
        taken.append(time.perf_counter() - begin)
    assert taken[1] >= 0.02
    assert taken[0] < taken[1]


def test_a_child_of_the_process_has_no_driver() -> None:
    libcuda, driver = client()

    def work() -> None:
        with pytest.raises(RefusedError, match="3: "):
            driver.cuInit(0)
        with pytest.raises(RefusedError, match="3: "):
            driver.event()
        os.write(1, b"refused")

    assert in_child(work) == (0, "refused")
    assert libcuda.held().operations == 0

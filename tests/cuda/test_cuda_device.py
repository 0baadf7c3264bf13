"""CudaDevice over the emulated libcuda: what it launches, and when it waits."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import CudaCallError, DeviceMemoryError, ForkError, GnnLoadError, KernelCompileError
from lightning_gnnload.ops.cuda.launch import sources
from lightning_gnnload.ops.cuda.launch.compile import CompiledKernels
from lightning_gnnload.ops.cuda.launch.cuda_device import CudaDevice
from lightning_gnnload.ops.cuda.launch.signatures import parse
from tests.forked import in_child

from .emulated_libcuda import EmulatedLibcuda, image_of
from .fakes import FakeRuntime

CPU = torch.device("cpu")
PICKS = Path(__file__).parent / "kernels" / "picks.cu"
STREAM = 4242


@pytest.fixture
def fake(monkeypatch):
    """A CudaDevice over the emulated driver, its memory the host's."""
    stream = SimpleNamespace(cuda_stream=STREAM, num_waits=0)
    stream.synchronize = lambda: setattr(stream, "num_waits", stream.num_waits + 1)

    @contextmanager
    def entered(device):
        yield

    properties = SimpleNamespace(multi_processor_count=132, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
    monkeypatch.setattr(torch.cuda, "device", entered)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    parsed = parse("pick", PICKS.read_text())
    monkeypatch.setattr(sources, "kernel", lambda op, name: parsed[name])
    compiled: list[tuple[str, str]] = []

    def compile(op, arch):
        compiled.append((op, arch))
        names = ("pick<int32_t>", "pick<int64_t>", "clear")
        return CompiledKernels(image_of(PICKS), {name: name for name in names})

    libcuda, runtime = EmulatedLibcuda(deferred=False), FakeRuntime()
    device = CudaDevice(CPU, libcuda.driver(), runtime, (75, 80, 90, 100), compile)
    return SimpleNamespace(device=device, libcuda=libcuda, runtime=runtime, stream=stream, compiled=compiled)


def given(**changed):
    ids = torch.arange(8, dtype=torch.int32)
    return {
        "indices": ids,
        "out": ids.clone(),
        "fanout": -3,
        "seed": 2**64 - 1,
        "scale": -0.5,
        "num": -(2**40),
        "draws": draws(),
        "seen": torch.zeros(13, dtype=torch.int64),
    } | changed


def draws(hop=-1, **weights):
    given = {"hot": torch.zeros(2), "count": 2**32 - 1}
    return SimpleNamespace(epoch=7, weights=SimpleNamespace(**given | weights), hop=hop)


def test_a_launch_reaches_the_driver_as_it_was_meant(fake):
    arguments = given()
    fake.device.launch("pick", "pick", ("int32_t",), blocks=7, threads=64, shared_bytes=16, **arguments)
    addresses = [arguments["indices"].data_ptr(), arguments["out"].data_ptr()]
    hot = arguments["draws"].weights.hot.data_ptr()
    assert arguments["seen"].tolist() == [7, 64, 4, *addresses, -3, -1, -2, -(2**40), 7, hot, 2**32 - 1, -1]
    arguments = given(indices=None, out=2**63 + 5)
    fake.device.launch("pick", "pick", ["int64_t"], blocks=2, threads=1024, **arguments)
    assert arguments["seen"].tolist()[:5] == [2, 1024, 8, 0, 5 - 2**63]
    assert fake.compiled == [("pick", "sm_90")]
    assert fake.libcuda.count("cuModuleLoadData") == 1
    assert fake.device.num_processors == 132


def test_a_launch_goes_into_torchs_stream(fake):
    libcuda = EmulatedLibcuda(deferred=True)
    arguments = given()
    fake.device.launch("pick", "pick", ("int32_t",), blocks=7, threads=64, **arguments)
    libcuda.synchronize(STREAM + 1)
    assert not arguments["seen"].any()
    libcuda.synchronize(STREAM)
    assert arguments["seen"][0] == 7


def test_much_shared_memory_is_asked_for_once(fake):
    for shared_bytes in (48 << 10, 64 << 10, 50 << 10, 100 << 10):
        fake.device.launch(
            "pick", "clear", blocks=1, threads=32, shared_bytes=shared_bytes, words=torch.zeros(1, dtype=torch.uint32)
        )
    assert fake.libcuda.count("cuFuncSetAttribute") == 2


def test_a_kernel_is_loaded_once_for_all_threads(fake):
    def work():
        for _ in range(3):
            fake.device.launch("pick", "pick", ("int32_t",), blocks=1, threads=32, **given())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fake.libcuda.count("pick<int32_t>") == 12
    assert len(fake.compiled) == fake.libcuda.count("cuModuleGetFunction") == 1


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ({"fanouts": 3}, r"missing: none, unknown: \['fanouts'\]"),
        ({"fanout": 2**31}, "'fanout' is 2147483648, but int32_t"),
        ({"seed": -1}, "'seed' is -1, but uint64_t"),
        ({"num": 0.5}, "'num' is 0.5, but int64_t"),
        ({"num": torch.tensor(3)}, "'num'.*known to the device alone"),
        ({"scale": "1"}, "'scale' is '1', but float"),
        ({"indices": torch.zeros(3, dtype=torch.int64)}, r"'indices' is of torch.int64.*const int32_t\*"),
        ({"indices": torch.zeros(3)}, r"'indices' is of torch.float32.*const int32_t\*"),
        ({"out": torch.zeros(4, 4, dtype=torch.int32).T}, "'out' lies on cpu with strides"),
        ({"out": torch.zeros(4, dtype=torch.int32, device="meta")}, "'out' lies on meta"),
        ({"out": -1}, "'out' is -1"),
        ({"draws": draws(hop=2**31)}, "'draws.hop' is 2147483648, but int32_t"),
        (
            {"draws": draws(hot=torch.zeros(2, dtype=torch.int32))},
            r"'draws.weights.hot' is of torch.int32.*const float\*",
        ),
        (
            {"draws": SimpleNamespace(epoch=7, hop=1)},
            "'draws' is SimpleNamespace, but of a Draws it needs epoch, weights.hot.*no attribute 'weights'",
        ),
        ({"draws": 3}, "'draws' is int.*no attribute 'epoch'"),
        ({"blocks": 0}, "blocks=0"),
        ({"threads": 48}, "threads=48"),
        ({"threads": 2048}, "threads=2048"),
    ],
)
def test_wrong_launches_never_reach_the_driver(fake, launch, said):
    with pytest.raises(GnnLoadError, match=said):
        fake.device.launch("pick", "pick", ("int32_t",), **({"blocks": 1, "threads": 32} | given(**launch)))
    assert not fake.libcuda.count("cuLaunchKernel")


def test_a_missing_argument_and_missing_types(fake):
    arguments = given()
    del arguments["seed"]
    with pytest.raises(GnnLoadError, match=r"missing: \['seed'\]"):
        fake.device.launch("pick", "pick", ("int32_t",), blocks=1, threads=32, **arguments)
    with pytest.raises(GnnLoadError, match="pick is not instantiated; there are: pick<int32_t>, pick<int64_t>"):
        fake.device.launch("pick", "pick", blocks=1, threads=32, **given())


def test_a_failed_launch_says_which(fake):
    fake.device.launch("pick", "pick", ("int32_t",), blocks=7, threads=64, **given())
    fake.libcuda.fail(3, "CUDA_ERROR_ILLEGAL_ADDRESS")  # after the context's two
    said = r"pick/pick<int32_t> with 7 blocks of 64 threads and 16 bytes.*CUDA_ERROR_ILLEGAL_ADDRESS.*LAUNCH_BLOCKING=1"
    with pytest.raises(CudaCallError, match=said) as got:
        fake.device.launch("pick", "pick", ("int32_t",), blocks=7, threads=64, shared_bytes=16, **given())
    assert got.value.name == "CUDA_ERROR_ILLEGAL_ADDRESS"
    fake.device.launch("pick", "pick", ("int32_t",), blocks=7, threads=64, **given())


def test_kernels_that_the_driver_does_not_load(fake, monkeypatch):
    monkeypatch.setattr(fake.device, "_compile", lambda op, arch: CompiledKernels(b"/nowhere.so", {"clear": "clear"}))
    with pytest.raises(KernelCompileError, match=r"compiled for sm_90 \(.*CUDA_ERROR_INVALID_IMAGE.*Update the driver"):
        fake.device.launch("pick", "clear", blocks=1, threads=32, words=None)


def test_a_fork_is_refused_by_name(fake, monkeypatch):
    fake.device.launch("pick", "pick", ("int32_t",), blocks=7, threads=64, **given())

    def launch():
        with pytest.raises(ForkError, match=f"process {os.getppid()} opened .*'spawn'"):
            fake.device.launch("pick", "pick", ("int32_t",), blocks=7, threads=64, **given())

    def fail(device):
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    assert in_child(launch) == (0, "")
    monkeypatch.setattr(torch.cuda, "current_stream", fail)
    assert in_child(launch) == (0, "")
    with pytest.raises(RuntimeError, match="Cannot re-initialize"):
        fake.device.stream()


def test_put_copies_at_once_and_only_read_waits(fake, monkeypatch):
    monkeypatch.setattr(
        "lightning_gnnload.ops.cuda.launch.cuda_device._pinned", lambda shape, dtype: torch.empty(shape, dtype=dtype)
    )
    array = np.arange(6, dtype=np.uint32).reshape(2, 3)
    there = fake.device.put(array)
    array[:] = 0
    assert fake.device.num_reads == fake.stream.num_waits == 0
    back = fake.device.read(there)
    np.testing.assert_array_equal(back, np.arange(6, dtype=np.uint32).reshape(2, 3))
    there.zero_()
    assert back[1, 2] == 5
    assert fake.device.num_reads == fake.stream.num_waits == 1


def test_memory_that_is_not_there(fake, monkeypatch):
    def fail(*_, **__):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch, "empty", fail)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 400)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    with pytest.raises(DeviceMemoryError, match=r"80 bytes; 1,300 bytes are free"):
        fake.device.empty(10, torch.int64)

"""CUDA's own driver behind the native binding: threads, contexts and errors that the emulated one only imitates."""

from __future__ import annotations

import threading

import pytest
import torch

from lightning_gnnload.errors import CudaCallError
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.open_device import LIBRARY
from lightning_gnnload.ops.cuda.tables.gather import gather_rows
from lightning_gnnload.ops.dispatch import kernels


def gathers(device: Device) -> None:
    """Checks one launch."""
    table, ids = torch.arange(4000.0).view(1000, 4), torch.randint(1000, (5000,))
    out = device.empty(20_000, torch.float32).view(5000, 4)
    error = device.zeros(1, torch.int64)
    gather_rows(device, device.put(table.numpy()), device.put(ids.numpy()), out, error)
    assert device.read(error)[0] == 0
    assert torch.equal(out.cpu(), table[ids])


def test_threads_that_have_not_seen_cuda(device: Device) -> None:
    """A thread gets the device's context for the launch, and keeps torch's idea of its current device."""
    ended: list[int] = []

    def work() -> None:
        for _ in range(20):
            gathers(device)
        ended.append(torch.cuda.current_device())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert ended == [0] * 4


def test_a_first_launch_in_a_bare_thread(device: Device) -> None:
    """Without a call of torch before it, which would make the context current."""
    gathers(device)  # loads the kernel
    loaded, failed = kernels.DeviceDriver(LIBRARY, device.torch_device.index), []

    def work() -> None:
        try:
            loaded.load(b"no kernels")
        except CudaCallError as error:
            failed.append(error.name)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)
    assert len(failed) == 1
    assert failed[0] not in ("CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_NOT_INITIALIZED"), "the image is wrong, no more"
    gathers(device)


def test_a_refused_launch_leaves_the_device_sound(device: Device) -> None:
    floats, bits = device.zeros(4, torch.float32), device.zeros(4, torch.uint8)
    with pytest.raises(CudaCallError, match=r"16777216 bytes of shared memory.*CUDA_ERROR_INVALID_VALUE") as refused:
        device.launch(
            "dropout",
            "drop_by_bits",
            ("float",),
            blocks=1,
            threads=32,
            shared_bytes=1 << 24,
            input=floats,
            out=floats,
            count=0,
            num_blocks=0,
            scale=1.0,
            bits=bits,
        )
    assert refused.value.name == "CUDA_ERROR_INVALID_VALUE"
    gathers(device)

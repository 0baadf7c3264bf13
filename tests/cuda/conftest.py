"""Devices to run a test on: the emulated one, and a real one where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lightning_gnnload.errors import CudaUnavailableError
from lightning_gnnload.ops.cuda.launch.device import Device

from .emulated import EmulatedDevice
from .emulated_libcuda import EmulatedLibcuda


@pytest.fixture(params=["emulated", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Each test runs on both, with one body."""
    if request.param == "cuda":
        yield _cuda_device()
    else:
        emulated = EmulatedDevice()
        with emulated.watched():
            yield emulated


@pytest.fixture(params=["emulated", "driven", "cuda"])
def sampling_device(request: pytest.FixtureRequest) -> Device:
    """As ``device``; and an emulated one with a driver, by which native code makes its batches."""
    if request.param == "driven":
        return EmulatedDevice(library=EmulatedLibcuda())
    return EmulatedDevice() if request.param == "emulated" else _cuda_device()


@pytest.fixture
def emulated() -> Iterator[EmulatedDevice]:
    device = EmulatedDevice(kernels=Path(__file__).parent / "kernels")
    with device.watched():
        yield device


def _cuda_device() -> Device:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    try:
        from lightning_gnnload.ops.cuda.launch.open_device import open_device

        return open_device(torch.device("cuda", torch.cuda.current_device()))
    except (CudaUnavailableError, ImportError) as error:
        pytest.skip(str(error))

"""Opening a device: what is missing is named, with what to install."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from lightning_gnnload.errors import CudaUnavailableError
from lightning_gnnload.ops.cuda.launch import open_device as opening
from lightning_gnnload.ops.cuda.launch.device_of import _opened as device_of_index
from lightning_gnnload.ops.cuda.launch.device_of import device_of
from lightning_gnnload.ops.cuda.launch.open_device import open_device


@pytest.fixture
def torch_with_cuda(monkeypatch):
    """torch as on a machine with two devices, and a CuPy that fits."""
    for name, value in {
        "is_available": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 2,
        "current_device": lambda: 1,
        "get_device_capability": lambda device: (9, 0),
        "get_device_name": lambda device: "NVIDIA Something",
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(opening, "_opened", {})


def test_what_is_no_cuda_device():
    with pytest.raises(CudaUnavailableError, match="computes on cpu"):
        open_device(torch.device("cpu"))


def test_torch_without_cuda(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(CudaUnavailableError, match="built without CUDA"):
        open_device(torch.device("cuda"))


def test_where_no_device_opens_tensors_have_none(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    device_of_index.cache_clear()
    assert device_of(torch.device("cpu")) is None
    assert device_of(torch.device("cuda", 0)) is None
    device_of_index.cache_clear()


def test_no_device_that_works(torch_with_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CudaUnavailableError, match="nvidia-smi"):
        open_device(torch.device("cuda"))


def test_a_process_that_cannot_begin_with_cuda(torch_with_cuda, monkeypatch):
    def fails():
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    monkeypatch.setattr(torch.cuda, "init", fails)
    with pytest.raises(CudaUnavailableError, match="forked subprocess"):
        open_device(torch.device("cuda"))


def test_a_device_too_many_and_one_too_old(torch_with_cuda, monkeypatch):
    with pytest.raises(CudaUnavailableError, match="cuda:2 cannot be used: there are 2"):
        open_device(torch.device("cuda:2"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    with pytest.raises(CudaUnavailableError, match=r"NVIDIA Something.*7\.0.*7\.5"):
        open_device(torch.device("cuda:0"))


@pytest.mark.parametrize(("cuda", "extra"), [("12.8", "cuda12"), ("13.0", "cuda13")])
def test_cupy_is_missing(torch_with_cuda, monkeypatch, cuda, extra):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    with pytest.raises(CudaUnavailableError, match=rf"CuPy.*lightning-gnnload\[{extra}\]"):
        open_device(torch.device("cuda:0"))


def test_nvidias_driver_is_missing(torch_with_cuda, monkeypatch):
    runtime = SimpleNamespace(runtimeGetVersion=lambda: 13000, driverGetVersion=lambda: 13000)
    nvrtc = SimpleNamespace(getVersion=lambda: (13, 0), getSupportedArchs=lambda: [90])
    monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(runtime=runtime, nvrtc=nvrtc))
    monkeypatch.setattr(opening, "LIBRARY", "libnowhere.so.1")
    with pytest.raises(CudaUnavailableError, match=r"libnowhere\.so\.1.*Install NVIDIA's driver"):
        open_device(torch.device("cuda:0"))


def test_cupy_is_newer_than_the_driver(torch_with_cuda, monkeypatch):
    runtime = SimpleNamespace(runtimeGetVersion=lambda: 13000, driverGetVersion=lambda: 12080)
    cuda = SimpleNamespace(runtime=runtime, nvrtc=None)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    with pytest.raises(CudaUnavailableError, match=r"CUDA 13, but the driver.*CUDA 12.*lightning-gnnload\[cuda12\]"):
        open_device(torch.device("cuda:0"))


def test_a_device_is_opened_once(torch_with_cuda, monkeypatch):
    monkeypatch.setattr(opening, "_open", lambda device: SimpleNamespace(torch_device=device))
    first = open_device(torch.device("cuda"))
    assert first.torch_device == torch.device("cuda:1")
    assert open_device(torch.device("cuda:1")) is first
    assert open_device(torch.device("cuda:0")) is not first

"""Opens a device; CuPy and NVRTC are imported here and nowhere before."""

from __future__ import annotations

import os
import threading

import torch

from ....errors import CudaUnavailableError
from ...dispatch import kernels
from .compile import loaded_nvrtc
from .device import Device

# The oldest that CUDA 13's compiler knows.
MIN_CAPABILITY = (7, 5)
LIBRARY = "libcuda.so.1"  # of CUDA's driver, which NVIDIA's installers put on the loader's path

_lock = threading.Lock()
_opened: dict[tuple[int, torch.device], Device] = {}


def open_device(device: torch.device) -> Device:
    """Returns the one :class:`.Device` of a torch device in this process, which the first call opens; without an index,
    of torch's current device. Raises CudaUnavailableError with the reason and what to install."""
    if device.type != "cuda":
        num_devices = torch.cuda.device_count()
        advice = "Give Trainer(accelerator='gpu'); or" if num_devices else "Give"
        raise CudaUnavailableError(
            f"A CUDA device was asked for, but the Trainer computes on {device}, and torch {torch.__version__} finds "
            f"{num_devices or 'no'} GPUs on this machine. {advice} 'auto' in the place of 'cuda', which goes where it "
            f"computes."
        )
    _check_torch(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    device = torch.device("cuda", index)
    with _lock:
        key = os.getpid(), device  # CUDA does not survive a fork: a child must not find its parent's device
        if key not in _opened:
            _opened[key] = _open(device)
        return _opened[key]


def _check_torch(device: torch.device) -> None:
    if torch.version.cuda is None:
        raise CudaUnavailableError(
            f"{device} cannot be used: the installed torch {torch.__version__} is built without CUDA. For a GPU, "
            "install a build with CUDA: see 'Start locally' on PyTorch's site."
        )
    if not torch.cuda.is_available():
        raise CudaUnavailableError(
            f"{device} cannot be used: torch {torch.__version__} finds no device that works. Check nvidia-smi and "
            "CUDA_VISIBLE_DEVICES, or stay on the CPU."
        )
    try:
        torch.cuda.init()
    except RuntimeError as error:  # in the fork of a process that had CUDA; or in exclusive use by another process
        raise CudaUnavailableError(
            f"{device} cannot be used: torch cannot begin with CUDA in this process ({error}). Ask for it before "
            "anything else does, or stay on the CPU."
        ) from error
    num_devices = torch.cuda.device_count()
    if (device.index or 0) >= num_devices:
        raise CudaUnavailableError(f"{device} cannot be used: there are {num_devices} devices, numbered from 0.")
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        raise CudaUnavailableError(
            f"{device} ({torch.cuda.get_device_name(device)}) has compute capability {capability[0]}.{capability[1]}, "
            f"but the kernels need {MIN_CAPABILITY[0]}.{MIN_CAPABILITY[1]} (Turing, 2018) or above. Sample on the CPU."
        )


def _open(device: torch.device) -> Device:
    extra = "cuda12" if (torch.version.cuda or "").startswith("12.") else "cuda13"
    install = f"Install it with: pip install 'lightning-gnnload[{extra}]'"
    try:
        from cupy.cuda import runtime

        bound, driven = runtime.runtimeGetVersion() // 1000, runtime.driverGetVersion() // 1000
    except Exception as error:  # a package that is missing, or that finds no CUDA
        raise CudaUnavailableError(f"{device} needs CuPy, which cannot be used ({error}). {install}") from error
    if bound > driven:
        raise CudaUnavailableError(
            f"CuPy is built for CUDA {bound}, but the driver of {device} knows CUDA {driven} at most. Update the "
            f"driver, or remove CuPy and: pip install 'lightning-gnnload[cuda{driven}]'"
        )
    from .cuda_device import CudaDevice

    supported = loaded_nvrtc().getSupportedArchs()
    try:
        return CudaDevice(device, kernels.DeviceDriver(LIBRARY, device.index), runtime, supported)
    except RuntimeError as error:  # torch's or CuPy's; our own are RuntimeErrors as well
        if isinstance(error, CudaUnavailableError):
            raise
        raise CudaUnavailableError(
            f"{device} cannot be used ({error}). Check nvidia-smi, and 'gnnload doctor'."
        ) from error

"""The GPU that figures belong to."""

from __future__ import annotations

import sys

import torch

from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ops.cuda.launch.device import Device


def opened() -> Device | None:
    """torch's current device; None, said in a line on stderr, where there is none that works."""
    from lightning_gnnload.ops.cuda.launch.open_device import open_device

    try:
        return open_device(torch.device("cuda"))
    except GnnLoadError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return None


def describe(device: Device) -> list[str]:
    """A line each on the device and its software."""
    import cupy

    properties = torch.cuda.get_device_properties(device.torch_device)
    return [
        f"{properties.name}, compute capability {properties.major}.{properties.minor}, {device.num_processors} "
        f"multiprocessors, {properties.total_memory / 2**30:.0f} GiB of memory",
        f"CUDA {torch.version.cuda} in torch {torch.__version__}, CuPy {cupy.__version__}, NVRTC "
        f"{'.'.join(map(str, cupy.cuda.nvrtc.getVersion()))}, driver for CUDA "
        f"{cupy.cuda.runtime.driverGetVersion() // 1000}",
    ]

"""The GPU that figures belong to, and how its work is timed."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ops.cuda.device import Device

_SECTOR_BYTES = 32  # what a device reads at least


def opened() -> Device | None:
    """torch's current device; None, said in a line on stderr, where there is none that works."""
    from lightning_gnnload.ops.cuda.open_device import open_device

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


class Moment:
    """Now, in the current stream's work; on a device that runs at once, on the clock."""

    def __init__(self, device: Device) -> None:
        self._event: Any = None
        if device.torch_device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)
            self._event.record()
        self._at = time.perf_counter()

    def ms_since(self, before: Moment) -> float:
        """Waits until the device has passed both."""
        if self._event is None:
            return (self._at - before._at) * 1e3
        self._event.synchronize()
        return before._event.elapsed_time(self._event)


def timed_ms(device: Device, work: Callable[[], object], num_turns: int) -> float:
    """Median milliseconds of a turn; turn 0 is not counted.

    Turns follow each other without a wait, so that a short kernel's time is not that of its launch.
    """
    moments = []
    for _ in range(num_turns + 1):
        work()
        moments.append(Moment(device))
    return statistics.median(after.ms_since(before) for before, after in pairwise(moments))


def keep_busy(device: Device) -> None:
    """Work of some ten milliseconds in the current stream; what is launched meanwhile follows without gaps."""
    if device.torch_device.type == "cuda":
        torch.cuda._sleep(1 << 24)  # clock cycles; torch's own tests use it


def copy_bytes_per_s(device: Device, num_bytes: int = 1 << 30, num_turns: int = 10) -> float:
    """Bytes read, and as many written, by a copy from the device to itself."""
    source, target = (device.empty(num_bytes, torch.uint8) for _ in range(2))
    source.zero_()
    return num_bytes / timed_ms(device, lambda: target.copy_(source), num_turns) * 1e3


def random_reads_per_s(device: Device, num_rows: int = 1 << 26, num_reads: int = 1 << 24, num_turns: int = 10) -> float:
    """Sectors of 32 bytes that ``torch.index_select`` reads at random places: what bounds a sampler's edges."""
    table = torch.zeros(num_rows, _SECTOR_BYTES // 8, dtype=torch.int64, device=device.torch_device)
    ids = torch.randint(0, num_rows, (num_reads,), device=device.torch_device)
    out = torch.empty(num_reads, table.shape[1], dtype=table.dtype, device=device.torch_device)
    return num_reads / timed_ms(device, lambda: torch.index_select(table, 0, ids, out=out), num_turns) * 1e3

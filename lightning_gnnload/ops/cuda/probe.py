"""What a device can do at most: the ceilings beside which the figures of kernels stand.

Source: ``kernels/probe/probe_cuda.cu``.
"""

from __future__ import annotations

import statistics
import time

import torch

from .launch.device import Device
from .launch.timing import timed_ms

_THREADS = 256
_BLOCKS_A_PROCESSOR = 16
_UNDER_WAY = 8  # kUnderWay of the kernel
_WORD_BYTES = 4
MAX_WORDS = (1 << 32) - 1


def random_reads_per_s(
    device: Device, table_bytes: int, *, num_turns: int = 6, turns_a_thread: int = 8, blocks: int | None = None
) -> float:
    """Returns the reads of 4 bytes a second at random places of a table, eight under way a thread: what bounds a
    sampler's edges. Raises DeviceMemoryError where the table has no room."""
    table, blocks = _table(device, table_bytes), blocks or device.num_processors * _BLOCKS_A_PROCESSOR
    sums = device.empty(blocks * _THREADS, torch.int32)

    def read() -> None:
        device.launch(
            "probe",
            "read_random",
            blocks=blocks,
            threads=_THREADS,
            table=table,
            num_words=len(table),
            num_turns=turns_a_thread,
            sums=sums,
        )

    return len(sums) * turns_a_thread * _UNDER_WAY / timed_ms(device, read, num_turns) * 1e3


def random_minima_per_s(
    device: Device, table_bytes: int, *, num_turns: int = 6, turns_a_thread: int = 64, blocks: int | None = None
) -> float:
    """Returns the atomic minima of 4 bytes a second at random places of a table: what bounds the numbering of a batch's
    nodes. Raises DeviceMemoryError where the table has no room."""
    table, blocks = _table(device, table_bytes), blocks or device.num_processors * _BLOCKS_A_PROCESSOR

    def lower() -> None:
        device.launch(
            "probe",
            "lower_random",
            blocks=blocks,
            threads=_THREADS,
            table=table,
            num_words=len(table),
            num_turns=turns_a_thread,
        )

    return blocks * _THREADS * turns_a_thread / timed_ms(device, lower, num_turns) * 1e3


def copy_bytes_per_s(device: Device, num_bytes: int = 1 << 30, num_turns: int = 10) -> float:
    """Returns the bytes a second that a copy from the device to itself reads; it writes as many."""
    source, target = (device.empty(num_bytes, torch.uint8) for _ in range(2))
    source.zero_()
    return num_bytes / timed_ms(device, lambda: target.copy_(source), num_turns) * 1e3


def launch_us(device: Device, num_launches: int = 500, num_turns: int = 5) -> float:
    """Returns the microseconds of the host that a launch of a kernel without work takes, a median of some runs."""
    runs = []
    for _ in range(num_turns + 1):
        began = time.perf_counter()
        for _ in range(num_launches):
            device.launch("probe", "do_nothing", blocks=1, threads=32, count=0)
        runs.append(time.perf_counter() - began)
        device.record().synchronize()  # the driver takes a thousand or so before it waits
    return statistics.median(runs[1:]) / num_launches * 1e6


def _table(device: Device, num_bytes: int) -> torch.Tensor:
    # Reads of unwritten memory would be as fast, but a driver may map pages anew at their first write.
    return device.empty(min(num_bytes // _WORD_BYTES, MAX_WORDS), torch.int32).fill_(-1)

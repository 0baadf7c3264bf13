"""How work on a device is timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from .device import Device


class Moment:
    """Now, in the current stream's work; on a device that runs at once, on the clock."""

    def __init__(self, device: Device) -> None:
        self._event: Any = None
        if device.torch_device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)
            self._event.record()
        self._at = time.perf_counter()

    def ms_since(self, before: Moment) -> float:
        """Waits until the device has passed both; returns the milliseconds between them."""
        if self._event is None:
            return (self._at - before._at) * 1e3
        self._event.synchronize()
        return before._event.elapsed_time(self._event)


def timed_ms(device: Device, work: Callable[[], object], num_turns: int) -> float:
    """Returns the median milliseconds of a turn; turn 0 is not counted.

    Turns follow each other without a wait, so that a short kernel's time is not that of its launch.
    """
    moments = []
    for _ in range(num_turns + 1):
        work()
        moments.append(Moment(device))
    return statistics.median(after.ms_since(before) for before, after in pairwise(moments))


def wall_ms(work: Callable[[], object], num_turns: int) -> float:
    """Returns the median milliseconds on the host of a turn that waits by itself; turn 0 is not counted."""
    moments = [time.perf_counter()]
    for _ in range(num_turns + 1):
        work()
        moments.append(time.perf_counter())
    return statistics.median(after - before for before, after in pairwise(moments[1:])) * 1e3


def keep_busy(device: Device) -> None:
    """Gives the current stream work of some ten milliseconds; what is launched meanwhile follows without gaps."""
    if device.torch_device.type == "cuda":
        torch.cuda._sleep(1 << 24)  # clock cycles; torch's own tests use it

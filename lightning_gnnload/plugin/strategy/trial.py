"""Trial: trains some steps on mini-batches as they will come, drawn by a device and by the host in turn.

On one device, drawing, gathering and training share the device, and Python's threads the interpreter. What each takes
alone does not tell how long a step takes beside the others, so the steps themselves are timed.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import torch

from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.pipeline.forecast.stages import MEASURING_ERROR
from lightning_gnnload.pipeline.loader import SampledLoader

ON_DEVICE = 0
"""In place of a number of the host's threads: the device draws."""
_NUM_TURNS = 3  # of each way, and one before that is not timed: it compiles, allocates, and opens caches
_WARM_UP_STEPS = 4  # of a turn, until mini-batches lie ahead as they do in mid-epoch
_TIMED_STEPS = 12


class Trial:
    """A loader that draws by each way in turn: 0 for the device, or so many threads of the host. Its mini-batches are
    the same whoever draws.

    ``use(way)`` is called before each turn. It ends after some turns, and then after ``limit_s`` for each way.
    """

    def __init__(
        self,
        loader: SampledLoader,
        ways: Sequence[int],
        use: Callable[[int], None],
        device: torch.device,
        limit_s: float,
    ) -> None:
        self._loader, self._ways, self._use = loader, ways, use
        self._device, self._limit_s = device, limit_s * len(ways)
        self._turns_ms: dict[int, list[float]] = {way: [] for way in ways}

    def __iter__(self) -> Iterator[Any]:
        num_steps, steps, end_s = len(self._loader), itertools.count(), float("inf")
        for turn in range(1 + _NUM_TURNS):
            for way in self._ways:
                self._use(way)
                # Without an end: in mid-epoch, too, others are made while the last one that is timed is trained on.
                requests = (BatchRequest(0, step % num_steps, 0, 1) for step in steps)
                began_s = 0.0
                with closing(self._loader.made(requests)) as batches:
                    for number, batch in enumerate(batches):
                        if number == _WARM_UP_STEPS:
                            began_s = self._now_s()
                        elif number == _WARM_UP_STEPS + _TIMED_STEPS:
                            break
                        yield batch
                if turn:
                    self._turns_ms[way].append((self._now_s() - began_s) * 1e3 / _TIMED_STEPS)
            if not turn:
                end_s = time.perf_counter() + self._limit_s
            elif time.perf_counter() > end_s:
                return

    def _now_s(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    @property
    def steps_ms(self) -> dict[int, float]:
        """The time of a step by each way; empty where it was not come to."""
        if not all(self._turns_ms.values()):
            return {}
        return {way: statistics.median(turns) for way, turns in self._turns_ms.items()}


def fastest_way(steps_ms: Mapping[int, float]) -> int:
    """Returns the way of the shortest steps: the device, unless the host is faster by more than measuring errs by, and
    of two numbers of threads likewise the lower one.

    Example:
        >>> fastest_way({0: 8.8, 4: 9.1, 12: 7.0}), fastest_way({0: 8.8, 4: 8.7, 12: 8.6})
        (12, 0)
    """
    enough_ms = min(steps_ms.values()) * (1 + MEASURING_ERROR)
    return min(way for way, step_ms in steps_ms.items() if step_ms <= enough_ms)


def describe_trial(steps_ms: Mapping[int, float]) -> str:
    """Says how long a step takes by each way, and which way is taken.

    Example:
        >>> describe_trial({0: 8.8, 4: 9.1})
        'a step takes 8.8 ms where its device draws, 9.1 ms where 4 threads of the host do, so the device draws'
    """
    threads = {way: f"{way} thread{'s' * (way != 1)} of the host" for way in steps_ms if way != ON_DEVICE}
    listed = [
        f"{step_ms:.1f} ms where {'its device draws' if way == ON_DEVICE else f'{threads[way]} do'}"
        for way, step_ms in steps_ms.items()
    ]
    way = fastest_way(steps_ms)
    drawer = "the device draws" if way == ON_DEVICE else f"{threads[way]} draw"
    return f"a step takes {', '.join(listed)}, so {drawer}"

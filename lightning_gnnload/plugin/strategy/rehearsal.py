"""Rehearsal: mini-batches are made, and trained on, one apart from the other, to time the stages of either."""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.threads import Threads
from lightning_gnnload.pipeline.loader import Convert, Prefetcher
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.slots import SlotPool
from lightning_gnnload.pipeline.source import BatchSource, DeviceSource

_LIMIT_S = 2.0  # of making batches, and of training
_MAX_BATCHES = 48  # of either
_NUM_READY = 4  # batches to train on, in turn
_WARM_UP_STEPS = 3  # the first steps compile, allocate and choose algorithms
_TURN = 4  # steps that torch computes with as many threads


@dataclass(frozen=True)
class RehearsalSetting:
    """The device, cores and threads that stages are measured on, and what else their times depend on.

    Attributes:
        device: a trainer's.
        num_threads: sampling threads of a sampler.
        sampler_cores: that these may use.
        facts: what else the times depend on, as JSON.
        torch_threads: the most that torch may compute with.
        on_sampler: makes of a source, and the data module that it is of, what a sampler makes mini-batches from.
    """

    device: torch.device
    num_threads: int
    sampler_cores: Collection[int]
    facts: dict[str, Any]
    torch_threads: int = 1
    on_sampler: Callable[[Any, BatchSource], BatchSource] = lambda module, source: source


class Making:
    """Makes mini-batches of one epoch, and times it, in as many threads as a sampler has, on its cores."""

    def __init__(self, source: BatchSource, setting: RehearsalSetting) -> None:
        self._source = source
        self._slots = SlotPool(pinned=setting.device.type == "cuda")
        self._num_steps = source.plan(1).num_steps
        self._times: list[dict[str, float]] = []
        self.ready: list[tuple[MiniBatch, Payload]] = []
        self.is_on_device = isinstance(source, DeviceSource)
        num_threads = setting.num_threads

        def to_cores() -> None:
            if setting.sampler_cores:
                os.sched_setaffinity(0, setting.sampler_cores)  # of this thread alone

        with Threads(num_threads, "gnnload-measure", to_cores) as threads:
            # The first mini-batches pay for memory and caches: they only tell how many to time.
            warm = list(threads.map(self._make, range(num_threads + 1)))
            estimate_ms = max(statistics.median(each["sample"] + each["gather"] for each in warm), 1e-3) / num_threads
            count = min(max(int(_LIMIT_S * 1e3 / estimate_ms), 2 * num_threads), _MAX_BATCHES)
            self._times = list(threads.map(self._make, range(len(warm), len(warm) + count)))
        del self._source  # with what it has on a device, which training is to have

    def median_ms(self, what: str) -> float:
        """One thread's time for ``"sample"`` or ``"gather"``, while the other threads do as much; of both, its time on
        a ``"core"``, and that in which it had to ``"wait"``, but not for a core. The median forgives a hiccup."""
        return statistics.median(each[what] for each in self._times)

    def _make(self, step: int) -> dict[str, float]:
        """Makes one mini-batch; returns the milliseconds that it took."""
        slot = self._slots.take()
        began, core_began, queued_began = time.perf_counter(), time.thread_time(), _queued_s()
        payload = self._source.make(BatchRequest(0, step % self._num_steps, 0, 1), slot)
        took_ms, core_ms = (time.perf_counter() - began) * 1e3, (time.thread_time() - core_began) * 1e3
        queued_ms = (_queued_s() - queued_began) * 1e3
        if len(self.ready) < _NUM_READY:
            self.ready.append((payload.view(self._slots.lend(slot)), payload))
        else:
            self._slots.give(slot)
        gather_ms = payload.timing.gather_ms
        return {
            "sample": max(took_ms - gather_ms, 0.0),
            "gather": gather_ms,
            "core": core_ms,
            "wait": max(took_ms - core_ms - queued_ms, 0.0),
        }


def _queued_s() -> float:
    """How long the calling thread has waited for a core that others had; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


class _ReadyQueue:
    """Stands in for a trainer's queue: the same few mini-batches come in turn, and have always come."""

    def __init__(self, ready: list[tuple[MiniBatch, Payload]]) -> None:
        self._ready = ready

    def take(self, stream: int, step: int) -> tuple[MiniBatch, Payload]:
        return self._ready[step % len(self._ready)]

    def has_come(self, stream: int, step: int) -> bool:
        return True


class ReadyBatches:
    """A loader that has its mini-batches ready, and times steps by when each one is asked for: with all that a trainer
    does for one, from completing and converting the mini-batch to the optimizer's step.

    Torch computes with one thread and with all in turn, a few steps each, so that what else the machine does meets both
    alike.
    """

    def __init__(
        self,
        ready: list[tuple[MiniBatch, Payload]],
        convert: Convert,
        prefetcher: Prefetcher | None,
        setting: RehearsalSetting,
    ) -> None:
        self._queue: Any = _ReadyQueue(ready)
        self._convert = convert
        self._prefetcher = prefetcher
        self._device = setting.device
        self._threads = sorted({1, setting.torch_threads}, reverse=True) if setting.device.type == "cpu" else [1]
        self._steps_ms: dict[int, list[float]] = {threads: [] for threads in self._threads}
        self._converts_ms: list[float] = []

    def __iter__(self) -> Iterator[Any]:
        threads, asked_s, began_s = self._threads[0], 0.0, 0.0
        for step in itertools.count():
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)  # else the time to launch a step is measured, not the step's
            now_s = time.perf_counter()
            # From request to request: with batches ready, a step is all that lies between. The first with other
            # threads starts these.
            place = step - 1 - _WARM_UP_STEPS
            if place >= 0 and (place % _TURN or len(self._threads) == 1):
                self._steps_ms[threads].append((now_s - asked_s) * 1e3)
            began_s = began_s or now_s
            if step > _MAX_BATCHES or (self.is_timed and now_s - began_s > _LIMIT_S):
                return
            place += 1
            if place >= 0 and place % _TURN == 0 and self._device.type == "cpu":
                threads = self._threads[place // _TURN % len(self._threads)]
                torch.set_num_threads(threads)
            asked_s = time.perf_counter()
            batch = self._queue.take(0, step)[0]
            if self._prefetcher is not None:
                batch, _ = self._prefetcher.take(self._queue, 0, step, step + 2)  # type: ignore[misc]
            converting_s = time.perf_counter()
            converted = [self._convert(batch)]
            self._converts_ms.append((time.perf_counter() - converting_s) * 1e3)
            yield converted.pop()

    @property
    def is_timed(self) -> bool:
        """Whether training went on until all was timed."""
        return all(self._steps_ms.values())

    def step_ms(self, threads: int) -> float:
        return statistics.median(self._steps_ms[threads])

    @property
    def convert_ms(self) -> float:
        return statistics.median(self._converts_ms)

    def shared_by_cores(self) -> tuple[float, int]:
        """Returns the part ``a`` of a step that cores share, as it takes ``a / cores + d``; and how many threads
        torch should have at most.

        Source: BGL (NSDI'23), section 3.4: a and d are approximated by pre-running.
        """
        most = self._threads[0]
        if most == 1:
            return 0.0, 1
        one_ms = self.step_ms(1)
        saved_ms = one_ms - self.step_ms(most)
        if saved_ms <= 0:
            return 0.0, 1
        return min(saved_ms * most / (most - 1), one_ms - self.convert_ms), most

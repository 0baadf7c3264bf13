"""Rehearsal: makes mini-batches first, then trains on them, so that each stage is timed alone."""

from __future__ import annotations

import itertools
import os
import resource
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
from lightning_gnnload.host.threads import Threads
from lightning_gnnload.pipeline.loader import Convert, Prefetcher
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.slots import SlotPool
from lightning_gnnload.pipeline.source import BatchSource, DeviceSource

LIMIT_S = 2.0  # of making batches, and of training
_MAX_BATCHES = 48  # of either
_NUM_READY = 4  # batches to train on, in turn
_WARM_UP_STEPS = 3  # the first steps compile, allocate and choose algorithms
_TURN = 4  # steps that torch computes with as many threads


@dataclass(frozen=True)
class RehearsalSetting:
    """The device and threads to measure on. ``sampler_cores`` are for the sampling threads, ``facts`` (JSON) what else
    the times depend on; ``on_sampler(data module, source)`` is the source that a sampler would use, asked for right
    before mini-batches are made."""

    device: torch.device
    num_threads: int
    sampler_cores: Collection[int]
    facts: dict[str, Any]
    torch_threads: int = 1
    on_sampler: Callable[[Any, BatchSource], BatchSource] = lambda module, source: source
    limit_s: float | None = None  # of making mini-batches, and of training; None: a usual one
    host_threads: tuple[int, ...] = ()  # of a lone rank: numbers of threads to try beside its device


class BatchTimer:
    """Makes and times mini-batches of one epoch, in as many threads as a sampler has, on its cores."""

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
            # The first mini-batches pay for memory and caches: they only show how many to time.
            warm = list(threads.map(self._make, range(num_threads + 1)))
            estimate_ms = (
                max(statistics.median(times["sample"] + times["gather"] for times in warm), 1e-3) / num_threads
            )
            count = min(max(int((setting.limit_s or LIMIT_S) * 1e3 / estimate_ms), 2 * num_threads), _MAX_BATCHES)
            self._times = list(threads.map(self._make, range(len(warm), len(warm) + count)))
        del self._source  # with what it has on a device, which training is to have

    def median_ms(self, stage: str) -> float:
        """One thread's time for ``"sample"`` or ``"gather"`` while the others do as much; of both together, the time on
        a ``"core"`` and the ``"wait"`` for anything but a core."""
        return statistics.median(times[stage] for times in self._times)

    def _make(self, step: int) -> dict[str, float]:
        slot = self._slots.take()
        # Of this thread, not of the process, in which other sampling threads run.
        began, core_began, queued_began = time.perf_counter(), time.thread_time(), queued_s(threading.get_native_id())
        payload = self._source.make(BatchRequest(0, step % self._num_steps, 0, 1), slot)
        took_ms, core_ms = (time.perf_counter() - began) * 1e3, (time.thread_time() - core_began) * 1e3
        queued_ms = (queued_s(threading.get_native_id()) - queued_began) * 1e3
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


def queued_s(thread: int) -> float:
    """How long a thread of this process has waited for a core; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


class _QueuedSince:
    """How long threads of this process have waited for a core since this was made, which is no part of a step."""

    def __init__(self) -> None:
        self._thread = threading.get_native_id()
        self.reading_s = 0.0  # the processor time that reading took, which is no part of a step either
        self._computed_s, self._balance = time.thread_time(), _displaced_less_slept()
        self._own_s, self._others_s = self._read()

    def delay_s(self, torch_threads: int) -> float:
        """How much later a step of the calling thread ended for it. The step waits for torch's other threads as well,
        but only in the time that it computes, of which it takes its part in any case. 0 where the thread has rather
        slept than been displaced: Linux 6.12 and later may count sleep as waiting for a core."""
        if _displaced_less_slept() <= self._balance:
            return 0.0
        own_s, others_s = self._read()
        computed_s = time.thread_time() - self._computed_s
        return own_s - self._own_s + min(others_s - self._others_s, computed_s * (1 - 1 / torch_threads))

    def _read(self) -> tuple[float, float]:
        began_s, own_s, all_s = time.thread_time(), queued_s(self._thread), 0.0
        with suppress(OSError):
            all_s = sum(queued_s(int(thread)) for thread in os.listdir("/proc/self/task"))
        self.reading_s += time.thread_time() - began_s
        return own_s, max(all_s - own_s, 0.0)


def _displaced_less_slept() -> int:
    """How many times more the calling thread was displaced from its core than it has left it by itself."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_nivcsw - used.ru_nvcsw


class _Stopwatch:
    """Times one piece of work: of a device, by events in its current stream, which are read when it is done."""

    def __init__(self, device: torch.device) -> None:
        self._on_device = device.type == "cuda"
        self._marks = [self._mark()]

    def stop(self) -> None:
        self._marks.append(self._mark())

    def _mark(self) -> Any:
        if not self._on_device:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @property
    def ms(self) -> float:
        began, ended = self._marks
        return began.elapsed_time(ended) if self._on_device else (ended - began) * 1e3


class _ReadyQueue:
    """Stands in for a trainer's queue: the same few mini-batches come in turn, and are always there."""

    def __init__(self, ready: list[tuple[MiniBatch, Payload]]) -> None:
        self._ready = ready

    def take(self, stream: int, step: int) -> tuple[MiniBatch, Payload]:
        return self._ready[step % len(self._ready)]

    def has_come(self, stream: int, step: int) -> bool:
        return True


class ReadyBatches:
    """A loader whose mini-batches are ready. It times steps from request to request: all that a trainer does for one,
    from completing and converting the mini-batch to the optimizer's step.

    Torch computes with one thread and with all in turn, a few steps each, so that other load disturbs both alike. What
    threads wait for cores that others have is no part of a step.
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
        self._limit_s = setting.limit_s or LIMIT_S
        self._threads = sorted({1, setting.torch_threads}, reverse=True) if setting.device.type == "cpu" else [1]
        self._steps_ms: dict[int, list[float]] = {threads: [] for threads in self._threads}
        self._converts_ms: list[float] = []
        self._gathers: list[_Stopwatch] = []
        self._turn_threads = self._threads[0]

    def __iter__(self) -> Iterator[Any]:
        requested_s, began_s, queued = 0.0, 0.0, _QueuedSince()
        for step in itertools.count():
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)  # else the time to launch a step is measured, not the step's
            # Read within the time that is measured, so that no wait is taken off that is not in it.
            delay_s = queued.delay_s(self._turn_threads)
            now_s = time.perf_counter()
            # From request to request: with batches ready, a step is all that lies between. The first step with other
            # threads starts these, and is not counted.
            last = step - 1 - _WARM_UP_STEPS
            if last >= 0 and (last % _TURN or len(self._threads) == 1):
                took_s = now_s - requested_s - delay_s - queued.reading_s
                self._steps_ms[self._turn_threads].append(took_s * 1e3)
                began_s = began_s or now_s  # the first steps import and compile, for longer than all others may take
            if step > _MAX_BATCHES or (self.is_timed and now_s > began_s + self._limit_s):
                return
            self._begin_turn(last + 1)
            requested_s, queued = time.perf_counter(), _QueuedSince()
            yield self._batch(step)

    def _begin_turn(self, step: int) -> None:
        if step >= 0 and step % _TURN == 0 and self._device.type == "cpu":
            self._turn_threads = self._threads[step // _TURN % len(self._threads)]
            torch.set_num_threads(self._turn_threads)

    def _batch(self, step: int) -> Any:
        batch = self._queue.take(0, step)[0]
        if self._prefetcher is not None:
            gathering = _Stopwatch(self._device)
            batch, _ = self._prefetcher.take(self._queue, 0, step, step + 2)  # type: ignore[misc]
            gathering.stop()
            self._gathers.append(gathering)
        began_s = time.perf_counter()
        converted = self._convert(batch)
        self._converts_ms.append((time.perf_counter() - began_s) * 1e3)
        return converted

    @property
    def is_timed(self) -> bool:
        return all(self._steps_ms.values())

    def step_ms(self, threads: int) -> float:
        return statistics.median(self._steps_ms[threads])

    @property
    def convert_ms(self) -> float:
        return statistics.median(self._converts_ms)

    @property
    def gather_ms(self) -> float:
        """What the trainer gathers, on its device where it has one; 0 where samplers gather."""
        timed = self._gathers[_WARM_UP_STEPS:]
        return statistics.median(gathering.ms for gathering in timed) if timed else 0.0

    def shared_by_cores(self) -> tuple[float, int]:
        """The part ``a`` of a step's time ``a / cores + d``, and the most threads that torch should have.

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

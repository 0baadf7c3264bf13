"""A ring between processes: samplers in forks of this one, and a trainer that the test plays."""

from __future__ import annotations

import os
import signal
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from lightning_gnnload.errors import TrainerDiedError
from lightning_gnnload.pipeline.device_slots import DeviceExporter, DeviceReader, OpenedSlot
from lightning_gnnload.pipeline.device_tables import HostTable
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue.loader import QueueLoader
from lightning_gnnload.pipeline.queue.prefetch import DevicePrefetcher
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.streams import StreamSpec
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.source import BatchSource, DeviceSource
from lightning_gnnload.sample.device.samplers import UploadingSampler
from tests.cuda.emulated import EmulatedDevice
from tests.cuda.fake_runtime import FakeRuntime
from tests.unit.toy import content

TIMEOUT_S = 30
SEEN = ("gpu-0", "gpu-1")
DONE, FAILED, TRAINER_DIED, MEMORY_HELD = range(4)
"""How a sampler's process ends."""


class CountingRuntime(FakeRuntime):
    num_opened = 0

    def open(self, handle: bytes) -> int:
        self.num_opened += 1
        return super().open(handle)


class LateRuntime(FakeRuntime):
    """Copies when somebody waits for them, as late as a device may."""

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self._pending: deque[tuple[int, int, int]] = deque()

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        self._pending.append((target, source, num_bytes))

    def flush(self) -> None:
        while self._pending:
            super().copy(*self._pending.popleft())


class LateEvent:
    def __init__(self, runtime: LateRuntime) -> None:
        self._runtime = runtime
        self._is_done = False

    def is_done(self) -> bool:
        return self._is_done

    def wait(self) -> None:
        self.synchronize()  # the test looks at batches on the host

    def synchronize(self) -> None:
        self._runtime.flush()
        self._is_done = True


class LateDevice(EmulatedDevice):
    """One whose work from another process is done when somebody waits for it, and not before."""

    def __init__(self, runtime: LateRuntime) -> None:
        super().__init__()
        self.runtime = runtime
        self._given: list[torch.Tensor] = []  # an allocator of a device knows what is still written to

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        self._given.append(super().empty(count, dtype))
        return self._given[-1]

    def read(self, tensor: torch.Tensor) -> np.ndarray:
        self.runtime.flush()
        return super().read(tensor)

    def record(self) -> LateEvent:
        return LateEvent(self.runtime)


class Ring:
    """A trainer's end, and the processes of the samplers.

    Attributes:
        runtime: the trainer's.
        pids: of the samplers.
    """

    def __init__(
        self, name: str, source: BatchSource, pids: list[int], queue_depth: int, device: Any, runtime: FakeRuntime
    ) -> None:
        self.source, self.pids, self.device, self.runtime = source, pids, device, runtime
        self.queue = BatchQueue(
            name,
            trainer=0,
            rank=0,
            num_samplers=len(pids),
            queue_depth=queue_depth,
            connect_timeout_s=TIMEOUT_S,
            stall_timeout_s=TIMEOUT_S,
            first_sampler_rank=1,
            reader=DeviceReader(device, runtime),
        )

    def loader(self, *, gathers: bool = True) -> QueueLoader:
        tables = {name: HostTable(store, self.device) for name, store in self.source.features.items()}
        prefetcher = DevicePrefetcher(self.source, tables, self.device)
        local = SampledLoader(self.source, num_threads=0, prefetcher=lambda: prefetcher if gathers else None)
        return QueueLoader(self.queue, local, phase="train", loader=0, reload=0, limit=lambda: float("inf"))

    @property
    def slots_on_device(self) -> list[bool]:
        """Of the slots that came, which lie on a device."""
        slots = [slot for peer in self.queue._pool.peers for slot in peer._slots.values()]
        return [isinstance(slot, OpenedSlot) for slot in slots]


def wanted(source: BatchSource, epoch: int = 0) -> list[Any]:
    loader = SampledLoader(source, num_threads=0)
    loader.set_epoch(epoch)
    return [content(batch) for batch in loader]


@contextmanager
def samplers(
    source: BatchSource,
    *,
    num_samplers: int = 1,
    first_slot_bytes: int = 1 << 16,
    sampler: Callable[[], FakeRuntime] = lambda: FakeRuntime(SEEN, 1),
    ends: list[int] | None = None,
) -> Iterator[tuple[str, list[int]]]:
    """Their job's name and process ids; they end with their trainers. ``ends`` gets their exit codes."""
    name = uuid.uuid4().hex[:16]
    pids = []
    for index in range(num_samplers):
        if (pid := os.fork()) == 0:
            _serve(name, index, source, first_slot_bytes, sampler)
        pids.append(pid)
    try:
        yield name, pids
    finally:
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        if ends is not None:
            ends += codes


@contextmanager
def ring(
    source: BatchSource,
    *,
    queue_depth: int = 2,
    trainer: FakeRuntime | None = None,
    device: Any = None,
    **settings: Any,
) -> Iterator[Ring]:
    """A trainer and its :func:`samplers`, which are over when the block ends."""
    runtime = trainer or CountingRuntime(SEEN[::-1], 1)  # it numbers the devices otherwise
    with samplers(source, **settings) as (name, pids):
        joined = Ring(name, source, pids, queue_depth, device or EmulatedDevice(), runtime)
        try:
            yield joined
        finally:
            joined.queue.goodbye()


def _serve(
    name: str,
    index: int,
    source: BatchSource,
    first_slot_bytes: int,
    make_runtime: Callable[[], FakeRuntime],
) -> None:
    code = FAILED
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(TIMEOUT_S)
        torch.set_num_threads(1)
        device, runtime = EmulatedDevice(), make_runtime()
        exporter = DeviceExporter(runtime)

        def open_source(spec: StreamSpec) -> BatchSource:
            bare = source.without_features() if spec.gathers else source
            draws = UploadingSampler(source.workload.sampler, source.data.graph, device)
            return DeviceSource(bare, draws, device, exporter)

        service = SamplerService(
            name,
            sampler=index,
            rank=1 + index,
            num_trainers=1,
            world_size=1,
            num_threads=2,
            open_source=open_source,
            connect_timeout_s=TIMEOUT_S,
        )
        service._slot_bytes = first_slot_bytes
        try:
            service.serve()
            code = DONE
        except TrainerDiedError:
            code = TRAINER_DIED
        if runtime.num_held:
            code = MEMORY_HELD
    finally:
        os._exit(code)

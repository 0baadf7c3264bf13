"""A whole job in one process: samplers in threads, and trainers that the test plays."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue.loader import QueueLoader
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.streams import StreamSpec
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.source import BatchSource
from tests.unit.toy import content, toy_source

TIMEOUT_S = 20.0


class Job:
    """Samplers that serve; :attr:`ends` holds what became of each: its outcome or its exception."""

    def __init__(
        self,
        sources: dict[str, BatchSource],
        open_source: Callable[[StreamSpec], BatchSource] | None,
        num_samplers: int,
        num_trainers: int,
        num_threads: int,
        queue_depth: int,
        connect_timeout_s: float,
        takeover: bool,
        broken: Mapping[int, BatchSource],
    ) -> None:
        self.takeover = takeover
        self.broken = broken
        self.name = uuid.uuid4().hex[:16]
        self.sources = sources
        self.num_samplers, self.num_trainers, self.queue_depth = num_samplers, num_trainers, queue_depth
        self.ends: dict[int, Any] = {}
        self.queues: list[BatchQueue] = []
        self.services = [
            SamplerService(
                self.name,
                sampler=sampler,
                rank=num_trainers + sampler,
                num_trainers=num_trainers,
                world_size=num_trainers,
                num_threads=num_threads,
                open_source=open_source or partial(self._source, sampler),
                connect_timeout_s=connect_timeout_s,
                takeover=takeover,
            )
            for sampler in range(num_samplers)
        ]
        self.threads = [threading.Thread(target=self._serve, args=pair) for pair in enumerate(self.services)]
        for thread in self.threads:
            thread.start()

    def _source(self, sampler: int, spec: StreamSpec) -> BatchSource:
        source = self.sources[spec.phase]
        return self.broken.get(sampler, source) if spec.phase == "train" else source

    def _serve(self, sampler: int, service: SamplerService) -> None:
        try:
            self.ends[sampler] = service.serve()
        except BaseException as error:
            self.ends[sampler] = error

    def queue(
        self, trainer: int = 0, stall_timeout_s: float = TIMEOUT_S, queue_memory_bytes: int | None = None
    ) -> BatchQueue:
        queue = BatchQueue(
            self.name,
            trainer=trainer,
            rank=trainer,
            num_samplers=self.num_samplers,
            queue_depth=self.queue_depth,
            connect_timeout_s=TIMEOUT_S,
            stall_timeout_s=stall_timeout_s,
            first_sampler_rank=self.num_trainers,
            num_trainers=self.num_trainers,
            takeover=self.takeover,
            queue_memory_bytes=queue_memory_bytes,
        )
        self.queues.append(queue)
        return queue

    def loader(
        self, queue: BatchQueue, phase: str = "train", rank: int = 0, limit: float = float("inf"), **kw: Any
    ) -> QueueLoader:
        local = SampledLoader(self.sources[phase], num_ranks=self.num_trainers, rank=rank)
        return QueueLoader(queue, local, phase=phase, limit=lambda: limit, **{"loader": 0, "reload": 0, **kw})

    def wanted(self, phase: str = "train", rank: int = 0, epoch: int = 0) -> list[Any]:
        """The stream that this process would sample itself."""
        loader = SampledLoader(self.sources[phase], num_ranks=self.num_trainers, rank=rank, num_threads=0)
        loader.set_epoch(epoch)
        return [content(batch) for batch in loader]

    def part(self) -> None:
        """All trainers say goodbye at once, as processes do."""
        parting = [threading.Thread(target=queue.goodbye) for queue in self.queues]
        for thread in parting:
            thread.start()
        for thread in parting:
            thread.join()
        self.queues = []

    def join(self) -> None:
        for thread in self.threads:
            thread.join(TIMEOUT_S)
        assert not any(thread.is_alive() for thread in self.threads), "a sampler goes on without trainers"


@contextmanager
def job(
    source: BatchSource | None = None,
    *,
    val: BatchSource | None = None,
    open_source: Callable[[StreamSpec], BatchSource] | None = None,
    num_samplers: int = 1,
    num_trainers: int = 1,
    num_threads: int = 1,
    queue_depth: int = 2,
    connect_timeout_s: float = 5.0,
    takeover: bool = False,
    broken: Mapping[int, BatchSource] | None = None,
) -> Iterator[Job]:
    """A job that is over when the block ends, whatever happened in it.

    Args:
        broken: by sampler, what it trains from instead.
    """
    source = source or toy_source(batch_size=8)
    sources = {"train": source, "val": val or source}
    settings = (num_samplers, num_trainers, num_threads, queue_depth, connect_timeout_s, takeover, broken or {})
    started = Job(sources, open_source, *settings)
    try:
        yield started
    finally:
        started.part()
        started.join()


def num_slots() -> int:
    """Slots that this process holds at either end. (A slot has several descriptors, as Python's maps keep one.)"""
    slots = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of the listing itself
            if "memfd:gnnload-slot" in os.readlink(f"/proc/self/fd/{fd}"):
                slots.add(os.stat(f"/proc/self/fd/{fd}").st_ino)
    return len(slots)


def settles(value: Callable[[], int], wanted: int) -> bool:
    """Whether ``value`` comes to be ``wanted``, and stays so for a moment."""
    deadline = time.monotonic() + TIMEOUT_S
    while value() != wanted and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    return value() == wanted


def lone_service(name: str | None = None, **settings: Any) -> SamplerService:
    """The only sampler of a job with one trainer, unless settings say otherwise."""
    defaults: dict[str, Any] = {
        "sampler": 0,
        "rank": 1,
        "num_trainers": 1,
        "world_size": 1,
        "num_threads": 1,
        "open_source": lambda spec: toy_source(),
        "connect_timeout_s": 60,
    }
    return SamplerService(name or uuid.uuid4().hex[:16], **(defaults | settings))

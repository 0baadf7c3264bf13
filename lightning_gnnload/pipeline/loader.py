"""SampledLoader: mini-batches made in this process, by background threads, on the host or on a device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import distributed

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.host.threads import Threads, set_up_first
from lightning_gnnload.pipeline.contributed import place_alone
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.position import Position
from lightning_gnnload.pipeline.resume import OnResumeChange, ResumePoint
from lightning_gnnload.pipeline.slots import SlotPool
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.pipeline.stats import Delivery, LoaderStats, QueueFill

if TYPE_CHECKING:  # of CUDA
    from lightning_gnnload.pipeline.device_batches import DeviceBatches, MadeOnDevice

Convert = Callable[[MiniBatch], Any]


class Progress(NamedTuple):
    """A consumer's position: its epoch, and how many mini-batches of it are done, without the one at work."""

    epoch: int
    num_processed: int


class Prefetcher(Protocol):
    """Takes a trainer's mini-batches from its queue, and gathers their rows ahead: a :class:`.DevicePrefetcher` to its
    device, a :class:`.RowGatherer` on the host."""

    def take(self, queue: Any, stream: int, step: int, stop: int) -> tuple[MiniBatch, Payload] | None:
        """Takes the next mini-batch, like :meth:`.BatchQueue.take`; steps end before ``stop``."""

    def forget(self, stream: int) -> None:
        """Drops what was fetched ahead of a stream that is read no further."""


class _HostBatch(NamedTuple):
    payload: Payload
    batch: Any
    convert_s: tuple[float, float]

    def hand_over(self) -> Any:
        return self.batch


class EpochLoader:
    """The interface of a train loader that Lightning can resume: a length, an epoch, and a position in it.

    A subclass yields mini-batches from :meth:`_batches`. Creating one and ``iter()`` start nothing: Lightning creates
    and iterates loaders that it never reads.

    Args:
        source: the phase's mini-batches.
        num_ranks: trainers that share each step; None for those of the default process group once it exists, so that a
            loader made before the launch is shared like any other.
        rank: this trainer, where ``num_ranks`` is given.

    Attributes:
        stats: sums over the mini-batches delivered.
        last: the last one delivered, or None.
        progress: where the consumer is, if it can say. Then a batch that was at work when an error made the checkpoint
            comes again, and the consumer decides on epochs.
        on_resume_change: ``"error"``, or ``"warn"`` to resume an epoch whose mini-batches have changed.
    """

    def __init__(self, source: BatchSource, num_ranks: int | None, rank: int) -> None:
        self.source = source
        self._ranks = None if num_ranks is None else (num_ranks, rank)
        self.stats = LoaderStats()
        self.last: Delivery | None = None
        self.position = Position()
        self.progress: Callable[[], Progress] | None = None
        self.on_resume_change: OnResumeChange = "error"

    @property
    def epoch(self) -> int:
        """The epoch that was begun last, or is to begin."""
        return self.position.epoch

    @property
    def num_ranks(self) -> int:
        """Trainers that share each step."""
        return self._shared_by()[0]

    @property
    def rank(self) -> int:
        """This trainer's rank among them."""
        return self._shared_by()[1]

    def _shared_by(self) -> tuple[int, int]:
        if self._ranks is None and distributed.is_available() and distributed.is_initialized():
            self._ranks = distributed.get_world_size(), distributed.get_rank()
            self.source.workload.share(self._ranks[0])
        return self._ranks or (1, 0)

    def __len__(self) -> int:
        return self.source.plan(self.num_ranks).num_steps

    def __iter__(self) -> Iterator[Any]:
        if self.progress is None:
            return self.position.read(self._batches, self._check)
        return self._read(self.progress)

    def _read(self, progress: Callable[[], Progress]) -> Iterator[Any]:
        """Yields the mini-batches of the consumer's epoch, from where it is when it asks for the first one."""
        epoch, num_processed = progress()
        start, point = 0, self.position.loaded
        if point is not None and num_processed > 0:
            self._check(point)
            epoch, start = point.epoch, point.step
        self.position.set_epoch(epoch)
        reading = self.position.begin(start)
        yield from self.position.counted(self._batches(self.position.drawn_epoch, start), reading)

    def _check(self, point: ResumePoint) -> None:
        """Raises CheckpointError: the epoch cannot go on with the settings of this loader."""
        point.check(self._resume_point(), self.num_ranks, len(self), self.on_resume_change)

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        raise NotImplementedError

    def _note(self, delivery: Delivery) -> None:
        self.last = delivery
        self.stats.add(delivery)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of ``epoch``; otherwise each is the one after the last. A consumer that tells
        its ``progress`` decides."""
        if self.progress is None or (self.position.loaded is None and epoch != self.epoch):
            self.position.set_epoch(epoch)

    def _announce(self, epoch: int) -> None:
        if self.progress is None:
            self.position.announce(epoch)
        else:
            self.set_epoch(epoch)

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """Lightning announces the epoch to ``loader.batch_sampler.sampler.set_epoch``.

        A bare ``sampler`` attribute would do so as well, but would be searched for a shuffling sampler too.
        """
        return SimpleNamespace(sampler=SimpleNamespace(set_epoch=self._announce))

    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the epoch, which is the same in every rank."""
        if self.position.loaded is not None:
            return self.position.loaded.to_state()  # nothing was read since
        point = self._resume_point()
        if self.progress is not None:
            # A batch that was yielded may still be at work: what an error interrupts is to come again.
            point = replace(point, step=min(point.step, self.progress().num_processed))
        return point.to_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Lets the next iteration resume there, unless another epoch is set.

        Raises CheckpointError where ``state`` is not a loader's of this class, or samplers had trained ahead, which
        only a strategy with switching can skip; and, when the iteration begins, where the epoch cannot go on with these
        settings.
        """
        self.position.load(ResumePoint.from_state(place_alone(state)))

    def _resume_point(self) -> ResumePoint:
        workload = self.source.workload
        described: dict[str, Any] = workload.description
        return ResumePoint(
            **self.position.place(),
            num_seeds=len(workload.seeds),
            global_batch_size=self.source.plan(self.num_ranks).global_batch_size,
            seed=workload.seed,
            graph=workload.sampler.fingerprint_of(workload.graph),
            **described,
        )


class SampledLoader(EpochLoader):
    """A loader whose mini-batches are made by threads of this process, one batch a thread, the GIL released. Batches
    come in order and are the same for any number of threads.

    Args:
        source: the phase's mini-batches; ``num_ranks`` and ``rank`` as for :class:`EpochLoader`.
        num_threads: sampling threads; 0 samples in the caller's thread.
        convert: makes of a MiniBatch what the model expects.
        pinned: write to page-locked memory, for asynchronous copies to a CUDA device.
        on_device: called when mini-batches are first needed; its result, unless None, makes them instead of the host.
        prefetcher: called likewise by the QueueLoader in this loader's place; its result brings mini-batches to the
            device.
        make_again: makes this loader in a spawned process: it is pickled instead of the loader, whose threads, slots
            and mapped data stay here.
        num_ahead: mini-batches that are made or wait while one is consumed; None: one a thread.
        on_thread: called by each thread, with its number, before it makes any.
    """

    def __init__(
        self,
        source: BatchSource,
        *,
        num_ranks: int | None = 1,
        rank: int = 0,
        num_threads: int = 1,
        convert: Convert | None = None,
        pinned: bool = False,
        on_device: Callable[[], DeviceBatches | None] = lambda: None,
        prefetcher: Callable[[], Prefetcher | None] = lambda: None,
        make_again: Callable[[], SampledLoader] | None = None,
        num_ahead: int | None = None,
        on_thread: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(source, num_ranks, rank)
        self.num_ahead = num_ahead
        self.on_thread = on_thread
        self.make_again = make_again
        self.num_threads = num_threads
        self.convert: Convert = convert or (lambda batch: batch)
        self.on_device = on_device
        self.prefetcher = prefetcher
        self._slots = SlotPool(pinned=pinned)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.make_again is None:
            raise TypeError(f"a {type(self).__name__} is sent to another process only if it was given make_again.")
        return self.make_again, ()

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        return self.batches(epoch, start, len(self))

    def batches(self, epoch: int, start: int, stop: int) -> Iterator[Any]:
        """Yields the mini-batches of steps ``[start, stop)``."""
        num_ranks, rank = self._shared_by()
        return self.made(BatchRequest(epoch, step, rank, num_ranks) for step in range(start, stop))

    def made(self, requests: Iterator[BatchRequest]) -> Generator[Any, None, None]:
        """Yields these mini-batches, in their order. Requests are taken as threads come to them."""
        make, num_threads = self._open()  # here, where an interrupt can end it: threads would first have to finish
        if num_threads == 0:
            for request in requests:
                yield self._deliver(request, partial(make, request), QueueFill(ready=0))
            return
        make = self._with_setup(make)
        threads = Threads(num_threads, "gnnload-sample")
        # One more than are made: a batch waits to be consumed while each thread makes another.
        num_ahead = num_threads if self.num_ahead is None else max(self.num_ahead, num_threads)
        ahead: deque[tuple[BatchRequest, Future[_HostBatch | MadeOnDevice]]] = deque()
        try:
            for request in requests:
                ahead.append((request, threads.submit(make, request)))
                if len(ahead) > num_ahead:
                    yield self._next(ahead, threads)
            while ahead:
                yield self._next(ahead, threads)
        finally:
            threads.shutdown(cancel_futures=True)

    def _with_setup(self, make: Callable[[BatchRequest], _HostBatch | MadeOnDevice]) -> Callable[[BatchRequest], Any]:
        """Returns a function that makes a mini-batch in a thread, which it sets up first."""
        init_slots, init_user = self._slots.initializer(), self.on_thread  # of this thread's device

        def begin(number: int) -> None:
            if init_slots is not None:
                init_slots()
            if init_user is not None:
                init_user(number)

        return set_up_first(make, begin)

    def _open(self) -> tuple[Callable[[BatchRequest], _HostBatch | MadeOnDevice], int]:
        """Opens the source or the device. Returns what makes a mini-batch, and how many threads may call it at once."""
        if (on_device := self.on_device()) is None:
            self.source.open()
            return self._make, self.num_threads
        most = on_device.max_threads
        return on_device.make, self.num_threads if most is None else min(self.num_threads, most)

    def _make(self, request: BatchRequest) -> _HostBatch:
        slot = self._slots.take()
        try:
            payload = self.source.make(request, slot)
        except BaseException:
            self._slots.give(slot)
            raise
        began = time.monotonic()
        # Once lent, the slot comes back with the last tensor over it, also where converting raises.
        batch = self.convert(payload.view(self._slots.lend(slot)))
        return _HostBatch(payload, batch, (began, time.monotonic()))

    def _next(self, ahead: deque[tuple[BatchRequest, Future[_HostBatch | MadeOnDevice]]], threads: Threads) -> Any:
        # As the trainer finds it: others get done while it waits.
        fill = QueueFill(ready=sum(result.done() for _, result in ahead))
        request, result = ahead.popleft()
        return self._deliver(request, partial(threads.result, result), fill)

    def _deliver(self, request: BatchRequest, get: Callable[[], _HostBatch | MadeOnDevice], fill: QueueFill) -> Any:
        asked_s = time.monotonic()
        result = get()
        taken_s = time.monotonic()
        self._note(
            Delivery.of(
                result.payload, request.step, asked_s=asked_s, taken_s=taken_s, convert_s=result.convert_s, fill=fill
            )
        )
        return result.hand_over()

"""DelayedReduction: a DDP communication hook whose averages may be applied up to k steps late, and no later.

At step t, the hook starts an asynchronous all-reduce of the step's gradients, and waits for nothing. Its average may be
applied as soon as it has come, and must be before step t + k + 1 begins: a trainer that is late for less than k steps
delays nobody, and none gets more than k steps ahead of the slowest. All trainers apply the same averages in the same
order, so that their parameters pass through the same versions, bit for bit; they only do so at times of their own.

Each step has two collectives, in process groups of their own, which never mix with Lightning's: its gradients, a buffer
for each of DDP's buckets, and its control words, a few integers on the CPU. What the words of step t say is acted upon
at the end of step t + k, hence at the same step in every trainer, however early the average was applied.

Source: Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server (NeurIPS 2013), for
the bound; DSP (PPoPP'23), section 5, and GNNLab (EuroSys'22), section 5.2, for bounded asynchrony on graphs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn import Parameter

from lightning_gnnload.errors import StalenessError
from lightning_gnnload.host.socket_owners import guarded_group


@dataclass
class StalenessStats:
    """Counts how late one trainer's updates were, and how long it waited, over a fit with staleness k."""

    launched: int = 0  # steps whose gradients were computed
    applied: int = 0  # optimizer steps; equal to ``launched`` after a flush
    flushed: int = 0  # of these, those by a flush
    lag: int = 0  # updates between the parameters of the newest gradient and those that it changed; at most k
    mean_lag: float = 0.0  # of all updates
    max_lag: int = 0
    ahead: int = 0  # steps that this trainer has launched and, as far as it knows, the slowest has not; at most k
    max_ahead: int = 0
    wait_ms: float = 0.0  # for other trainers, where they were more than k steps behind or at a flush


class BucketEntry(NamedTuple):
    """The position and layout of one parameter's gradient in its DDP bucket."""

    parameter: Parameter
    begin: int
    size: torch.Size
    stride: tuple[int, ...]

    def shaped(self, bucket: Tensor) -> Tensor:
        return bucket.as_strided(self.size, self.stride, bucket.storage_offset() + self.begin)


def parameters_of(bucket: dist.GradBucket) -> list[Parameter]:
    """Returns the parameters whose gradients a bucket holds."""
    return cast(list[Parameter], bucket.parameters())


def entries_in(bucket: dist.GradBucket) -> Iterator[BucketEntry]:
    """Yields the entries of all parameters in ``bucket``, in order."""
    begin = 0
    for parameter in parameters_of(bucket):
        # DDP keeps a parameter's strides where they leave no gap, and falls back to contiguous ones.
        dense = torch.empty_like(parameter, device="meta")
        if dense.stride() != parameter.stride():
            dense = torch.empty(parameter.size(), device="meta")
        yield BucketEntry(parameter, begin, dense.size(), dense.stride())
        begin += dense.numel()


MAX_ANNOUNCED = 16
"""Trainer 0 can announce at most so many integers with a step."""
_NUM_WORDS = 4 + MAX_ANNOUNCED  # who asks to stop, and to save; flushes; how many are announced, and these
_FLUSHES = 2


class GradientTerm(NamedTuple):
    """One trainer's term in the average of a step's gradients. All trainers' sums are added and divided by their summed
    weights."""

    extra: Mapping[Parameter, Tensor] | None  # to add to the trainer's own, of each parameter that has one
    weight: float
    counts_own: bool = True  # whether the trainer's own gradients count


class ExtraGradients(Protocol):
    """A source of gradients beside the trainers' own, such as those of an idle sampler."""

    def take(self) -> GradientTerm:
        """Called in every trainer, once at the begin of each backward pass."""

    def announce(self) -> Sequence[int]:
        """Called in trainer 0, once a step: at most ``MAX_ANNOUNCED`` integers for all trainers."""

    def announced(self, launch: int, words: list[int]) -> None:
        """Called in every trainer, k launches after ``launch`` or at a flush, with what trainer 0 announced with it.
        Launches are counted from 0 over a fit."""


@dataclass(frozen=True)
class _Bucket:
    """One of DDP's buckets of one step, on its way through an all-reduce."""

    total: Tensor
    work: dist.Work
    entries: list[BucketEntry]
    has_weight: bool

    def average(self) -> Tensor:
        return self.total[:-1] / self.total[-1] if self.has_weight else self.total


@dataclass
class Launch:
    """The gradients and control words of one step, from the backward pass to the optimizer and to the bound."""

    number: int
    version: int
    flushes: int
    term: GradientTerm | None
    words: Tensor
    words_work: dist.Work
    buckets: list[_Bucket] = field(default_factory=list)

    @property
    def has_arrived(self) -> bool:
        """Whether neither the host nor a device would wait for the averages."""
        return self.words_work.is_completed() and all(bucket.work.is_completed() for bucket in self.buckets)

    def wait(self) -> None:
        """Waits until all trainers have launched this step; on CUDA the device waits, not the host."""
        self.words_work.wait()
        for bucket in self.buckets:
            bucket.work.wait()

    def gradients(self) -> dict[Parameter, Tensor]:
        """Returns the averages as an optimizer needs them: shaped, and laid out as DDP does it."""
        averages = (
            (entry, average) for bucket in self.buckets for average in [bucket.average()] for entry in bucket.entries
        )
        return {entry.parameter: entry.shaped(average) for entry, average in averages}


class DelayedReduction:
    """The state of the communication hook in one trainer: ``ddp.register_comm_hook(reduction, hook)``. Averages come at
    most ``staleness`` (k) updates late; ``contributions`` may add to the trainers' gradients. The constructor is a
    collective.

    Set ``stop_asked`` or ``save_asked`` to have all trainers stop, or save a checkpoint, after the same step;
    ``stop_agreed`` and ``save_agreed`` turn true there. Whatever yields averages raises StalenessError if trainers
    flushed after different steps.
    """

    def __init__(
        self, staleness: int, *, timeout: timedelta | None = None, contributions: ExtraGradients | None = None
    ) -> None:
        self.staleness = staleness
        self.contributions = contributions
        self.stats = StalenessStats()
        self.stop_asked = self.stop_agreed = False
        self.save_asked = self.save_agreed = False
        with guarded_group(dist.get_world_size(), dist.get_backend()):
            self._group = dist.new_group(timeout=timeout)
        # gloo whatever the trainers' backend: the host reads the words, and must not wait for a device to do so.
        with guarded_group(dist.get_world_size()):
            self._control = dist.new_group(timeout=timeout, backend="gloo")
        self._world_size = dist.get_world_size()
        self._is_first = dist.get_rank() == 0
        self._num_flushes = 0
        # Launches by the last flush: a flush after another one, with no step between, must count for nothing.
        self._num_drained = 0
        self.is_abandoned = False
        self._current: Launch | None = None
        # Both oldest first. An average may be applied before the words that came with it may be acted upon.
        self._unapplied: deque[Launch] = deque()
        self._unheeded: deque[Launch] = deque()

    @property
    def is_drained(self) -> bool:
        """Whether no step has been launched since the last flush."""
        return self.stats.launched == self._num_drained

    @property
    def num_unapplied(self) -> int:
        """Launches whose averages no optimizer has applied."""
        return len(self._unapplied)

    def reduce(self, bucket: dist.GradBucket) -> Future[Tensor]:
        """Takes one bucket of a backward pass; DDP calls it for each of them, in order."""
        if self._current is None:
            self._current = self._begin()
        self._current.buckets.append(self._send(bucket, self._current))
        if bucket.is_last():
            self._unapplied.append(self._current)
            self._unheeded.append(self._current)
            self._current = None
        # At once, with the trainer's own gradients: nobody waits in a backward pass. Averages go to the optimizer.
        devices: list[int | str | torch.device] = [bucket.buffer().device] if bucket.buffer().is_cuda else []
        answer: Future[Tensor] = Future(devices=devices or None)
        answer.set_result(bucket.buffer())
        return answer

    def arrived(self) -> Iterator[Launch]:
        """Yields the averages that have come and are to be applied now, oldest first; waits for none."""
        while self._unapplied and self._unapplied[0].has_arrived:
            yield self._finish(self._unapplied.popleft())

    def awaited(self, num_left: int) -> Iterator[Launch]:
        """Yields averages, oldest first, which are to be applied now; waits for each until ``num_left`` are left."""
        while len(self._unapplied) > num_left:
            yield self._finish(self._unapplied.popleft())

    def act_on_words(self, num_left: int) -> None:
        """Acts upon the control words of all launches but the last ``num_left``, alike in all trainers."""
        while len(self._unheeded) > num_left:
            launch = self._unheeded.popleft()
            stop, save, _, num_announced, *announced = launch.words.tolist()
            self.stop_agreed |= stop > 0
            self.save_agreed |= save > 0
            if self.contributions is not None:
                self.contributions.announced(launch.number, announced[:num_announced])
        # Control words come back once the slowest trainer has launched their step: those that have not are ahead.
        self.stats.ahead = sum(not launch.words_work.is_completed() for launch in self._unheeded)
        self.stats.max_ahead = max(self.stats.max_ahead, self.stats.ahead)

    def drain(self) -> Iterator[Launch]:
        """Yields all averages that are left, for a flush. Every trainer must drain after the same step."""
        for launch in self.awaited(0):
            yield launch
            self.stats.flushed += 1
        self.act_on_words(0)
        self._num_flushes += 1
        self._num_drained = self.stats.launched

    def abandon(self) -> None:
        """Forgets what is in flight: after a failure, there may be nobody to wait for."""
        self._unapplied.clear()
        self._unheeded.clear()
        self._num_drained = self.stats.launched
        self.is_abandoned = True

    def close(self) -> None:
        """Destroys the process groups, unless what was abandoned may still be under way in them."""
        if not self.is_abandoned:
            dist.destroy_process_group(self._group)
            dist.destroy_process_group(self._control)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Copies trainer 0's tensors to every trainer."""
        for tensor in tensors:
            dist.broadcast(tensor, src=0, group=self._group)

    def agree(self) -> None:
        """Agrees on ``stop_asked`` at once, where no step will end for some time. A collective."""
        wish = torch.tensor([int(self.stop_asked)])
        dist.all_reduce(wish, group=self._control)
        self.stop_agreed |= wish.item() > 0

    def gather(self, numbers: Tensor) -> Tensor:
        """Returns every trainer's ``numbers``, a row each; as many in all of them. A collective."""
        rows = [torch.empty_like(numbers) for _ in range(self._world_size)]
        dist.all_gather(rows, numbers, group=self._control)
        return torch.stack(rows)

    def count_update(self, launch: Launch) -> None:
        """Counts the update when an optimizer has applied ``launch``."""
        self.stats.lag = self.stats.applied - launch.version
        self.stats.max_lag = max(self.stats.max_lag, self.stats.lag)
        self.stats.applied += 1
        self.stats.mean_lag += (self.stats.lag - self.stats.mean_lag) / self.stats.applied
        launch.buckets.clear()  # its words may be needed for k steps more, its averages no longer

    def _begin(self) -> Launch:
        term, announced = None, []
        if self.contributions is not None:
            term = self.contributions.take()
            announced = list(self.contributions.announce()) if self._is_first else []
        if len(announced) > MAX_ANNOUNCED:
            raise StalenessError(f"{len(announced)} integers announced with a step: at most {MAX_ANNOUNCED} fit.")
        # Only trainer 0's announcement is not zeros, so that the sum hands it to all; the flags are counts of who asks.
        flags = [int(self.stop_asked), int(self.save_asked), self._num_flushes, len(announced), *announced]
        words = torch.tensor(flags + [0] * (_NUM_WORDS - len(flags)))
        work = dist.all_reduce(words, group=self._control, async_op=True)
        number, self.stats.launched = self.stats.launched, self.stats.launched + 1
        return Launch(number, self.stats.applied, self._num_flushes, term, words, work)

    def _send(self, bucket: dist.GradBucket, launch: Launch) -> _Bucket:
        gradient, entries = bucket.buffer(), list(entries_in(bucket))
        term = launch.term
        if term is None:
            total = gradient * (1.0 / self._world_size)  # DDP's own arithmetic: nothing but the delay is new
        else:
            # The weight rides as one more element, which saves a collective and keeps sum and weight together.
            total = torch.cat(
                [gradient if term.counts_own else torch.zeros_like(gradient), gradient.new_full((1,), term.weight)]
            )
            for entry in entries:
                if term.extra is not None and entry.parameter in term.extra:
                    entry.shaped(total).add_(term.extra[entry.parameter])
        work = dist.all_reduce(total, group=self._group, async_op=True)
        return _Bucket(total, work, entries, term is not None)

    def _finish(self, launch: Launch) -> Launch:
        began = time.perf_counter()
        launch.wait()
        self.stats.wait_ms += (time.perf_counter() - began) * 1e3
        flushes = launch.words[_FLUSHES].item()
        # One sum tells enough: where the counts differ, some trainer's own is not their average, and it raises.
        if flushes != launch.flushes * self._world_size:
            raise StalenessError(
                f"step {launch.number}: this trainer had flushed {launch.flushes} times, all {self._world_size} of "
                f"them together {flushes} times, so their parameters differ now. With staleness > 0, checkpoints and "
                f"state dicts must be made in all trainers at the same step, and should_stop be set in all of them."
            )
        return launch


def hook(reduction: DelayedReduction, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations in text
    """Calls ``reduction``, as the communication hook that ``register_comm_hook`` takes."""
    return reduction.reduce(bucket)

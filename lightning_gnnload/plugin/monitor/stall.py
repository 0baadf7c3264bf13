"""Stalls: a step that waits far longer than steps usually take, and their cause."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from statistics import median

from lightning_gnnload.pipeline.stats import Delivery
from lightning_gnnload.plugin.monitor.report import PipelineSettings
from lightning_gnnload.plugin.monitor.trace import Span, delivery_spans

MIN_STEPS = 8
"""So many steps come before any can stall: the first ones load data, start threads and warm caches."""
FAR_ABOVE = 20
"""A wait of so many usual steps is a stall, if it also takes ``MIN_STALL_MS``."""
MIN_STALL_MS = 500.0
STANDS_OUT = 3
"""A stall, however long, takes so many usual steps: where every step waits, the report at the end says so."""
QUIET_S = 60.0
"""At most one warning is given in so long."""
_REMEMBERED = 64
_RUNS = 0.2  # a thread that is on a core for less of the time is stopped, or waits for something


class Cause(Enum):
    """The reason why a step had to wait."""

    SAMPLING = "sampling"
    GATHERING = "gathering"
    CONVERSION = "conversion"
    STOPPED = "stopped"
    SLOTS = "slots"
    TRAINERS = "trainers"


@dataclass(frozen=True)
class StepTimes:
    """The times of one training step on this trainer."""

    number: int  # of the mini-batch, in this fit
    delivery: Delivery
    train_ms: float  # from the mini-batch's arrival to the step's end
    backward_ms: float = 0.0  # of this, the backward pass, in which gradients are reduced over the trainers
    backward_cpu_ms: float = 0.0  # of this, on a core

    @property
    def lost_ms(self) -> float:
        """The time that the trainer waited for the mini-batch, or converted it itself."""
        return self.delivery.wait_ms + (self.delivery.convert_ms if self.delivery.trainer_converts else 0.0)

    @property
    def total_ms(self) -> float:
        return self.lost_ms + self.train_ms


class StallWatch:
    """Decides after each step whether it stalled, and why. A wait of ``stall_s`` is a stall, even where steps are
    slow."""

    def __init__(self, rank: int, num_trainers: int, stall_s: float) -> None:
        self.rank = rank
        self.num_trainers = num_trainers
        self.stall_s = stall_s
        self._steps: deque[StepTimes] = deque(maxlen=_REMEMBERED)
        self._quiet_until = 0.0

    def look(self, step: StepTimes, settings: PipelineSettings) -> str | None:
        """Returns a warning if this step stalled and no warning is recent, else None."""
        # Before this step is added: what is usual must not depend on it.
        earlier = list(self._steps)
        self._steps.append(step)
        # Most steps end here: medians take longer than all else that the monitor does.
        shortest_ms = min(MIN_STALL_MS, self.stall_s * 1e3)
        if len(earlier) < MIN_STEPS or max(step.lost_ms, step.backward_ms) < shortest_ms:
            return None
        usual_ms = median(times.total_ms for times in earlier)
        peers_ms = self._waited_for_trainers(step, earlier)
        if self._is_stall(step.lost_ms, usual_ms):
            cause, lost_ms = blame(step.delivery, [times.delivery for times in earlier]), step.lost_ms
        elif self._is_stall(peers_ms, usual_ms):
            cause, lost_ms = Cause.TRAINERS, peers_ms
        else:
            return None
        if step.delivery.taken_s < self._quiet_until:
            return None
        self._quiet_until = step.delivery.taken_s + QUIET_S
        return (
            f"Trainer rank {self.rank} lost {lost_ms / 1e3:.1f} s at mini-batch {step.number}, where a whole step "
            f"usually takes {usual_ms / 1e3:.3f} s. {explain(cause, step.delivery, settings)}"
        )

    def _is_stall(self, lost_ms: float, usual_ms: float) -> bool:
        is_long = lost_ms >= self.stall_s * 1e3 or lost_ms >= max(FAR_ABOVE * usual_ms, MIN_STALL_MS)
        return is_long and lost_ms >= STANDS_OUT * usual_ms

    def _waited_for_trainers(self, step: StepTimes, earlier: list[StepTimes]) -> float:
        """Estimates the wait for other trainers' gradients: what a backward pass that is hardly on a core takes beyond
        the usual."""
        if self.num_trainers == 1 or step.backward_cpu_ms > 0.5 * step.backward_ms:
            return 0.0
        return step.backward_ms - median(times.backward_ms for times in earlier)


def blame(delivery: Delivery, earlier: Iterable[Delivery]) -> Cause:
    """Finds the largest part of the trainer's wait for a mini-batch, or of its conversion. ``earlier`` are the
    deliveries before it: what its maker did until it began."""
    requested, arrived = delivery.asked_s, delivery.taken_s
    gathering_s = _overlap(requested, arrived, delivery.sampled_s, delivery.made_s)
    sampling_s = _overlap(requested, arrived, delivery.began_s, delivery.sampled_s)
    convert_begin, convert_end = delivery.convert_s
    converting_s = (
        convert_end - convert_begin if delivery.trainer_converts else _overlap(requested, arrived, *delivery.convert_s)
    )
    before_s = max(min(delivery.began_s, arrived) - requested, 0.0)
    after_s = (arrived - requested) - before_s - sampling_s - gathering_s
    if not delivery.trainer_converts:
        after_s -= converting_s
    parts = {
        Cause.SAMPLING: sampling_s,
        Cause.GATHERING: gathering_s,
        Cause.CONVERSION: converting_s,
        Cause.STOPPED: after_s,
        Cause.SLOTS: before_s,
    }
    cause = max(parts, key=lambda part: parts[part])
    if cause is Cause.SLOTS:
        return _why_so_late(delivery, earlier, before_s)
    if cause is Cause.SAMPLING and _share_on_core(delivery) < _RUNS:
        return Cause.STOPPED
    return cause


def _why_so_late(delivery: Delivery, earlier: Iterable[Delivery], before_s: float) -> Cause:
    """Finds why nobody had begun to make the mini-batch when the trainer requested it."""
    # Its maker takes the steps in order: what kept it busy until then was delivered before.
    same_maker = [batch for batch in earlier if batch.made_by == delivery.made_by]
    sampling_s = sum(
        _overlap(delivery.asked_s, delivery.began_s, batch.began_s, batch.sampled_s) for batch in same_maker
    )
    gathering_s = sum(
        _overlap(delivery.asked_s, delivery.began_s, batch.sampled_s, batch.made_s) for batch in same_maker
    )
    if sampling_s + gathering_s > 0.5 * before_s:
        return Cause.SAMPLING if sampling_s >= gathering_s else Cause.GATHERING
    fill = delivery.fill
    return Cause.SLOTS if 0 < fill.slots <= fill.lent + fill.ready else Cause.STOPPED


def explain(cause: Cause, delivery: Delivery, settings: PipelineSettings) -> str:
    """Says the cause, in figures, and the setting to change."""
    maker = f"sampler rank {delivery.made_by}" if settings.samplers else "this rank's sampling thread"
    making_s = (delivery.sample_ms + delivery.gather_ms) / 1e3
    on_core = f"on a core for {_share_on_core(delivery):.0%} of the time"
    texts = {
        Cause.SAMPLING: (
            f"The cause is sampling, which took {maker} {delivery.sample_ms / 1e3:.2f} s, {on_core}. "
            f"Raise {settings.more_workers}; or draw fewer neighbours."
        ),
        Cause.GATHERING: (
            f"The cause is gathering, which took {maker} {delivery.gather_ms / 1e3:.2f} s for {delivery.num_nodes} "
            f"rows, {on_core}; a small share means that features come from a disk. "
            f"Raise {settings.more_workers}; or keep the features in memory."
        ),
        Cause.CONVERSION: (
            f"The cause is conversion to batch_format, which took {delivery.convert_ms / 1e3:.2f} s in "
            f"{'this trainer' if delivery.trainer_converts else 'its sampling thread'}. "
            f"batch_format='blocks' needs no conversion"
            + (f"; else raise {settings.more_workers}." if not delivery.trainer_converts else ".")
        ),
        Cause.STOPPED: (
            f"The cause is {maker}, which was stopped, starved of cores, or busy with mini-batches of others "
            f"(it made this one in {making_s:.2f} s, {on_core}). "
            f"Leave it cores of its own, or raise {settings.more_workers}."
        ),
        Cause.SLOTS: (
            f"The cause is this trainer, which held {delivery.fill.lent} of {delivery.fill.slots} slots, so that no "
            f"mini-batch could be made ahead. Keep no tensor of a batch beyond its step (batch.clone() frees the "
            f"slot), or raise {settings.deeper_queue}."
        ),
        Cause.TRAINERS: (
            f"The cause are the other trainers, whose gradients it waited for in the backward pass; their own "
            f"warnings may say why. To hide such waits, raise {settings.later_gradients}."
        ),
    }
    return texts[cause]


def _overlap(begin: float, end: float, other_begin: float, other_end: float) -> float:
    return max(min(end, other_end) - max(begin, other_begin), 0.0)


def _share_on_core(delivery: Delivery) -> float:
    return min(delivery.cpu_ms / max(delivery.sample_ms + delivery.gather_ms, 1e-9), 1.0)


class StepClock:
    """Times one training step, from its own construction. ``delivery`` is of the mini-batch; None for loaders of other
    kinds."""

    def __init__(self, delivery: Delivery | None = None) -> None:
        self.delivery = delivery
        self.began_s = time.monotonic()
        self.ended_s = self.began_s
        self._backward_s: tuple[float, float] | None = None
        self._backward_cpu_s = (0.0, 0.0)

    def begin_backward(self) -> None:
        """Notes the start of the backward pass; of several, in manual optimization, the first counts."""
        if self._backward_s is None:
            self._backward_s = (time.monotonic(), time.monotonic())
            self._backward_cpu_s = (time.thread_time(), time.thread_time())

    def end_backward(self) -> None:
        """Notes the end of the backward pass; of several, the last counts."""
        if self._backward_s is not None:
            self._backward_s = (self._backward_s[0], time.monotonic())
            self._backward_cpu_s = (self._backward_cpu_s[0], time.thread_time())

    def end(self) -> None:
        self.ended_s = time.monotonic()

    @property
    def train_ms(self) -> float:
        return (self.ended_s - self.began_s) * 1e3

    def times(self, number: int) -> StepTimes | None:
        """The step's times, for the search for stalls; None where there is no delivery."""
        if self.delivery is None:
            return None
        begin, end = self._backward_s or (0.0, 0.0)
        cpu_begin, cpu_end = self._backward_cpu_s
        return StepTimes(number, self.delivery, self.train_ms, (end - begin) * 1e3, (cpu_end - cpu_begin) * 1e3)

    def spans(self, *, rank: int, number: int) -> list[Span]:
        """The spans of the step, of its parts, and of how its mini-batch came, for the trace."""
        thread = threading.current_thread().name
        parts = [("train", self.began_s, self.ended_s)]
        if self._backward_s is not None:
            begin, end = self._backward_s
            parts += [("forward", self.began_s, begin), ("backward", begin, end), ("optimizer", end, self.ended_s)]
        spans = [Span(stage, rank, thread, begin, end, number) for stage, begin, end in parts]
        if self.delivery is not None:
            spans += delivery_spans(self.delivery, number=number, rank=rank, thread=thread)
        return spans

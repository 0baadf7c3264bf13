"""StepClock: the moments of the training step under way."""

from __future__ import annotations

import threading
import time

from lightning_gnnload.pipeline.stats import Delivery
from lightning_gnnload.plugin.monitor.stall import StepTimes
from lightning_gnnload.plugin.monitor.trace import Span, spans_of


class StepClock:
    """Starts when it is made, with the step.

    Args:
        delivery: of the step's mini-batch; None where a loader of another kind brought it.
    """

    def __init__(self, delivery: Delivery | None = None) -> None:
        self.delivery = delivery
        self.began_s = time.monotonic()
        self.ended_s = self.began_s
        self._backward_s: tuple[float, float] | None = None
        self._backward_cpu_s = (0.0, 0.0)

    def begin_backward(self) -> None:
        """Of several, in manual optimization, the first counts."""
        if self._backward_s is None:
            self._backward_s = (time.monotonic(), time.monotonic())
            self._backward_cpu_s = (time.thread_time(), time.thread_time())

    def end_backward(self) -> None:
        """Of several, the last counts."""
        if self._backward_s is not None:
            self._backward_s = (self._backward_s[0], time.monotonic())
            self._backward_cpu_s = (self._backward_cpu_s[0], time.thread_time())

    def end(self) -> None:
        self.ended_s = time.monotonic()

    @property
    def train_ms(self) -> float:
        return (self.ended_s - self.began_s) * 1e3

    def times(self, number: int) -> StepTimes | None:
        """For the search for stalls; None where there is no delivery."""
        if self.delivery is None:
            return None
        begin, end = self._backward_s or (0.0, 0.0)
        cpu_begin, cpu_end = self._backward_cpu_s
        return StepTimes(number, self.delivery, self.train_ms, (end - begin) * 1e3, (cpu_end - cpu_begin) * 1e3)

    def spans(self, *, rank: int, number: int) -> list[Span]:
        """For the trace: the step, its parts, and how its mini-batch came."""
        thread = threading.current_thread().name
        parts = [("train", self.began_s, self.ended_s)]
        if self._backward_s is not None:
            begin, end = self._backward_s
            parts += [("forward", self.began_s, begin), ("backward", begin, end), ("optimizer", end, self.ended_s)]
        spans = [Span(stage, rank, thread, begin, end, number) for stage, begin, end in parts]
        if self.delivery is not None:
            spans += spans_of(self.delivery, number=number, rank=rank, thread=thread)
        return spans

"""Profit: whether it pays that an idle sampler trains, from measured times."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

_REMEMBERED = 9  # few, so that the median follows a change; odd, so that it is one of them
_JUDGED_BY = 3  # a sampler's first batch is slow, and must not be its last


@dataclass
class Timings:
    """The recent durations of one thing, in milliseconds; their median is what counts, which no single late one
    moves."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def add(self, duration_ms: float) -> None:
        self.recent.append(duration_ms)

    @property
    def typical_ms(self) -> float:
        """The median; 0 before the first duration is known."""
        return median(self.recent) if self.recent else 0.0

    @property
    def are_many(self) -> bool:
        return len(self.recent) >= _JUDGED_BY


@dataclass(frozen=True)
class Profit:
    """An estimate of the time that a contributed step saves, in milliseconds.

    GNNLab lets a standby trainer take a mini-batch when P = M_r T_t / N_t - T_t' > 0: when it ends before the trainers
    have trained the M_r that are left. Here trainers go in step with each other, and only a whole step saves them time.
    So M_r are the mini-batches that they train before they come to the step in question, and T_t' is what the samplers
    need for all that is missing of it.

    Lateness is what GNNLab, which bounds no staleness there, need not know: a gradient that comes after its time must
    be waited for by all trainers, which costs more than it saves when it is later than ``step_ms / num_trainers``.

    Args:
        num_left: M_r.
        step_ms: T_t.
        num_trainers: N_t.
        needed_ms: T_t'.
        late_ms: how much later than its bound allows a gradient would typically come; negative is in time.

    Example:
        >>> profit = Profit(num_left=40, step_ms=20.0, num_trainers=2, needed_ms=48.0, late_ms=-12.0)
        >>> profit.value_ms, profit.is_worth_it
        (352.0, True)

    Source: GNNLab (EuroSys'22), section 5.3.
    """

    num_left: int
    step_ms: float
    num_trainers: int
    needed_ms: float
    late_ms: float

    @property
    def value_ms(self) -> float:
        """The profit P, in milliseconds."""
        return self.num_left * self.step_ms / self.num_trainers - self.needed_ms

    @property
    def is_worth_it(self) -> bool:
        # A contributed slice saves all trainers ``step_ms / num_trainers``: to wait for longer would be a loss.
        return self.value_ms > 0 and self.late_ms < self.step_ms / self.num_trainers

    def __str__(self) -> str:
        return (
            f"profit {self.value_ms:+.0f} ms = {self.num_left} mini-batches left x {self.step_ms:.1f} ms "
            f"/ {self.num_trainers} trainers - {self.needed_ms:.1f} ms"
            + (f"; a sampler's gradient would come {self.late_ms:.1f} ms too late" if self.late_ms > 0 else "")
        )

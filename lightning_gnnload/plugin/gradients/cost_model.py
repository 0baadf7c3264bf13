"""CostModel: whether it pays that an idle sampler trains, by measured times."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

_REMEMBERED = 9  # few, so that the median follows a change; odd, so that it is one of them
JUDGED_BY = 3
"""So many are needed for a judgement: the first is slow, and must not be the last."""


@dataclass
class Timings:
    """Recent durations in milliseconds, of which mostly the median is used: no single late one moves it."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def add(self, duration_ms: float) -> None:
        self.recent.append(duration_ms)

    @property
    def typical_ms(self) -> float:
        """The median; 0 before the first duration is known."""
        return median(self.recent) if self.recent else 0.0

    @property
    def sum_ms(self) -> float:
        return sum(self.recent)

    @property
    def are_many(self) -> bool:
        return len(self.recent) >= JUDGED_BY


Verdict = Literal["worth", "short", "late"]
"""Whether it pays that a sampler trains; not, when the epoch ends too soon for it, or its gradients come too late."""


@dataclass(frozen=True)
class CostModel:
    """An estimate of the time that a contributed step saves, in milliseconds.

    GNNLab lets a standby trainer take a mini-batch when P = M_r T_t / N_t - T_t' > 0: when it ends before the trainers
    have trained the M_r that are left. Here trainers step together, and only a whole step saves them time. So M_r
    (``num_left``) are the mini-batches that they train before they come to the step in question, and T_t'
    (``needed_ms``) is what the samplers need for all that is missing of it. T_t is ``step_ms``, N_t ``num_trainers``.

    GNNLab bounds no staleness; here, all trainers must wait for a gradient that comes after its time. Half of
    ``saved_ms`` may go into that, as a gradient that does not come after all costs the whole. What an estimate cannot
    see, such as a sampler whose times vary, shows in what its gradients have won.

    Example:
        >>> estimate = CostModel(
        ...     num_left=40, step_ms=20.0, num_trainers=2, needed_ms=48.0, train_ms=24.0, late_ms=-12.0, bound=1
        ... )
        >>> estimate.value_ms, estimate.verdict
        (352.0, 'worth')

    Source: GNNLab (EuroSys'22), section 5.3.
    """

    num_left: int
    step_ms: float
    num_trainers: int
    needed_ms: float
    train_ms: float
    late_ms: float
    bound: int
    won_ms: float | None = None

    @property
    def value_ms(self) -> float:
        """The profit P, in milliseconds."""
        return self.num_left * self.step_ms / self.num_trainers - self.needed_ms

    @property
    def saved_ms(self) -> float:
        """What one contributed slice saves all trainers."""
        return self.step_ms / self.num_trainers

    @property
    def verdict(self) -> Verdict:
        if self.is_late or (self.won_ms is not None and self.won_ms <= 0):
            return "late"
        return "worth" if self.value_ms > 0 else "short"

    @property
    def is_late(self) -> bool:
        """Whether gradients come so late that waiting for them is no option."""
        return self.late_ms >= self.saved_ms / 2

    @property
    def lag(self) -> int:
        """The updates by which the sampler's gradients are late when they come."""
        return self.bound + math.ceil(self.late_ms / self.step_ms)

    def __str__(self) -> str:
        figures = (
            f"profit {self.value_ms:+.0f} ms = {self.num_left} mini-batches left x {self.step_ms:.1f} ms "
            f"/ {self.num_trainers} trainers - {self.needed_ms:.1f} ms"
        )
        remedy = f"FactoredStrategy(switching={max(self.lag, self.bound + 1)})"
        if self.verdict == "worth":
            spared = f"; trainers wait {self.late_ms:.1f} ms for each gradient, which {remedy} would spare them"
            return f"trains while it is idle: {figures}{spared if self.late_ms > 0 else ''}"
        if self.verdict == "short":
            return f"stays idle: {figures}"
        if self.is_late:
            reason = (
                f"it takes {self.train_ms:.1f} ms to train a mini-batch and trainers {self.step_ms:.1f} ms, so its "
                f"gradients would be {self.lag} updates late, and at most {self.bound} may be"
            )
        else:
            reason = f"its newest gradients won the trainers {self.won_ms or 0:+.1f} ms, as too few came in time"
        return f"stays idle: {reason}. {remedy} lets them join; older gradients need a lower learning rate"

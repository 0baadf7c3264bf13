"""StepPlan: which seeds each rank takes at each step. BatchRequest: names one of the mini-batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lightning_gnnload.errors import SeedError

SMALLEST_LAST_STEP = 32
"""The inverse of the fraction of a full step from which an epoch's rest is a step of its own."""


@dataclass(frozen=True)
class BatchRequest:
    """Names one mini-batch: the slice of rank ``rank`` of ``num_ranks`` in global step ``step`` of epoch ``epoch``; or
    these ``rows``, where a loader of another library lists them."""

    epoch: int
    step: int
    rank: int
    num_ranks: int
    rows: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class StepPlan:
    """Cuts an epoch's seeds into global steps, and each step into near-equal slices, one a rank.

    Every seed comes once, and every rank has a seed in every step, so that no collective waits for a rank that has run
    out. Steps depend on the number of seeds and the global batch size alone, not on the number of ranks. To that end, a
    rest of less than a 32nd of a global batch joins the step before it; a larger one has a seed for every rank if
    ``batch_size`` is 32 or more. Otherwise a rest of fewer seeds than ranks joins the step before as well: in that step
    the number of ranks shows. ``keep_rest`` makes any rest with a seed for every rank a step, as other loaders do.

    Raises:
        SeedError: some rank would have no seed at all.

    Example:
        >>> plan = StepPlan(num_seeds=4097, batch_size=1024, num_ranks=4)
        >>> plan.num_steps, [plan.slice(0, rank) for rank in range(4)]
        (1, [(0, 1024), (1024, 2048), (2048, 3072), (3072, 4097)])
        >>> StepPlan(num_seeds=4097, batch_size=4096, num_ranks=1).num_steps
        1
    """

    num_seeds: int
    batch_size: int
    num_ranks: int
    drop_last: bool = False
    keep_rest: bool = False

    def __post_init__(self) -> None:
        if self.num_seeds < self.num_ranks or (self.drop_last and self.num_seeds < self.global_batch_size):
            needed = self.global_batch_size if self.drop_last else self.num_ranks
            full_step = f" for one full step of {self.num_ranks} x {self.batch_size} with drop_last."
            raise SeedError(
                f"{self.num_seeds} seeds cannot be shared by {self.num_ranks} trainers: at least {needed} are needed"
                f"{full_step if self.drop_last else ', one each.'} Use fewer trainers or more seeds."
            )

    @cached_property
    def global_batch_size(self) -> int:
        return self.batch_size * self.num_ranks

    @cached_property
    def num_steps(self) -> int:
        full, rest = divmod(self.num_seeds, self.global_batch_size)
        if self.drop_last:
            return full
        # Seeds are not dropped: a rest that is no step of its own goes to the last one, or is the only one.
        is_large = self.keep_rest or rest * SMALLEST_LAST_STEP >= self.global_batch_size
        stands_alone = is_large and rest >= self.num_ranks
        return max(full + stands_alone, 1)

    def step(self, step: int) -> tuple[int, int]:
        """Returns the positions ``[begin, end)`` in the epoch's order of all seeds of one global step."""
        begin = step * self.global_batch_size
        is_last = step == self.num_steps - 1
        if is_last and not self.drop_last:
            return begin, self.num_seeds
        return begin, begin + self.global_batch_size

    def slice(self, step: int, rank: int) -> tuple[int, int]:
        """Returns the positions ``[begin, end)`` of one rank's seeds of one global step."""
        begin, end = self.step(step)
        # In integers, and without a rest: neighbours share their bounds, and sizes differ by one at most.
        count = end - begin
        return begin + count * rank // self.num_ranks, begin + count * (rank + 1) // self.num_ranks

    def weight(self, step: int, rank: int) -> float:
        """Returns the weight of a rank's mean loss with which DDP's plain mean over ranks is the mean over all seeds.

        It is 1 where slices are equal. Only an epoch's last step may have others.
        """
        begin, end = self.step(step)
        first, last = self.slice(step, rank)
        return (last - first) * self.num_ranks / (end - begin)

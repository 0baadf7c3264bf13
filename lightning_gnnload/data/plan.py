"""StepPlan: which seeds each rank takes at each step; BatchRequest: one of the mini-batches that come of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lightning_gnnload.errors import SeedError

SMALLEST_LAST_STEP = 32
"""An epoch's last step stands alone from this fraction of a full one on: a 32nd."""


@dataclass(frozen=True)
class BatchRequest:
    """Names one mini-batch: the slice of rank ``rank`` of ``num_ranks`` in global step ``step`` of epoch ``epoch``."""

    epoch: int
    step: int
    rank: int
    num_ranks: int


@dataclass(frozen=True)
class StepPlan:
    """Cuts an epoch's seeds into global steps, and each step into near-equal slices, one a rank.

    Every rank gets the same number of steps and at least one seed in each, so no collective waits for a rank that
    has run out; every seed comes exactly once.

    The number of steps and the seeds of each depend on the number of seeds and the global batch size alone, so that
    another number of ranks sees the same steps. To that end, a last step of less than a 32nd of a global batch joins
    the step before it, which grows by 3 % at most; a larger rest is a seed for every rank wherever ``batch_size`` is
    32 or more. Where ``batch_size`` is smaller, a rest of fewer seeds than ranks joins the step before as well, whose
    slices grow by one: at that one step, the number of ranks shows.

    Args:
        num_seeds: seeds in the epoch.
        batch_size: seeds per rank and step.
        num_ranks: trainer ranks.
        drop_last: leave out the last step when it is not full.
        keep_rest: let a last step stand alone wherever it has a seed for every rank, as loaders of other libraries do.

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
            raise SeedError(
                f"{self.num_seeds} seeds cannot be shared by {self.num_ranks} trainers: at least {needed} are needed"
                + (
                    f" for one full step of {self.num_ranks} x {self.batch_size} with drop_last."
                    if self.drop_last
                    else ", one each."
                )
                + " Use fewer trainers or more seeds."
            )

    @cached_property
    def global_batch_size(self) -> int:
        return self.batch_size * self.num_ranks

    @cached_property
    def num_steps(self) -> int:
        full, rest = divmod(self.num_seeds, self.global_batch_size)
        if self.drop_last:
            return full
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
        count = end - begin
        return begin + count * rank // self.num_ranks, begin + count * (rank + 1) // self.num_ranks

    def weight(self, step: int, rank: int) -> float:
        """Returns the weight of a rank's mean over its seeds, by which the plain mean over ranks, which DDP takes of
        gradients, is the mean over the step's seeds. It is 1 where slices are equal, which only an epoch's last step
        may not have; there it differs from 1 by less than the inverse of the smallest slice."""
        begin, end = self.step(step)
        first, last = self.slice(step, rank)
        return (last - first) * self.num_ranks / (end - begin)

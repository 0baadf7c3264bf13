"""SliceAllocator: which slices of an epoch idle samplers get, and which of them the trainers need not train."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import islice


class SliceAllocator:
    """Gives the slices of one epoch to samplers, takes back those that they do not train, and knows which were merged.
    A slice is one of the ``num_ranks`` mini-batches of a step; ``step`` is the one under way.

    It gives them from the epoch's end backwards, so that a sampler's mini-batch is as far ahead of the trainers as can
    be. ``staleness`` counts the reductions until an announcement is read; ``merged`` slices are of before an
    interruption.

    Example:
        >>> slices = SliceAllocator(num_ranks=2, staleness=0, start=0, stop=10)
        >>> [slices.give(), slices.give(), slices.give()]
        [19, 18, 17]
        >>> slices.give_back(18)
        >>> slices.give(), slices.num_before(step=8)
        (18, 7)
    """

    def __init__(
        self, *, num_ranks: int, staleness: int, start: int = 0, stop: int = 0, merged: Iterable[int] = ()
    ) -> None:
        self.num_ranks = num_ranks
        self.staleness = staleness
        self.step = start
        self._merged: defaultdict[int, set[int]] = defaultdict(set)  # ranks, by step ahead
        self._lowest_merged = stop
        self._next = stop * num_ranks - 1  # downwards; what lies above was given before
        self._returned: set[int] = set()
        for number in merged:
            self.merge(number)

    def pass_to(self, step: int) -> None:
        """Notes that the trainers have come to ``step``, of which no slice may be given any more."""
        for passed in range(self.step, step + 1):
            self._merged.pop(passed, None)
        self.step = step
        self._returned = {number for number in self._returned if number // self.num_ranks > step}

    def candidate(self) -> int | None:
        """Returns the last slice ahead that nobody has; None where there is none."""
        if self._returned:
            return max(self._returned)
        while self._next % self.num_ranks in self._merged.get(self._next // self.num_ranks, ()):
            self._next -= 1  # contributed before an interruption
        return self._next if self._next // self.num_ranks > self.step else None

    def give(self) -> int | None:
        number = self.candidate()
        if number is not None:
            self._returned.discard(number)
            self._next = min(self._next, number - 1)
        return number

    def give_back(self, number: int) -> None:
        """Takes a slice back that nobody has any more; one that the trainers have come to is trained by them."""
        if number // self.num_ranks > self.step:
            self._returned.add(number)

    def merge(self, number: int) -> None:
        """Records that a slice's gradient has joined the trainers'."""
        step, rank = divmod(number, self.num_ranks)
        self._merged[step].add(rank)
        self._lowest_merged = min(self._lowest_merged, step)

    def is_whole(self, step: int) -> bool:
        return len(self._merged.get(step, ())) == self.num_ranks

    def num_before(self, step: int) -> int:
        """Counts the steps that the trainers train themselves before they come to ``step``."""
        between = step - self.step - 1
        # Mostly false, as slices are given downwards; it saves the look at each merged step.
        if self._lowest_merged < step:
            between -= sum(merged < step and self.is_whole(merged) for merged in self._merged)
        return between

    def is_mergeable(self, number: int) -> bool:
        """Whether all trainers will learn before a slice's step what is announced with the step under way."""
        step = number // self.num_ranks
        trained = (ahead for ahead in range(self.step + 1, step) if not self.is_whole(ahead))
        return step > self.step and len(list(islice(trained, self.staleness))) == self.staleness

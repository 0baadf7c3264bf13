"""Contributed steps: what samplers have trained ahead of the trainers, and how the trainers pass over it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lightning_gnnload.errors import CheckpointError


@dataclass
class ContributedStep:
    """Stands in for the mini-batch of a step that samplers have trained completely.

    Lightning counts it like any other step; the model does not see it. Callbacks do, as their ``batch``.

    Example:
        >>> def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):  # of a callback
        ...     if not isinstance(batch, ContributedStep):
        ...         self.seeds += batch.num_seeds
    """

    epoch: int
    step: int


class Ledger:
    """Records which slices of an epoch's global steps samplers have contributed.

    All trainers add the same slices between the same two steps, so they pass over the same steps: see
    :class:`.SamplerGradients`. A slice is numbered ``step * num_ranks + rank`` within the epoch. ``stream`` is the open
    stream of the training epoch, or -1; ``step`` is the one that Lightning asked for last, ``stop`` the end of the
    epoch.

    Example:
        >>> ledger = Ledger(num_ranks=2)
        >>> ledger.open(stream=0, epoch=0, start=0, stop=10)
        >>> ledger.add([18, 19, 17])
        >>> ledger.is_whole(9), ledger.is_whole(8), ledger.has(8, rank=1), ledger.ahead(9)
        (True, False, True, [18, 19])
    """

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        self.stream = -1
        self.epoch = self.step = self.stop = 0
        self._slices: defaultdict[int, set[int]] = defaultdict(set)  # the ranks, by step

    def open(self, *, stream: int, epoch: int, start: int, stop: int, contributed: Iterable[int] = ()) -> None:
        """Begins an epoch, or goes on with one at ``start``, with what was ``contributed`` before the interruption."""
        self.stream, self.epoch, self.step, self.stop = stream, epoch, start, stop
        self._slices.clear()
        self.add(contributed)

    def close(self) -> None:
        self.stream = -1

    def add(self, slices: Iterable[int]) -> None:
        for number in slices:
            step, rank = divmod(number, self.num_ranks)
            self._slices[step].add(rank)

    def has(self, step: int, rank: int) -> bool:
        return rank in self._slices.get(step, ())

    def is_whole(self, step: int) -> bool:
        """Whether all slices of ``step`` were contributed, so that the trainers pass over it."""
        return len(self._slices.get(step, ())) == self.num_ranks

    def ahead(self, step: int) -> list[int]:
        """Returns the contributed slices of ``step`` and of later steps, in order."""
        slices = ((s, rank) for s, ranks in self._slices.items() if s >= step for rank in ranks)
        return sorted(s * self.num_ranks + rank for s, rank in slices)

    def state(self, step: int) -> dict[str, Any]:
        """Returns what a run that resumes at ``step`` must know of contributed slices."""
        return {"num_ranks": self.num_ranks, "slices": self.ahead(step)}

    def resumable(self, state: dict[str, Any]) -> list[int]:
        """Returns the slices of a :meth:`state` that need no further training, numbered for this run's trainers.

        With another number of trainers, only whole steps count; slices of incomplete steps are trained again.
        """
        if state["num_ranks"] == self.num_ranks:
            return list(state["slices"])
        # A global step has the same seeds for any number of trainers; its slices are other ones then.
        then = Ledger(state["num_ranks"])
        then.add(state["slices"])
        whole = [step for step in sorted(then._slices) if then.is_whole(step)]
        return [step * self.num_ranks + rank for step in whole for rank in range(self.num_ranks)]


def place_alone(state: Any) -> Any:
    """Returns a loader's state without the contributed slices. CheckpointError: there are some, and no ledger to skip
    them."""
    if not isinstance(state, dict) or "contributed" not in state:
        return state
    if slices := state["contributed"]["slices"]:
        raise CheckpointError(
            f"the checkpoint comes from the middle of an epoch, and samplers had trained {len(slices)} mini-batches of "
            f"its end, which would be trained again. Resume it with FactoredStrategy(switching=True), or take a "
            f"checkpoint from an epoch's end."
        )
    return {name: value for name, value in state.items() if name != "contributed"}

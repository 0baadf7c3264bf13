"""SliceScheduler: how trainer 0 shares an epoch's last steps out to idle samplers, and takes in their gradients.

The unit is a slice: one trainer's mini-batch of one global step. A sampler computes its gradient with the newest
parameters that trainer 0 has published; trainer 0 adds it to its own at the begin of a backward pass, unless it is too
old. Only then is a slice contributed. A sampler that dies, is late or gives up leaves its slices to be given again, or
to the trainers: there is nothing to agree on, and no mini-batch can be lost or trained twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

import torch
from torch import Tensor
from torch.nn import Parameter

from lightning_gnnload.pipeline.contributed import Ledger
from lightning_gnnload.pipeline.queue import BatchQueue
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.gradients.contributors import (
    MAX_OUT,
    Contributor,
    Contributors,
    Gradient,
    SwitchingStats,
    Tensors,
)
from lightning_gnnload.plugin.gradients.profit import Profit, Timings
from lightning_gnnload.plugin.gradients.reduction import GradientTerm
from lightning_gnnload.plugin.gradients.slice_allocator import SliceAllocator

MAX_MERGED = 8
"""At most so many gradients join one step, as each is announced with it."""
_POLL_S = 0.005


class SliceScheduler:
    """Schedules slices of an epoch on idle samplers, and merges their gradients; trainer 0's part of switching. Used by
    one thread at a time, as its queue is.

    Args:
        queue: to the samplers.
        module: the model that they train too.
        ledger: tells the stream and the step that are under way.
        staleness: of the strategy.
        bound: updates that a sampler's gradient may be late.
        version: updates that the parameters have seen.
        global_step: Lightning's.
        max_steps: Lightning's; -1 is none.
    """

    def __init__(
        self,
        queue: BatchQueue,
        module: torch.nn.Module,
        ledger: Ledger,
        *,
        staleness: int,
        bound: int,
        version: Callable[[], int],
        global_step: Callable[[], int],
        max_steps: int,
    ) -> None:
        self.stats = SwitchingStats()
        self.bound = bound
        self._ledger = ledger
        self._staleness = staleness
        self._num_ranks = ledger.num_ranks
        self._version = version
        self._global_step = global_step
        self._max_steps = max_steps
        self._stream = -1
        self._slices = SliceAllocator(num_ranks=self._num_ranks, staleness=staleness)
        self._contributors = Contributors(queue, module, self.stats, version=version, returned=self._take_back)
        # What the step under way takes in, from the begin of its backward pass to the end of its update.
        self._merging: list[Gradient] = []
        self._forward, self._step = Timings(), Timings()
        self._updated_at: float | None = None
        self._awaited_ms = 0.0

    # What the strategy calls, step by step.

    def before_backward(self) -> None:
        """Chooses the gradients that join this step; waits for those that could join no later one."""
        # The loader opens the epoch's stream when Lightning asks it for a mini-batch, and tells nobody but the ledger.
        if self._ledger.stream != self._stream:
            self._begin_epoch()
        self._slices.pass_to(self._ledger.step)
        if self._updated_at is not None:
            self._forward.add((time.perf_counter() - self._updated_at) * 1e3)
        self._contributors.handle_messages()
        self._await_due()
        self._merging = self._choose()
        self._share_out(fresh=False)

    def after_update(self) -> None:
        """Ends this step once the optimizer is done with it, whether or not it had something to apply."""
        now = time.perf_counter()
        if self._updated_at is not None:
            self._step.add((now - self._updated_at) * 1e3 - self._awaited_ms)
        self._updated_at = now
        for gradient in self._merging:
            self._contributors.settle(gradient)
        self._merging = []
        self._contributors.handle_messages()
        for member in self._contributors.members:
            # Only who trains needs parameters: each publishing copies the whole state.
            if member.out:
                self._publish(member, fresh=True)
        self._share_out(fresh=True)

    def pause(self) -> None:
        """Stops the clock: what comes now is no training, and counts for no step's time."""
        self._updated_at = None

    @property
    def merging(self) -> list[int]:
        """The slices whose gradients join the step that is under way."""
        return [gradient.slice for gradient in self._merging]

    def gradients(self) -> Iterator[Tensors]:
        """Yields the gradients that join this step, by parameter name; valid until the optimizer's step."""
        for gradient in self._merging:
            yield gradient.tensors

    def close(self) -> None:
        self._contributors.close()
        self._merging.clear()

    # Slices.

    def _begin_epoch(self) -> None:
        ledger = self._ledger
        self._stream = ledger.stream
        # Steps beyond ``max_steps`` are never trained: a slice of one would be contributed to nothing.
        num_left = self._max_steps - self._global_step() if self._max_steps >= 0 else inf
        self._slices = SliceAllocator(
            num_ranks=self._num_ranks,
            staleness=self._staleness,
            start=ledger.step,
            stop=int(min(ledger.stop, ledger.step + num_left)),
            merged=ledger.ahead(ledger.step),
        )
        self._contributors.begin_epoch(ledger.stream)
        self.pause()

    def _take_back(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._slices.give_back(number)

    def _share_out(self, *, fresh: bool) -> None:
        # The first steps compile and allocate: the profit that they promise would be false.
        if not self._step.are_many:
            return
        for member in self._contributors.members:
            had_none = not member.out
            while member.room and len(member.out) < MAX_OUT:
                number = self._slices.candidate()
                if number is None:
                    break
                # The first are trials, that measure T_t': a promise without it would be a guess.
                if member.num_trials:
                    member.num_trials -= 1
                elif not self._pays(member, number):
                    break
                self._slices.give()
                self._contributors.give(member, number)
            if had_none and member.out:
                self._publish(member, fresh=fresh)

    def _pays(self, member: Contributor, number: int) -> bool:
        if not member.training.are_many:
            return False  # its trials are under way
        step, rank = divmod(number, self._num_ranks)
        helpers = [other for other in self._contributors.members if other.out or other is member]
        # Given downwards: of this step, the ranks above are out or merged, and this one and those below are missing.
        num_missing = sum(len(other.out) for other in helpers) + rank + 1
        together_ms = num_missing / sum(1 / other.needed_ms for other in helpers)
        profit = Profit(
            # That all trainers know of a contribution takes ``staleness`` steps more.
            num_left=max(self._slices.num_before(step) - self._staleness, 0) * self._num_ranks,
            step_ms=self._step.typical_ms,
            num_trainers=self._num_ranks,
            needed_ms=max(together_ms, (len(member.out) + 1) * member.needed_ms),
            train_ms=member.training.typical_ms,
            late_ms=member.training.typical_ms - self._due_ms(fresh=True),
            bound=self.bound,
            won_ms=member.gains.sum_ms if member.gains.are_many else None,
        )
        self.stats.profit_ms = profit.value_ms
        self._tell(member, profit)
        return profit.verdict == "worth"

    def _tell(self, member: Contributor, profit: Profit) -> None:
        """Tells the verdict on a sampler, each one once, as it may change to and fro where the bound is near; that an
        epoch ends is no other one."""
        if profit.verdict == member.verdict or (member.verdict and profit.verdict == "short"):
            return
        member.verdict = profit.verdict
        if profit.verdict in member.told:
            return
        member.told.add(profit.verdict)
        is_too_slow = profit.verdict == "late"
        tell = pl.utilities.rank_zero.rank_zero_warn if is_too_slow else pl.utilities.rank_zero.rank_zero_info
        tell(f"FactoredStrategy: sampler {member.index} {profit}.")

    # Parameters.

    def _publish(self, member: Contributor, *, fresh: bool) -> None:
        due = {"due_ms": self._due_ms(fresh=fresh), "fresh_due_ms": self._due_ms(fresh=True)}
        self._contributors.publish(member, global_step=self._global_step(), **due)

    def _due_ms(self, *, fresh: bool) -> float:
        """Estimates the time from a version's publishing to the last backward pass that may take a gradient of it.

        Args:
            fresh: published right after the update that made it; else at the begin of a backward pass.
        """
        return self.bound * self._step.typical_ms + (self._forward.typical_ms if fresh else 0.0)

    @property
    def _saved_ms(self) -> float:
        """What one contributed slice saves all trainers."""
        return self._step.typical_ms / self._num_ranks

    # Gradients.

    def _await_due(self) -> None:
        """Waits for gradients that are due now, but no longer than one saves: a late one is computed again."""
        self._awaited_ms = 0.0
        awaited = [member for member in self._contributors.members if self._is_due(member)]
        if not awaited:
            return
        began = time.perf_counter()
        while any(self._is_due(member) for member in awaited):
            left_s = began + self._saved_ms / 1e3 - time.perf_counter()
            if left_s <= 0:
                break
            self._contributors.wait(min(left_s, _POLL_S))
        self._awaited_ms = (time.perf_counter() - began) * 1e3
        self.stats.awaited_ms += self._awaited_ms
        for member in awaited:
            member.awaited_ms += self._awaited_ms / len(awaited)

    def _is_due(self, member: Contributor) -> bool:
        """Whether the sampler has begun a gradient that can be merged now, but will be too old at the next step; and is
        known to be fast enough to be waited for."""
        if member.verdict != "worth":
            return False
        oldest = self._version() - self.bound
        return any(version == oldest and self._slices.is_mergeable(number) for number, version in member.out.items())

    def _choose(self) -> list[Gradient]:
        chosen: list[Gradient] = []
        arrived, self._contributors.arrived = self._contributors.arrived, []
        for gradient in arrived:
            lag = self._version() - gradient.version
            if len(chosen) == MAX_MERGED:
                # It waits for the next step, where its age counts anew.
                self._contributors.arrived.append(gradient)
            elif lag > self.bound or not self._slices.is_mergeable(gradient.slice):
                self._contributors.refuse(gradient)
                self._slices.give_back(gradient.slice)
                self._contributors.count_gain(gradient, saved_ms=0.0)
            else:
                # At once, not after the loop: whether the next one can be merged depends on what is whole by now.
                self._slices.merge(gradient.slice)
                self.stats.merged += 1
                self.stats.max_lag = max(self.stats.max_lag, lag)
                self._contributors.count_gain(gradient, saved_ms=self._saved_ms)
                chosen.append(gradient)
        return chosen


class SamplerGradients:
    """Adds the samplers' gradients to a trainer's own; the :class:`.ExtraGradients` of the communication hook.

    Trainer 0 adds the samplers' gradients to its own and announces their slices with the same reduction. Every trainer
    hears of them when that is handed out, hence between the same two steps, and passes over the steps that are whole.
    Of a step that was contributed in part, each trainer trains its mini-batch, so that the collectives stay aligned;
    but where that slice was contributed, its gradient does not count again.

    Args:
        ledger: of this trainer.
        module: whose gradients they are.
        rank: this trainer.
        slice_scheduler: in trainer 0 alone.
    """

    def __init__(
        self, ledger: Ledger, module: torch.nn.Module, *, rank: int, slice_scheduler: SliceScheduler | None
    ) -> None:
        self.ledger = ledger
        self.rank = rank
        self.slice_scheduler = slice_scheduler
        self._parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}

    def take(self) -> GradientTerm:
        own = not self.ledger.has(self.ledger.step, self.rank)
        if self.slice_scheduler is None or not self.slice_scheduler.merging:
            # ``own`` may be 0, the sum of weights not: a step that is not whole has a trainer whose mini-batch counts.
            return GradientTerm(None, float(own), own)
        return GradientTerm(self._summed(self.slice_scheduler), float(own + len(self.slice_scheduler.merging)), own)

    def announce(self) -> Sequence[int]:
        return self.slice_scheduler.merging if self.slice_scheduler is not None else ()

    def announced(self, launch: int, words: list[int]) -> None:
        self.ledger.add(words)

    @torch.no_grad()
    def _summed(self, slice_scheduler: SliceScheduler) -> dict[Parameter, Tensor]:
        first, *others = slice_scheduler.gradients()
        for name in first:
            for other in others:
                first[name].add_(other[name])  # the memory is trainer 0's until it settles
        return {parameter: first[name].to(parameter.device) for name, parameter in self._parameters.items()}

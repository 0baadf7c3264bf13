"""SliceScheduler: how trainer 0 lets idle samplers train an epoch's last steps, and merges their gradients.

The unit is a slice: one trainer's mini-batch of one global step. A sampler computes its gradient with the newest
published parameters; trainer 0 adds it to its own at the begin of a backward pass, unless it is too old. Only then is a
slice contributed. Slices of a sampler that dies, is late or gives up go to another or to the trainers: there is nothing
to agree on, and no mini-batch can be lost or trained twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

import torch
from torch import Tensor
from torch.nn import Parameter

from lightning_gnnload.pipeline.contributed import Ledger
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.gradients.contributors import (
    MAX_OUT,
    Contributor,
    Contributors,
    Gradient,
    SwitchingStats,
    Tensors,
)
from lightning_gnnload.plugin.gradients.cost_model import CostModel, Timings
from lightning_gnnload.plugin.gradients.reduction import GradientTerm
from lightning_gnnload.plugin.gradients.slice_allocator import SliceAllocator

MAX_MERGED = 8
"""At most so many gradients join one step, as each is announced with it."""
_POLL_S = 0.005


class SliceScheduler:
    """Schedules slices of an epoch on idle samplers, and merges their gradients; trainer 0's part of switching. Used by
    one thread at a time, as its queue is. ``bound``: updates that a sampler's gradient may be late; ``version()``
    counts the updates of the parameters."""

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
        # The loader opens the epoch's stream when Lightning requests a mini-batch, and notes it in the ledger alone.
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
        helpers = [helper for helper in self._contributors.members if helper.out or helper is member]
        # Given downwards: of this step, the ranks above are out or merged, and this one and those below are missing.
        num_missing = sum(len(helper.out) for helper in helpers) + rank + 1
        together_ms = num_missing / sum(1 / helper.needed_ms for helper in helpers)
        estimate = CostModel(
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
        self.stats.profit_ms = estimate.value_ms
        self._report(member, estimate)
        return estimate.verdict == "worth"

    def _report(self, member: Contributor, estimate: CostModel) -> None:
        """Reports each verdict on a sampler once, as it may go to and fro near the bound. ``"short"`` after another is
        no news: every epoch ends."""
        if estimate.verdict == member.verdict or (member.verdict and estimate.verdict == "short"):
            return
        member.verdict = estimate.verdict
        if estimate.verdict in member.reported:
            return
        member.reported.add(estimate.verdict)
        is_too_slow = estimate.verdict == "late"
        report = pl.utilities.rank_zero.rank_zero_warn if is_too_slow else pl.utilities.rank_zero.rank_zero_info
        report(f"FactoredStrategy: sampler {member.index} {estimate}.")

    # Parameters.

    def _publish(self, member: Contributor, *, fresh: bool) -> None:
        due = {"due_ms": self._due_ms(fresh=fresh), "fresh_due_ms": self._due_ms(fresh=True)}
        self._contributors.publish(member, global_step=self._global_step(), **due)

    def _due_ms(self, *, fresh: bool) -> float:
        """The time from a version's publishing, right after its update if ``fresh``, to the last backward pass that may
        take it."""
        return self.bound * self._step.typical_ms + (self._forward.typical_ms if fresh else 0.0)

    @property
    def _saved_ms(self) -> float:
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
        """Whether a sampler that is worth waiting for has begun a gradient that joins this step or none."""
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
                # It waits for the next step, where its age is compared again.
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
    """Adds the samplers' gradients to trainer 0's own; the :class:`.ExtraGradients` of the communication hook.

    Trainer 0 announces the merged slices with the same reduction. Every trainer reads that between the same two steps,
    and passes over the steps that are whole. Of a step that was contributed in part, each trainer trains its
    mini-batch, so that the collectives stay aligned; but a gradient of a contributed slice does not count again.
    """

    def __init__(
        self, ledger: Ledger, module: torch.nn.Module, *, rank: int, slice_scheduler: SliceScheduler | None
    ) -> None:
        self.ledger = ledger
        self.rank = rank
        self.slice_scheduler = slice_scheduler
        self._parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}

    def take(self) -> GradientTerm:
        counts_own = not self.ledger.has(self.ledger.step, self.rank)
        if self.slice_scheduler is None or not self.slice_scheduler.merging:
            # This weight may be 0, their sum not: a step that is not whole has a trainer whose mini-batch counts.
            return GradientTerm(None, float(counts_own), counts_own)
        return GradientTerm(
            self._summed(self.slice_scheduler), float(counts_own + len(self.slice_scheduler.merging)), counts_own
        )

    def announce(self) -> Sequence[int]:
        return self.slice_scheduler.merging if self.slice_scheduler is not None else ()

    def announced(self, launch: int, words: list[int]) -> None:
        self.ledger.add(words)

    @torch.no_grad()
    def _summed(self, slice_scheduler: SliceScheduler) -> dict[Parameter, Tensor]:
        first, *rest = slice_scheduler.gradients()
        for name in first:
            for gradient in rest:
                first[name].add_(gradient[name])  # the memory is trainer 0's until it settles
        return {parameter: first[name].to(parameter.device) for name, parameter in self._parameters.items()}

"""Director: how trainer 0 shares an epoch's last steps out to idle samplers, and takes in their gradients.

The unit is a slice: one trainer's mini-batch of one global step. A sampler computes its gradient with the newest
parameters that trainer 0 has published; trainer 0 adds it to its own at the begin of a backward pass, unless it is too
old. Only then is a slice contributed. A sampler that dies, is late or gives up leaves its slices to be given again, or
to the trainers: there is nothing to agree on, and no mini-batch can be lost or trained twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import torch

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline.contributed import Ledger
from lightning_gnnload.pipeline.queue import BatchQueue
from lightning_gnnload.pipeline.wire import Message
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.exchange import NUM_COPIES, Exchange, Tensors, state_of
from lightning_gnnload.plugin.profit import Profit, Timings
from lightning_gnnload.plugin.shares import Shares

MAX_OUT = 2
"""Slices that one sampler has at a time: one in the making, and the next, so that it never waits for an answer."""
MAX_MERGED = 8
"""Gradients that join one step: they are announced with it."""
_POLL_S = 0.005


@dataclass
class SwitchingStats:
    """What the samplers contributed over a fit, as trainer 0 knows it.

    Attributes:
        contributed: mini-batches whose gradients came from samplers.
        merged: those that joined the trainers' gradients.
        refused: those that came too late for the bound on their age, or for their step; they were trained again.
        max_lag: the largest number of updates by which the parameters of a merged gradient were older than those that
            the trainers computed theirs with at the step that it joined; at most ``max(staleness, 1)``.
        awaited_ms: trainer 0 waited for gradients that were about to become too old.
        profit_ms: GNNLab's profit metric at the newest decision.
        num_withdrawn: samplers that contribute no more, because training failed there.
    """

    contributed: int = 0
    merged: int = 0
    refused: int = 0
    max_lag: int = 0
    awaited_ms: float = 0.0
    profit_ms: float = 0.0
    num_withdrawn: int = 0


class _Gradient(NamedTuple):
    contributor: _Contributor
    slice: int
    copy: int
    version: int
    tensors: Tensors


@dataclass(eq=False)
class _Contributor:
    """A sampler that can train.

    Attributes:
        room: slices that it asks for.
        out: those that it has, with the version of the parameters that it began them with; -1 before.
        times: of its mini-batches.
    """

    index: int
    exchange: Exchange
    room: int = 0
    out: dict[int, int] = field(default_factory=dict)
    times: Timings = field(default_factory=Timings)


class Director:
    """Trainer 0's part of switching. Used by one thread at a time, as its queue is.

    Args:
        queue: to the samplers.
        module: the model that they train too.
        ledger: tells the stream and the step that are under way.
        staleness: of the strategy; a gradient may be ``max(staleness, 1)`` updates old.
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
        version: Callable[[], int],
        global_step: Callable[[], int],
        max_steps: int,
    ) -> None:
        self.stats = SwitchingStats()
        self.bound = max(staleness, 1)
        self._queue = queue
        self._module = module
        self._ledger = ledger
        self._staleness = staleness
        self._num_ranks = ledger.num_ranks
        self._version = version
        self._global_step = global_step
        self._max_steps = max_steps
        self._stream = -1
        self._shares = Shares(num_ranks=self._num_ranks, staleness=staleness)
        self._contributors: dict[int, _Contributor] = {}
        self._arrived: list[_Gradient] = []
        self._merging: list[_Gradient] = []
        self._forward, self._step = Timings(), Timings()
        self._updated_at: float | None = None
        self._awaited_ms = 0.0
        self._has_decided = False
        queue.handlers |= {
            "standby": self._on_standby,
            "offer": self._on_offer,
            "begun": self._on_begun,
            "gradient": self._on_gradient,
            "withdrawn": self._on_withdrawn,
        }
        queue.lost.append(self._forget)

    # What the strategy calls, step by step.

    def before_backward(self) -> None:
        """Chooses the gradients that join this step; waits for those that could join no later one."""
        if self._ledger.stream != self._stream:
            self._begin_epoch()
        self._shares.pass_to(self._ledger.step)
        if self._updated_at is not None:
            self._forward.add((time.perf_counter() - self._updated_at) * 1e3)
        self._hear()
        self._await_due()
        self._merging = self._choose()
        self._share_out(fresh=False)

    def after_update(self) -> None:
        """The optimizer is done with this step, whether or not it had something to apply."""
        now = time.perf_counter()
        if self._updated_at is not None:
            self._step.add((now - self._updated_at) * 1e3 - self._awaited_ms)
        self._updated_at = now
        for gradient in self._merging:
            self._settle(gradient)
        self._merging = []
        self._hear()
        for contributor in self._contributors.values():
            if contributor.out:
                self._publish(contributor, fresh=True)
        self._share_out(fresh=True)

    def pause(self) -> None:
        """What comes now is no training, and counts for no step's time."""
        self._updated_at = None

    @property
    def merging(self) -> list[int]:
        """The slices whose gradients join the step that is under way."""
        return [gradient.slice for gradient in self._merging]

    def gradients(self) -> Iterator[Tensors]:
        """Theirs, by parameter name; valid until the optimizer's step."""
        for gradient in self._merging:
            yield gradient.tensors

    def close(self) -> None:
        for index in list(self._contributors):
            self._forget(index)
        self._arrived.clear()
        self._merging.clear()

    # The epoch's slices.

    def _begin_epoch(self) -> None:
        ledger = self._ledger
        self._stream = ledger.stream
        num_left = self._max_steps - self._global_step() if self._max_steps >= 0 else inf
        self._shares = Shares(
            num_ranks=self._num_ranks,
            staleness=self._staleness,
            start=ledger.step,
            stop=int(min(ledger.stop, ledger.step + num_left)),
            merged=ledger.ahead(of=ledger.step),
        )
        for gradient in self._arrived:
            self._refuse(gradient)
        self._arrived = []
        self._updated_at = None
        for contributor in self._contributors.values():
            contributor.out.clear()

    def _share_out(self, *, fresh: bool) -> None:
        if not self._step.are_many:
            return
        for contributor in self._contributors.values():
            had_none = not contributor.out
            while contributor.room and len(contributor.out) < MAX_OUT:
                number = self._shares.candidate()
                if number is None or not self._pays(contributor, number):
                    break
                self._shares.give()
                contributor.room -= 1
                contributor.out[number] = -1
                self._queue.send(contributor.index, "task", stream=self._stream, slice=number)
            if had_none and contributor.out:
                self._publish(contributor, fresh=fresh)

    def _pays(self, contributor: _Contributor, number: int) -> bool:
        step, rank = divmod(number, self._num_ranks)
        each_ms = contributor.times.typical_ms or self._step.typical_ms
        active = [other for other in self._contributors.values() if other.room or other.out]
        num_missing = sum(len(other.out) for other in active) + rank + 1
        profit = Profit(
            # That all trainers know of a contribution takes ``staleness`` steps more.
            num_left=max(self._shares.num_before(step) - self._staleness, 0) * self._num_ranks,
            step_ms=self._step.typical_ms,
            num_trainers=self._num_ranks,
            needed_ms=each_ms * num_missing / len(active),
            late_ms=each_ms - self._due_ms(fresh=True) if contributor.times.are_many else -inf,
        )
        self.stats.profit_ms = profit.value_ms
        if not self._has_decided:
            self._has_decided = True
            verdict = "idle samplers train" if profit.is_worth_it else "idle samplers stay idle"
            pl.utilities.rank_zero.rank_zero_info(f"FactoredStrategy: {verdict}: {profit}.")
        return profit.is_worth_it

    # Parameters.

    def _due_ms(self, *, fresh: bool) -> float:
        """From a version's publishing to the last backward pass that may take a gradient of it.

        Args:
            fresh: published right after the update that made it; else at the begin of a backward pass.
        """
        return self.bound * self._step.typical_ms + (self._forward.typical_ms if fresh else 0.0)

    def _publish(self, contributor: _Contributor, *, fresh: bool) -> None:
        copy = contributor.exchange.publish(state_of(self._module))
        if copy is not None:
            self._queue.send(
                contributor.index,
                "parameters",
                copy=copy,
                version=self._version(),
                global_step=self._global_step(),
                due_ms=self._due_ms(fresh=fresh),
                fresh_due_ms=self._due_ms(fresh=True),
            )

    # Gradients.

    def _await_due(self) -> None:
        """Waits no longer than a gradient saves: a late one is computed again."""
        began = time.perf_counter()
        worth_s = self._step.typical_ms / self._num_ranks / 1e3
        while any(self._is_due(contributor) for contributor in self._contributors.values()):
            left_s = began + worth_s - time.perf_counter()
            if left_s <= 0:
                break
            self._queue.pump(min(left_s, _POLL_S))
        self._awaited_ms = (time.perf_counter() - began) * 1e3
        self.stats.awaited_ms += self._awaited_ms

    def _is_due(self, contributor: _Contributor) -> bool:
        """What it has begun could still be merged, but would be too old at the next step."""
        oldest = self._version() - self.bound
        return any(
            0 <= version <= oldest and self._shares.is_mergeable(number) for number, version in contributor.out.items()
        )

    def _choose(self) -> list[_Gradient]:
        chosen: list[_Gradient] = []
        arrived, self._arrived = self._arrived, []
        for gradient in arrived:
            lag = self._version() - gradient.version
            if len(chosen) == MAX_MERGED:
                self._arrived.append(gradient)
            elif lag > self.bound or not self._shares.is_mergeable(gradient.slice):
                self._refuse(gradient)
                self._shares.give_back(gradient.slice)
            else:
                self._shares.merge(gradient.slice)
                self.stats.merged += 1
                self.stats.max_lag = max(self.stats.max_lag, lag)
                chosen.append(gradient)
        return chosen

    def _refuse(self, gradient: _Gradient) -> None:
        self.stats.refused += 1
        self._settle(gradient)

    def _settle(self, gradient: _Gradient) -> None:
        self._queue.send(gradient.contributor.index, "settled", copy=gradient.copy)

    # What samplers say.

    def _hear(self) -> None:
        while self._queue.pump(0):
            pass

    def _on_standby(self, index: int, message: Message, fds: list[int]) -> None:
        if not fds:
            raise QueueProtocolError(f"sampler {index} sent no memory for its gradients")
        self._forget(index)
        try:
            exchange = Exchange(self._module, fds[0])
        except BaseException:
            os.close(fds[0])
            raise
        if message["digest"] != exchange.digest:
            exchange.close()
            pl.utilities.rank_zero.rank_zero_warn(
                f"FactoredStrategy: the model of sampler {index} has other parameters or buffers than that of trainer "
                f"0, so it does not train. Build the same model on every rank, in __init__, setup or configure_model."
            )
            return
        self._contributors[index] = _Contributor(index, exchange)

    def _on_offer(self, index: int, message: Message, fds: list[int]) -> None:
        if index in self._contributors:
            contributor = self._contributors[index]
            contributor.room = min(contributor.room + max(message["room"], 0), MAX_OUT)

    def _on_begun(self, index: int, message: Message, fds: list[int]) -> None:
        if (contributor := self._of_task(index, message)) is not None:
            contributor.out[message["slice"]] = message["version"]

    def _on_gradient(self, index: int, message: Message, fds: list[int]) -> None:
        if index not in self._contributors:
            return
        if not 0 <= message["copy"] < NUM_COPIES or message["version"] > self._version():
            raise QueueProtocolError(f"sampler {index} sent {message!r:.200}, which is no gradient of ours")
        contributor, number = self._contributors[index], message["slice"]
        contributor.times.add(message["ms"])
        self.stats.contributed += 1
        tensors = contributor.exchange.gradients[message["copy"]]
        gradient = _Gradient(contributor, number, message["copy"], message["version"], tensors)
        if self._of_task(index, message) is None:  # of an epoch that is over
            self._refuse(gradient)
        else:
            del contributor.out[number]
            self._arrived.append(gradient)

    def _on_withdrawn(self, index: int, message: Message, fds: list[int]) -> None:
        if index in self._contributors:
            self.stats.num_withdrawn += 1
        pl.utilities.rank_zero.rank_zero_warn(
            f"FactoredStrategy: training failed on sampler {index}, which goes on sampling but trains no more. If "
            f"training_step uses collectives, or what only trainers have, set switching=False.\n{message['text']}"
        )
        self._forget(index)

    def _of_task(self, index: int, message: Message) -> _Contributor | None:
        contributor = self._contributors.get(index)
        is_ours = contributor is not None and message["stream"] == self._stream and message["slice"] in contributor.out
        return contributor if is_ours else None

    def _forget(self, index: int) -> None:
        """It is gone, or trains no more. Gradients that it has sent stay good."""
        contributor = self._contributors.pop(index, None)
        if contributor is not None:
            for number in contributor.out:
                self._shares.give_back(number)
            contributor.exchange.close()

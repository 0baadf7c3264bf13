"""What bounded staleness means, as a plain loop that is told the lags: no DDP, no Lightning, no processes."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor, nn

from tests.integration.scripts.delayed import NUM_BATCHES, OPTIMIZERS, SCHEDULERS, Case, batch_of, loss_of, network
from tests.integration.scripts.toy import digest

Gradient = list[Tensor | None]


class Replica:
    """One trainer's model and optimizer, and the averages that it has not applied, with the settings they came with.

    Attributes:
        trace: a digest of the weights after each batch.
        average: of these weights, moving.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.unapplied: deque[tuple[Gradient, dict[str, Any]]] = deque()
        self.trace: list[str] = []
        self.average: Tensor | None = None
        self.net = network(case)
        self.parameters = list(self.net.parameters())
        self.optimizer = OPTIMIZERS[case.optimizer](self.parameters)
        self.scheduler = SCHEDULERS[case.scheduler](self.optimizer) if case.scheduler else None

    def backward(self, epoch: int, step: int, rank: int) -> None:
        """Adds one batch's gradient, weighted as Lightning does when it accumulates."""
        with torch.autocast("cpu", torch.bfloat16, self.case.precision == "bf16-mixed", cache_enabled=False):
            loss = loss_of(self.net, batch_of(epoch, step, rank)) / self.case.accumulate
        loss.backward()

    def receive(self, gradient: Gradient) -> None:
        (group,) = self.optimizer.param_groups
        self.unapplied.append((gradient, {key: value for key, value in group.items() if key != "params"}))

    def apply(self, num_left: int) -> None:
        (group,) = self.optimizer.param_groups
        while len(self.unapplied) > num_left:
            gradient, settings = self.unapplied.popleft()
            present = {key: group[key] for key in settings}
            group.update(settings)
            self._apply(gradient)
            group.update(present)

    def watch(self) -> None:
        weights: Any = nn.utils.parameters_to_vector(self.parameters).detach()
        self.trace.append(digest([weights]))
        self.average = weights.clone() if self.average is None else self.average.lerp(weights, 0.1)

    def _apply(self, gradient: Gradient) -> None:
        kept = [parameter.grad for parameter in self.parameters]  # of batches that still accumulate
        for parameter, its in zip(self.parameters, gradient, strict=True):
            parameter.grad = None if its is None else its.clone()
        how, limit = self.case.clip
        if limit and how == "norm":
            nn.utils.clip_grad_norm_(self.parameters, limit)
        elif limit:
            nn.utils.clip_grad_value_(self.parameters, limit)
        self.optimizer.step()
        for parameter, its in zip(self.parameters, kept, strict=True):
            parameter.grad = its


class Reference:
    """All trainers: each applies the same averages in the same order, as late as the lags say, and no later than
    ``case.staleness`` updates.

    Args:
        lags: of each trainer, by global step: the averages that it has not applied when the step begins.

    Attributes:
        weights: of each trainer, in the end.
    """

    def __init__(self, case: Case, lags: list[list[int]]) -> None:
        self.case = case
        self.lags = lags
        self.replicas = [Replica(case) for _ in lags]
        self.num_updates = 0
        for epoch in range(case.num_epochs):
            if self._epoch(epoch):
                break
        self.weights = [digest(replica.net.state_dict().values()) for replica in self.replicas]

    def _epoch(self, epoch: int) -> bool:
        """Whether the fit ends with it."""
        case = self.case
        for step in range(NUM_BATCHES):
            is_last = step == NUM_BATCHES - 1
            updates = (step + 1) % case.accumulate == 0 or is_last
            for rank, replica in enumerate(self.replicas):
                if step % case.accumulate == 0:
                    replica.apply(self.lags[rank][self.num_updates])
                    replica.optimizer.zero_grad()
                if step != case.silent_at:
                    replica.backward(epoch, step, rank)
            if updates:
                self.num_updates += 1
                if step != case.silent_at:
                    self._update()
                if is_last or self.num_updates == case.max_steps:
                    self._flush()
                self._schedule("step")
            if is_last:
                self._schedule("epoch")
            for replica in self.replicas:
                replica.watch()
            stops = self.num_updates == case.stop_at
            validates = case.validate_every and (stops or (step + 1) % case.validate_every == 0)
            if stops or validates or (updates and case.save_every and self.num_updates % case.save_every == 0):
                self._flush()
            if stops or self.num_updates == case.max_steps:
                return True
        return False

    def _update(self) -> None:
        gradients = [[parameter.grad for parameter in replica.parameters] for replica in self.replicas]
        share = 1.0 / len(gradients)
        average = [
            None if each[0] is None else sum(its * share for its in each) for each in zip(*gradients, strict=True)
        ]
        for replica in self.replicas:
            replica.receive(average)
            replica.apply(self.case.staleness)

    def _flush(self) -> None:
        for replica in self.replicas:
            replica.apply(0)
        for replica in self.replicas[1:] if self.case.ddp.get("broadcast_buffers", True) else []:
            for buffer, first in zip(replica.net.buffers(), self.replicas[0].net.buffers(), strict=True):
                buffer.copy_(first)

    def _schedule(self, interval: str) -> None:
        if self.case.scheduler == interval:
            for replica in self.replicas:
                replica.optimizer._opt_called = True  # else it warns of a delay that is meant
                replica.scheduler.step()

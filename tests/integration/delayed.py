"""What bounded staleness means, as a plain loop: no DDP, no Lightning, no processes."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor, nn

from tests.integration.scripts.delayed import NUM_BATCHES, OPTIMIZERS, SCHEDULERS, Case, batch_of, loss_of, network
from tests.integration.scripts.toy import digest

Gradient = list[Tensor | None]


class Replica:
    """One trainer's model and optimizer."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.net = network(case)
        self.parameters = list(self.net.parameters())
        self.optimizer = OPTIMIZERS[case.optimizer](self.parameters)
        self.scheduler = SCHEDULERS[case.scheduler](self.optimizer) if case.scheduler else None

    def backward(self, epoch: int, step: int, rank: int) -> None:
        """Adds one batch's gradient, weighted as Lightning does when it accumulates."""
        with torch.autocast("cpu", torch.bfloat16, self.case.precision == "bf16-mixed", cache_enabled=False):
            loss = loss_of(self.net, batch_of(epoch, step, rank)) / self.case.accumulate
        loss.backward()

    def apply(self, gradient: Gradient) -> None:
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
    """All trainers, in step: an update applies the average gradient of ``case.staleness`` updates ago.

    Attributes:
        trace: a digest of the weights after each batch.
        weights: of each trainer, in the end.
    """

    def __init__(self, case: Case, num_trainers: int) -> None:
        self.case = case
        self.replicas = [Replica(case) for _ in range(num_trainers)]
        self.in_flight: deque[Gradient] = deque()
        self.num_updates = 0
        self.trace: list[str] = []
        self.average: Tensor | None = None
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
            self._watch()
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
        self.in_flight.append(
            [None if each[0] is None else sum(its * share for its in each) for each in zip(*gradients, strict=True)]
        )
        if len(self.in_flight) > self.case.staleness:
            self._apply_oldest()

    def _apply_oldest(self) -> None:
        gradient = self.in_flight.popleft()
        for replica in self.replicas:
            replica.apply(gradient)

    def _flush(self) -> None:
        while self.in_flight:
            self._apply_oldest()
        for replica in self.replicas[1:] if self.case.ddp.get("broadcast_buffers", True) else []:
            for buffer, first in zip(replica.net.buffers(), self.replicas[0].net.buffers(), strict=True):
                buffer.copy_(first)

    def _schedule(self, interval: str) -> None:
        if self.case.scheduler == interval:
            for replica in self.replicas:
                replica.optimizer._opt_called = True  # else it warns of a delay that is meant
                replica.scheduler.step()

    def _watch(self) -> None:
        weights: Any = nn.utils.parameters_to_vector(self.replicas[0].parameters).detach()
        self.trace.append(digest([weights]))
        self.average = weights.clone() if self.average is None else self.average.lerp(weights, 0.1)

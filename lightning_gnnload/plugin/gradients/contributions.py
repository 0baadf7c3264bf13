"""Contributions: what a trainer adds to the reductions for the samplers that train, and what it learns from them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from lightning_gnnload.pipeline.contributed import Ledger
from lightning_gnnload.plugin.gradients.director import Director
from lightning_gnnload.plugin.gradients.reduction import Taken


class Contributions:
    """Of one trainer; a :class:`.reduction.Contributions` for the communication hook.

    Trainer 0 adds the samplers' gradients to its own and announces their slices with the same reduction. Every trainer
    hears of them when that is handed out, hence between the same two steps, and passes over the steps that are whole.
    Of a step that was contributed in part, each trainer trains its mini-batch, so that the collectives stay aligned;
    but where that slice was contributed, its gradient does not count again.

    Args:
        ledger: of this trainer.
        module: whose gradients they are.
        rank: this trainer.
        director: in trainer 0 alone.
    """

    def __init__(self, ledger: Ledger, module: torch.nn.Module, *, rank: int, director: Director | None) -> None:
        self.ledger = ledger
        self.rank = rank
        self.director = director
        self._parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}

    def take(self) -> Taken:
        own = not self.ledger.has(self.ledger.step, self.rank)
        if self.director is None or not self.director.merging:
            return Taken(None, float(own), own)
        return Taken(self._summed(self.director), float(own + len(self.director.merging)), own)

    def announce(self) -> Sequence[int]:
        return self.director.merging if self.director is not None else ()

    def announced(self, launch: int, words: list[int]) -> None:
        self.ledger.add(words)

    @torch.no_grad()
    def _summed(self, director: Director) -> dict[Parameter, Tensor]:
        first, *others = director.gradients()
        for name in first:
            for other in others:
                first[name].add_(other[name])  # the memory is trainer 0's until it settles
        return {parameter: first[name].to(parameter.device) for name, parameter in self._parameters.items()}

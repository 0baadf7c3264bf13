"""The keys of a dropout layer's masks, call by call."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import torch

from lightning_gnnload.errors import DropoutError
from lightning_gnnload.ops.dropout import DropoutKey

MOST_CALLS = 1 << 16
"""Calls of a layer in a step that a backward pass can repeat: some megabytes. Of more, it repeats the last ones."""


class DropoutStep(NamedTuple):
    """What the masks of a training step depend on, besides the layer and the number of its call in the step."""

    seed: int
    epoch: int
    step: int
    rank: int


class MaskKeys:
    """The keys of one layer's masks, call by call.

    Without a step, a call's key is drawn from torch's generator, so that masks follow ``torch.manual_seed`` as those of
    torch's dropout do. With one, it is the step's, and the number of the call in it. Activation checkpoints call the
    layer once more during the backward pass, after they have put torch's generator back: the number that is drawn from
    it there says which call is repeated.
    """

    def __init__(self) -> None:
        self.read: Callable[[], DropoutStep] | None = None
        self._layer = 0
        self._begins = True
        self._step: DropoutStep | None = None
        self._num_calls = 0
        self._call_by_draw = OrderedDict[int, int]()

    def follow(self, read: Callable[[], DropoutStep] | None, layer: int) -> None:
        """Takes the step from ``read`` at each call, and counts calls from 0; None: from torch's generator."""
        self.read, self._layer, self._begins = read, layer, True

    def next(self) -> DropoutKey:
        """Returns the key of the call that begins. Raises DropoutError: it repeats one that is not known."""
        tag = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
        if self.read is None:
            return DropoutKey.of(tag, 0, 0, 0, 0, 0)
        if _in_backward():
            return self._repeated(tag)
        step = self.read()
        if self._begins or step != self._step:
            self._begins, self._step, self._num_calls = False, step, 0
            self._call_by_draw.clear()
        # Where the generator was seeded anew within a step, a mask repeats, as torch's own would.
        if tag not in self._call_by_draw:
            self._call_by_draw[tag] = self._num_calls
            self._num_calls += 1
            if len(self._call_by_draw) > MOST_CALLS:
                self._call_by_draw.popitem(last=False)
        return DropoutKey.of(*step, self._layer, self._call_by_draw[tag])

    def _repeated(self, tag: int) -> DropoutKey:
        if tag not in self._call_by_draw:
            raise DropoutError(
                "Dropout is called in a backward pass, and the state of torch's generator is that of none of its last "
                f"{MOST_CALLS} calls in the step, so the mask to draw again is not known. Use torch.utils.checkpoint "
                "with preserve_rng_state=True, and call backward() before the next step's forward pass."
            )
        assert self._step is not None, "the call that is repeated had one"
        return DropoutKey.of(*self._step, self._layer, self._call_by_draw[tag])


def _in_backward() -> bool:
    """Whether torch's autograd runs a backward pass in this thread."""
    return torch._C._current_graph_task_id() != -1

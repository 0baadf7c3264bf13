"""Exchange: the memory through which parameters come to a contributing sampler, and its gradients go back."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from lightning_gnnload.data.block import view_of
from lightning_gnnload.pipeline.slots import Slot

NUM_COPIES = 2
"""Of each: one is read while the other is written."""
_ALIGN = 64

Tensors = dict[str, torch.Tensor]


class TensorLayout:
    """Where the tensors of a state lie in memory, one after the other.

    Args:
        tensors: by name, in an order that is the same on both sides.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._places: dict[str, tuple[int, tuple[int, ...], torch.dtype]] = {}
        offset = 0
        for name, tensor in tensors.items():
            self._places[name] = (offset, tuple(tensor.shape), tensor.dtype)
            offset += -(-tensor.numel() * tensor.element_size() // _ALIGN) * _ALIGN
        self.num_bytes = offset

    @property
    def digest(self) -> str:
        """Of names, shapes and dtypes."""
        return hashlib.blake2b(repr(self._places).encode(), digest_size=16).hexdigest()

    def views(self, buffer: Any, begin: int) -> Tensors:
        return {
            name: view_of(buffer, begin + offset, shape, dtype) for name, (offset, shape, dtype) in self._places.items()
        }


class Exchange:
    """A model's parameters and buffers on their way to one sampler, and its gradients on their way back.

    Each comes in two copies. Parameters are written under a lock of their copy, which a reader holds too, so that none
    reads half of one version and half of the next; the lock ends with the process that holds it. A copy of gradients
    belongs to whom the messages say: the sampler, until it has sent it; trainer 0, until it has settled it.

    Args:
        module: whose state it is; parameters and buffers in the order of their names.
        fd: the memory that the other side made; None makes it.

    Attributes:
        digest: of all names, shapes and dtypes, to be compared with the other side's.
        gradients: one dictionary a copy, by parameter name.
    """

    def __init__(self, module: torch.nn.Module, fd: int | None = None) -> None:
        state = state_of(module)
        layout = TensorLayout(state)
        trained = TensorLayout({name: p for name, p in module.named_parameters() if p.requires_grad})
        self.digest = layout.digest + trained.digest
        self.num_bytes = max(NUM_COPIES * (layout.num_bytes + trained.num_bytes), 1)
        self.slot = Slot.shared(self.num_bytes) if fd is None else Slot(self.num_bytes, fd)
        buffer = self.slot.buffer()
        self._parameters = [layout.views(buffer, copy * layout.num_bytes) for copy in range(NUM_COPIES)]
        begin = NUM_COPIES * layout.num_bytes
        self.gradients = [trained.views(buffer, begin + copy * trained.num_bytes) for copy in range(NUM_COPIES)]
        self._last = -1

    def publish(self, state: Tensors) -> int | None:
        """Writes a new version of the parameters; returns its copy, or None where the sampler still reads it."""
        copy = (self._last + 1) % NUM_COPIES
        with self._locked(copy, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_ours:
            if not is_ours:
                return None
            _copy(state, self._parameters[copy])
        self._last = copy
        return copy

    def load(self, copy: int, state: Tensors) -> None:
        """Reads the parameters of a copy into ``state``."""
        with self._locked(copy, fcntl.LOCK_SH):
            _copy(self._parameters[copy], state)

    def close(self) -> None:
        """Tensors that others still have stay as they are."""
        self._parameters, self.gradients = [], []
        self.slot.close()
        del self.slot  # and the mapping with it

    @contextmanager
    def _locked(self, copy: int, how: int) -> Iterator[bool]:
        try:
            fcntl.lockf(self.slot.fd, how, 1, copy)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.lockf(self.slot.fd, fcntl.LOCK_UN, 1, copy)


def state_of(module: torch.nn.Module) -> Tensors:
    """All parameters and buffers, by name. Buffers, so that a sampler normalises as the trainers do in evaluation."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


@torch.no_grad()
def _copy(source: Tensors, target: Tensors) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])

"""The samplers that train, as trainer 0 keeps track of them: their memory, slices, times and gradients."""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from lightning_gnnload.data.slab import view_of
from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.queue.wire import Message
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.gradients.cost_model import JUDGED_BY, Timings, Verdict

NUM_COPIES = 2
"""The copies of parameters, and of gradients: one is read while the other is written."""
_ALIGN = 64  # bytes: a cache line, and what torch's own allocations are aligned to

Tensors = dict[str, torch.Tensor]


class TensorLayout:
    """The offsets of a state's tensors in one memory, in the order of ``tensors``, which must be the same on both
    sides."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._offsets: dict[str, tuple[int, tuple[int, ...], torch.dtype]] = {}
        offset = 0
        for name, tensor in tensors.items():
            self._offsets[name] = (offset, tuple(tensor.shape), tensor.dtype)
            offset += -(-tensor.numel() * tensor.element_size() // _ALIGN) * _ALIGN
        self.num_bytes = offset

    @property
    def digest(self) -> str:
        return hashlib.blake2b(repr(self._offsets).encode(), digest_size=16).hexdigest()

    def views(self, buffer: Any, begin: int) -> Tensors:
        return {
            name: view_of(buffer, begin + offset, shape, dtype)
            for name, (offset, shape, dtype) in self._offsets.items()
        }


class ParameterExchange:
    """Shared memory that carries a model's parameters to one sampler, and that sampler's gradients back. ``fd`` is the
    memory that the other side made; None makes it.

    Each comes in two copies. A copy of parameters has a lock, so that no reader sees half of one version and half of
    the next; the lock ends with its process. A copy of gradients has one owner at a time: the sampler until it sends
    the copy, trainer 0 until it settles it.
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
        # Not the newest copy: the sampler may be about to read that.
        copy = (self._last + 1) % NUM_COPIES
        # Without waiting: a sampler that was stopped while it read would stop trainer 0, and thus all trainers.
        with self._locked(copy, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_ours:
            if not is_ours:
                return None
            _copy(state, self._parameters[copy])
        self._last = copy
        return copy

    def load(self, copy: int, state: Tensors) -> None:
        with self._locked(copy, fcntl.LOCK_SH):
            _copy(self._parameters[copy], state)

    def close(self) -> None:
        """Frees the memory; tensors that are still referred to stay valid."""
        self._parameters, self.gradients = [], []
        self.slot.close()
        del self.slot  # and the mapping with it

    @contextmanager
    def _locked(self, copy: int, how: int) -> Iterator[bool]:
        try:
            # Record locks, not flock: both sides hold one open file, as the descriptor was passed on, and flock's locks
            # belong to the open file. Those of lockf belong to the process, and lock a byte for each copy.
            fcntl.lockf(self.slot.fd, how, 1, copy)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.lockf(self.slot.fd, fcntl.LOCK_UN, 1, copy)


def state_of(module: torch.nn.Module) -> Tensors:
    """Parameters and buffers by name; buffers, so that a sampler normalises as trainers do in evaluation."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


@torch.no_grad()
def _copy(source: Tensors, target: Tensors) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])


MAX_OUT = 2
"""A sampler has at most so many slices at a time: the one that it trains, and the next, so that it need not wait."""

MAX_UNANSWERED = 16
"""A silent sampler gets at most so many versions: were its socket full, trainer 0 would wait for it to read."""


@dataclass
class SwitchingStats:
    """Counts what the samplers have contributed over a fit, as trainer 0 knows it."""

    contributed: int = 0  # mini-batches whose gradients came from samplers
    merged: int = 0  # of these, those that joined the trainers' gradients
    refused: int = 0  # the others: too late for the bound on their age, or for their step, so trained again
    # The most updates by which a merged gradient's parameters were older than the trainers' at that step; at most
    # ``max(staleness + 1, switching)``.
    max_lag: int = 0
    awaited_ms: float = 0.0  # trainer 0's wait for gradients that were about to become too old
    profit_ms: float = 0.0  # GNNLab's profit metric at the newest decision
    num_withdrawn: int = 0  # samplers that contribute no more, because training failed there


class Gradient(NamedTuple):
    """The gradient of one slice, computed by a sampler with one version of the parameters, in a copy of its memory."""

    sampler: int
    slice: int
    copy: int
    version: int
    tensors: Tensors


@dataclass(eq=False)
class Contributor:
    """One sampler that can train, as trainer 0 keeps track of it."""

    index: int
    exchange: ParameterExchange
    room: int = 0  # slices that it requests
    # Slices that it has, with the version of the parameters that it began them with; -1 before.
    out: dict[int, int] = field(default_factory=dict)
    num_trials: int = JUDGED_BY  # slices before its speed is judged, for which nobody waits
    making: Timings = field(default_factory=Timings)
    training: Timings = field(default_factory=Timings)  # while a gradient ages
    gains: Timings = field(default_factory=Timings)  # what gradients saved the trainers, less their wait for it
    awaited_ms: float = 0.0  # that the trainers have waited for its slice under way
    # The newest; None before. Trainers wait for a sampler that is "worth" it alone.
    verdict: Verdict | None = None
    reported: set[Verdict] = field(default_factory=set)
    num_unanswered: int = 0  # versions that it was sent since its last message

    @property
    def needed_ms(self) -> float:
        """What it needs for one slice; infinite while that is not known."""
        return self.making.typical_ms + self.training.typical_ms if self.training.are_many else math.inf


class Contributors:
    """Keeps track of all samplers that can train, over one fit. Used by one thread at a time, as the queue is.

    ``version()`` counts the updates of the parameters; ``returned`` is called with the slices of a sampler that was
    lost or gave up. ``arrived`` has this epoch's gradients in the order in which they came.
    """

    def __init__(
        self,
        queue: BatchQueue,
        module: torch.nn.Module,
        stats: SwitchingStats,
        *,
        version: Callable[[], int],
        returned: Callable[[Iterable[int]], None],
    ) -> None:
        self.arrived: list[Gradient] = []
        self._queue = queue
        self._module = module
        self._stats = stats
        self._version = version
        self._returned = returned
        self._stream = -1
        self._members: dict[int, Contributor] = {}
        queue.handlers |= {
            "standby": self._on_standby,
            "offer": self._on_offer,
            "begun": self._on_begun,
            "gradient": self._on_gradient,
            "withdrawn": self._on_withdrawn,
        }
        queue.lost.append(self._forget)

    @property
    def members(self) -> list[Contributor]:
        return list(self._members.values())

    def begin_epoch(self, stream: int) -> None:
        """Begins the epoch of ``stream``, and drops all slices and gradients of the one before."""
        self._stream = stream
        for member in self._members.values():
            # ``room`` stays: what a sampler requested in the last epoch it still waits for in this one.
            member.out.clear()
            # One at least: else a sampler that was once too slow would be so forever.
            member.num_trials = max(JUDGED_BY - len(member.training.recent), 1)
        for gradient in self.arrived:
            self.refuse(gradient)
        self.arrived = []

    def handle_messages(self) -> None:
        while self._queue.pump(0):
            pass

    def wait(self, timeout_s: float) -> None:
        """Handles the next messages, waiting for one at most so long."""
        self._queue.pump(timeout_s)

    def give(self, member: Contributor, number: int) -> None:
        member.room -= 1
        member.out[number] = -1
        self._queue.send(member.index, "task", stream=self._stream, slice=number)

    def publish(self, member: Contributor, *, global_step: int, due_ms: float, fresh_due_ms: float) -> None:
        """Sends the current parameters, unless the sampler still reads the version before the last, or is silent."""
        if member.num_unanswered == MAX_UNANSWERED:
            return
        copy = member.exchange.publish(state_of(self._module))
        if copy is not None:
            member.num_unanswered += 1
            self._queue.send(
                member.index,
                "parameters",
                copy=copy,
                version=self._version(),
                global_step=global_step,
                due_ms=due_ms,
                fresh_due_ms=fresh_due_ms,
            )

    def count_gain(self, gradient: Gradient, *, saved_ms: float) -> None:
        """Counts what a gradient has saved the trainers, against what they have waited for it."""
        member = self._members.get(gradient.sampler)
        if member is not None:
            # Trials are no help to judge by: the first is slow, and nobody waits for any.
            if member.training.are_many:
                member.gains.add(saved_ms - member.awaited_ms)
            member.awaited_ms = 0.0

    def refuse(self, gradient: Gradient) -> None:
        self._stats.refused += 1
        self.settle(gradient)

    def settle(self, gradient: Gradient) -> None:
        self._queue.send(gradient.sampler, "settled", copy=gradient.copy)

    def close(self) -> None:
        for index in list(self._members):
            self._forget(index)
        self.arrived.clear()

    # What samplers say.

    def _on_standby(self, index: int, message: Message, fds: list[int]) -> None:
        if not fds:
            raise QueueProtocolError(f"sampler {index} sent no memory for its gradients")
        self._forget(index)
        try:
            # The exchange owns the descriptor once it is made; until then it is to be closed here.
            exchange = ParameterExchange(self._module, fds[0])
        except BaseException:
            os.close(fds[0])
            raise
        if message["digest"] == exchange.digest:
            self._members[index] = Contributor(index, exchange)
            return
        exchange.close()
        pl.utilities.rank_zero.rank_zero_warn(
            f"FactoredStrategy: the model of sampler {index} has other parameters or buffers than that of trainer 0, "
            f"so it does not train. Build the same model on every rank, in __init__, setup or configure_model."
        )

    def _on_offer(self, index: int, message: Message, fds: list[int]) -> None:
        if index in self._members:
            member = self._members[index]
            # Bounded here too, whatever a sampler asks for.
            member.room = min(member.room + max(message["room"], 0), MAX_OUT)
            member.num_unanswered = 0

    def _on_begun(self, index: int, message: Message, fds: list[int]) -> None:
        if index in self._members and self._is_out(index, message):
            self._members[index].out[message["slice"]] = message["version"]
            self._members[index].num_unanswered = 0

    def _on_gradient(self, index: int, message: Message, fds: list[int]) -> None:
        if index not in self._members:
            return
        # No version is newer than those that trainer 0 has made: its age would be negative, and pass every bound.
        if not 0 <= message["copy"] < NUM_COPIES or message["version"] > self._version():
            raise QueueProtocolError(f"sampler {index} sent {message!r:.200}, which is no gradient of ours")
        member = self._members[index]
        member.making.add(message["make_ms"])
        member.training.add(message["train_ms"])
        member.num_unanswered = 0
        self._stats.contributed += 1
        tensors = member.exchange.gradients[message["copy"]]
        gradient = Gradient(index, message["slice"], message["copy"], message["version"], tensors)
        if self._is_out(index, message):
            # A slice counts once: a second gradient of it is none that this sampler has out any more.
            del member.out[gradient.slice]
            self.arrived.append(gradient)
        else:
            self.refuse(gradient)

    def _on_withdrawn(self, index: int, message: Message, fds: list[int]) -> None:
        self._stats.num_withdrawn += 1
        pl.utilities.rank_zero.rank_zero_warn(
            f"FactoredStrategy: training failed on sampler {index}, which goes on sampling but trains no more. If "
            f"training_step uses collectives, or what only trainers have, set switching=False.\n{message['text']}"
        )
        self._forget(index)

    def _is_out(self, index: int, message: Message) -> bool:
        """Whether the message's slice is of this epoch, and with this sampler."""
        return message["stream"] == self._stream and message["slice"] in self._members[index].out

    def _forget(self, index: int) -> None:
        """Drops a sampler that is gone, or trains no more. Gradients that it has sent stay valid."""
        member = self._members.pop(index, None)
        if member is not None:
            self._returned(member.out)
            member.exchange.close()

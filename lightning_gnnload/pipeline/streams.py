"""Streams: what a trainer asks of a sampler, and what the sampler keeps of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.pipeline.wire import Channel


@dataclass(frozen=True)
class StreamSpec:
    """What a trainer asks for: the mini-batches of steps ``[start, stop)`` of one loader of a phase, in one epoch.

    ``reload`` changes when Lightning has asked the data module for its loaders anew.
    """

    phase: str
    loader: int
    reload: int
    epoch: int
    start: int
    stop: int


@dataclass(eq=False)
class Stream:
    """A stream that a trainer has opened. A sampler makes the steps that it was asked for, the lowest first.

    Attributes:
        depth: how many slots it may have out; who takes steps of another sampler over gets more for that.
        shares: what is yet to be made; the begin of a range is the first to come.
    """

    trainer: Trainer
    number: int
    spec: StreamSpec
    depth: int
    shares: list[range] = field(default_factory=list)
    source: BatchSource | None = None
    num_out: int = 0
    closed: bool = False

    def add_share(self, start: int, stop: int, stride: int, more_slots: int) -> None:
        """Raises QueueProtocolError: no steps of this stream."""
        steps = range(start, stop, max(stride, 1))
        if stride < 1 or more_slots < 0 or not steps or steps[0] < self.spec.start or steps[-1] >= self.spec.stop:
            raise QueueProtocolError(f"steps {start}:{stop}:{stride} are not of a stream of {self.spec}")
        self.shares.append(steps)
        self.depth += more_slots

    @property
    def is_ready(self) -> bool:
        """There is a step to make, and a slot for it."""
        return bool(self.shares) and self.num_out < self.depth

    @property
    def next_step(self) -> int:
        return min(steps[0] for steps in self.shares)

    def pop_step(self) -> int:
        """Takes the next step out of the shares."""
        share = min(self.shares, key=lambda steps: steps[0])
        step = share[0]
        self.shares.remove(share)
        if share[1:]:
            self.shares.append(share[1:])
        return step


@dataclass(eq=False)
class SharedSlot:
    """A slot of one trainer; ``stream`` is whose mini-batch it holds, or is to hold."""

    number: int
    memory: Slot
    stream: Stream | None = None
    sent_before: bool = False


@dataclass(eq=False)
class Trainer:
    """A trainer, as a sampler sees it. Its slots are its own, so that a slow trainer takes none from the others."""

    channel: Channel
    index: int
    rank: int
    streams: dict[int, Stream] = field(default_factory=dict)
    slots: list[SharedSlot] = field(default_factory=list)
    free: list[SharedSlot] = field(default_factory=list)
    said_bye: bool = False

    def take_slot(self, stream: Stream, num_bytes: int) -> SharedSlot:
        """A slot to write to: one that came back, or a new one of that size."""
        if self.free:
            slot = self.free.pop()
        else:
            slot = SharedSlot(len(self.slots), Slot.shared(num_bytes))
            self.slots.append(slot)
        slot.stream = stream
        stream.num_out += 1
        return slot

    def slot(self, number: int) -> SharedSlot:
        """Raises QueueProtocolError: there is no such slot."""
        if not 0 <= number < len(self.slots):
            raise QueueProtocolError(f"trainer rank {self.rank} freed slot {number}, of {len(self.slots)}")
        return self.slots[number]

    def take_back(self, slot: SharedSlot) -> None:
        """Raises QueueProtocolError: it is free already; two mini-batches would be written to it at once."""
        if slot.stream is None:
            raise QueueProtocolError(f"slot {slot.number} was freed twice")
        slot.stream.num_out -= 1
        slot.stream = None
        self.free.append(slot)

    def part(self) -> None:
        self.channel.close()
        for slot in self.slots:
            slot.memory.close()
        for held in (self.slots, self.free, self.streams):
            held.clear()  # slots and streams know each other, and would outlast this until a garbage collection

"""Streams: the ranges of steps that trainers ask samplers for, and what either side keeps of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from lightning_gnnload.errors import CudaCallError, QueueProtocolError
from lightning_gnnload.pipeline.device_slots import DeviceSlot
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.pipeline.wire import Channel

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamSpec:
    """Describes the mini-batches that a trainer asks for: steps ``[start, stop)`` of a phase's loader in one epoch.

    ``reload`` changes when Lightning has asked the data module for its loaders anew. ``gathers`` says that the trainer
    gathers the features itself, so that they are no part of the mini-batches. ``data`` is what they are made of at the
    trainer, as :attr:`.BatchSource.fingerprint` has it; empty where that may be anything.
    """

    phase: str
    loader: int
    reload: int
    epoch: int
    start: int
    stop: int
    gathers: bool = False
    data: str = ""


@dataclass
class ReadStream:
    """A stream at the trainer that reads it; steps before ``next_step`` are done, and nobody makes the ``orphans``."""

    spec: StreamSpec
    next_step: int
    orphans: list[range] = field(default_factory=list)


@dataclass(eq=False)
class Stream:
    """A range of mini-batches that a trainer has opened at a sampler. A sampler makes the steps that it was asked for,
    the lowest first.

    Attributes:
        depth: how many slots it may have out; who takes steps of another sampler over gets more for that.
        shares: what is yet to be made; the begin of a range is the first to come.
        source: its mini-batches, once they are found.
    """

    trainer: TrainerPeer
    number: int
    spec: StreamSpec
    depth: int
    shares: list[range] = field(default_factory=list)
    source: BatchSource | None = None
    num_out: int = 0
    closed: bool = False

    def add_share(self, ranges: list[Any], more_slots: int) -> None:
        """Adds steps to make, each range as ``[start, stop, stride]``.

        Raises:
            QueueProtocolError: they are no steps of this stream.
        """
        shares = [steps for each in ranges if (steps := _steps(each)) and self._has(steps)]
        if len(shares) < len(ranges) or more_slots < 0:
            raise QueueProtocolError(f"{ranges!r:.200} and {more_slots} slots are no share of a stream of {self.spec}")
        self.shares += shares
        self.depth += more_slots

    def add_slots(self, count: int) -> None:
        """Lets it have so many more slots out, or fewer; those that are out stay so until they come back."""
        if self.depth + count < 1:
            raise QueueProtocolError(
                f"{count} slots more leave none for a stream of {self.spec}, which had {self.depth}"
            )
        self.depth += count

    def _has(self, steps: range) -> bool:
        return self.spec.start <= steps[0] and steps[-1] < self.spec.stop

    @property
    def is_ready(self) -> bool:
        """Whether there is a step to make, and a slot for it."""
        return self.source is not None and bool(self.shares) and self.num_out < self.depth

    @property
    def opened(self) -> BatchSource:
        assert self.source is not None, "it is not ready"
        return self.source

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
    """A slot that a sampler shares with one trainer, and the step whose mini-batch it holds or will hold.

    Attributes:
        sent: the descriptor and the handle that the trainer has; other ones are new to it.
    """

    number: int
    memory: Slot | DeviceSlot
    stream: Stream | None = None
    step: int = -1
    sent: tuple[int, dict[str, Any]] | None = None

    @property
    def is_on_device(self) -> bool:
        return isinstance(self.memory, DeviceSlot)


@dataclass(eq=False)
class TrainerPeer:
    """One trainer at the sampler's end: its connection, its streams and its slots. Its slots are its own, so that a
    slow trainer takes none from the others.

    Attributes:
        device: name of the device by which it reads other processes' device memory; empty where there is none, or
            where that has failed.
    """

    channel: Channel
    index: int
    rank: int
    device: str = ""
    streams: dict[int, Stream] = field(default_factory=dict)
    slots: list[SharedSlot] = field(default_factory=list)
    free: list[SharedSlot] = field(default_factory=list)
    said_bye: bool = False

    def take_slot(self, stream: Stream, step: int, num_bytes: int) -> SharedSlot:
        """Returns a slot to write to: one that came back, or a new one of that size."""
        on_device = stream.opened.can_write_to(self.device)
        # Both kinds may be free: streams with features are written by the host, those without perhaps on a device.
        fitting = [slot for slot in self.free if slot.is_on_device == on_device]
        if fitting:
            slot = fitting[-1]
            self.free.remove(slot)
        else:
            slot = SharedSlot(len(self.slots), self._memory(stream, num_bytes, on_device))
            self.slots.append(slot)
        slot.stream, slot.step = stream, step
        stream.num_out += 1
        return slot

    def _memory(self, stream: Stream, num_bytes: int, on_device: bool) -> Slot | DeviceSlot:
        try:
            return stream.opened.new_slot(num_bytes, on_device=on_device)
        except CudaCallError as error:
            if not on_device:
                raise
            # For good: a device that is out of memory would else be asked anew for each slot.
            self.go_over_host(str(error))
            return stream.opened.new_slot(num_bytes, on_device=False)

    def go_over_host(self, reason: str) -> None:
        """Sends this trainer's mini-batches in host memory from now on."""
        if self.device:
            _log.warning(
                "Mini-batches go to trainer rank %d in memory of the host, not of a GPU: %s", self.rank, reason
            )
        self.device = ""

    def refuse(self, slot: SharedSlot, reason: str) -> None:
        """Notes that the trainer cannot open the memory of a slot, whose step is to be made again in another.

        Raises:
            QueueProtocolError: the slot holds no mini-batch, or lies in memory that anyone can open.
        """
        if slot.stream is None or not slot.is_on_device:
            raise QueueProtocolError(f"trainer rank {self.rank} refused slot {slot.number}, which is none of a device")
        self.go_over_host(reason)
        # Before the slot is taken back, which forgets the step's stream.
        slot.stream.shares.append(range(slot.step, slot.step + 1))
        self.take_back(slot)

    def slot(self, number: int) -> SharedSlot:
        """Returns a slot by its number. Raises QueueProtocolError: there is no such slot."""
        if not 0 <= number < len(self.slots):
            raise QueueProtocolError(f"trainer rank {self.rank} freed slot {number}, of {len(self.slots)}")
        return self.slots[number]

    def take_back(self, slot: SharedSlot) -> None:
        """Takes back a slot that the trainer is done with.

        Raises:
            QueueProtocolError: it is free already; two mini-batches would be written to it at once.
        """
        if slot.stream is None:
            raise QueueProtocolError(f"slot {slot.number} was freed twice")
        slot.stream.num_out -= 1
        slot.stream = None
        if isinstance(slot.memory, DeviceSlot) and slot.sent == (slot.memory.fd, slot.memory.memory_handle):
            slot.memory.free_replaced()  # the trainer has seen what came in the place
        self.free.append(slot)

    def close(self) -> None:
        self.channel.close()
        for slot in self.slots:
            slot.memory.close()
        for held in (self.slots, self.free, self.streams):
            held.clear()  # slots and streams know each other, and would outlast this until a garbage collection


def _steps(numbers: Any) -> range:
    """Returns the range that a message names; an empty one where these are no ascending ``[start, stop, stride]``."""
    is_range = isinstance(numbers, list) and len(numbers) == 3 and all(type(number) is int for number in numbers)
    return range(*numbers) if is_range and numbers[2] > 0 else range(0)

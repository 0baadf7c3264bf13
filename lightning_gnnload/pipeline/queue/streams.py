"""Streams: the ranges of steps that trainers ask samplers for, and what either side keeps of them."""

from __future__ import annotations

import heapq
import logging
from dataclasses import dataclass, field
from typing import Any

from lightning_gnnload.errors import CudaCallError, QueueProtocolError
from lightning_gnnload.pipeline.device_slots import DeviceSlot
from lightning_gnnload.pipeline.queue.wire import Channel
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamSpec:
    """The mini-batches that a trainer asks for: steps ``[start, stop)`` of a phase's loader in one epoch.

    ``reload`` changes when Lightning has asked the data module for its loaders anew. ``gathers``: the trainer gathers
    the features itself, so mini-batches come without them. ``data`` is the trainer's :attr:`.BatchSource.fingerprint`;
    empty where it does not matter.
    """

    phase: str
    loader: int
    reload: int
    epoch: int
    start: int
    stop: int
    gathers: bool = False
    data: str = ""


@dataclass(eq=False)
class Stream:
    """A stream that a trainer has opened at a sampler, which makes the steps it was asked for, lowest first, each in
    its own slot. ``steps`` is a heap; ``source`` is None until it is opened."""

    trainer: TrainerPeer
    number: int
    spec: StreamSpec
    steps: list[int] = field(default_factory=list)
    source: BatchSource | None = None
    closed: bool = False

    def add(self, steps: list[Any]) -> None:
        """Adds steps to make. QueueProtocolError: they are no steps of this stream."""
        if not all(type(step) is int and self.spec.start <= step < self.spec.stop for step in steps):
            raise QueueProtocolError(f"{steps!r:.200} are no steps of a stream of {self.spec}")
        for step in steps:
            heapq.heappush(self.steps, step)

    @property
    def is_ready(self) -> bool:
        """Whether there is a step to make."""
        return self.source is not None and bool(self.steps)

    @property
    def opened(self) -> BatchSource:
        assert self.source is not None, "it is not ready"
        return self.source

    @property
    def next_step(self) -> int:
        return self.steps[0]

    def pop_step(self) -> int:
        """Takes the next step to make."""
        return heapq.heappop(self.steps)


@dataclass(eq=False)
class SharedSlot:
    """A slot that a sampler shares with one trainer, and the step that it holds or will hold. ``sent`` is the
    descriptor and handle that the trainer has."""

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
    """One trainer at the sampler's end: its connection, streams and slots. Trainers share no slots, so a slow one takes
    none from the others. ``device`` names the device with which it reads other processes' device memory; empty if it
    cannot."""

    channel: Channel
    index: int
    rank: int
    device: str = ""
    streams: dict[int, Stream] = field(default_factory=dict)
    slots: list[SharedSlot] = field(default_factory=list)
    free: list[SharedSlot] = field(default_factory=list)
    has_parted: bool = False

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
        """Notes that the trainer cannot open a device slot; its step is made again in host memory. QueueProtocolError:
        the slot holds no mini-batch, or is not a device's."""
        if slot.stream is None or not slot.is_on_device:
            raise QueueProtocolError(f"trainer rank {self.rank} refused slot {slot.number}, which is none of a device")
        self.go_over_host(reason)
        # Before the slot is taken back, which forgets the step's stream.
        slot.stream.add([slot.step])
        self.take_back(slot)

    def slot(self, number: Any) -> SharedSlot:
        """Returns a slot by its number. Raises QueueProtocolError: there is no such slot."""
        if type(number) is not int or not 0 <= number < len(self.slots):
            raise QueueProtocolError(f"trainer rank {self.rank} freed slot {number!r:.20}, of {len(self.slots)}")
        return self.slots[number]

    def take_back(self, slot: SharedSlot) -> None:
        """Takes back a slot that the trainer is done with. QueueProtocolError: it is free already, and would be written
        twice."""
        if slot.stream is None:
            raise QueueProtocolError(f"slot {slot.number} was freed twice")
        slot.stream = None
        if isinstance(slot.memory, DeviceSlot) and slot.sent == (slot.memory.fd, slot.memory.memory_handle):
            slot.memory.free_replaced()  # the trainer has seen what came in the place
        self.free.append(slot)

    def close(self) -> None:
        self.channel.close()
        for slot in self.slots:
            slot.memory.close()
        for resources in (self.slots, self.free, self.streams):
            resources.clear()  # slots and streams know each other, and would outlast this until a garbage collection

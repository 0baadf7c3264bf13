"""SamplerPeer: one sampler, as a trainer sees it."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.errors import DeviceShareError, PeerError, QueueProtocolError
from lightning_gnnload.pipeline.device_slots import DeviceReader, OpenedSlot
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.queue import wire
from lightning_gnnload.pipeline.queue.scheduler import BatchTime
from lightning_gnnload.pipeline.slots import LentBuffers, Slot

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.launch.device import Event

_AT_ONCE = 4096  # slots or steps in a message, which has 128 KiB


class SamplerPeer:
    """One sampler at the trainer's end: its connection, its speed, and its slots.

    A sampler that comes back after its end is another peer (``is_successor``); the old one stays until its last slot is
    free. ``channel`` is None before it is connected and after it is gone; ``pid`` is 0 until it has said welcome.
    ``is_remote``: it runs on another machine. ``end`` is why it makes no more mini-batches: one that raised stays
    connected, and reports trainers' failures. ``heard_at`` is the moment of its last message, or when its oldest due
    step was asked for, moved by the time in which nobody listened.
    """

    def __init__(self, index: int, rank: int, *, is_successor: bool = False, is_remote: bool = False) -> None:
        self.index = index
        self.rank = rank
        self.is_successor = is_successor
        self.is_remote = is_remote
        self.channel: wire.Channel | None = None
        self.pid = 0
        self.end: PeerError | None = None
        self.batch_times: dict[tuple[str, int], BatchTime] = {}
        self.called_at = -math.inf  # when it was last tried to connect to it, on another machine
        self.heard_at = time.monotonic()
        self._slots: dict[int, Slot | OpenedSlot] = {}
        self._filled: dict[int, int] = {}  # slots that hold mini-batches, and of which stream
        self._freed: list[int] = []  # slots that it is yet to be told of
        self._lent: LentBuffers[int] = LentBuffers()  # by slot number
        self._copies: deque[tuple[Event, int]] = deque()  # from device slots, in the order of their stream

    @property
    def is_alive(self) -> bool:
        """Whether it has said welcome, and makes mini-batches."""
        return self.pid > 0 and self.end is None

    @property
    def is_awaited(self) -> bool:
        """Whether it may still say welcome, which it has not yet."""
        return self.pid == 0 and self.end is None

    @property
    def num_slots_used(self) -> int:
        """How many slots hold mini-batches that have come and were not given back."""
        return len(self._filled)

    def num_filled(self, stream: int) -> int:
        """How many of these are of a stream."""
        return list(self._filled.values()).count(stream)

    @property
    def pids(self) -> list[int]:
        """Its processes on this machine: first the one that samples, last its rank, which may have forked that one and
        wait for it."""
        if self.is_remote:
            return []
        rank = 0 if self.channel is None else self.channel.peer_pid
        return [pid for pid in dict.fromkeys((self.pid, rank)) if pid]

    def send(self, message: str, fds: tuple[int, ...] = (), **fields: object) -> None:
        """Sends a message. Does nothing for a sampler that is gone: its end is known, or will be read."""
        if self.channel is not None:
            with suppress(OSError):
                self.channel.send(message, fds, **fields)

    def deal(self, stream: int = -1, steps: Sequence[int] = ()) -> None:
        """Asks for steps of a stream, and gives back the slots that have come free."""
        freed, self._freed = self._freed, []
        for begin in range(0, max(len(freed), len(steps)), _AT_ONCE):
            end = begin + _AT_ONCE
            self.send("deal", slots=freed[begin:end], stream=stream, steps=list(steps[begin:end]))

    def fill(self, message: wire.Message, fds: list[int], *, pinned: bool, reader: DeviceReader | None = None) -> bool:
        """Notes that a mini-batch came in a slot, and returns whether it can be used: if the slot's memory cannot be
        opened here, the sampler is asked to send the mini-batch again in another one.

        Raises QueueProtocolError where the slot's memory is unknown, or came twice.
        """
        number, num_bytes = message["slot"], message["slot_bytes"]
        slot = self._slots.get(number)
        if message["memory_handle"]:
            if not fds or number in self._filled or isinstance(slot, Slot) or reader is None:
                self._close(fds)
                raise QueueProtocolError(f"sampler rank {self.rank} sent a ticket for slot {number}, which is none")
            if slot is not None:  # it has grown, and what it was is freed when nobody has it open
                self._slots.pop(number).close()
            try:
                self._slots[number] = reader.open(message["memory_handle"], fds[0])
            except DeviceShareError as error:
                # With this answer the sampler takes the slot back by itself.
                self.send("refuse", slot=number, text=str(error))
                return False
        elif fds:
            if slot is not None:
                self._close(fds)
                raise QueueProtocolError(f"sampler rank {self.rank} sent the memory of slot {number} twice")
            self._slots[number] = Slot(num_bytes, fds[0], pinned=pinned)
        elif slot is None:
            raise QueueProtocolError(f"sampler rank {self.rank} named slot {number}, whose memory it never sent")
        elif isinstance(slot, Slot) and num_bytes > slot.num_bytes:
            # The file has grown under the same descriptor.
            slot.remap()
        self._filled[number] = message["stream"]
        return True

    def lend(self, number: int, payload: Payload) -> MiniBatch:
        """Returns the mini-batch in a slot, which is free again when its last tensor is gone.

        From a device's slot it is copied to this process's device in the current stream; the slot is free after the
        copy.
        """
        slot = self._slots[number]
        if isinstance(slot, Slot):
            return payload.view(self._lent.lend(slot, number))
        copied, copy_end = slot.copy(payload.header.end)
        self._copies.append((copy_end, number))
        return payload.view(copied)

    def is_on_device(self, number: int) -> bool:
        """Whether a slot lies in the sampler's device memory, which ends with the sampler."""
        return isinstance(self._slots.get(number), OpenedSlot)

    @property
    def num_lent(self) -> int:
        return len(self._lent)

    def free_returned(self) -> None:
        """Gives the slots back whose tensors are gone, and those that are copied."""
        for number in self._lent.returned():
            self.free(number)
        while self._copies and self._copies[0][0].is_done():
            self.free(self._copies.popleft()[1])

    def finish_copies(self) -> None:
        """Waits for the copies from device slots, and gives these back."""
        while self._copies:
            copy_end, number = self._copies.popleft()
            copy_end.synchronize()
            self.free(number)
        self.free_returned()

    def free(self, number: int) -> None:
        """Gives a slot back to the sampler, with the next deal, or to the system if that is gone."""
        self._filled.pop(number, None)
        if self.channel is not None:
            self._freed.append(number)
        elif number in self._slots:
            self._slots.pop(number).close()

    def ends_by(self, deadline: float) -> bool:
        """Waits until it has closed its end of the connection; returns whether it did in time. Discards messages that
        still come."""
        return self.channel is None or self.channel.drain(max(deadline - time.monotonic(), 0))

    def disconnect(self) -> None:
        """Closes the connection. Mini-batches that came stay, and tensors over them."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        # Slots in use are closed one by one as they come free, or with close().
        for number in self._slots.keys() - self._filled.keys():
            self._slots.pop(number).close()

    def close(self) -> None:
        """Disconnects, and leaves every slot to the tensors that use it."""
        self.disconnect()
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()
        self._copies.clear()

    def _close(self, fds: list[int]) -> None:
        for fd in fds:
            os.close(fd)

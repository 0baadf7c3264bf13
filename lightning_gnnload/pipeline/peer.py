"""SamplerPeer: one sampler, as a trainer sees it."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.errors import PeerError, QueueProtocolError
from lightning_gnnload.pipeline import wire
from lightning_gnnload.pipeline.loans import Loans
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import Payload


class SamplerPeer:
    """A connection, the steps that are expected from it, and its slots in this process.

    A sampler that comes back after its end is another peer: this one stays until the last of its slots is free.

    Args:
        index: which of the machine's samplers it is.
        rank: its global rank.
        is_successor: another one answered in its place before, and is lost.

    Attributes:
        channel: None before it is connected, and after it is gone.
        pid: the process that samples; 0 until it has said welcome.
        end: why it makes no more mini-batches. One that raised is still connected, and says what becomes of trainers.
        shares: by stream, the steps that it was asked for, those that came included.
        heard_at: when its last message came, monotonic seconds.
    """

    def __init__(self, index: int, rank: int, *, is_successor: bool = False) -> None:
        self.index = index
        self.rank = rank
        self.is_successor = is_successor
        self.channel: wire.Channel | None = None
        self.pid = 0
        self.end: PeerError | None = None
        self.shares: dict[int, list[range]] = {}
        self.heard_at = time.monotonic()
        self._slots: dict[int, Slot] = {}
        self._filled: set[int] = set()
        self._loans: Loans[int] = Loans()  # by slot number

    @property
    def is_alive(self) -> bool:
        """It has said welcome, and makes mini-batches."""
        return self.pid > 0 and self.end is None

    @property
    def is_awaited(self) -> bool:
        """It has not said welcome yet, but may."""
        return self.pid == 0 and self.end is None

    @property
    def num_slots_used(self) -> int:
        """Slots with mini-batches that have come and are not given back."""
        return len(self._filled)

    def send(self, kind: str, fds: tuple[int, ...] = (), **fields: object) -> None:
        """To one that is gone, nothing is sent: its end is read later, or is known."""
        if self.channel is not None:
            with suppress(OSError):
                self.channel.send(kind, fds, **fields)

    def fill(self, message: wire.Message, fds: list[int], *, pinned: bool) -> None:
        """Takes note of a mini-batch that came in a slot.

        Raises:
            QueueProtocolError: the slot's memory is not known, or came twice.
        """
        number, num_bytes = message["slot"], message["slot_bytes"]
        if fds:
            if number in self._slots:
                os.close(fds[0])
                raise QueueProtocolError(f"sampler rank {self.rank} sent the memory of slot {number} twice")
            self._slots[number] = Slot(num_bytes, fds[0], pinned=pinned)
        elif number not in self._slots:
            raise QueueProtocolError(f"sampler rank {self.rank} named slot {number}, whose memory it never sent")
        elif num_bytes > self._slots[number].num_bytes:
            self._slots[number].remap()
        self._filled.add(number)

    def lend(self, number: int, payload: Payload) -> MiniBatch:
        """The mini-batch in a slot, which is free again when its last tensor is gone."""
        return payload.view(self._loans.lend(self._slots[number], number))

    @property
    def num_lent(self) -> int:
        return len(self._loans)

    def free_returned(self) -> None:
        """Gives the slots back whose tensors are gone."""
        for number in self._loans.returned():
            self.free(number)

    def free(self, number: int) -> None:
        """Gives a slot back to the sampler, or to the system if that is gone."""
        self._filled.discard(number)
        if self.channel is not None:
            self.send("free", slot=number)
        elif number in self._slots:
            self._slots.pop(number).close()

    def hang_up(self) -> None:
        """Closes the connection. Mini-batches that came stay, and tensors over them."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        for number in self._slots.keys() - self._filled:
            self._slots.pop(number).close()

    def part(self) -> None:
        """Hangs up, and leaves every slot to the tensors that use it."""
        self.hang_up()
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()

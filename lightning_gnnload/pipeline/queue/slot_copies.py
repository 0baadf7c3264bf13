"""SlotCopies: a sampler's slots at either end of a connection between machines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lightning_gnnload.data.slab import Header
from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.host.memory import free_bytes, in_units
from lightning_gnnload.pipeline.slots import Slot

_MOST_SLOTS = 1 << 16
_MOST_BYTES = 1 << 46  # of addresses; only what is written takes memory
_LEAST_GAP_BYTES = 4096  # a shorter one costs less to send than to step over


def pieces_of(header: Header) -> list[int]:
    """Returns which bytes of its slot a mini-batch lies in, as begin, end, begin, end and so on: columns stand at the
    slot's beginning, hops at its end, and a quarter of it may be empty between them."""
    pieces: list[int] = []
    for begin, end in sorted(extent for extent in header.extents() if extent[0] < extent[1]):
        if pieces and begin - pieces[-1] < _LEAST_GAP_BYTES:
            pieces[-1] = max(pieces[-1], end)
        else:
            pieces += begin, end
    return pieces


class SlotCopies:
    """Slots of one connection, by number: at the sampler's end those that it writes, at the trainer's end copies.

    A copy is shared memory, too, so that a trainer maps it as it does a slot of its own machine. Like that, it is
    written again only when the trainer has given the slot back: the sampler's slot is lent until then.
    """

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}

    def source(self, number: int, slot_bytes: int, pieces: Sequence[int], fd: int | None) -> list[np.ndarray]:
        """Returns the pieces of what a slot holds, at the sampler's end. ``fd`` is its memory where that is new."""
        if fd is not None:
            self._drop(number)
            self._slots[number] = Slot(slot_bytes, os.dup(fd))
        slot = self._slots[number]
        if slot_bytes > slot.num_bytes:
            slot.remap()
        return [slot.array[begin:end] for begin, end in _pairs(pieces)]

    def target(
        self, number: int, slot_bytes: int, num_bytes: int, pieces: Sequence[Any]
    ) -> tuple[list[np.ndarray], list[int]]:
        """Returns where the copy of a slot's pieces goes, at the trainer's end, and a descriptor of its memory where
        that is new, which the caller must close. QueueProtocolError: impossible sizes, or more than there is memory
        for."""
        if not (0 <= number < _MOST_SLOTS and 0 <= num_bytes <= slot_bytes <= _MOST_BYTES):
            raise QueueProtocolError(f"slot {number} is said to hold {num_bytes} of {slot_bytes} bytes")
        bounds = [0, *pieces, num_bytes]
        if len(pieces) % 2 or not all(type(bound) is int for bound in pieces) or bounds != sorted(bounds):
            raise QueueProtocolError(f"slot {number} is said to hold {pieces!r:.200} of {num_bytes} bytes")
        slot = self._slots.get(number)
        # Before any is taken: asked for more than there is, Linux may kill a process rather than refuse.
        if (slot is None or num_bytes > slot.num_bytes) and num_bytes > (free := free_bytes()):
            raise QueueProtocolError(
                f"a mini-batch of {in_units(num_bytes)} came, but the machine has {in_units(free)} of free memory. "
                f"Use a smaller batch_size, smaller fanouts, or a smaller queue_depth."
            )
        fds = []
        if slot is None:
            slot = self._slots[number] = Slot.shared(slot_bytes)
            fds = [os.dup(slot.fd)]
        elif slot_bytes > slot.num_bytes:
            slot.grow(slot_bytes)
        return [slot.array[begin:end] for begin, end in _pairs(pieces)], fds

    def close(self) -> None:
        """Closes this end's descriptors; the memory stays while others map it."""
        for number in list(self._slots):
            self._drop(number)

    def _drop(self, number: int) -> None:
        slot = self._slots.pop(number, None)
        if slot is not None:
            slot.close()


def _pairs(pieces: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(pieces[::2], pieces[1::2], strict=True)

"""SlotPool: the private slots of a loader, recycled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from lightning_gnnload.pipeline.loans import Loans
from lightning_gnnload.pipeline.slots import FIRST_SLOT_BYTES, Slot


class SlotPool:
    """Private slots, recycled. Thread-safe.

    It holds as many as were ever in use at once; how many that is, is the caller's bound. New slots start at the
    size that earlier ones grew to.
    """

    def __init__(self, *, pinned: bool = False) -> None:
        self.pinned = pinned
        self._free: list[Slot] = []
        self._loans: Loans[Slot] = Loans()
        self._num_bytes = FIRST_SLOT_BYTES
        self._lock = threading.Lock()

    def initializer(self) -> Callable[[], None] | None:
        """For threads that take slots, which are page-locked on the device of whoever calls this: a new thread's would
        be the first one."""
        return partial(torch.cuda.set_device, torch.cuda.current_device()) if self.pinned else None

    def take(self) -> Slot:
        """A slot to write to: one that came back, or a new one."""
        with self._lock:
            self._free.extend(self._loans.returned())
            if self._free:
                return self._free.pop()
            num_bytes = self._num_bytes
        return Slot(num_bytes, pinned=self.pinned)

    def give(self, slot: Slot) -> None:
        """Takes back a slot that was not lent."""
        with self._lock:
            self._num_bytes = max(self._num_bytes, slot.num_bytes)
            self._free.append(slot)

    def lend(self, slot: Slot) -> Any:
        """A buffer over ``slot``, which returns to the pool when the buffer's last user is gone."""
        with self._lock:
            self._num_bytes = max(self._num_bytes, slot.num_bytes)
            return self._loans.lend(slot, slot)

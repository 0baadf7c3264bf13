"""DeviceWorkspace: the table by which a device numbers the nodes of a batch."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch

from ....errors import SamplerConfigError
from ...checks import check_choice
from ...dispatch import MAX_NODES, MAX_STAMP_NODES
from ..launch.device import Device
from .varying import Varying

_WORD_BITS = 32
# For positions, of the 32 bits of a stamp; the other 10 number 1,024 batches between two clearings.
_LEAST_BITS = 22


class DeviceWorkspace:
    """The scratch memory of one thread on a device, reused from batch to batch; kernels take it as ``NodeStamps``.

    ``num_nodes`` is N of the largest graph that it is used with. The table ``"stamp"`` takes 4 bytes for each node of
    the graph, ``"hash"`` 24 to 48 bytes for each node that the largest batch so far could have; ``"auto"`` takes stamps
    up to 2**28 nodes. ``number_name`` names the number of its batches among :data:`.FIELDS`. Raises SamplerConfigError
    for an unknown table or more nodes than draws have numbers for, DeviceMemoryError where the device has no room.

    Source: ``kernels/common/cuda/node_stamps.h``.
    """

    def __init__(
        self,
        device: Device,
        num_nodes: int,
        table: Literal["auto", "stamp", "hash"] = "auto",
        number_name: str = "batch",
    ) -> None:
        check_choice("DeviceWorkspace: table", table, ("auto", "stamp", "hash"))
        if not 0 <= num_nodes < MAX_NODES:
            raise SamplerConfigError(f"DeviceWorkspace: num_nodes is {num_nodes}, but must lie in [0, 2**48).")
        if table == "auto":
            table = "stamp" if num_nodes <= MAX_STAMP_NODES else "hash"
        self.device, self.num_nodes, self.table = device, num_nodes, table
        self.stamps = device.empty(max(num_nodes, 1) if table == "stamp" else 0, torch.int32)
        self.slots = device.empty(0, torch.int64) if table == "hash" else None
        self.cached: dict[str, Any] = {}  # what samplers keep from batch to batch, by their names
        self.num_growths = 0  # after which recorded launches do not fit any more
        self._number_name = number_name
        self._bits = _LEAST_BITS
        # Counts down: stamps of earlier batches are larger, and lose every atomic minimum without being cleared.
        self._batch = 0
        self.batch: int = 0
        self.position_mask = self.slot_mask = 0

    def begin(self, most_nodes: int, most_positions: int) -> None:
        """Forgets the last batch, and makes room for so many nodes and positions, ``2**32 - 2`` at most, as far as is
        known."""
        self._make_room(most_nodes, most_positions)
        if self.next_batch():
            self._clear()

    def widen(self, most_nodes: int, most_positions: int) -> bool:
        """Makes room within a batch; returns whether the table was cleared, so that known nodes must be entered
        again."""
        if not self._make_room(most_nodes, most_positions):
            return False
        self.next_batch()
        self._clear()
        return True

    def next_batch(self) -> bool:
        """Gives the next batch its number; returns whether the table has to be cleared before it is used."""
        # A hash table is cleared for every batch, since its slots still have the last one's nodes.
        must_clear = self._batch == 0 or self.slots is not None
        if must_clear:
            self._batch = 1 << (_WORD_BITS - self._bits)
        self._batch -= 1
        self.batch = Varying(self._batch << self._bits, self._number_name)
        self.position_mask = (1 << self._bits) - 1
        self.slot_mask = 0 if self.slots is None else len(self.slots) - 1
        return must_clear

    @property
    def tables(self) -> list[torch.Tensor]:
        """What is cleared: every bit is set."""
        return [self.stamps] if self.slots is None else [self.stamps, self.slots]

    def _make_room(self, most_nodes: int, most_positions: int) -> bool:
        # One more than needed, as all bits set mean that a node never occurred.
        bits = max(self._bits, (most_positions + 1).bit_length())
        # At most half full, so that searches are short and end (node_stamps.h).
        has_few_slots = self.slots is not None and len(self.slots) < 2 * most_nodes + 2
        has_grown, self._bits = bits > self._bits or has_few_slots, bits
        if has_grown:  # noted before there may be no memory for it
            self._batch = 0
            self.num_growths += 1
        if has_few_slots:
            num_slots = 1 << (2 * most_nodes + 1).bit_length()
            # The old ones are freed first. Another stream may own them: torch must not give them to it before this one
            # is done.
            for old in self.tables:
                old.record_stream(self.device.current_stream())
            del old
            self.slots = self.stamps = self.device.empty(0, torch.int64)
            # Both or none: whoever finds enough slots takes it that there are stamps, too.
            stamps = self.device.empty(num_slots, torch.int32)
            self.slots, self.stamps = self.device.empty(num_slots, torch.int64), stamps
        return has_grown

    def _clear(self) -> None:
        for table in self.tables:
            table.fill_(-1)


class NumberTable(Protocol):
    """The interface of what a kernel takes as ``Batch``, where it numbers something other than a batch's nodes."""

    known: DeviceWorkspace  # which kernels take as ``NodeStamps``
    nodes: torch.Tensor  # int64, what is numbered
    error: torch.Tensor  # of the batch
    most_nodes: int  # numbers, at most

"""In which order a device reads what lies in the host's memory: by place, as that comes at more than twice the rate.

The launches, which follow each other without the host: zeros for the buckets, ``count_reads``, ``place_reads`` and
``sort_reads`` (``kernels/order_reads/order_reads_cuda.cu``), then whoever reads takes the :class:`BusOrder` with its
next launch: ``gather_tiered`` (:func:`.gather_tiered`), ``gather_rows`` (:func:`.gather_rows`), or the kernels that
pick edges (``Hop.order``). Results are the same in any order.

Shapes: B ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..launch.device import Device
from .rows import MOVE_THREADS, scan_blocks, scan_tiles

NUM_BUCKETS = 4096  # kBuckets of kernels/order_reads/order_reads_cuda.cu
SCRATCH_WORDS = 2 + NUM_BUCKETS
FEW_READS = 4096
"""Below so many rows, reading them in order saves no more than the launches cost: 12 ns a row of 512 bytes on an
H200."""
FEW_LISTS = 16_384
"""Likewise, of destinations whose lists are read; estimated."""
_MAX_IDS = 1 << 31  # positions are counted in 32 bits


@dataclass(frozen=True)
class Reads:
    """``Reads`` of ``kernels/order_reads/order_reads_cuda.cu``: the ids of what is read, and which of them."""

    ids: torch.Tensor  # int64
    count: int  # of ids, at most
    num_rows: int  # ids lie in [0, num_rows)
    location: torch.Tensor | None = None  # int32 [num_rows]: rows with one that is not negative are not read
    first: torch.Tensor | None = None  # on the device, where the ids begin and end
    end: torch.Tensor | None = None
    id_mask: int = -1  # a mask of what is the id


class BusOrder(NamedTuple):
    """``BusOrder`` of ``kernels/common/cuda/bus_order.h``."""

    entries: torch.Tensor | None = None  # int64 [B]: id << position_bits | position
    num_entries: torch.Tensor | None = None  # int32 [1]
    position_bits: int = 0


AS_THEY_COME = BusOrder()


class OrderScratch(NamedTuple):
    """The memory of one order, which is free again when what it orders has been read."""

    words: torch.Tensor  # int64 [SCRATCH_WORDS], zero
    entries: torch.Tensor  # int64 [B]

    @classmethod
    def of(cls, device: Device, count: int) -> OrderScratch:
        """Allocates it for up to ``count`` ids. Raises DeviceMemoryError."""
        return cls(device.zeros(SCRATCH_WORDS, torch.int64), device.empty(count, torch.int64))


class _Buckets(NamedTuple):
    """``Buckets`` of ``kernels/order_reads/order_reads_cuda.cu``."""

    next_entries: torch.Tensor
    starts: torch.Tensor
    num_done: torch.Tensor
    entries: torch.Tensor
    shift: int
    position_bits: int


def can_order(count: int, num_rows: int) -> bool:
    """Tells whether an entry has the bits for so many ids of such a table."""
    return count < _MAX_IDS and num_rows.bit_length() + count.bit_length() <= 64


def order_reads(device: Device, reads: Reads, scratch: OrderScratch | None = None, *, sorts: bool = True) -> BusOrder:
    """Puts ids in the order of what they name; nothing waits for the device.

    Where ``reads`` has locations, only ids of a negative one have entries; else all, and an id that is none comes last,
    as ``num_rows``. ``sorts=False`` leaves them in the order of their buckets alone. ``can_order`` has to be true.
    Raises DeviceMemoryError where there is no memory for the ``scratch``, which None allocates.
    """
    words, entries = OrderScratch.of(device, reads.count) if scratch is None else scratch
    counters = words.view(torch.int32)
    starts = counters[2 + NUM_BUCKETS : 3 + 2 * NUM_BUCKETS]
    buckets = _Buckets(
        next_entries=counters[2 : 2 + NUM_BUCKETS],
        starts=starts,
        num_done=words[:1],
        entries=entries,
        # num_rows is an id, too: that of what is none.
        shift=max(reads.num_rows.bit_length() - (NUM_BUCKETS.bit_length() - 1), 0),
        position_bits=reads.count.bit_length(),
    )
    blocks = scan_blocks(device, scan_tiles(reads.count))
    device.launch("order_reads", "count_reads", blocks=blocks, threads=MOVE_THREADS, reads=reads, buckets=buckets)
    device.launch("order_reads", "place_reads", blocks=blocks, threads=MOVE_THREADS, reads=reads, buckets=buckets)
    if sorts:
        blocks = scan_blocks(device, NUM_BUCKETS)
        device.launch("order_reads", "sort_reads", blocks=blocks, threads=MOVE_THREADS, buckets=buckets)
    return BusOrder(entries, starts[NUM_BUCKETS:], buckets.position_bits)

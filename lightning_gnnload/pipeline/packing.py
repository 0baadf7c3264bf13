"""Packing: lays out in a slot what was sampled on a device, just as the CPU's kernels lay out theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from lightning_gnnload.data.slab import EDGE_COLUMNS
from lightning_gnnload.ops import ArenaTooSmall, HopLayout, SampleLayout
from lightning_gnnload.ops.checks import ARENA_ALIGNMENT

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.sampling.sample import DeviceHop, DeviceSample


class SlotContents(NamedTuple):
    """Where a mini-batch's arrays lie in one piece of memory: nodes and their queries first, hops at the end.
    ``pieces`` has each array with its offset."""

    layout: SampleLayout
    pieces: list[tuple[int, torch.Tensor]]


def aligned(num_bytes: int) -> int:
    """Rounds a number of bytes up, so that another array may follow."""
    return -(-num_bytes // ARENA_ALIGNMENT) * ARENA_ALIGNMENT


def pack(sample: DeviceSample, num_bytes: int | None = None, *, room_bytes: int = 0) -> SlotContents:
    """Lays a sample out for a slot of ``num_bytes`` (None: as many as it takes), with ``room_bytes`` between nodes and
    hops. Hops that share an array, as with ``expand="new"``, share it in the slot.

    Raises ArenaTooSmall where the slot has fewer bytes than it takes.
    """
    # Of hops that share an array, the last has all of it.
    arrays = {_key(tensor): tensor for hop in sample.hops for tensor in _columns(hop) if tensor is not None}
    size = sum(aligned(tensor.nbytes) for tensor in arrays.values())
    pieces, free_begin, queries_piece = [(0, sample.nodes)], aligned(sample.nodes.nbytes), -1
    if sample.queries is not None:
        queries_piece, free_begin = free_begin, free_begin + aligned(sample.queries.nbytes)
        pieces.append((queries_piece, sample.queries))
    needed = free_begin + aligned(room_bytes) + size
    end = needed if num_bytes is None else num_bytes // ARENA_ALIGNMENT * ARENA_ALIGNMENT
    if end < needed:
        raise ArenaTooSmall(needed)
    offsets, offset = dict[tuple[int, torch.dtype], int](), end - size
    for key, tensor in arrays.items():
        pieces.append((offset, tensor))
        offsets[key] = offset
        offset += aligned(tensor.nbytes)
    hops = tuple(
        HopLayout(
            hop.num_dst,
            hop.num_src,
            hop.num_edges,
            *(-1 if tensor is None else offsets[_key(tensor)] for tensor in _columns(hop)),
        )
        for hop in sample.hops
    )
    return SlotContents(SampleLayout(sample.nodes.numel(), hops, free_begin, end - size, queries_piece), pieces)


def _columns(hop: DeviceHop) -> tuple[torch.Tensor | None, ...]:
    """The arrays of a hop in the order of HopLayout's offsets."""
    return hop.indptr, hop.indices, *(getattr(hop, column.plural) for column in EDGE_COLUMNS)


def _key(tensor: torch.Tensor) -> tuple[int, torch.dtype]:
    return (tensor.data_ptr() if tensor.numel() else 0), tensor.dtype

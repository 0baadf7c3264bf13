"""Sums and maxima of neighbours' rows on a device, and their gradients; equal to the CPU's, in :mod:`.ops.aggregate`.

Nothing here waits for the device. A row of a result of which an index is none is NaN; no memory is read by it.

Shapes: D destinations, E edges and S sources of a block; R lists; F columns.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .launch.device import Device

_THREADS = 256
# More than run at once: lists differ in length, and who is done early takes further ones.
_BLOCKS_A_PROCESSOR = 32
_MOST_LANES = 32
_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "lg::Float16",
    torch.bfloat16: "lg::BFloat16",
}
# What a thread moves at once, for numbers of so many bytes, the widest first.
_VECTORS = {
    8: {16: "uint4", 8: "uint2"},
    4: {16: "uint4", 8: "uint2", 4: "uint32_t"},
    2: {16: "uint4", 4: "uint32_t", 2: "uint16_t"},
}


def takes(x: Tensor) -> bool:
    """Tells whether there are kernels for the dtype of rows."""
    return x.dtype in _TYPES


def wide(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype that sums of rows are made in, and that factors of them have."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class RowLists(NamedTuple):
    """For each row of a result, the rows that it is made of: ``RowLists`` of ``kernels/aggregate/row_tiles.h``."""

    starts: Tensor  # int32 [R + 1]
    rows: Tensor | None  # int32 [E]; None: entry e is row e
    num_rows: int  # R
    num_entries: int  # E
    num_in: int  # rows that entries may name


class TileShape(NamedTuple):
    """How a row's columns are dealt out: ``TileShape`` of ``kernels/aggregate/row_tiles.h``."""

    width: int  # F
    lanes: int
    tiles: int


def sum_rows(
    device: Device, lists: RowLists, x: Tensor, factors: Tensor | None = None, is_mean: bool = False
) -> Tensor:
    """Returns each list's sum of rows of ``x``, in its order, each times its entry's factor, or their mean: ``[R, F]``.

    ``x`` is contiguous, ``[num_in, F]`` with F > 0, of a dtype that :func:`takes` names; ``factors`` are ``[E]``, of
    its :func:`wide` one. Sums of 16 bits are float32's, rounded once; an empty list's are zeros.
    """
    out = device.empty(lists.num_rows * x.shape[1], x.dtype).view(lists.num_rows, x.shape[1])
    _launch(device, "sum_rows", lists, x, factors=factors, is_mean=int(is_mean), input=x, out=out)
    return out


def max_rows(device: Device, lists: RowLists, x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns each list's largest numbers, column by column, and whose they are: ``[R, F]`` in the dtype of ``x``, and
    int32. Of equals it is the first of the list; a NaN is larger than any number; 0 and -1 where there is none."""
    out = device.empty(lists.num_rows * x.shape[1], x.dtype).view(lists.num_rows, x.shape[1])
    source = device.empty(out.numel(), torch.int32).view(out.shape)
    _launch(device, "max_rows", lists, x, input=x, out=out, source=source)
    return out, source


def dot_rows(device: Device, lists: RowLists, grad: Tensor, x: Tensor) -> Tensor:
    """Returns for each entry the product of its list's row of ``grad [R, F]`` and its own of ``x [num_in, F]``: ``[E]``
    in their :func:`wide` dtype. The order of additions depends on F alone."""
    out = device.zeros(lists.num_entries, wide(x.dtype))
    _launch(device, "dot_rows", lists, x, left=grad, right=x, out=out)
    return out


class DeviceEdges:
    """The edges of a block on a device, by destination and, once somebody asks, by source.

    Args:
        device: where the block lies.
        indptr: int32 ``[D + 1]``, contiguous.
        indices: int32 ``[E]``, contiguous; None: edge e has source e, and there are S.
        num_src: S.
    """

    def __init__(self, device: Device, indptr: Tensor, indices: Tensor | None, num_src: int) -> None:
        self.device, self.num_src = device, num_src
        self.tensors = (indptr,) if indices is None else (indptr, indices)
        num_edges = num_src if indices is None else len(indices)
        self.by_destination = RowLists(indptr, indices, len(indptr) - 1, num_edges, num_src)

    def apart(self) -> DeviceEdges:
        """Returns the same edges, each with a source of its own."""
        lists = self.by_destination
        return DeviceEdges(self.device, lists.starts, None, lists.num_entries)

    @property
    def by_source(self) -> RowLists:
        """The destinations of each source, ascending."""
        return self._sorted[0]

    @cached_property
    def _sorted(self) -> tuple[RowLists, Tensor]:
        """The lists of sources, and the edges in their order, those of one source ascending: int64 ``[E]``."""
        starts, sources, num_dst, num_edges, num_src = self.by_destination
        if sources is None:
            order = torch.arange(num_edges, device=self.device.torch_device)
            sources = order.int()
        else:
            sources, order = torch.sort(sources, stable=True)
        source_starts = self.device.empty(num_src + 1, torch.int32)
        destinations = self.device.empty(num_edges, torch.int32)
        self.device.launch(
            "aggregate",
            "list_destinations",
            blocks=_blocks(self.device, max(num_src + 1, num_edges), _THREADS),
            threads=_THREADS,
            starts=starts,
            num_dst=num_dst,
            sources=sources,
            edges=order,
            num_edges=num_edges,
            num_src=num_src,
            source_starts=source_starts,
            destinations=destinations,
        )
        return RowLists(source_starts, destinations, num_src, num_edges, num_dst), order

    def sum_neighbors(self, x: Tensor, weights: Tensor | None = None, is_mean: bool = False) -> Tensor:
        """Returns the sums of rows ``x [S, F]`` by destination, or their means, ``[D, F]``: see :func:`sum_rows`;
        ``weights [E]`` are factors."""
        return sum_rows(self.device, self.by_destination, _even(x), weights, is_mean)

    def sum_destinations(self, grad: Tensor, weights: Tensor | None = None, is_mean: bool = False) -> Tensor:
        """Returns the gradient of :meth:`sum_neighbors`: sums of rows ``grad [D, F]`` by source, ``[S, F]``."""
        if is_mean:
            weights = self._shares(wide(grad.dtype))
        elif weights is not None:
            weights = weights.index_select(0, self._sorted[1])
        return sum_rows(self.device, self.by_source, _even(grad), weights)

    def dot_ends(self, grad: Tensor, x: Tensor) -> Tensor:
        """Returns the gradient of weights: for each edge the product of rows ``grad [D, F]`` and ``x [S, F]``."""
        return dot_rows(self.device, self.by_destination, _even(grad), _even(x))

    def max_neighbors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the largest numbers of ``x [S, F]`` by destination, and their sources: see :func:`max_rows`."""
        return max_rows(self.device, self.by_destination, _even(x))

    def add_to_sources(self, source: Tensor, grad: Tensor) -> Tensor:
        """Returns the gradient of :meth:`max_neighbors`, ``[S, F]``: ``grad [D, F]`` summed where ``source`` says."""
        out = self.device.empty(self.num_src * grad.shape[1], grad.dtype).view(self.num_src, grad.shape[1])
        _launch(self.device, "add_to_sources", self.by_source, grad, source=source, grad=_even(grad), out=out)
        return out

    def _shares(self, dtype: torch.dtype) -> Tensor:
        """What each edge has in its destination's mean, by source."""
        shares = self.device.empty(self.by_source.num_entries, dtype)
        if len(shares):
            self.device.launch(
                "aggregate",
                "share_rows",
                ("double" if dtype == torch.float64 else "float",),
                blocks=_blocks(self.device, len(shares), _THREADS),
                threads=_THREADS,
                lists=self.by_source,
                starts=self.by_destination.starts,
                shares=shares,
            )
        return shares


def _launch(device: Device, kernel: str, lists: RowLists, rows: Tensor, **arguments: Any) -> None:
    """Starts a kernel for rows of the width and dtype of ``rows``."""
    if not lists.num_rows:
        return
    width, item_bytes = rows.shape[1], rows.element_size()
    num_bytes, vector = next(
        (num_bytes, vector) for num_bytes, vector in _VECTORS[item_bytes].items() if width * item_bytes % num_bytes == 0
    )
    num_vectors = width * item_bytes // num_bytes
    lanes = min(1 << (num_vectors - 1).bit_length(), _MOST_LANES)
    tiles = -(-num_vectors // lanes)
    number = "double" if item_bytes == 8 else "float"
    device.launch(
        "aggregate",
        kernel,
        (_TYPES[rows.dtype], vector, number),
        blocks=_blocks(device, lists.num_rows * tiles, _THREADS // lanes),
        threads=_THREADS,
        lists=lists,
        shape=TileShape(width, lanes, tiles),
        **arguments,
    )


def _blocks(device: Device, count: int, a_block: int) -> int:
    return min(-(-count // a_block), device.num_processors * _BLOCKS_A_PROCESSOR)


def _even(x: Tensor) -> Tensor:
    """The same rows without gaps, from where the widest loads may begin; so columns are dealt out by their number."""
    x = x.contiguous()
    return x.clone() if x.data_ptr() % 16 else x

"""BatchPlan: the launches of a batch that was recorded, made again by one native call.

Shapes: V nodes of the batch; D destinations and E edges of a hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from ....errors import GnnLoadError
from ...dispatch import kernels
from ..launch.device import Device
from ..sampling.batch import THREADS
from ..sampling.sample import DeviceHop, DeviceSample
from ..sampling.varying import Varying
from .recorder import Recording, ScratchLayout, rounded_up

_COPY_BLOCKS_A_PROCESSOR = 4


class CannotPlanError(GnnLoadError):
    """A batch cannot be launched again as it was recorded; the text says why."""


class Counters(NamedTuple):
    """The counters of a batch that was made, and where its pieces lie."""

    words: list[int]  # those of :class:`.State`
    offsets: list[int]  # of each piece in the slab, in bytes
    needed_bytes: int  # of the slab


class _Output(NamedTuple):
    """A tensor of a sample: the first elements of a piece."""

    piece: int
    dtype: torch.dtype
    word: int  # the counter of its elements,
    more: int  # and how many there are beyond it

    def of(self, slab: _Slab, counters: Counters) -> torch.Tensor:
        count, at = counters.words[self.word] + self.more, counters.offsets[self.piece]
        return slab.typed(self.dtype).as_strided((count,), (1,), at // self.dtype.itemsize)


class _Slab:
    """The memory of one batch's outputs, viewed by dtype."""

    def __init__(self, memory: torch.Tensor) -> None:
        self._views = {memory.dtype: memory}
        self._memory = memory

    def typed(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype not in self._views:
            self._views[dtype] = self._memory.view(dtype)
        return self._views[dtype]


class _Outputs:
    """Which parts of a recorded batch's memory its sample consists of."""

    def __init__(self, layout: ScratchLayout, sample: DeviceSample) -> None:
        self._layout, num_hops = layout, len(sample.hops)
        self.pieces: dict[int, tuple[int, int, int]] = {}  # by offset in scratch: item bytes, word, more
        # As State counts: the error, a zero, the nodes before each hop and after the last, the edges of each hop.
        num_nodes, num_edges = 2, 3 + num_hops
        self.nodes = self._output(sample.nodes, num_nodes + num_hops)
        self.queries = self._maybe(sample.queries, num_nodes + num_hops)
        self.hops = [
            (
                self._output(hop.indptr, num_nodes + index, 1),
                self._output(hop.indices, num_edges + index),
                *(
                    self._maybe(column, num_edges + index)
                    for column in (hop.edge_ids, hop.edge_weights, hop.edge_types)
                ),
            )
            for index, hop in enumerate(sample.hops)
        ]

    def sample(self, slab: _Slab, counters: Counters) -> DeviceSample:
        num_nodes = counters.words[2 : 3 + len(self.hops)]
        hops = []
        for index, outputs in enumerate(self.hops):
            columns = (None if output is None else output.of(slab, counters) for output in outputs)
            hops.append(DeviceHop(num_nodes[index], num_nodes[index + 1], *columns))  # type: ignore[arg-type]
        queries = None if self.queries is None else self.queries.of(slab, counters)
        return DeviceSample(self.nodes.of(slab, counters), tuple(hops), queries)

    def _maybe(self, tensor: torch.Tensor | None, word: int) -> _Output | None:
        return None if tensor is None else self._output(tensor, word)

    def _output(self, tensor: torch.Tensor, word: int, more: int = 0) -> _Output:
        # Of its storage, as a tensor without elements has no address.
        address = tensor.untyped_storage().data_ptr() + int(tensor.storage_offset()) * tensor.element_size()
        offset = self._layout.find(address)
        if offset is None:
            raise CannotPlanError("a part of it lies in memory that it has not allocated")
        # Hops that share their edges come in order, so the last one says how long the piece is.
        self.pieces[offset] = (tensor.element_size(), word, more)
        return _Output(list(self.pieces).index(offset), tensor.dtype, word, more)


class BatchPlan:
    """The launches of a recorded batch, which make others of its form. For one stream at a time.

    Raises CannotPlanError where more than launches made the batch.
    """

    def __init__(self, device: Device, recording: Recording, sample: DeviceSample) -> None:
        if recording.refusal:
            raise CannotPlanError(recording.refusal)
        if len(recording.reads) != 1:
            raise CannotPlanError(f"the host waits {len(recording.reads)} times for it")
        layout, counters = recording.lay_out(), recording.reads[0]
        words_at = layout.find(counters.data_ptr())
        if words_at is None or len(counters) != 2 * len(sample.hops) + 3:
            raise CannotPlanError("the host reads something other than its counters")
        self.scratch_bytes, self.inputs = layout.num_bytes, layout.inputs
        self.num_words = len(counters)
        self._outputs = _Outputs(layout, sample)
        self._device = device
        self._table = device.put(np.zeros((max(len(self._outputs.pieces), 1), 4), np.int64))
        self._note_copy(recording, counters)
        pieces = list(self._outputs.pieces.values())
        self._native = kernels.BatchPlan(device.driver, layout.zero_bytes, words_at, self.num_words, pieces)
        for launch in recording.launches:
            offsets = [(at, layout.find(address)) for at, address in launch.pointers]
            moved = [(at, offset) for at, offset in offsets if offset is not None]
            self._native.add(*launch[:-1], moved)
        # What the other pointers lead to has to stay.
        self._keeps = [keep for address, keep in recording.targets if layout.find(address) is None]
        self._scratch_at = 0

    def bind(self, scratch: torch.Tensor) -> None:
        """Uses ``scratch``, uint8 of ``scratch_bytes`` or more on the device, from now on."""
        base = scratch.data_ptr()
        if self._scratch_at != base:
            rows = [(base + offset, *piece) for offset, piece in self._outputs.pieces.items()]
            if rows:
                self._table.copy_(self._device.put(np.array(rows, np.int64)))
            self._native.bind(base)
            self._scratch_at = base  # last: there may be no memory for the table's new rows

    def make(
        self,
        fields: Sequence[int],
        tables: Sequence[torch.Tensor],
        arrays: Sequence[np.ndarray],
        rows: Sequence[tuple[torch.Tensor, int]],
        pinned: torch.Tensor,
    ) -> Counters:
        """Makes a batch, and waits for it: ``fields`` as of :data:`.FIELDS`, after all bits of ``tables`` are set, from
        ``arrays``; ``rows`` are copied to their offsets in the slab. Both go through page-locked memory, of
        ``num_words`` words and of all of them, each at a multiple of 256 bytes."""
        words, inputs = pinned.data_ptr(), zip(arrays, self.inputs, strict=True)
        return Counters(
            *self._native.make(
                fields,
                [(table.data_ptr(), table.nbytes) for table in tables],
                [
                    *((array.ctypes.data, array.nbytes, False, scratch.offset) for array, scratch in inputs),
                    *((tensor.data_ptr(), tensor.nbytes, True, offset) for tensor, offset in rows),
                ],
                words + rounded_up(8 * self.num_words),
                words,
                self._device.stream(),
            )
        )

    def copy_pieces(self, fields: Sequence[int]) -> None:
        """Copies the batch that was made last to another slab, and waits."""
        self._native.copy_pieces(fields, self._device.stream())

    def sample(self, slab: torch.Tensor, counters: Counters, rows: Sequence[tuple[torch.Tensor, int]]) -> DeviceSample:
        """Returns the batch, as views of a slab."""
        views = _Slab(slab)
        copied = tuple(
            views.typed(tensor.dtype).as_strided(tensor.shape, tensor.stride(), offset // tensor.element_size())
            for tensor, offset in rows
        )
        return replace(self._outputs.sample(views, counters), rows=copied, memory=slab)

    def _note_copy(self, recording: Recording, counters: torch.Tensor) -> None:
        """Adds the launch that copies the outputs to the slab."""
        loaded = self._device.kernel("copy_pieces", "copy_pieces")
        packed = loaded.arguments.packed(
            {
                "pieces": _Pieces(self._table, len(self._outputs.pieces), counters),
                "slab": Varying(0, "slab"),
                "begin": Varying(0, "slab_begin"),
                "end": Varying(0, "slab_end"),
            }
        )
        blocks = self._device.num_processors * _COPY_BLOCKS_A_PROCESSOR
        recording.note_launch(loaded, (blocks, THREADS, 0), packed)


class _Pieces(NamedTuple):
    """``Pieces`` of ``kernels/copy_pieces/copy_pieces_cuda.cu``."""

    table: torch.Tensor
    num_pieces: int
    words: torch.Tensor

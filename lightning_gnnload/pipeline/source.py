"""BatchSource: the mini-batches of one phase, as a pure function of (epoch, step, rank)."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.block import MiniBatch, view_of
from lightning_gnnload.data.features import FeatureStore, Reads, TierReads, gather
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.plan import BatchRequest, StepPlan
from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.ops import ArenaTooSmall, DrawKey, HopLayout, SampleLayout
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.sample.workload import Workload

_ALIGN = 64
_MAX_SIZE = 1 << 48


@dataclass(frozen=True)
class TableLayout:
    """Where a table lies in a slot."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    def view(self, buffer: Any) -> torch.Tensor:
        return view_of(buffer, self.offset, self.shape, getattr(torch, self.dtype))


@dataclass(frozen=True)
class Payload:
    """Where a mini-batch lies in a slot, and what it took to make.

    Attributes:
        made_by: global rank that made it; the trainer's own unless a sampler says otherwise.
        thread: name of the thread that did.
        began_s: when it began, by ``time.monotonic``, the one clock of all processes of a machine.
        sample_ms: sampling.
        gather_ms: gathering features and labels.
        cpu_ms: of these two, the time that the thread ran on a core.
        reads: where the features came from, nearest tier first; empty where their store does not count.
    """

    layout: SampleLayout
    num_seeds: int
    key: DrawKey
    x: TableLayout | None
    y: TableLayout | None
    made_by: int
    thread: str
    began_s: float
    sample_ms: float
    gather_ms: float
    cpu_ms: float
    reads: Reads = ()

    @property
    def num_edges(self) -> int:
        """Edges of all blocks; hops that share one array (``expand="new"``) count once."""
        by_place = {hop.indices_offset: hop.num_edges for hop in self.layout.hops}
        return sum(by_place.values())

    @property
    def num_bytes(self) -> int:
        """What the mini-batch's arrays take of its slot, without the gaps between them."""
        tables = [table for table in (self.x, self.y) if table is not None]
        total = 8 * self.layout.num_nodes
        total += sum(math.prod(table.shape) * getattr(torch, table.dtype).itemsize for table in tables)
        for hop in {hop.indices_offset: hop for hop in self.layout.hops}.values():
            optional = ((8, hop.edge_ids_offset), (4, hop.edge_weights_offset), (4, hop.edge_types_offset))
            an_edge = 4 + sum(size for size, offset in optional if offset >= 0)
            total += 4 * (hop.num_dst + 1) + an_edge * hop.num_edges
        return total

    def view(self, buffer: Any) -> MiniBatch:
        """The mini-batch, without a copy; its tensors keep ``buffer`` alive.

        Raises:
            QueueProtocolError: parts of it lie beyond the end of ``buffer``.
        """
        try:
            batch = MiniBatch.view(buffer, self.layout, self.num_seeds, epoch=self.key.epoch, step=self.key.step)
            x, y = (table.view(buffer) if table is not None else None for table in (self.x, self.y))
        except ValueError as error:  # torch looks at where the buffer ends
            raise QueueProtocolError(f"a mini-batch does not lie in its slot: {error}.") from error
        return replace(batch, x=x, y=y)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Any) -> Payload:
        """Raises QueueProtocolError: ``fields`` is not what :meth:`to_json` gives."""
        try:
            layout = fields["layout"]
            hops = tuple(HopLayout(**hop) for hop in layout["hops"])
            tables = {
                name: TableLayout(**{**fields[name], "shape": tuple(fields[name]["shape"])})
                for name in "xy"
                if fields[name] is not None
            }
            payload = cls(
                **{
                    **fields,
                    **tables,
                    "layout": SampleLayout(**{**layout, "hops": hops}),
                    "key": DrawKey(**fields["key"]),
                    "reads": tuple(TierReads(*read) for read in fields["reads"]),
                }
            )
            payload._check()
        except (TypeError, KeyError, ValueError) as error:
            raise QueueProtocolError(
                f"a mini-batch's description is malformed: {error!r} in {fields!r:.200}"
            ) from error
        return payload

    def _check(self) -> None:
        """What :meth:`view` relies on. Raises ValueError, TypeError."""
        tables = [table for table in (self.x, self.y) if table is not None]
        sizes = [self.num_seeds, self.layout.num_nodes, self.layout.free_begin, self.layout.free_end]
        sizes += [number for table in tables for number in (table.offset, *table.shape)]
        for hop in self.layout.hops:
            for name, number in vars(hop).items():
                if number != -1 or name not in ("edge_ids_offset", "edge_weights_offset", "edge_types_offset"):
                    sizes.append(number)
        for number in sizes:
            if type(number) is not int or not 0 <= number < _MAX_SIZE:
                raise ValueError(f"{number!r} is no size")
        if any(math.prod(table.shape) >= _MAX_SIZE for table in tables):
            raise ValueError("a table is too large")
        if self.num_seeds > self.layout.num_nodes:
            raise ValueError(f"{self.num_seeds} seeds of {self.layout.num_nodes} nodes")
        for table in tables:
            if not isinstance(getattr(torch, table.dtype, None), torch.dtype):
                raise ValueError(f"{table.dtype!r} is no dtype")
        for read in self.reads:
            if type(read.tier) is not str or any(type(n) is not int or not 0 <= n < _MAX_SIZE for n in read[1:]):
                raise ValueError(f"{read!r:.100} is no count of reads")
        if type(self.made_by) is not int or type(self.thread) is not str:
            raise ValueError("its maker has no rank, or no name")
        for time_taken in (self.began_s, self.sample_ms, self.gather_ms, self.cpu_ms):
            if not isinstance(time_taken, int | float) or not math.isfinite(time_taken):
                raise ValueError(f"{time_taken!r} is no time")


class BatchSource:
    """Samples and gathers the mini-batches of one phase into slots. Thread-safe.

    Args:
        data: graph, features and labels.
        workload: which mini-batches there are.
        features: where features are gathered from: a cache in front of the graph's own store, which is the default.
    """

    def __init__(self, data: GraphData, workload: Workload, features: FeatureStore | None = None) -> None:
        self.data = data
        self.workload = workload
        self.features = data.x if features is None else features

    def plan(self, num_ranks: int) -> StepPlan:
        """Raises SeedError: fewer seeds than ranks."""
        return self.workload.plan(num_ranks)

    def open(self) -> None:
        """Makes the features ready now, which takes long where a cache is filled; the first mini-batch does otherwise."""
        if self.features is not None:
            self.features.open()

    def make(self, request: BatchRequest, slot: Slot) -> Payload:
        """Writes one mini-batch to ``slot``, which grows when it is too small.

        Raises:
            SeedError: a seed is not a node of the graph.
            SlotMemoryError: the slot cannot grow.
        """
        self.open()
        seeds, key = self.workload.seeds_of(request), self.workload.key_of(request)
        began, cpu_began = time.monotonic(), time.thread_time()
        while True:
            try:
                layout = self.workload.sampler.sample_into(self.data.graph, seeds, key, slot.array)
                x, y, end = self._place_tables(layout, len(seeds))
                if end <= layout.free_end:
                    break
                # A quarter more than this batch needs, so that the next ones fit as well.
                needed = (slot.num_bytes + end - layout.free_end) * 5 // 4
            except ArenaTooSmall as small:
                needed = max(small.needed_bytes, 2 * slot.num_bytes)
            slot.grow(needed)
        sampled = time.monotonic()
        batch = MiniBatch.view(slot.array, layout, len(seeds))
        reads = None
        if x is not None and self.features is not None:
            self.features.announce(request)
            reads = self.features.gather(batch.nodes, x.view(slot.array))
        if y is not None and self.data.y is not None:
            gather(self.data.y, batch.seeds, y.view(slot.array))
        gathered = time.monotonic()
        return Payload(
            layout,
            len(seeds),
            key,
            x,
            y,
            made_by=request.rank,
            thread=threading.current_thread().name,
            began_s=began,
            sample_ms=(sampled - began) * 1e3,
            gather_ms=(gathered - sampled) * 1e3,
            cpu_ms=(time.thread_time() - cpu_began) * 1e3,
            reads=reads or (),
        )

    def _place_tables(self, layout: SampleLayout, num_seeds: int) -> tuple[TableLayout | None, TableLayout | None, int]:
        """Features and labels go between the nodes, at the slot's begin, and the hops, at its end."""
        x = y = None
        offset = layout.free_begin
        if self.data.x is not None:
            x, offset = _place(offset, (layout.num_nodes, self.data.num_features), self.data.x.dtype)
        if self.data.y is not None:
            y, offset = _place(offset, (num_seeds, *self.data.y.shape[1:]), self.data.y.dtype)
        return x, y, offset


def _place(offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[TableLayout, int]:
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    return TableLayout(offset, shape, str(dtype).removeprefix("torch.")), offset + -(-num_bytes // _ALIGN) * _ALIGN

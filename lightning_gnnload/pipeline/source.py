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
from lightning_gnnload.data.features import gather
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.seeds import SeedOrder
from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.ops import ArenaTooSmall, DrawKey, HopLayout, SampleLayout
from lightning_gnnload.pipeline.plan import StepPlan
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.sample.base import Sampler

FIXED_DRAWS_EPOCH = 2**32 - 1
"""The epoch in the draw key of evaluation, which no training epoch reaches."""
_ALIGN = 64
_MAX_SIZE = 1 << 48


@dataclass(frozen=True)
class BatchRequest:
    """Names a mini-batch: rank ``rank`` of ``num_ranks``'s slice of global step ``step`` of epoch ``epoch``."""

    epoch: int
    step: int
    rank: int
    num_ranks: int


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
        if type(self.made_by) is not int or type(self.thread) is not str:
            raise ValueError("its maker has no rank, or no name")
        for time_taken in (self.began_s, self.sample_ms, self.gather_ms, self.cpu_ms):
            if not isinstance(time_taken, int | float) or not math.isfinite(time_taken):
                raise ValueError(f"{time_taken!r} is no time")


class BatchSource:
    """Samples and gathers the mini-batches of one phase into slots. Thread-safe: it holds no state but a memo.

    Args:
        data: graph, features and labels.
        sampler: how neighbourhoods are drawn.
        seeds: node ids of the phase, int64 ``[S]``.
        batch_size: seeds per rank and step.
        order: how an epoch orders its seeds.
        seed: random seed of the run.
        fixed_draws: draw a node's neighbours alike in every epoch and step, so that metrics are comparable.
        drop_last: leave out an epoch's last step when it is not full.
    """

    def __init__(
        self,
        data: GraphData,
        sampler: Sampler,
        seeds: np.ndarray,
        *,
        batch_size: int,
        order: SeedOrder,
        seed: int = 0,
        fixed_draws: bool = False,
        drop_last: bool = False,
    ) -> None:
        self.data = data
        self.sampler = sampler
        self.seeds = seeds
        self.batch_size = batch_size
        self.order = order
        self.seed = seed
        self.fixed_draws = fixed_draws
        self.drop_last = drop_last
        self._ordered: tuple[int, np.ndarray] | None = None
        self._ordering = threading.Lock()

    def plan(self, num_ranks: int) -> StepPlan:
        """Raises SeedError: fewer seeds than ranks."""
        return StepPlan(len(self.seeds), self.batch_size, num_ranks, self.drop_last)

    def seeds_of(self, request: BatchRequest) -> np.ndarray:
        """The seeds of one mini-batch, int64."""
        begin, end = self.plan(request.num_ranks).slice(request.step, request.rank)
        return self._epoch_order(request.epoch)[begin:end]

    def make(self, request: BatchRequest, slot: Slot) -> Payload:
        """Writes one mini-batch to ``slot``, which grows when it is too small.

        Raises:
            SeedError: a seed is not a node of the graph.
            SlotMemoryError: the slot cannot grow.
        """
        seeds = self.seeds_of(request)
        key = (
            DrawKey(self.seed, FIXED_DRAWS_EPOCH, 0)
            if self.fixed_draws
            else DrawKey(self.seed, request.epoch, request.step)
        )
        began, cpu_began = time.monotonic(), time.thread_time()
        while True:
            try:
                layout = self.sampler.sample_into(self.data.graph, seeds, key, slot.array)
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
        if x is not None and self.data.x is not None:
            self.data.x.gather(batch.nodes, x.view(slot.array))
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
        )

    def _epoch_order(self, epoch: int) -> np.ndarray:
        with self._ordering:
            if self._ordered is None or self._ordered[0] != epoch:
                self._ordered = (epoch, self.order.order(self.seeds, seed=self.seed, epoch=epoch))
            return self._ordered[1]

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

"""BatchSource: the mini-batches of one phase, as a pure function of (epoch, step, rank)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.block import EDGE_COLUMNS, MiniBatch, hop_arrays
from lightning_gnnload.data.features import FeatureStore, Reads, TierReads, gather
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.plan import BatchRequest, StepPlan
from lightning_gnnload.errors import QueueProtocolError, SamplerConfigError
from lightning_gnnload.ops import ArenaTooSmall, DrawKey, HopLayout, SampleLayout
from lightning_gnnload.pipeline.device_slots import DeviceSlot
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.tables import TableLayout, edge_spans, fill_tables, num_edge_rows, place_tables
from lightning_gnnload.sample.workload import Workload

_MAX_SIZE = 1 << 48


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
        tables: named tables; ``positions`` are those of node types, as in :class:`.tables.Places`.
        edge_tables: edge features of all hops by name, as in :class:`.tables.Places`.
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
    tables: dict[str, TableLayout] = field(default_factory=dict)
    positions: dict[str, TableLayout] = field(default_factory=dict)
    edge_tables: dict[str, TableLayout] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        return self.layout.num_nodes

    @property
    def num_edges(self) -> int:
        """Edges of all blocks; hops that share one array (``expand="new"``) count once."""
        by_place = {hop.indices_offset: hop.num_edges for hop in self.layout.hops}
        return sum(by_place.values())

    @property
    def num_bytes(self) -> int:
        """What the mini-batch's arrays take of its slot, without the gaps between them."""
        total = 8 * self.layout.num_nodes + sum(table.num_bytes for table in self._all_tables)
        for hop in {hop.indices_offset: hop for hop in self.layout.hops}.values():
            total += sum(count * dtype.itemsize for _, count, dtype in hop_arrays(hop).values())
        return total

    @property
    def _all_tables(self) -> list[TableLayout]:
        single = (table for table in (self.x, self.y) if table is not None)
        return [*single, *self.tables.values(), *self.positions.values(), *self.edge_tables.values()]

    @property
    def end(self) -> int:
        """Of the slot's bytes, those before it are all that the mini-batch takes."""
        ends = [8 * self.layout.num_nodes, *(table.offset + table.num_bytes for table in self._all_tables)]
        for hop in self.layout.hops:
            ends += [offset + count * dtype.itemsize for offset, count, dtype in hop_arrays(hop).values()]
        return max(ends)

    def view(self, buffer: Any) -> MiniBatch:
        """The mini-batch, without a copy; its tensors keep ``buffer``'s memory alive.

        Raises:
            QueueProtocolError: parts of it lie beyond the end of ``buffer``.
        """
        try:
            batch = MiniBatch.view(buffer, self.layout, self.num_seeds, epoch=self.key.epoch, step=self.key.step)
            x, y = (None if table is None else table.view(buffer) for table in (self.x, self.y))
            tables, positions, of_edges = (
                {name: table.view(buffer) for name, table in named.items()}
                for named in (self.tables, self.positions, self.edge_tables)
            )
        except ValueError as error:  # torch looks at where the buffer ends
            raise QueueProtocolError(f"a mini-batch does not lie in its slot: {error}.") from error
        blocks = batch.blocks
        if of_edges:
            edge_x, spans = of_edges.pop("edge_x", None), edge_spans(self.layout.hops)[::-1]
            blocks = [
                replace(
                    block,
                    x=None if edge_x is None else edge_x[span],
                    tables={name: rows[span] for name, rows in of_edges.items()},
                )
                for block, span in zip(blocks, spans, strict=True)
            ]
        return replace(batch, blocks=blocks, x=x, y=y, tables=tables, positions=positions)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Any) -> Payload:
        """Raises QueueProtocolError: ``fields`` is not what :meth:`to_json` gives."""
        try:
            layout = fields["layout"]
            hops = tuple(HopLayout(**hop) for hop in layout["hops"])
            single = {name: _table(fields[name]) for name in ("x", "y") if fields[name] is not None}
            named = {
                name: {key: _table(table) for key, table in fields[name].items()}
                for name in ("tables", "positions", "edge_tables")
            }
            payload = cls(
                **{
                    **fields,
                    **single,
                    **named,
                    "layout": SampleLayout(**{**layout, "hops": hops}),
                    "key": DrawKey(**fields["key"]),
                    "reads": tuple(TierReads(*read) for read in fields["reads"]),
                }
            )
            payload._check()
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise QueueProtocolError(
                f"a mini-batch's description is malformed: {error!r} in {fields!r:.200}"
            ) from error
        return payload

    def _check(self) -> None:
        """What :meth:`view` relies on. Raises ValueError, TypeError."""
        tables = self._all_tables
        sizes = [self.num_seeds, self.layout.num_nodes, self.layout.free_begin, self.layout.free_end]
        sizes += [number for table in tables for number in (table.offset, *table.shape)]
        optional = {column.offset for column in EDGE_COLUMNS}
        for hop in self.layout.hops:
            sizes += [number for name, number in vars(hop).items() if number != -1 or name not in optional]
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
        for name, positions in self.positions.items():
            if positions.dtype != "int64" or positions.shape != self.tables[name].shape[:1]:
                raise ValueError(f"{positions!r} are no positions of {self.tables[name]!r}")
        for table in self.edge_tables.values():
            if table.shape[:1] != (num_edge_rows(self.layout.hops),):
                raise ValueError(f"{table!r} is no row an edge")
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
        features: stores to gather from instead of the data's own, by their names in :attr:`.GraphData.stores`: caches
            in front of them.
        announces: tell the stores which mini-batch comes; False for another phase than they were filled for.

    Raises:
        SamplerConfigError: the data has tables of edges, but the sampler gives no edge ids.
    """

    def __init__(
        self,
        data: GraphData,
        workload: Workload,
        features: Mapping[str, FeatureStore] | None = None,
        *,
        announces: bool = True,
    ) -> None:
        if data.edge_stores and getattr(workload.sampler, "edge_ids", None) is False:
            raise SamplerConfigError(
                f"the data has tables of edges ({', '.join(data.edge_stores)}), whose rows are found by edge ids, but "
                f"{workload.sampler} gives none. Give the sampler edge_ids=True."
            )
        self.data = data
        self.workload = workload
        self.announces = announces
        self.features: dict[str, FeatureStore] = {**data.stores, **(features or {})}

    def plan(self, num_ranks: int) -> StepPlan:
        """Raises SeedError: fewer seeds than ranks."""
        return self.workload.plan(num_ranks)

    def open(self) -> None:
        """Makes the features ready, which takes long where a cache is filled; the first mini-batch does otherwise."""
        for store in self.features.values():
            store.open()

    def make(self, request: BatchRequest, slot: Slot | DeviceSlot) -> Payload:
        """Writes one mini-batch to ``slot``, which grows when it is too small.

        Args:
            request: which one.
            slot: one of :meth:`new_slot`, or of this process alone.

        Raises:
            SeedError: a seed is not a node of the graph.
            SlotMemoryError: the slot cannot grow.
        """
        assert isinstance(slot, Slot)
        self.open()
        seeds, key = self.workload.seeds_of(request), self.workload.key_of(request)
        began, cpu_began = time.monotonic(), time.thread_time()
        while True:
            try:
                layout = self._sample_into(seeds, key, slot)
                batch = MiniBatch.view(slot.array, layout, len(seeds))
                places = place_tables(self.data, batch, layout)
                if places.end <= layout.free_end:
                    break
                # A quarter more than this batch needs, so that the next ones fit as well.
                needed = (slot.num_bytes + places.end - layout.free_end) * 5 // 4
            except ArenaTooSmall as small:
                needed = max(small.needed_bytes, 2 * slot.num_bytes)
            slot.grow(needed)
        sampled = time.monotonic()
        reads = fill_tables(places, self.features, request if self.announces else None, slot.array)
        if places.y is not None and self.data.y is not None:
            gather(self.data.y, batch.seeds, places.y.view(slot.array))
        gathered = time.monotonic()
        return Payload(
            layout,
            len(seeds),
            key,
            places.x,
            places.y,
            made_by=request.rank,
            thread=threading.current_thread().name,
            began_s=began,
            sample_ms=(sampled - began) * 1e3,
            gather_ms=(gathered - sampled) * 1e3,
            cpu_ms=(time.thread_time() - cpu_began) * 1e3,
            reads=reads,
            tables=places.tables,
            positions=places.positions,
            edge_tables=places.edge_tables,
        )

    def without_features(self) -> BatchSource:
        """The same mini-batches with labels alone, for a trainer that gathers features itself."""
        bare = copy(self.data)
        bare.x, bare.tables, bare.edge_x, bare.edge_tables = None, {}, None, {}
        return BatchSource(bare, self.workload)

    def can_write_to(self, device: str) -> bool:
        """Whether mini-batches can lie in memory of this process's device which the one named ``device`` reads."""
        return False

    def new_slot(self, num_bytes: int, *, on_device: bool) -> Slot | DeviceSlot:
        """A slot for :meth:`make` that another process can open."""
        assert not on_device, "can_write_to() was not asked"
        return Slot.shared(num_bytes)

    def _sample_into(self, seeds: np.ndarray, key: DrawKey, slot: Slot) -> SampleLayout:
        """Raises ArenaTooSmall: again, into a larger slot."""
        return self.workload.sampler.sample_into(self.data.graph, seeds, key, slot.array)


def _table(fields: Any) -> TableLayout:
    return TableLayout(**{**fields, "shape": tuple(fields["shape"])})

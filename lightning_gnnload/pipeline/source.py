"""Sources: the mini-batches of one phase, as a pure function of (epoch, step, rank), sampled here or on a device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import torch

from lightning_gnnload.data.features import FeatureStore, byte_rows, gather
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.plan import BatchRequest, StepPlan
from lightning_gnnload.data.slab import Column, Header
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.host.huge_pages import move_to_huge_pages
from lightning_gnnload.ops import ArenaTooSmall, Draw, SampleLayout
from lightning_gnnload.pipeline.fill import Filler, Filling, of_rows
from lightning_gnnload.pipeline.packing import aligned, pack
from lightning_gnnload.pipeline.payload import Payload, Timing
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.sample.base import draw_here
from lightning_gnnload.sample.seeds.rows import SeedBatch
from lightning_gnnload.sample.workload import Workload

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.launch.device import Device
    from lightning_gnnload.ops.cuda.sampling.sample import DeviceSample
    from lightning_gnnload.pipeline.device_slots import AnySlot, DeviceExporter, DeviceSlot

Drawn = TypeVar("Drawn")
Gathered = TypeVar("Gathered")


def timed(
    draw: Callable[[], Drawn], gather: Callable[[Drawn], Gathered], made_by: int
) -> tuple[Drawn, Gathered, Timing]:
    """Runs the two halves of making a mini-batch; returns what each gives, and how long it took."""
    began, cpu_began = time.monotonic(), time.thread_time()
    layout = draw()
    sampled = time.monotonic()
    gathered = gather(layout)
    ended, cpu_ended = time.monotonic(), time.thread_time()
    timing = Timing(
        made_by,
        threading.current_thread().name,
        began,
        sample_ms=(sampled - began) * 1e3,
        gather_ms=(ended - sampled) * 1e3,
        cpu_ms=(cpu_ended - cpu_began) * 1e3,
    )
    return layout, gathered, timing


class BatchSource:
    """Samples and gathers the mini-batches of one phase into slots. Thread-safe.

    ``features`` replaces stores of the data, by their names in :attr:`.GraphData.stores` (with caches, say).
    ``announces``: stores hear which mini-batch comes; False for another phase than they were filled for. Raises
    SamplerConfigError where the data has tables of edges, but the sampler gives no edge ids.
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
        self._filler = Filler(data)
        self._is_open = False

    def plan(self, num_ranks: int) -> StepPlan:
        """Returns the plan of an epoch's steps. SeedError: fewer seeds than ranks."""
        return self.workload.plan(num_ranks)

    @property
    def fingerprint(self) -> str:
        """Names what all ranks of a job must share: the data, the seeds and their columns by checksums, how rows are
        rounded, and the random seed."""
        rows = ", ".join(f"{name} {checksum}" for name, checksum in self.workload.checksums.items())
        if self.workload.rounding != "exact":
            rows += f", rows rounded to {self.workload.rounding}"
        return f"{self.data.summary}, {rows}, random seed {self.workload.seed}"

    def open(self) -> None:
        """Opens the graph and the feature stores, which takes long where a cache is filled; otherwise the first
        mini-batch does."""
        if not self._is_open:
            self._is_open = True
            graph = self.data.graph
            lists = (graph.indptr, graph.indices, graph.run_ptr, graph.edge_time) if graph.has_lists else ()
            for array in lists:
                if array is not None:
                    move_to_huge_pages(array)
        for store in self.features.values():
            store.open()

    def make(self, request: BatchRequest, slot: AnySlot) -> Payload:
        """Writes one mini-batch to ``slot`` (of :meth:`new_slot`, or private), which grows when it is too small.

        Raises SeedError for seeds that are no nodes of the graph, SlotMemoryError where the slot cannot grow.
        """
        self.open()
        seeds = self.workload.seed_batch(request)
        filling, reads, timing = timed(
            lambda: self._draw(seeds, slot),
            lambda filling: filling.gather(self.features, request if self.announces else None, slot.array),
            request.rank,
        )
        return Payload(filling.header, timing, reads)

    @property
    def columns(self) -> dict[str, Column]:
        """The columns that are gathered from :attr:`features`, by name, in the order in which they are."""
        return self._filler.columns

    def rows_of(self, request: BatchRequest) -> dict[str, np.ndarray]:
        """Samples one mini-batch for the rows alone that it gathers from each of :attr:`columns`: distinct, ascending,
        int64. Raises SeedError as :meth:`make`."""
        seeds = self.workload.seed_batch(request)
        arena, layout = draw_here(self.workload.sampler, self.data.graph, seeds.draw)
        contents = self._filler.place(layout, seeds, arena).contents
        rows, distinct = dict[str, np.ndarray](), dict[int, np.ndarray]()
        for name, ids in contents:
            if isinstance(name, str):
                assert ids is not None, "a store's rows are listed"
                # Tables of the same nodes have the same rows.
                if id(ids) not in distinct:
                    distinct[id(ids)] = np.unique(ids.numpy())
                rows[name] = distinct[id(ids)]
        return rows

    def without_features(self) -> BatchSource:
        """Returns a source of the same mini-batches with labels alone, for a trainer that gathers features itself."""
        bare = copy(self.data)
        bare.x, bare.tables, bare.edge_x, bare.edge_tables = None, {}, None, {}
        return BatchSource(bare, self.workload)

    def can_write_to(self, device: str) -> bool:
        """Whether mini-batches can lie in memory of this process's device which the one named ``device`` reads."""
        return False

    def new_slot(self, num_bytes: int, *, on_device: bool) -> AnySlot:
        """Makes a slot for :meth:`make` that another process can open; in the device's memory if :meth:`can_write_to`
        allows it."""
        return Slot.shared(num_bytes)

    def labels_of(self, seeds: SeedBatch) -> torch.Tensor | None:
        """Gathers the labels of seeds on the host, for a mini-batch made on a device, which need not hold all nodes'
        labels."""
        if self.data.y is None or not seeds.takes_labels_of_nodes:
            return seeds.y
        nodes = torch.from_numpy(seeds.draw.seeds)
        labels = torch.empty((len(nodes), *self.data.y.shape[1:]), dtype=self.data.y.dtype)
        gather(self.data.y, nodes, labels)
        return labels

    def _draw(self, seeds: SeedBatch, slot: AnySlot) -> Filling:
        # A batch is a pure function of its key: drawn anew into a larger slot, it is the same.
        while True:
            try:
                layout = self._sample_into(seeds.draw, slot)
                filling = self._filler.place(layout, seeds, slot.array)
                if filling.end <= layout.free_end:
                    return filling
                # A quarter more than this batch needs, so that the next ones fit as well.
                needed = (slot.num_bytes + filling.end - layout.free_end) * 5 // 4
            except ArenaTooSmall as small:
                # needed_bytes are of the part that failed; later parts may need more, and doubling bounds the tries.
                needed = max(small.needed_bytes, 2 * slot.num_bytes)
            slot.grow(needed)

    def _sample_into(self, draw: Draw, slot: AnySlot) -> SampleLayout:
        """Samples into the slot. ArenaTooSmall: the slot must grow first."""
        return self.workload.sampler.draw(self.data.graph, draw, slot.array)


class Draws(Protocol):
    """The interface of what draws for a device: :class:`.DeviceSampler` or :class:`.UploadingSampler`."""

    def sample(self, draw: Draw, rows: Sequence[torch.Tensor] = ()) -> DeviceSample:
        """Draws a mini-batch, and takes along ``rows`` of its seeds. Raises SeedError: a seed is not a node, or
        repeats."""


class DeviceSource(BatchSource):
    """A :class:`.BatchSource` that draws on a device; its mini-batches are the same, number for number. Thread-safe.

    They go to host memory, where this process gathers features; or stay on the device, in a slot that a trainer copies
    from, if the trainer gathers all features itself. ``exporter`` None: the device's memory is not shared.

    Source: GNNLab (EuroSys'22), section 5.2: samplers keep the topology on their devices, trainers the features.
    """

    def __init__(self, source: BatchSource, draws: Draws, device: Device, exporter: DeviceExporter | None) -> None:
        super().__init__(source.data, source.workload, source.features, announces=source.announces)
        self._draws = draws
        self._device = device
        self._exporter = exporter

    def can_write_to(self, device: str) -> bool:
        # With features the host has to write to the slot, and it cannot to one of a device.
        return not self.features and self._exporter is not None and self._exporter.is_open_to(device)

    def new_slot(self, num_bytes: int, *, on_device: bool) -> AnySlot:
        """Raises CudaCallError: the device has no such memory, or cannot share it."""
        if not on_device:
            with self._device.side_stream():  # on whose device it is page-locked
                return Slot.shared(num_bytes, pinned=self._device.torch_device.type == "cuda")
        assert self._exporter is not None, "can_write_to() was not asked"
        from lightning_gnnload.pipeline.device_slots import DeviceSlot  # as a host's sources need none

        return DeviceSlot(self._exporter.runtime, num_bytes)

    def make(self, request: BatchRequest, slot: AnySlot) -> Payload:
        with self._device.side_stream():  # where slots grow, too
            if isinstance(slot, Slot):
                return super().make(request, slot)
            seeds = self.workload.seed_batch(request)
            _, header, timing = timed(
                lambda: self._draws.sample(seeds.draw),
                lambda sample: self._write(sample, seeds, slot),
                request.rank,
            )
        return Payload(header, timing)

    def _write(self, sample: DeviceSample, seeds: SeedBatch, slot: DeviceSlot) -> Header:
        """Copies a sample to a slot of the device, with its labels and what else belongs to its rows."""
        contents, draw = of_rows(seeds, self.labels_of(seeds)), seeds.draw
        layout, pieces = pack(sample, room_bytes=sum(aligned(rows.nbytes) for _, rows in contents))
        lengths = {column.axis: len(rows) for column, rows in contents}
        columns = tuple(column for column, _ in contents)
        header, _ = Header.place(layout, len(draw.seeds), draw.key.epoch, draw.key.step, columns, lengths, seeds.form)
        for offset, (_, rows) in zip(header.offsets[-len(contents) or len(header.offsets) :], contents, strict=True):
            pieces.append((offset, self._device.put(byte_rows(rows))))
        needed = max(offset + tensor.nbytes for offset, tensor in pieces)
        if needed > slot.num_bytes:
            slot.grow(needed * 5 // 4)  # a quarter more, so that the next ones fit as well
        self._put(pieces, slot)
        return header

    def _sample_into(self, draw: Draw, slot: AnySlot) -> SampleLayout:
        layout, pieces = pack(self._draws.sample(draw), slot.num_bytes)
        self._put(pieces, slot)
        return layout

    def _put(self, pieces: list[tuple[int, torch.Tensor]], slot: AnySlot) -> None:
        for offset, tensor in pieces:
            slot.put(offset, tensor)
        # The host waits: what is read next, by the host here or by another process, knows nothing of the stream.
        self._device.record().synchronize()

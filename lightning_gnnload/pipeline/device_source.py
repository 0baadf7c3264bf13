"""DeviceSource: the mini-batches of a phase, sampled on a device of this process."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from lightning_gnnload.data.features import bytes_of, gather
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.ops import DrawKey, SampleLayout
from lightning_gnnload.pipeline.device_batches import Draws
from lightning_gnnload.pipeline.device_slots import DeviceExporter, DeviceSlot
from lightning_gnnload.pipeline.packing import pack
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource, Payload
from lightning_gnnload.pipeline.tables import TableLayout

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.device import Device


class DeviceSource(BatchSource):
    """A BatchSource whose mini-batches are drawn on a device; they are the same, number for number. Thread-safe.

    They go to memory of the host, where this process gathers what the source has of features; or stay on the device, in
    a slot that a trainer copies from, where that gathers all features itself.

    Args:
        source: what is sampled.
        draws: what draws it.
        device: where.
        exporter: of the device's memory; None where that is not to be shared.

    Source: GNNLab (EuroSys'22), section 5.2: samplers keep the topology on their devices, trainers the features.
    """

    def __init__(self, source: BatchSource, draws: Draws, device: Device, exporter: DeviceExporter | None) -> None:
        super().__init__(source.data, source.workload, source.features, announces=source.announces)
        self._draws = draws
        self._device = device
        self._exporter = exporter

    def can_write_to(self, device: str) -> bool:
        return not self.features and self._exporter is not None and self._exporter.is_open_to(device)

    def new_slot(self, num_bytes: int, *, on_device: bool) -> Slot | DeviceSlot:
        """Raises CudaCallError: the device has no such memory, or cannot share it."""
        if not on_device:
            with self._device.side_stream():  # on whose device it is page-locked
                return Slot.shared(num_bytes, pinned=self._device.torch_device.type == "cuda")
        assert self._exporter is not None, "can_write_to() was not asked"
        return DeviceSlot(self._exporter.runtime, num_bytes)

    def make(self, request: BatchRequest, slot: Slot | DeviceSlot) -> Payload:
        if isinstance(slot, Slot):
            with self._device.side_stream():  # where it grows, too
                return super().make(request, slot)
        seeds, key = self.workload.seeds_of(request), self.workload.key_of(request)
        began, cpu_began = time.monotonic(), time.thread_time()
        with self._device.side_stream():
            sample = self._draws.sample(seeds, key)
            sampled = time.monotonic()
            labels = self._labels_of(seeds)
            packing = pack(sample, room_bytes=0 if labels is None else labels.nbytes)
            layout, y = packing.layout, None
            needed = max(offset + tensor.nbytes for offset, tensor in packing.pieces)
            if labels is not None:
                y = TableLayout(layout.free_begin, tuple(labels.shape), str(labels.dtype).removeprefix("torch."))
                needed = max(needed, y.offset + y.num_bytes)
            if needed > slot.num_bytes:
                slot.grow(needed * 5 // 4)  # a quarter more, so that the next ones fit as well
            for offset, tensor in packing.pieces:
                slot.put(offset, tensor)
            if labels is not None:
                slot.put(layout.free_begin, self._device.put(bytes_of(labels)))
            self._device.record().synchronize()
        return Payload(
            layout,
            len(seeds),
            key,
            None,
            y,
            made_by=request.rank,
            thread=threading.current_thread().name,
            began_s=began,
            sample_ms=(sampled - began) * 1e3,
            gather_ms=(time.monotonic() - sampled) * 1e3,
            cpu_ms=(time.thread_time() - cpu_began) * 1e3,
        )

    def _labels_of(self, seeds: np.ndarray) -> torch.Tensor | None:
        """On the host."""
        if self.data.y is None:
            return None
        labels = torch.empty((len(seeds), *self.data.y.shape[1:]), dtype=self.data.y.dtype)
        gather(self.data.y, torch.from_numpy(seeds), labels)
        return labels

    def _sample_into(self, seeds: np.ndarray, key: DrawKey, slot: Slot) -> SampleLayout:
        packing = pack(self._draws.sample(seeds, key), slot.num_bytes)
        for offset, tensor in packing.pieces:
            slot.put(offset, tensor)
        self._device.record().synchronize()
        return packing.layout

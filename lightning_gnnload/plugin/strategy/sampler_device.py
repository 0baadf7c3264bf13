"""The devices of sampler ranks and trainer ranks: where mini-batches are drawn, and how they cross over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from lightning_gnnload.cache.opening import say
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.pipeline.device_slots import DeviceExporter, DeviceReader
from lightning_gnnload.pipeline.device_source import DeviceSource
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.job import Job
from lightning_gnnload.plugin.module.device_agreement import UNAVAILABLE
from lightning_gnnload.sample.device_check import check_device
from lightning_gnnload.sample.on_device import OnDevice, can_sample, draws_by_weight, heed_zero_weights

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.device import Device
    from lightning_gnnload.ops.cuda.runtime import Runtime
    from lightning_gnnload.ops.cuda.topology import Topology
    from lightning_gnnload.plugin.compat import pl

_STAMP_BYTES = 4
"""A node, of the table by which a sampling thread finds the nodes that a mini-batch has met."""
_log = logging.getLogger(__name__)


def runtime_of(device: Device) -> Runtime:
    """By which the device's memory is shared between processes."""
    from lightning_gnnload.ops.cuda.runtime import CupyRuntime

    return CupyRuntime(device.torch_device.index or 0)


def reader_of(module: pl.LightningDataModule | None, root_device: torch.device) -> DeviceReader | None:
    """A trainer's device, to read samplers' device memory by; None where it computes or gathers on the host."""
    if not _is_wanted(module, root_device):
        return None
    from lightning_gnnload.ops.cuda.opening import open_device

    try:
        device = open_device(root_device)
        reader = DeviceReader(device, runtime_of(device))
        return reader if reader.name else None
    except UNAVAILABLE:
        return None  # who gathers on that device says why it cannot


class SamplerDevice:
    """A sampler rank's device. Opened when the first stream is, hence after its process may have forked.

    Args:
        job: knows the device, and who else uses it.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._topology: Topology | None = None
        self._exporter: DeviceExporter | None = None
        self._said: set[str] = set()

    def source(self, module: pl.LightningDataModule | None, source: BatchSource) -> BatchSource:
        """The same mini-batches, drawn on the device; or ``source``, where they are drawn on the host, for which
        ``sampling_device="auto"`` says why, once.

        Raises:
            CudaUnavailableError, KernelCompileError, DeviceMemoryError: with ``"cuda"``.
            LoaderConfigError: with ``"cuda"``, a sampler that has no kernels.
        """
        if not _is_wanted(module, self._job.device):
            return source
        reason = can_sample(source.workload.sampler)
        try:
            if reason is not None:
                raise LoaderConfigError(
                    f"sampling_device='cuda', but {reason}. Give sampling_device='auto', which samples on the device "
                    f"what it can, or 'cpu'."
                )
            return self._on_device(module, source)
        except (*UNAVAILABLE, LoaderConfigError) as error:
            if getattr(module, "sampling_device", None) == "cuda":
                raise
            self._say(reason or str(error))
            return source

    def _on_device(self, module: pl.LightningDataModule | None, source: BatchSource) -> DeviceSource:
        from lightning_gnnload.ops.cuda.opening import open_device
        from lightning_gnnload.sample.placement import budget_alone, budget_beside_model, place

        device, graph, sampler = open_device(self._job.device), source.workload.graph, source.workload.sampler
        if self._topology is None:
            is_shared = self._job.shares_devices or self._job.switching
            room = budget_beside_model(device) if is_shared else budget_alone(device)
            budget = max(room - self._job.num_sampler_threads * _STAMP_BYTES * graph.num_nodes, 0)
            weighted = any(draws_by_weight(getattr(module, name)) for name in ("sampler", "eval_sampler"))
            trainer = getattr(module, "trainer", None)
            progress = trainer is not None and trainer.progress_bar_callback is not None
            self._topology = place(graph, device, weighted=weighted, budget_bytes=budget, progress=progress)
            self._exporter = DeviceExporter(runtime_of(device))
            if progress:
                say(f"Sampler rank {self._job.global_rank} samples on {device.torch_device}: {self.about}")
        heed_zero_weights(sampler, graph)
        drawing = OnDevice(sampler, self._topology, device)
        check_device(drawing, source.workload, BatchRequest(0, 0, 0, source.workload.num_ranks))
        return DeviceSource(source, drawing, device, self._exporter)

    def _say(self, reason: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            _log.warning("Sampler rank %d samples on the CPU: %s", self._job.global_rank, reason)

    @property
    def about(self) -> str:
        """What of the graph lies where; nothing before it is placed."""
        return self._topology.about if self._topology is not None else ""


def _is_wanted(module: pl.LightningDataModule | None, device: torch.device) -> bool:
    setting = getattr(module, "sampling_device", "cpu")
    return setting == "cuda" or (setting == "auto" and device.type == "cuda")

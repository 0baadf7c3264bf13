"""The devices of sampler ranks and trainer ranks: where mini-batches are drawn, and how they reach trainers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.pipeline.device_slots import DeviceExporter, DeviceReader
from lightning_gnnload.pipeline.source import BatchSource, DeviceSource
from lightning_gnnload.plugin.job import Job
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.plugin.module.rank_device import UNAVAILABLE, RankDevice, open_each, sharing_errors
from lightning_gnnload.sample.device.samplers import can_sample_parts, why_on_host

if TYPE_CHECKING:
    from lightning_gnnload.cache.peers import PeerGroup
    from lightning_gnnload.ops.cuda.launch.device import Device
    from lightning_gnnload.ops.cuda.sampling.topology import Topology
    from lightning_gnnload.plugin.compat import pl
    from lightning_gnnload.sample.device.samplers import DevicePartSampler, DeviceSampler

_STAMP_BYTES = 4
"""Bytes a node that each sampling thread takes, for its table of the nodes that a mini-batch has met."""
_log = logging.getLogger(__name__)


def reader_of(module: pl.LightningDataModule | None, root_device: torch.device) -> DeviceReader | None:
    """Opens a trainer's reader of samplers' device memory; None where it computes or gathers on the host."""
    if not _is_wanted(module, root_device):
        return None
    from lightning_gnnload.ops.cuda.launch.open_device import open_device
    from lightning_gnnload.ops.cuda.launch.runtime import runtime_of

    try:
        device = open_device(root_device)
        reader = DeviceReader(device, runtime_of(device))
        return reader if reader.name else None
    except UNAVAILABLE:
        return None  # who gathers on that device says why it cannot


class SamplerDevice:
    """The device of a sampler rank, opened with the first stream, hence after its process may have forked."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._device = RankDevice(f"Sampler rank {job.global_rank} samples on the CPU")
        self._exporter: DeviceExporter | None = None

    def source(self, module: pl.LightningDataModule | None, source: BatchSource, *, meets: bool = False) -> BatchSource:
        """Returns a source that draws the same mini-batches on the device, or ``source`` where they are drawn on the
        host; ``sampling_device="auto"`` then says why, once, and ``"cuda"`` raises (LoaderConfigError,
        CudaUnavailableError ...).

        ``meets``: all samplers of the machine open this source now, and place its graph together.
        """
        setting = getattr(module, "sampling_device", None)
        if not _is_wanted(module, self._job.device):
            return source
        decision = self._job.decision
        if setting == "auto" and decision is not None and decision.host_threads:
            return source  # measured, and said with the roles
        workload = source.workload
        if not self._device.allows(can_sample_parts(workload.sampler) or why_on_host(workload), setting):
            return source
        try:
            with sharing_errors(is_required=setting == "cuda"):
                return self._on_device(module, source, meets=meets)
        except UNAVAILABLE as error:
            if setting == "cuda":
                raise
            self._device.say(str(error))
            return source

    def close(self) -> None:
        """Frees the graph, once no other sampler reads it; nothing may be drawn any more."""
        self._device.clear()

    def _on_device(self, module: pl.LightningDataModule | None, source: BatchSource, *, meets: bool) -> DeviceSource:
        from lightning_gnnload.ops.cuda.launch.open_device import open_device
        from lightning_gnnload.ops.cuda.launch.runtime import runtime_of

        trainer = getattr(module, "trainer", None)
        group = GatherGroup.of(trainer) if meets else GatherGroup()
        with self._device.meeting(source.workload, group) as met:
            device, peers = open_each(lambda: open_device(self._job.device), met)
            drawing = self._drawing(module, trainer, source, device, peers)
        if self._exporter is None:
            self._exporter = DeviceExporter(runtime_of(device))
        return DeviceSource(source, drawing, device, self._exporter)

    def _drawing(
        self,
        module: pl.LightningDataModule | None,
        trainer: pl.Trainer | None,
        source: BatchSource,
        device: Device,
        peers: PeerGroup | None,
    ) -> DeviceSampler | DevicePartSampler:
        from lightning_gnnload.sample.device.placement import budget_alone, budget_beside_model

        # A sampler that switches trains on its device too; ranks that share one may have a trainer's model there.
        budget = budget_beside_model if self._job.shares_devices or self._job.switching else budget_alone

        def place(graph: Graph) -> Topology:
            # For each part of a graph: those of a lost sampler come later, and fit into what is free then.
            return self._device.place(
                graph,
                device=device,
                samplers=[getattr(module, name) for name in ("sampler", "eval_sampler")],
                budget_bytes=max(budget(device) - self._job.num_sampler_threads * _STAMP_BYTES * graph.num_nodes, 0),
                about=f"Sampler rank {self._job.global_rank} samples on {device.torch_device}: ",
                progress=trainer is not None and trainer.progress_bar_callback is not None,
                peers=peers,
            )

        # The first mini-batch that this sampler makes is compared, which places the part that it stands beside.
        workload, roles = source.workload, self._job.roles
        owners = workload.owners(workload.num_ranks, roles.num_devices - roles.num_trainers)
        batches_here = [] if owners is None else np.argwhere(owners == roles.index(self._job.local_rank)).tolist()
        step, rank = batches_here[0] if batches_here else (0, 0)
        return self._device.draws(workload, BatchRequest(0, step, rank, workload.num_ranks), place, device)


def _is_wanted(module: pl.LightningDataModule | None, device: torch.device) -> bool:
    setting = getattr(module, "sampling_device", "cpu")
    return setting == "cuda" or (setting == "auto" and device.type == "cuda")

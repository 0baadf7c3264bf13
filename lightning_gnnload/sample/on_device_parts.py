"""OnDeviceParts: mini-batches sampled in a graph's parts, drawn by the kernels of a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.on_device import OnDevice, can_sample
from lightning_gnnload.sample.parts import PartSampler, place_seeds

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.device import Device
    from lightning_gnnload.ops.cuda.sample import DeviceSample
    from lightning_gnnload.ops.cuda.topology import Topology


def can_sample_parts(sampler: Sampler) -> str | None:
    """As :func:`.can_sample`, for a sampler that may be a PartSampler."""
    if not isinstance(sampler, PartSampler):
        return can_sample(sampler)
    if getattr(sampler, "edge_ids", False):
        return "edge ids of a part are turned into those of the whole graph on the host"
    return can_sample(sampler.sampler)


class OnDeviceParts:
    """Draws on a device what a PartSampler draws on the CPU, number for number. Thread-safe.

    Args:
        sampler: one that :func:`can_sample_parts`.
        place: puts the graph of a part, which it may be asked for repeatedly, on the device.
        device: that one.
    """

    def __init__(self, sampler: PartSampler, place: Callable[[Graph], Topology], device: Device) -> None:
        self.sampler = sampler
        self.device = device
        self._place = place
        self._parts: dict[int, OnDevice] = {}

    def open(self, index: int) -> None:
        """Puts a part on the device, which its first mini-batch does otherwise.

        Raises:
            DeviceMemoryError: neither the device nor the host has room for it.
        """
        self._of(index)

    def sample(self, seeds: np.ndarray, key: DrawKey) -> DeviceSample:
        """One mini-batch, by ids of the whole graph; see :meth:`.OnDevice.sample`.

        Args:
            seeds: distinct node ids, int64 ``[S]``, on the host.
            key: decides every draw.

        Raises:
            SeedError, PartitionError, PartReachError: as :meth:`.PartSampler.sample_into`.
            DeviceMemoryError: there is no memory for it.
        """
        from lightning_gnnload.ops.cuda.gather import gather_rows

        part, local = place_seeds(self.sampler.partition, seeds, self.sampler.reach or 0)
        drawn = self._of(part.index)
        sample = drawn.sample(local, key)
        assert drawn.topology.names is not None, "a part has names"
        nodes = self.device.empty(len(sample.nodes), torch.int64)
        unheard = self.device.zeros(1, torch.int64)  # these ids were drawn here
        gather_rows(self.device, drawn.topology.names, sample.nodes, nodes, unheard)
        return replace(sample, nodes=nodes)

    def _of(self, index: int) -> OnDevice:
        if index not in self._parts:
            topology = self._place(self.sampler.partition.parts[index].graph)
            self._parts[index] = OnDevice(self.sampler.sampler, topology, self.device)
        return self._parts[index]

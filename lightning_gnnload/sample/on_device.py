"""OnDevice: a sampler's settings, drawn by the kernels of a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import CudaUnavailableError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.layerwise import LayerSampler
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.walk import RandomWalkSampler
from lightning_gnnload.sample.weighted import WeightedNeighborSampler

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.device import Device
    from lightning_gnnload.ops.cuda.sample import DeviceSample
    from lightning_gnnload.ops.cuda.topology import Topology
    from lightning_gnnload.ops.cuda.workspace import DeviceWorkspace


def can_sample(sampler: Sampler) -> str | None:
    """Why no device can draw as ``sampler`` does; None where one can."""
    if type(sampler) not in _DRIVERS:  # a subclass may draw otherwise
        return f"{type(sampler).__name__} has no kernels for a device"
    if any(isinstance(fanout, dict) for fanout in getattr(sampler, "fanouts", ())):
        return f"{sampler!r} draws by edge type, which has no kernels for a device"
    return None


def draws_by_weight(sampler: Sampler) -> bool:
    """Whether it needs a topology with alias tables."""
    return isinstance(sampler, WeightedNeighborSampler)


def heed_zero_weights(sampler: Sampler, graph: Graph) -> None:
    """Does what ``on_zero`` of a sampler by weight says, which on the CPU is done as it samples."""
    if not isinstance(sampler, WeightedNeighborSampler) or sampler.on_zero == "ignore":
        return
    if len(zero_nodes := graph.alias_table.zero_nodes):
        sampler.tell_zero(graph.names_of(zero_nodes))


class OnDevice:
    """Draws on a device what ``sampler`` draws on the CPU, number for number. Thread-safe.

    Args:
        sampler: one that :func:`can_sample`.
        topology: of the graph, with alias tables where it draws by weight.
        device: where that lies.

    Raises:
        CudaUnavailableError: walks or layers by edge weight, which has no kernels for a device.
    """

    def __init__(self, sampler: Sampler, topology: Topology, device: Device) -> None:
        if topology.has_weights and getattr(sampler, "weighted", False):
            raise CudaUnavailableError(
                f"{sampler!r} draws by edge weight in this graph, which has no kernels for a device; "
                "sampling_device='cpu' draws so, and weighted=False as if there were no weights."
            )
        self.sampler = sampler
        self.topology = topology
        self.device = device
        self._idle: list[DeviceWorkspace] = []

    def sample(self, seeds: np.ndarray, key: DrawKey) -> DeviceSample:
        """One mini-batch, by work in the current stream, which the host waits for; how often, its driver says.

        Args:
            seeds: distinct node ids, int64 ``[S]``, on the host.
            key: decides every draw.

        Raises:
            SeedError: a seed is not a node, or repeats.
            DeviceMemoryError: there is no memory for it.
        """
        from lightning_gnnload.ops.cuda.workspace import DeviceWorkspace

        # A workspace's work is done when the host has waited: any stream may have it next. One whose batch failed is
        # dropped, with what it may hold.
        try:
            workspace = self._idle.pop()
        except IndexError:
            workspace = DeviceWorkspace(self.device, self.topology.num_nodes)
        sample = _DRIVERS[type(self.sampler)](self.sampler, workspace, self.topology, seeds, key)
        self._idle.append(workspace)
        return sample


# Drivers are imported when a batch is drawn: without a device nobody needs them.


def _neighbors(
    sampler: Any, workspace: DeviceWorkspace, topology: Topology, seeds: np.ndarray, key: DrawKey
) -> DeviceSample:
    from lightning_gnnload.ops.cuda.neighbors import sample_neighbors

    options = {"replace": sampler.replace, "expand": sampler.expand, "edge_ids": sampler.edge_ids}
    return sample_neighbors(workspace, topology, seeds, sampler.fanouts, key, **options)


def _weighted(
    sampler: Any, workspace: DeviceWorkspace, topology: Topology, seeds: np.ndarray, key: DrawKey
) -> DeviceSample:
    from lightning_gnnload.ops.cuda.weighted import sample_weighted_neighbors

    options = {"replace": sampler.replace, "expand": sampler.expand, "edge_ids": sampler.edge_ids}
    return sample_weighted_neighbors(workspace, topology, seeds, sampler.fanouts, key, **options)


def _walks(
    sampler: Any, workspace: DeviceWorkspace, topology: Topology, seeds: np.ndarray, key: DrawKey
) -> DeviceSample:
    from lightning_gnnload.ops.cuda.walks import sample_walks

    return sample_walks(
        workspace,
        topology,
        seeds,
        sampler.walks,
        key,
        num_hops=sampler.num_layers,
        num_neighbors=sampler.num_neighbors,
        include_self=sampler.include_self,
        normalize=sampler.normalize,
        expand=sampler.expand,
    )


def _layers(
    sampler: Any, workspace: DeviceWorkspace, topology: Topology, seeds: np.ndarray, key: DrawKey
) -> DeviceSample:
    from lightning_gnnload.ops.cuda.layers import sample_layers

    names = ("replace", "normalize", "keep_known", "expand", "edge_ids")
    options = {name: getattr(sampler, name) for name in names}
    return sample_layers(workspace, topology, seeds, sampler.budgets, sampler.method, key, **options)


_DRIVERS: dict[type[Sampler], Callable[..., DeviceSample]] = {
    NeighborSampler: _neighbors,
    WeightedNeighborSampler: _weighted,
    RandomWalkSampler: _walks,
    LayerSampler: _layers,
}

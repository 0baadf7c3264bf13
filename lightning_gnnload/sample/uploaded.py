"""Uploaded: mini-batches drawn on the host, for a device that gathers their features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import DrawKey, HopLayout
from lightning_gnnload.sample.base import Sampler

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.device import Device
    from lightning_gnnload.ops.cuda.sample import DeviceHop, DeviceSample


def can_upload(sampler: Sampler) -> str | None:
    """Why what ``sampler`` draws cannot come to a device so; None where it can."""
    if any(isinstance(fanout, dict) for fanout in getattr(sampler, "fanouts", ())):
        return f"{sampler!r} draws by edge type, which a DeviceHop does not carry"
    return None


class Uploaded:
    """Draws on the host, and copies what was drawn to a device, where its features are. Thread-safe.

    Args:
        sampler: any whose blocks carry no edge types.
        graph: the topology.
        device: where mini-batches come to lie.

    Source: PaGraph (SoCC'20), section 4, and BGL (NSDI'23), section 3: the host samples, the GPU holds the cache.
    """

    def __init__(self, sampler: Sampler, graph: Graph, device: Device) -> None:
        self.sampler = sampler
        self.graph = graph
        self.device = device

    def sample(self, seeds: np.ndarray, key: DrawKey) -> DeviceSample:
        """One mini-batch, copied by the current stream, for which the host does not wait.

        Args:
            seeds: distinct node ids, int64 ``[S]``, on the host.
            key: decides every draw.

        Raises:
            SeedError: a seed is not a node, or repeats.
        """
        from lightning_gnnload.ops.cuda.sample import DeviceSample

        arena, layout = self.sampler.sample_here(self.graph, seeds, key)
        nodes = self.device.put(arena[: 8 * layout.num_nodes].view(np.int64))
        hops = self.device.put(arena[layout.free_end :])  # which begin there: one copy for all
        return DeviceSample(nodes, tuple(_hop(hop, hops, layout.free_end) for hop in layout.hops))


def _hop(hop: HopLayout, memory: torch.Tensor, begin: int) -> DeviceHop:
    from lightning_gnnload.ops.cuda.sample import DeviceHop

    def tensor(offset: int, count: int, dtype: torch.dtype) -> torch.Tensor:
        return memory[offset - begin : offset - begin + count * dtype.itemsize].view(dtype)

    def of_edges(offset: int, dtype: torch.dtype) -> torch.Tensor | None:
        return None if offset < 0 else tensor(offset, hop.num_edges, dtype)

    return DeviceHop(
        hop.num_dst,
        hop.num_src,
        tensor(hop.indptr_offset, hop.num_dst + 1, torch.int32),
        tensor(hop.indices_offset, hop.num_edges, torch.int32),
        of_edges(hop.edge_ids_offset, torch.int64),
        of_edges(hop.edge_weights_offset, torch.float32),
    )

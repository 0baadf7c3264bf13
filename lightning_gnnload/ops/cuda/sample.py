"""DeviceSample: what a sampling kernel's driver leaves on the device.

Shapes: V nodes of the batch; D destinations and E edges of a hop.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class DeviceHop:
    """One hop, nearest first: as :class:`.HopLayout`, with tensors in the place of offsets.

    Attributes:
        num_dst: D, nodes known before the hop.
        num_src: nodes known after it.
        indptr: int32 ``[D + 1]``.
        indices: int32 ``[E]``, local ids.
        edge_ids: int64 ``[E]``, or None.
        edge_weights: float32 ``[E]``, or None.
    """

    num_dst: int
    num_src: int
    indptr: torch.Tensor
    indices: torch.Tensor
    edge_ids: torch.Tensor | None = None
    edge_weights: torch.Tensor | None = None

    @property
    def num_edges(self) -> int:
        return self.indices.numel()


@dataclass(frozen=True)
class DeviceSample:
    """A mini-batch's nodes and hops, the same as the CPU's, number for number.

    Attributes:
        nodes: int64 ``[V]``, seeds first.
        hops: nearest first.
    """

    nodes: torch.Tensor
    hops: tuple[DeviceHop, ...]

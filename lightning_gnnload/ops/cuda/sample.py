"""DeviceSample: what a sampling kernel's driver leaves on the device, and what it is made of.

Shapes: V nodes of the batch; D destinations and E edges of a hop.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..dispatch import DrawKey


@dataclass(frozen=True)
class DeviceHop:
    """One hop of a :class:`.DeviceSample`, as tensors; see :class:`.HopLayout`.

    Attributes:
        num_dst: D, nodes known before the hop.
        num_src: nodes known after it.
        indptr: int32 ``[D + 1]``.
        indices: int32 ``[E]``, local ids.
        edge_ids: int64 ``[E]``, or None.
        edge_weights: float32 ``[E]``, or None.
        edge_types: int32 ``[E]``, or None.
    """

    num_dst: int
    num_src: int
    indptr: torch.Tensor
    indices: torch.Tensor
    edge_ids: torch.Tensor | None = None
    edge_weights: torch.Tensor | None = None
    edge_types: torch.Tensor | None = None

    @property
    def num_edges(self) -> int:
        return self.indices.numel()


@dataclass(frozen=True)
class DeviceSample:
    """The nodes and hops of a mini-batch on a device, the same as the CPU's, number for number.

    Attributes:
        nodes: int64 ``[V]``, seeds first.
        hops: nearest first.
        queries: int32 ``[V]``, the number of each node's query; None where there were none.
    """

    nodes: torch.Tensor
    hops: tuple[DeviceHop, ...]
    queries: torch.Tensor | None = None


@dataclass
class HopBuilder:
    """A hop that is being built: what a picker reads of it, and fills in.

    Attributes:
        key: that its draws are made with.
        index: in the batch.
        first: where the destinations to expand begin, among the nodes; and ``num_dst`` where they end: on the device.
        first_edge: where their edges begin, and ``last_edge`` where they end: on the device.
        most_dst: of destinations to expand, at most.
        starts: int32, for each destination where its edges begin, and where the last one's end.
        most_edges: where edges end, at most; set once it is known.
        picked: neighbours by edge, in the dtype of the graph's indices; with queries, int64: below their numbers.
        edge_ids: int64, or None.
        edge_weights: float32, or None.
        edge_types: int32, or None.
        indices: int32, local ids by edge.
    """

    key: DrawKey
    index: int
    first: torch.Tensor
    num_dst: torch.Tensor
    first_edge: torch.Tensor
    last_edge: torch.Tensor
    most_dst: int
    starts: torch.Tensor
    most_edges: int = 0
    picked: torch.Tensor | None = None
    edge_ids: torch.Tensor | None = None
    edge_weights: torch.Tensor | None = None
    edge_types: torch.Tensor | None = None
    indices: torch.Tensor | None = None

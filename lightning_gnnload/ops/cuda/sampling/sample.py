"""DeviceSample: a mini-batch that was drawn on a device, and the hops that it is built of.

Shapes: V nodes of the batch; D destinations and E edges of a hop.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..tables.bus_order import AS_THEY_COME, BusOrder
from .varying import HopKey


@dataclass(frozen=True)
class DeviceHop:
    """One hop of a :class:`.DeviceSample`, as tensors; see :class:`.HopLayout`."""

    num_dst: int  # D, nodes known before the hop
    num_src: int  # nodes known after it
    indptr: torch.Tensor  # int32 [D + 1]
    indices: torch.Tensor  # int32 [E], local ids
    edge_ids: torch.Tensor | None = None  # int64 [E]
    edge_weights: torch.Tensor | None = None  # float32 [E]
    edge_types: torch.Tensor | None = None  # int32 [E]

    @property
    def num_edges(self) -> int:
        return self.indices.numel()


@dataclass(frozen=True)
class DeviceSample:
    """The nodes and hops of a mini-batch on a device, the same as the CPU's, number for number."""

    nodes: torch.Tensor  # int64 [V], seeds first
    hops: tuple[DeviceHop, ...]  # nearest first
    queries: torch.Tensor | None = None  # int32 [V], each node's query; None where there were none
    rows: tuple[torch.Tensor, ...] = ()  # of the seeds, which came along from the host
    memory: torch.Tensor | None = None  # that all of it lies in; None: its tensors have memory of their own

    def record_stream(self, stream: torch.Stream) -> None:
        """Keeps the memory from being reused before ``stream`` is done with it."""
        columns = [column for hop in self.hops for column in vars(hop).values()]
        tensors = [self.nodes, self.queries, *self.rows, *columns] if self.memory is None else [self.memory]
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                tensor.record_stream(stream)


@dataclass
class HopBuilder:
    """A hop that is being built, which a picker reads and fills in. Counts are on the device, so that hops follow each
    other without the host; ``most_*`` are the bounds that the host knows."""

    key: HopKey
    index: int  # in the batch
    first: torch.Tensor  # where the destinations to expand begin among the nodes, on the device
    num_dst: torch.Tensor  # where they end, on the device
    first_edge: torch.Tensor  # where their edges begin, on the device
    last_edge: torch.Tensor  # where their edges end, on the device
    most_dst: int  # destinations to expand, at most
    starts: torch.Tensor  # int32, where each destination's edges begin, and where the last one's end
    most_edges: int = 0  # where edges end, at most; set by DeviceBatch._make_room()
    picked: torch.Tensor | None = None  # neighbours by edge, in the indices' dtype; with queries int64, below these
    edge_ids: torch.Tensor | None = None  # int64
    edge_weights: torch.Tensor | None = None  # float32
    edge_types: torch.Tensor | None = None  # int32
    indices: torch.Tensor | None = None  # int32, local ids by edge
    order: BusOrder = AS_THEY_COME  # of the destinations, in which their lists are read

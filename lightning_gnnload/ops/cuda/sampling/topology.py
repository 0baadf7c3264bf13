"""Topology: a graph as the sampling kernels of a device read it.

Shapes: N graph nodes, E edges, S shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch

from ...typed_lists import DenseLists
from ..launch.device import Device, Mapped

OFFSET_BITS = 48
"""Of a location, kOffsetBits of kernels/common/cuda/adjacency.h: the others are the shard's number."""


class ShardMemory(Protocol):
    """The memory of a topology's shards: one of this rank's device, and perhaps others that other processes own."""

    @property
    def addresses(self) -> Sequence[int]:
        """Where each shard begins."""

    def write(self, offset: int, values: torch.Tensor) -> None:
        """Copies values that lie on the device to its own shard, from byte ``offset`` on, by work in the current
        stream."""

    def check(self) -> None:
        """Raises DeviceShareError where some of it is gone, or closed."""

    def close(self) -> None:
        """Gives it up, after the device's work; no kernel may read it any more."""


@dataclass(frozen=True)
class DeviceLists:
    """:class:`.DenseLists` on a device, uint32 as int32: ``DenseRuns`` of ``kernels/sample_typed/dense_runs.h``, and
    times by type."""

    run_ptr: torch.Tensor | Mapped
    first_node: torch.Tensor
    first_run: torch.Tensor
    slot_ptr: torch.Tensor
    slot_type: torch.Tensor
    timed: torch.Tensor
    slots: tuple[tuple[int, ...], ...]  # for the host: the edge types that end in each node type
    is_untyped: bool = False

    @classmethod
    def of(cls, lists: DenseLists, run_ptr: torch.Tensor | Mapped, device: Device) -> DeviceLists:
        """Puts the small arrays of the lists on a device; ``run_ptr`` is there already."""
        few = {
            name: device.put(getattr(lists, name))
            for name in ("first_node", "first_run", "slot_ptr", "slot_type", "timed")
        }
        slots = tuple(tuple(lists.slot_type[begin:end].tolist()) for begin, end in pairwise(lists.slot_ptr))
        return cls(run_ptr=run_ptr, slots=slots, is_untyped=lists.is_untyped, **few)

    @classmethod
    def untyped(cls, indptr: torch.Tensor | Mapped, num_nodes: int, device: Device) -> DeviceLists:
        """Describes lists that are not divided: each is one run."""
        whole, node_ranges, none = (device.put(np.array(values)) for values in ([0, num_nodes], [0, 1], [0]))
        return cls(indptr, whole, whole, node_ranges, none.int(), none.byte(), ((0,),), is_untyped=True)

    @property
    def num_node_types(self) -> int:
        return len(self.slots)

    @property
    def num_edge_types(self) -> int:
        return len(self.timed)

    @property
    def most_slots(self) -> int:
        return max(map(len, self.slots), default=0)

    @property
    def offset_type(self) -> str:
        """The type of ``run_ptr`` in kernels."""
        return offset_type(self.run_ptr)


@dataclass(frozen=True)
class Topology:
    """A graph's in-neighbours as a device reads them: on it, in shards of it and of those linked to it, or in host
    memory.

    Where ``location[v]`` is there and not negative, the list of node ``v`` is in a shard: from entry ``location[v] %
    2**OFFSET_BITS`` on, of the one that begins at ``shards[location[v] >> OFFSET_BITS]``. Else it is
    ``indices[indptr[v] : indptr[v + 1]]``. What there is besides of each edge lies likewise, each in shards of its own.

    Source: topology in host memory read by the device, hot lists on it: DSP (PPoPP'23), section 6; over the devices of
    a machine, sections 3.1 and 3.2.
    """

    num_nodes: int  # N
    num_edges: int  # E
    indptr: torch.Tensor | Mapped  # int64 [N + 1]
    indices: torch.Tensor | Mapped  # int32 or int64 [E]; [0] where all lists are in shards
    location: torch.Tensor | None = None  # int64 [N]
    shards: torch.Tensor | None = None  # int64 [S], addresses, as the others
    names: torch.Tensor | Mapped | None = None  # int64 [N], global ids of a part's nodes
    table: torch.Tensor | Mapped | None = None  # uint64 as int64 [E], alias tables
    table_shards: torch.Tensor | None = None
    edge_time: torch.Tensor | Mapped | None = None  # uint32 as int32 [E], time codes
    edge_time_shards: torch.Tensor | None = None
    lists: DeviceLists | None = None  # the same lists by edge type and time; None: nobody draws so
    types: Any = None  # names of nodes' and edges' types, GraphTypes
    max_degree: int = 0  # of any node
    has_weights: bool = False  # the graph has edge weights, on this device or not
    memory: ShardMemory | None = None  # that the addresses lead to, and that lives as long
    about: str = ""  # what is where, and why, in a few words
    _whole: DeviceLists | None = field(default=None, repr=False, compare=False)

    def whole_lists(self, device: Device) -> DeviceLists:
        """Describes the lists as ones that are not divided, put on the device once."""
        if self._whole is None:
            object.__setattr__(self, "_whole", DeviceLists.untyped(self.indptr, self.num_nodes, device))
        assert self._whole is not None
        return self._whole

    @property
    def index_dtype(self) -> torch.dtype:
        return _tensor(self.indices).dtype

    @property
    def index_type(self) -> str:
        """The type of ``indices`` in kernels."""
        return "int32_t" if self.index_dtype == torch.int32 else "int64_t"

    @property
    def is_on_bus(self) -> bool:
        """Whether kernels read lists, or what lies as they do, from the host's memory."""
        return any(isinstance(edges, Mapped) for edges in (self.indices, self.table, self.edge_time))

    @cached_property
    def tables(self) -> Topology:
        """This topology with the edges' alias tables in place of the lists; None where there are none."""
        table: Any = self.table
        return replace(self, indices=table, shards=self.table_shards, names=None)

    @cached_property
    def times(self) -> Topology:
        """This topology with the edges' time codes in place of the lists; None where there are none."""
        edge_time: Any = self.edge_time
        return replace(self, indices=edge_time, shards=self.edge_time_shards, names=None)


def offset_type(offsets: torch.Tensor | Mapped) -> str:
    """Returns the type of where lists begin, in kernels."""
    return "uint32_t" if _tensor(offsets).dtype == torch.int32 else "int64_t"


def _tensor(placed: torch.Tensor | Mapped) -> torch.Tensor:
    return placed.tensor if isinstance(placed, Mapped) else placed

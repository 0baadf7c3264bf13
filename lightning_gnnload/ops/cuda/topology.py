"""Topology: a graph as the sampling kernels of a device read it.

Shapes: N graph nodes, E edges, H edges of hot nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ..typed_lists import DenseLists
from .device import Device, Mapped


@dataclass(frozen=True)
class DeviceLists:
    """:class:`.DenseLists` on a device: ``DenseRuns`` of ``kernels/sample_typed/dense_runs.h``, and times by type.

    Attributes:
        run_ptr, first_node, first_run, slot_ptr, slot_type, timed, is_untyped: as there; uint32 as int32.
        slots: the edge types that end in each node type, for the host.
    """

    run_ptr: torch.Tensor | Mapped
    first_node: torch.Tensor
    first_run: torch.Tensor
    slot_ptr: torch.Tensor
    slot_type: torch.Tensor
    timed: torch.Tensor
    slots: tuple[tuple[int, ...], ...]
    is_untyped: bool = False

    @classmethod
    def of(cls, lists: DenseLists, run_ptr: torch.Tensor | Mapped, device: Device) -> DeviceLists:
        """Puts on a device what is few of the lists; ``run_ptr``: the rest, which lies there already."""
        few = {
            name: device.put(getattr(lists, name))
            for name in ("first_node", "first_run", "slot_ptr", "slot_type", "timed")
        }
        slots = tuple(tuple(lists.slot_type[begin:end].tolist()) for begin, end in pairwise(lists.slot_ptr))
        return cls(run_ptr=run_ptr, slots=slots, is_untyped=lists.is_untyped, **few)

    @classmethod
    def untyped(cls, indptr: torch.Tensor | Mapped, num_nodes: int, device: Device) -> DeviceLists:
        """Describes lists that are cut by nothing: each is one run."""
        whole, ends, none = (device.put(np.array(each)) for each in ([0, num_nodes], [0, 1], [0]))
        return cls(indptr, whole, whole, ends, none.int(), none.byte(), ((0,),), is_untyped=True)

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
        """The type of ``run_ptr``, as kernels name it."""
        return "uint32_t" if _tensor(self.run_ptr).dtype == torch.int32 else "int64_t"


@dataclass(frozen=True)
class Topology:
    """A graph's in-neighbours as a device reads them: on the device or, where that is too small, partly in host memory.

    A node's list is ``hot_indices[hot_begin[v] : hot_begin[v] + degree]`` where ``hot_begin`` is given and not
    negative there, and else ``indices[indptr[v] : indptr[v + 1]]``.

    Attributes:
        num_nodes: N.
        num_edges: E.
        indptr: int64 ``[N + 1]``.
        indices: int32 or int64 ``[E]``.
        hot_begin: int64 ``[N]``, or None.
        hot_indices: ``[H]``, dtype of ``indices``, on the device; None as ``hot_begin`` is.
        names: int64 ``[N]``, ids in the whole graph, of a part; else None.
        table: uint64 as int64 ``[E]``, the alias tables of edge weights; None where nobody draws by weight.
        hot_table: ``[H]``; None as ``hot_begin`` or ``table`` is.
        edge_time: uint32 as int32 ``[E]``, the time codes of edges; None where they have none.
        hot_edge_time: ``[H]``; None as ``hot_begin`` or ``edge_time`` is.
        lists: the same lists by edge type and time; None where nobody draws so.
        types: the names of nodes' and edges' types, :class:`.GraphTypes`; None where there are none.
        max_degree: of any node.
        has_weights: the graph has edge weights, whether they lie here or not.
        about: what lies where, and why, in a few words.

    Source: topology in host memory read by the device, hot lists on it: DSP (PPoPP'23), section 6.
    """

    num_nodes: int
    num_edges: int
    indptr: torch.Tensor | Mapped
    indices: torch.Tensor | Mapped
    hot_begin: torch.Tensor | None = None
    hot_indices: torch.Tensor | None = None
    names: torch.Tensor | Mapped | None = None
    table: torch.Tensor | Mapped | None = None
    hot_table: torch.Tensor | None = None
    edge_time: torch.Tensor | Mapped | None = None
    hot_edge_time: torch.Tensor | None = None
    lists: DeviceLists | None = None
    types: Any = None
    max_degree: int = 0
    has_weights: bool = False
    about: str = ""

    @property
    def index_dtype(self) -> torch.dtype:
        return _tensor(self.indices).dtype

    @property
    def index_type(self) -> str:
        """The type of ``indices``, as kernels name it."""
        return "int32_t" if self.index_dtype == torch.int32 else "int64_t"

    @cached_property
    def tables(self) -> Topology:
        """This topology with alias tables in the place of the lists whose edges they are of; there have to be some."""
        assert self.table is not None
        return replace(self, indices=self.table, hot_indices=self.hot_table, names=None)

    @cached_property
    def times(self) -> Topology:
        """This topology with time codes in the place of the lists whose edges they are of; None where there are
        none."""
        return replace(self, indices=self.edge_time, hot_indices=self.hot_edge_time, names=None)  # type: ignore[arg-type]


def _tensor(placed: torch.Tensor | Mapped) -> torch.Tensor:
    return placed.tensor if isinstance(placed, Mapped) else placed

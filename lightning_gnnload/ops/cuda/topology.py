"""Topology: a graph as the sampling kernels of a device read it.

Shapes: N graph nodes, E edges, H edges of hot nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from .device import Mapped


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
    max_degree: int = 0
    has_weights: bool = False
    about: str = ""

    @property
    def index_dtype(self) -> torch.dtype:
        return (self.indices.tensor if isinstance(self.indices, Mapped) else self.indices).dtype

    @property
    def index_type(self) -> str:
        """The type of ``indices``, as kernels name it."""
        return "int32_t" if self.index_dtype == torch.int32 else "int64_t"

    @cached_property
    def tables(self) -> Topology:
        """This topology with alias tables in the place of the lists whose edges they are of; there have to be some."""
        assert self.table is not None
        return replace(self, indices=self.table, hot_indices=self.hot_table, names=None)

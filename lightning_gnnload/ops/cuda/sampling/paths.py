"""DevicePaths: the queries of nodes that a device finds along paths, where each edge bounds the times of the next ones.

Shapes: Q queries of the seeds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from ..launch import state as codes
from .batch import DeviceBatch
from .queries import FirstPairs
from .sample import HopBuilder
from .workspace import DeviceWorkspace


class PathArguments(NamedTuple):
    """``Along`` of ``kernels/sample_typed/sample_typed_cuda.cu``."""

    known: DeviceWorkspace
    pairs: torch.Tensor | None = None
    num_known: torch.Tensor | None = None
    path_end: int = 0


class DevicePaths:
    """Numbers pairs of a seed's query and a time bound, as nodes are numbered: ``PathQueries`` of
    ``kernels/sample_typed/queries.h``, and a :class:`.NumberTable`. Numbers below Q are the seeds' queries, which have
    ``until``."""

    def __init__(self, first: FirstPairs, workspace: DeviceWorkspace, num_hops: int) -> None:
        device, self.most_nodes, self._path_end = workspace.device, first.most, first.path_end
        self.nodes = first.pairs
        counts = device.zeros(num_hops, torch.int64)
        self._counts = [first.num_pairs, *(counts[hop : hop + 1] for hop in range(num_hops))]  # before each hop
        # A hash table always, as pairs are no ids that stamps could be indexed by.
        if "paths" not in workspace.cached:
            workspace.cached["paths"] = DeviceWorkspace(device, workspace.num_nodes, "hash", "paths_batch")
        self.known: DeviceWorkspace = workspace.cached["paths"]
        self._hop: HopBuilder | None = None  # the current hop, with pairs in place of nodes

    def begin_hop(self, batch: DeviceBatch, hop: HopBuilder) -> PathArguments:
        """Makes room for a pair of each edge that is picked."""
        device, num_known = batch.device, self._counts[hop.index]
        self.error = batch.error
        most_after = self.most_nodes + hop.most_edges
        if most_after > codes.MAX_POSITIONS:
            batch.fail(codes.TOO_MANY_EDGES)
        pairs, numbers = (device.empty(hop.most_edges, dtype) for dtype in (torch.int64, torch.int32))
        self._hop = replace(hop, num_dst=num_known, picked=pairs, indices=numbers)
        if hop.index == 0:
            self.known.begin(most_after, most_after)
            batch.note_known(self._hop, self)
        elif self.known.widen(most_after, most_after):
            batch.note_known(self._hop, self)
        return PathArguments(self.known, pairs, num_known, self._path_end)

    def end_hop(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        """Puts each neighbour below the number of its pair, and enters it in the batch's table."""
        assert self._hop is not None, "begun"
        assert batch.queries is not None, "these"
        self.most_nodes += hop.most_edges
        self.nodes = batch.grown(self.nodes, self.most_nodes, torch.int64)
        batch.number_nodes(self._hop, self.nodes, self._counts[hop.index + 1], self)
        edges = replace(hop, indices=self._hop.indices)
        blocks = batch.blocks(hop.most_edges)
        batch.launch("sample_typed", "ask_along", blocks=blocks, hop=hop, edges=edges, shift=batch.queries.shift)

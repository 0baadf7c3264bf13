"""Uniform neighbourhood sampling on a device.

Shapes: S seeds, L hops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch

from ...checks import as_flag
from ...dispatch import ALL_NEIGHBORS, DrawKey
from ...neighbors import check_fanouts
from .batch import MAX_LOCAL, THREADS, DeviceBatch
from .sample import DeviceSample, HopBuilder
from .topology import Topology
from .workspace import DeviceWorkspace

# Scratch for picks; fanouts so large that it would need more get fewer blocks instead.
_MOST_TABLE_BYTES = 64 << 20


def sample_neighbors(
    workspace: DeviceWorkspace,
    topology: Topology,
    seeds: np.ndarray | torch.Tensor,
    fanouts: Sequence[int],
    key: DrawKey,
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
) -> DeviceSample:
    """Samples up to ``fanout`` in-neighbours of every node, hop by hop, as
    :func:`lightning_gnnload.ops.sample_neighbors` does on the CPU, where every argument is explained; ``seeds`` are
    int64 ``[S]`` on the host or on the device.

    The host waits once, at the end; and once more for each hop that takes all neighbours, or could take more than 2**27
    edges. Raises SeedError for a seed out of range or repeated; SamplerConfigError for settings that do not work, or
    more than 2**31 - 1 edges; DeviceMemoryError where the device has no room.

    Source: ``kernels/sample_neighbors/draw_distinct.h``, instead of TurboGNN, section III-B.
    """
    fanouts = check_fanouts(fanouts)
    picker = _UniformPicker(fanouts, as_flag("replace", replace), as_flag("edge_ids", edge_ids))
    return DeviceBatch(workspace, topology, seeds, key, len(fanouts)).run(picker, expand)


class FanoutPicker:
    """The :class:`.Picker` of a sampler that has a fanout a hop, nearest first; -1 takes all."""

    edge_weights = edge_types = False

    def __init__(self, fanouts: list[int], replace: bool, edge_ids: bool) -> None:
        self.fanouts, self.replace, self.edge_ids = fanouts, replace, edge_ids
        self.replaces_neighbors = replace

    def most_edges(self, hop: HopBuilder) -> int | None:
        fanout = self.fanouts[hop.index]
        return None if fanout == ALL_NEIGHBORS else hop.most_dst * fanout


class _UniformPicker(FanoutPicker):
    def count(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        if self.fanouts[hop.index] != ALL_NEIGHBORS:  # whole lists are read a thread an edge, in runs
            batch.order_destinations(hop)
        batch.launch(
            "sample_neighbors",
            "count_edges",
            blocks=batch.blocks(hop.most_dst),
            indptr=batch.topology.indptr,
            hop=hop,
            fanout=self.fanouts[hop.index],
            replace=int(self.replace),
            max_edges=MAX_LOCAL,
            words=batch.state.scan_words(hop.most_dst // THREADS + 1),
        )

    def pick(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        fanout, graph = self.fanouts[hop.index], batch.topology
        if fanout == ALL_NEIGHBORS:
            blocks, types = batch.blocks(hop.most_edges), (graph.index_type,)
            batch.launch("sample_neighbors", "copy_edges", types, blocks=blocks, graph=graph, hop=hop, edges=hop)
            return
        lanes = lanes_for(fanout)
        # With a lane for each draw, the lanes of a warp compare their picks, and need no table in memory.
        blocks, table = pick_table(batch, hop, fanout, lanes, fanout > lanes and not self.replace)
        batch.launch(
            "sample_neighbors",
            "pick_edges",
            (graph.index_type, str(lanes)),
            blocks=blocks,
            graph=graph,
            hop=hop,
            edges=hop,
            key=hop.key,
            fanout=fanout,
            replace=int(self.replace),
            table=table,
        )


class PickTable(NamedTuple):
    """``PickTable`` of ``kernels/sample_neighbors/draw_distinct.h``."""

    entries: torch.Tensor | None = None
    size: int = 0


def lanes_for(fanout: int) -> int:
    """Returns how many lanes of a warp serve a destination."""
    return next((lanes for lanes in (8, 16) if 0 < fanout <= lanes), 32)


def pick_table(batch: DeviceBatch, hop: HopBuilder, fanout: int, lanes: int, is_needed: bool) -> tuple[int, PickTable]:
    """Returns the blocks for a hop's destinations and, if it is needed, scratch in which each group of lanes notes its
    picks; then no more blocks than there is scratch for."""
    blocks = batch.blocks(hop.most_dst * lanes)
    if not is_needed:
        return blocks, PickTable()
    # Of a group of lanes: a power of two, so that a hash needs a mask alone, and less than half full.
    size = 1 << (2 * fanout).bit_length()
    groups_a_block = THREADS // lanes
    blocks = max(min(blocks, _MOST_TABLE_BYTES // (4 * size * groups_a_block)), 1)
    return blocks, PickTable(batch.device.empty(blocks * groups_a_block * size, torch.int32), size)

"""Uniform neighbourhood sampling on a device.

Shapes: S seeds, L hops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from ..checks import as_flag
from ..dispatch import ALL_NEIGHBORS, DrawKey
from ..neighbors import check_fanouts
from .batch import MAX_LOCAL, THREADS, DeviceBatch
from .fanouts import FanoutPicker, lanes_for, pick_table
from .hop import HopInMaking
from .sample import DeviceSample
from .topology import Topology
from .workspace import DeviceWorkspace


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
    """Up to ``fanout`` in-neighbours of every node, hop by hop: what :func:`lightning_gnnload.ops.sample_neighbors`
    writes to an arena.

    The host waits once, at the end; and once more for each hop that takes all neighbours, or could take more than
    2**27 edges.

    Args:
        workspace: scratch memory, of this thread alone, on the topology's device.
        topology: N nodes.
        seeds: int64 ``[S]``, distinct; a NumPy array, or a tensor on the device.
        fanouts: ``[L]``, nearest hop first; -1 takes all.
        key: decides every draw.
        replace: draw with replacement.
        expand: ``"all"``: every node known is a destination of the next hop; ``"new"``: those that the last hop found.
        edge_ids: also give each edge's position in the graph's indices.

    Raises:
        SeedError: a seed out of range or repeated.
        SamplerConfigError: settings that cannot work, or more than 2**31 - 1 edges.
        DeviceMemoryError: the device has no room for the batch.

    Source: ``kernels/sample_neighbors/draw_distinct.h``, instead of TurboGNN, section III-B.
    """
    fanouts = check_fanouts(fanouts)
    picker = _UniformPicker(fanouts, as_flag("replace", replace), as_flag("edge_ids", edge_ids))
    return DeviceBatch(workspace, topology, seeds, key, len(fanouts)).run(picker, expand)


class _UniformPicker(FanoutPicker):
    def count(self, batch: DeviceBatch, hop: HopInMaking) -> None:
        batch.device.launch(
            "sample_neighbors",
            "count_edges",
            blocks=batch.blocks(hop.most_dst),
            threads=THREADS,
            indptr=batch.topology.indptr,
            nodes=batch.nodes,
            first=hop.first,
            num_dst=hop.num_dst,
            first_edge=hop.first_edge,
            fanout=self.fanouts[hop.index],
            replace=int(self.replace),
            max_edges=MAX_LOCAL,
            starts=hop.starts,
            last_edge=hop.last_edge,
            words=batch.state.scan_words(hop.most_dst // THREADS + 1),
            error=batch.state.error,
        )

    def pick(self, batch: DeviceBatch, hop: HopInMaking) -> None:
        if self.fanouts[hop.index] == ALL_NEIGHBORS:
            self._copy(batch, hop)
        else:
            self._draw(batch, hop)

    def _copy(self, batch: DeviceBatch, hop: HopInMaking) -> None:
        batch.device.launch(
            "sample_neighbors",
            "copy_edges",
            (batch.topology.index_type,),
            blocks=batch.blocks(hop.most_edges),
            threads=THREADS,
            **batch.topology.lists,
            nodes=batch.nodes,
            first=hop.first,
            num_dst=hop.num_dst,
            first_edge=hop.first_edge,
            last_edge=hop.last_edge,
            starts=hop.starts,
            **batch.workspace.arguments,
            picked=hop.picked,
            edge_ids=hop.edge_ids,
            error=batch.state.error,
        )

    def _draw(self, batch: DeviceBatch, hop: HopInMaking) -> None:
        fanout, key = self.fanouts[hop.index], batch.key
        lanes = lanes_for(fanout)
        table: torch.Tensor | None
        blocks, table, table_size = batch.blocks(hop.most_dst * lanes), None, 0
        if fanout > lanes and not self.replace:
            blocks, table, table_size = pick_table(batch, fanout, lanes, blocks)
        batch.device.launch(
            "sample_neighbors",
            "pick_edges",
            (batch.topology.index_type, str(lanes)),
            blocks=blocks,
            threads=THREADS,
            **batch.topology.arguments,
            nodes=batch.nodes,
            first=hop.first,
            num_dst=hop.num_dst,
            first_edge=hop.first_edge,
            fanout=fanout,
            replace=int(self.replace),
            seed=key.seed,
            epoch=key.epoch,
            step=key.step,
            hop=hop.number,
            starts=hop.starts,
            **batch.workspace.arguments,
            table=table,
            table_size=table_size,
            picked=hop.picked,
            edge_ids=hop.edge_ids,
            error=batch.state.error,
        )

"""Neighbourhood sampling by edge weight on a device.

Shapes: S seeds, L hops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from ...errors import SamplerConfigError
from ..checks import as_flag
from ..dispatch import ALL_NEIGHBORS, DrawKey
from ..weighted import check_weighted_fanouts
from .batch import THREADS, DeviceBatch
from .fanouts import FanoutPicker, lanes_for, pick_table
from .hop import HopInMaking
from .sample import DeviceSample
from .starts import start_edges
from .topology import Topology
from .workspace import DeviceWorkspace

_MOST_SHARES_BYTES = 64 << 20
_FEW = 32
"""Fanouts up to here need no table of what was picked (``kernels/sample_weighted/draw_weighted_lanes.h``)."""


def sample_weighted_neighbors(
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
    """As :func:`.cuda.neighbors.sample_neighbors`, but neighbours are drawn in proportion to their edges' weights: what
    :func:`lightning_gnnload.ops.sample_weighted` writes to an arena.

    Args:
        topology: with alias tables.
        fanouts: ``[L]``, nearest hop first, up to 2**24; -1 takes all of positive weight.

    Raises:
        SeedError, SamplerConfigError, DeviceMemoryError: as there; also for a topology without alias tables.

    Source: ``kernels/sample_weighted/draw_weighted.h``.
    """
    fanouts = check_weighted_fanouts(fanouts)
    if topology.table is None:
        raise SamplerConfigError(
            "The topology has no alias tables, from which neighbours are drawn by weight. Place the graph with "
            "weighted=True."
        )
    picker = _WeightedPicker(fanouts, as_flag("replace", replace), as_flag("edge_ids", edge_ids))
    return DeviceBatch(workspace, topology, seeds, key, len(fanouts)).run(picker, expand)


class _WeightedPicker(FanoutPicker):
    def count(self, batch: DeviceBatch, hop: HopInMaking) -> None:
        topology, fanout = batch.topology, self.fanouts[hop.index]
        lanes = lanes_for(fanout)
        num_edges = batch.device.empty(batch.most_nodes, torch.int32)
        batch.device.launch(
            "sample_weighted",
            "count_weighted",
            (str(lanes),),
            blocks=batch.blocks(hop.most_dst * lanes),
            threads=THREADS,
            indptr=topology.indptr,
            table=topology.table,
            hot_begin=topology.hot_begin,
            hot_table=topology.hot_table,
            nodes=batch.nodes,
            first=hop.first,
            num_dst=hop.num_dst,
            fanout=fanout,
            replace=int(self.replace),
            num_edges=num_edges,
            error=batch.state.error,
        )
        start_edges(batch, hop, num_edges)

    def pick(self, batch: DeviceBatch, hop: HopInMaking) -> None:
        fanout = self.fanouts[hop.index]
        draws_distinct = fanout != ALL_NEIGHBORS and not self.replace and batch.topology.max_degree > fanout
        common = self._common(batch, hop)
        common |= {
            "positions": batch.device.empty(hop.most_edges if draws_distinct else 0, torch.int32),
            "num_picked": batch.device.empty(batch.most_nodes if draws_distinct else 0, torch.int32),
            "unfinished": batch.device.empty(hop.most_dst if draws_distinct else 0, torch.int32),
            "num_unfinished": batch.state.scan_words(0),
        }
        self._try(batch, hop, common, draws_distinct)
        if draws_distinct:
            self._draw_from_shares(batch, common)

    def _common(self, batch: DeviceBatch, hop: HopInMaking) -> dict[str, Any]:
        topology, key = batch.topology, batch.key
        return {
            **topology.arguments,
            "table": topology.table,
            "hot_table": topology.hot_table,
            "nodes": batch.nodes,
            "num_dst": hop.num_dst,
            "first_edge": hop.first_edge,
            "fanout": self.fanouts[hop.index],
            "seed": key.seed,
            "epoch": key.epoch,
            "step": key.step,
            "hop": hop.number,
            "starts": hop.starts,
            **batch.workspace.arguments,
            "picked": hop.picked,
            "edge_ids": hop.edge_ids,
            "error": batch.state.error,
        }

    def _try(self, batch: DeviceBatch, hop: HopInMaking, common: dict[str, Any], draws_distinct: bool) -> None:
        fanout = self.fanouts[hop.index]
        lanes = lanes_for(fanout)
        table: torch.Tensor | None
        blocks, table, table_size = batch.blocks(hop.most_dst * lanes), None, 0
        if draws_distinct and fanout > _FEW:
            blocks, table, table_size = pick_table(batch, fanout, lanes, blocks)
        batch.device.launch(
            "sample_weighted",
            "pick_weighted",
            (batch.topology.index_type, str(lanes)),
            blocks=blocks,
            threads=THREADS,
            **common,
            first=hop.first,
            replace=int(self.replace),
            pick_table=table,
            pick_table_size=table_size,
        )

    def _draw_from_shares(self, batch: DeviceBatch, common: dict[str, Any]) -> None:
        max_degree = batch.topology.max_degree
        blocks = max(min(batch.device.num_processors, _MOST_SHARES_BYTES // (max_degree * 8)), 1)
        batch.device.launch(
            "sample_weighted",
            "pick_from_shares",
            (batch.topology.index_type,),
            blocks=blocks,
            threads=THREADS,
            **common,
            shares=batch.device.empty(blocks * max_degree, torch.int64),
            max_degree=max_degree,
        )

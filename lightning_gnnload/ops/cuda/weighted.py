"""Neighbourhood sampling by edge weight on a device.

Shapes: S seeds, L hops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ...errors import SamplerConfigError
from ..checks import as_flag
from ..dispatch import ALL_NEIGHBORS, DrawKey
from ..weighted import check_weighted_fanouts
from .batch import DeviceBatch
from .neighbors import FanoutPicker, lanes_for, pick_table
from .sample import DeviceSample, HopBuilder
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
    """Samples as :func:`.cuda.neighbors.sample_neighbors` does, but in proportion to the edges' weights: what
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


class _Unfinished(NamedTuple):
    """``Unfinished`` of ``kernels/sample_weighted/sample_weighted_cuda.cu``."""

    positions: torch.Tensor
    num_picked: torch.Tensor
    destinations: torch.Tensor
    num_destinations: torch.Tensor


class _WeightedPicker(FanoutPicker):
    def count(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        fanout = self.fanouts[hop.index]
        lanes = lanes_for(fanout)
        num_edges = batch.device.empty(batch.most_nodes, torch.int32)
        batch.launch(
            "sample_weighted",
            "count_weighted",
            (str(lanes),),
            blocks=batch.blocks(hop.most_dst * lanes),
            tables=batch.topology.tables,
            hop=hop,
            fanout=fanout,
            replace=int(self.replace),
            num_edges=num_edges,
        )
        batch.start_edges(hop, num_edges)

    def pick(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        fanout = self.fanouts[hop.index]
        device, graph, max_degree = batch.device, batch.topology, batch.topology.max_degree
        # A node with no more neighbours than the fanout takes them all, without a draw.
        draws_distinct = fanout != ALL_NEIGHBORS and not self.replace and max_degree > fanout
        rest = _Unfinished(
            positions=device.empty(hop.most_edges if draws_distinct else 0, torch.int32),
            num_picked=device.empty(batch.most_nodes if draws_distinct else 0, torch.int32),
            destinations=device.empty(hop.most_dst if draws_distinct else 0, torch.int32),
            # Not a sum: one zeroed word, which is what this gives for no tiles.
            num_destinations=batch.state.scan_words(0),
        )
        drawn: dict[str, Any] = {"graph": graph, "tables": graph.tables, "hop": hop, "edges": hop, "key": hop.key}
        lanes = lanes_for(fanout)
        blocks, table = pick_table(batch, hop, fanout, lanes, draws_distinct and fanout > _FEW)
        batch.launch(
            "sample_weighted",
            "pick_weighted",
            (graph.index_type, str(lanes)),
            blocks=blocks,
            **drawn,
            fanout=fanout,
            replace=int(self.replace),
            table=table,
            rest=rest,
        )
        if not draws_distinct:
            return
        # Launched even if trials have left nothing to do: to ask the device first would make the host wait.
        blocks = max(min(device.num_processors, _MOST_SHARES_BYTES // (max_degree * 8)), 1)
        batch.launch(
            "sample_weighted",
            "pick_from_shares",
            (graph.index_type,),
            blocks=blocks,
            **drawn,
            fanout=fanout,
            rest=rest,
            shares=device.empty(blocks * max_degree, torch.int64),
            max_degree=max_degree,
        )

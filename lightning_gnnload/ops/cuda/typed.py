"""Neighbourhood sampling by edge type and time on a device.

Shapes: S seeds, L hops, K edge types.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ...errors import SamplerConfigError
from ..checks import as_flag, check_choice
from ..dispatch import ALL_NEIGHBORS, DrawKey
from ..neighbors import check_typed_fanouts
from ..queries import Queries
from .batch import DeviceBatch
from .device import Device
from .neighbors import lanes_for, pick_table
from .paths import Along
from .queries import DeviceQueries
from .sample import DeviceSample, HopBuilder
from .topology import DeviceLists, Topology
from .workspace import DeviceWorkspace


def sample_typed_neighbors(
    workspace: DeviceWorkspace,
    topology: Topology,
    seeds: np.ndarray,
    fanouts: np.ndarray,
    key: DrawKey,
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
    pick: Literal["uniform", "last"] = "uniform",
    queries: Queries | None = None,
) -> DeviceSample:
    """Samples with a fanout for each edge type, and for each seed the edges that its query counts, as
    :func:`lightning_gnnload.ops.sample_typed_neighbors` does on the CPU, where every argument is explained.

    The host waits once, at the end; and once more for each hop that takes all neighbours of a type, or could take more
    than 2**27 edges.

    Args:
        workspace: scratch memory, of this thread alone, on the topology's device; of the table ``"hash"`` for several
            queries.
        topology: with ``lists``.
        seeds: int64 ``[S]``, distinct within a query.
        fanouts: int64 ``[L, K]``.

    Raises:
        SeedError: a seed out of range or repeated, or queries that do not fit the seeds.
        SamplerConfigError: settings that cannot work, or more than 2**31 - 1 edges.
        DeviceMemoryError: the device has no room for the batch.
    """
    check_choice("pick", pick, ("uniform", "last"))
    lists, replace = topology.lists, as_flag("replace", replace)
    if lists is None:
        raise SamplerConfigError("The topology has no lists by type and time. Place the graph on the device.")
    if pick == "last" and replace:
        raise SamplerConfigError('pick="last" takes the newest edges, each once: leave out replace=True.')
    fanouts = check_typed_fanouts(fanouts, lists.num_edge_types, lists.is_untyped, key)
    if queries is not None and not queries.are_one and workspace.table != "hash":
        raise SamplerConfigError(
            "The DeviceWorkspace has a stamp for each node, but with several queries a batch has nodes once for each. "
            "Make a DeviceWorkspace(device, num_nodes, 'hash')."
        )
    asked = DeviceQueries.of(queries, len(seeds), topology, workspace, len(fanouts))
    picker = _TypedPicker(workspace.device, lists, fanouts, replace, pick == "last", as_flag("edge_ids", edge_ids))
    return DeviceBatch(workspace, topology, seeds, key, len(fanouts), asked).run(picker, expand)


class _TypedDraws(NamedTuple):
    """``TypedDraws`` of ``kernels/sample_typed/sample_typed_cuda.cu``."""

    fanouts: torch.Tensor
    timed: torch.Tensor
    replace: int
    newest: int
    is_untyped: int


class _TypedPicker:
    """The :class:`.Picker` of a sampler that has a fanout a hop and edge type."""

    edge_weights = False

    def __init__(
        self, device: Device, lists: DeviceLists, fanouts: np.ndarray, replace: bool, newest: bool, edge_ids: bool
    ) -> None:
        self.lists, self.fanouts, self.edge_ids = lists, fanouts, edge_ids
        self.replace, self.newest = replace, newest
        self.edge_types = not lists.is_untyped
        self._fanouts_there = device.put(fanouts.ravel())

    def most_edges(self, hop: HopBuilder) -> int | None:
        fanouts = self.fanouts[hop.index]
        if (fanouts == ALL_NEIGHBORS).any():
            return None
        return hop.most_dst * max((int(fanouts[list(slots)].sum()) for slots in self.lists.slots), default=0)

    def count(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        lanes = 8 if self.lists.most_slots <= 8 else 32
        num_edges = batch.device.empty(batch.most_nodes, torch.int32)
        batch.launch(
            "sample_typed",
            "count_typed",
            (self.lists.offset_type, str(lanes)),
            blocks=batch.blocks(hop.most_dst * lanes),
            **self._drawn(batch, hop),
            num_edges=num_edges,
        )
        batch.start_edges(hop, num_edges)

    def pick(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        fanouts = self.fanouts[hop.index]
        most = ALL_NEIGHBORS if (fanouts == ALL_NEIGHBORS).any() else int(fanouts.max(initial=0))
        # The table is for the largest fanout that is drawn, whatever lanes serve those that take all.
        drawn, lanes = int(fanouts.max(initial=0)), lanes_for(most)
        blocks, table = pick_table(batch, hop, drawn, lanes, drawn > lanes and not self.replace)
        assert batch.queries is not None, "typed batches have queries"
        paths = batch.queries.paths
        batch.launch(
            "sample_typed",
            "pick_typed",
            (batch.topology.index_type, self.lists.offset_type, str(lanes)),
            blocks=blocks,
            graph=batch.topology,
            edges=hop,
            key=hop.key,
            **self._drawn(batch, hop),
            along=Along(batch.known) if paths is None else paths.begin_hop(batch, hop),
            table=table,
        )
        if paths is not None:
            paths.end_hop(batch, hop, batch.queries.shift)

    def _drawn(self, batch: DeviceBatch, hop: HopBuilder) -> dict[str, Any]:
        num_types = self.fanouts.shape[1]
        of_hop = self._fanouts_there[hop.index * num_types : (hop.index + 1) * num_types]
        draws = _TypedDraws(of_hop, self.lists.timed, *map(int, (self.replace, self.newest, self.lists.is_untyped)))
        return {
            "runs": self.lists,
            "times": batch.topology.times,
            "hop": hop,
            "draws": draws,
            "asked": batch.queries,
        }

"""Neighbourhood sampling by edge type and time on a device.

Shapes: S seeds, L hops, K edge types.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ....errors import SamplerConfigError
from ...checks import as_flag, check_choice
from ...dispatch import ALL_NEIGHBORS, DrawKey
from ...neighbors import check_typed_fanouts
from ...queries import Queries
from ..launch.device import Device
from .batch import DeviceBatch
from .neighbors import lanes_for, pick_table
from .paths import DevicePaths, PathArguments
from .queries import DeviceQueries, HostQueries
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
    than 2**27 edges. The topology has ``lists``; several queries need a workspace with the table ``"hash"``. Raises
    SeedError for a seed out of range or repeated, or queries that do not fit the seeds; SamplerConfigError for settings
    that do not work, or more than 2**31 - 1 edges; DeviceMemoryError where the device has no room.
    """
    check_choice("pick", pick, ("uniform", "last"))
    lists, replace = topology.lists, as_flag("replace", replace)
    if lists is None:
        raise SamplerConfigError("The topology has no lists by type and time. Place the graph on the device.")
    if pick == "last" and replace:
        raise SamplerConfigError('pick="last" takes the newest edges, each once: leave out replace=True.')
    fanouts = check_typed_fanouts(fanouts, lists.num_edge_types, lists.is_untyped, key)
    host_queries = None if queries is None else HostQueries.of(queries, len(seeds), topology)
    device_queries, pairs = DeviceQueries.put(host_queries, len(seeds), workspace.device)
    paths = None if pairs is None else DevicePaths(pairs, workspace, len(fanouts))
    if queries is not None and not queries.are_one and workspace.table != "hash":
        raise SamplerConfigError(
            "The DeviceWorkspace has a stamp for each node, but with several queries a batch has nodes once for each. "
            "Make a DeviceWorkspace(device, num_nodes, 'hash')."
        )
    picker = _TypedPicker(
        TypedFanouts(workspace.device, lists, fanouts),
        lists,
        paths,
        replace=replace,
        newest=pick == "last",
        edge_ids=as_flag("edge_ids", edge_ids),
    )
    device_queries = dataclasses.replace(device_queries, paths=paths)
    return DeviceBatch(workspace, topology, seeds, key, len(fanouts), device_queries).run(picker, expand)


class TypedFanouts:
    """The fanouts of each hop and edge type, int64 ``[L, K]``, 0 for none and -1 for all: on the host, and on a
    device."""

    def __init__(self, device: Device, lists: DeviceLists, fanouts: np.ndarray) -> None:
        self._lists, self._fanouts = lists, fanouts
        self._on_device = device.put(fanouts.ravel())

    def of(self, hop: HopBuilder) -> list[int]:
        return self._fanouts[hop.index].tolist()

    def on_device(self, hop: HopBuilder) -> torch.Tensor:
        num_types = self._fanouts.shape[1]
        return self._on_device[hop.index * num_types : (hop.index + 1) * num_types]

    def most(self, hop: HopBuilder) -> int:
        """Returns the largest fanout of the hop, or -1 if all edges of a type are taken."""
        fanouts = self.of(hop)
        return ALL_NEIGHBORS if ALL_NEIGHBORS in fanouts else max(fanouts)

    def most_edges(self, hop: HopBuilder) -> int | None:
        """See :meth:`.Picker.most_edges`."""
        fanouts = self.of(hop)
        if ALL_NEIGHBORS in fanouts:
            return None
        return hop.most_dst * max(
            (sum(fanouts[edge_type] for edge_type in slots) for slots in self._lists.slots), default=0
        )


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
        self,
        fanouts: TypedFanouts,
        lists: DeviceLists,
        paths: DevicePaths | None,
        *,
        replace: bool,
        newest: bool,
        edge_ids: bool,
    ) -> None:
        self.fanouts, self.lists, self.paths = fanouts, lists, paths
        self.replace, self.newest, self.edge_ids = replace, newest, edge_ids
        self.replaces_neighbors = replace
        self.edge_types = not lists.is_untyped

    def most_edges(self, hop: HopBuilder) -> int | None:
        return self.fanouts.most_edges(hop)

    def count(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        batch.order_destinations(hop)
        # A lane looks at a run, so that the searches for times of all runs wait for memory together.
        lanes = 8 if self.lists.most_slots <= 8 else 32
        num_edges = batch.device.empty(batch.most_nodes, torch.int32)
        batch.launch(
            "sample_typed",
            "count_typed",
            (self.lists.offset_type, str(lanes)),
            blocks=batch.blocks(hop.most_dst * lanes),
            **self._common(batch, hop),
            num_edges=num_edges,
        )
        batch.start_edges(hop, num_edges)

    def pick(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        # The table is for the largest fanout that is drawn; types that take all edges need none, but the widest lanes.
        most_drawn, lanes = max(self.fanouts.of(hop)), lanes_for(self.fanouts.most(hop))
        blocks, table = pick_table(batch, hop, most_drawn, lanes, most_drawn > lanes and not self.replace)
        batch.launch(
            "sample_typed",
            "pick_typed",
            (batch.topology.index_type, self.lists.offset_type, str(lanes)),
            blocks=blocks,
            graph=batch.topology,
            edges=hop,
            key=hop.key,
            **self._common(batch, hop),
            along=PathArguments(batch.known) if self.paths is None else self.paths.begin_hop(batch, hop),
            table=table,
        )
        if self.paths is not None:
            self.paths.end_hop(batch, hop)

    def _common(self, batch: DeviceBatch, hop: HopBuilder) -> dict[str, Any]:
        draws = _TypedDraws(
            self.fanouts.on_device(hop),
            self.lists.timed,
            int(self.replace),
            int(self.newest),
            int(self.lists.is_untyped),
        )
        return {
            "runs": self.lists,
            "times": batch.topology.times,
            "hop": hop,
            "draws": draws,
            "asked": batch.queries,
        }

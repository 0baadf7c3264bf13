"""Neighbourhood sampling by edge weight on a device.

Shapes: S seeds, L hops, K edge types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ....errors import SamplerConfigError
from ...checks import as_flag
from ...dispatch import DrawKey
from ...neighbors import check_typed_fanouts
from ...weighted import check_weighted_fanouts
from .batch import DeviceBatch
from .neighbors import lanes_for, pick_table
from .sample import DeviceSample, HopBuilder
from .topology import DeviceLists, Topology
from .typed import TypedFanouts
from .workspace import DeviceWorkspace

_MOST_SHARES_BYTES = 64 << 20  # scratch for exact draws; larger degrees get fewer blocks instead
_FEW = 32  # fanouts up to here need no table of picks (``kernels/sample_weighted/draw_weighted_lanes.h``)


def sample_weighted_neighbors(
    workspace: DeviceWorkspace,
    topology: Topology,
    seeds: np.ndarray | torch.Tensor,
    fanouts: Sequence[int] | np.ndarray,
    key: DrawKey,
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
) -> DeviceSample:
    """Samples as :func:`.cuda.sampling.neighbors.sample_neighbors` does, but in proportion to the edges' weights: the
    same as :func:`lightning_gnnload.ops.sample_weighted`.

    The topology has alias tables, of its runs where it has types. ``fanouts`` are up to 2**24, -1 takes all of positive
    weight; of lists by type, int64 ``[L, K]``, 0 for none. Raises as there, and SamplerConfigError for a topology
    without alias tables.

    Source: ``kernels/sample_weighted/draw_weighted.h``.
    """
    if topology.table is None:
        raise SamplerConfigError(
            "The topology has no alias tables, from which neighbours are drawn by weight. Place the graph with "
            "weighted=True."
        )
    # None where edges have types that the graph's lists are not divided by: each list is drawn from as a whole.
    lists = topology.lists or topology.whole_lists(workspace.device)
    if lists.is_untyped:
        fanouts = np.array(check_weighted_fanouts(fanouts), np.int64)[:, None]  # type: ignore[arg-type]
    fanouts = check_typed_fanouts(np.asarray(fanouts), lists.num_edge_types, lists.is_untyped, key)
    check_weighted_fanouts(fanouts[fanouts != 0].tolist())
    replace, edge_ids = as_flag("replace", replace), as_flag("edge_ids", edge_ids)
    picker = _WeightedPicker(TypedFanouts(workspace.device, lists, fanouts), lists, replace, edge_ids)
    return DeviceBatch(workspace, topology, seeds, key, len(fanouts)).run(picker, expand)


class _WeightedDraws(NamedTuple):
    """``WeightedDraws`` of ``kernels/sample_weighted/sample_weighted_cuda.cu``."""

    fanouts: torch.Tensor
    replace: int
    is_untyped: int


class _Unfinished(NamedTuple):
    """``Unfinished`` of ``kernels/sample_weighted/sample_weighted_cuda.cu``."""

    positions: torch.Tensor
    num_picked: torch.Tensor
    runs: torch.Tensor
    num_runs: torch.Tensor


class _WeightedPicker:
    """The :class:`.Picker` of a sampler that draws by weight, a fanout a hop and edge type."""

    edge_weights = False

    def __init__(self, fanouts: TypedFanouts, lists: DeviceLists, replace: bool, edge_ids: bool) -> None:
        self.fanouts, self.lists, self.replace, self.edge_ids = fanouts, lists, replace, edge_ids
        self.replaces_neighbors = replace
        self.edge_types = not lists.is_untyped
        self._runs: HopBuilder | None = None  # the current hop with runs in place of destinations

    def most_edges(self, hop: HopBuilder) -> int | None:
        return self.fanouts.most_edges(hop)

    def count(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        batch.order_destinations(hop)
        device, width = batch.device, self.lists.most_slots
        lanes = lanes_for(self.fanouts.most(hop))
        num_edges, totals = device.empty(batch.most_nodes * width, torch.int32), device.empty(2, torch.int64)
        runs = self._runs = replace(
            hop,
            first=totals[:1],
            num_dst=totals[1:],
            most_dst=hop.most_dst * width,
            starts=hop.starts if width == 1 else device.empty(batch.most_nodes * width + 1, torch.int32),
        )
        batch.launch(
            "sample_weighted",
            "count_weighted",
            (self.lists.offset_type, str(lanes)),
            blocks=batch.blocks(runs.most_dst * lanes),
            runs=self.lists,
            tables=batch.topology.tables,
            hop=hop,
            draws=self._draws(hop),
            first_run=runs.first,
            end_run=runs.num_dst,
            num_edges=num_edges,
        )
        batch.start_edges(runs, num_edges)
        if width != 1:
            batch.launch(
                "sample_weighted",
                "start_destinations",
                blocks=batch.blocks(hop.most_dst + 1),
                hop=hop,
                starts_of_runs=runs.starts,
                most_slots=width,
            )

    def pick(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        assert self._runs is not None, "counted"
        device, graph, max_degree, width = (
            batch.device,
            batch.topology,
            batch.topology.max_degree,
            self.lists.most_slots,
        )
        # A run with no more neighbours than the fanout takes them all, without a draw: only smaller fanouts count.
        drawn_fanouts = [fanout for fanout in self.fanouts.of(hop) if 0 < fanout < max_degree]
        draws_distinct = bool(drawn_fanouts) and not self.replace
        rest = _Unfinished(
            positions=device.empty(hop.most_edges if draws_distinct else 0, torch.int32),
            num_picked=device.empty(batch.most_nodes * width if draws_distinct else 0, torch.int32),
            runs=device.empty(self._runs.most_dst if draws_distinct else 0, torch.int64),
            # Used as a counter: for no tiles this returns one zeroed word.
            num_runs=batch.state.scan_words(0),
        )
        arguments: dict[str, Any] = {
            "graph": graph,
            "runs": self.lists,
            "tables": graph.tables,
            "hop": hop,
            "edges": hop,
        }
        arguments |= {"runs_of_hop": self._runs, "key": hop.key, "draws": self._draws(hop), "rest": rest}
        most, lanes = max(drawn_fanouts, default=0), lanes_for(self.fanouts.most(hop))
        blocks, table = pick_table(batch, self._runs, most, lanes, draws_distinct and most > _FEW)
        types = graph.index_type, self.lists.offset_type
        batch.launch("sample_weighted", "pick_weighted", (*types, str(lanes)), blocks=blocks, **arguments, table=table)
        if not draws_distinct:
            return
        # Launched even if no run is unfinished: to ask the device first would make the host wait.
        blocks = max(min(device.num_processors, _MOST_SHARES_BYTES // (max_degree * 8)), 1)
        shares = device.empty(blocks * max_degree, torch.int64)
        batch.launch(
            "sample_weighted",
            "pick_from_shares",
            types,
            blocks=blocks,
            **arguments,
            shares=shares,
            max_degree=max_degree,
        )

    def _draws(self, hop: HopBuilder) -> _WeightedDraws:
        return _WeightedDraws(self.fanouts.on_device(hop), int(self.replace), int(self.lists.is_untyped))

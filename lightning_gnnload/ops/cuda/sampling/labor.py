"""Layer-neighbour sampling (LABOR) on a device.

Shapes: S seeds, L hops, K edge types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ...checks import as_flag, check_choice
from ...dispatch import DrawKey
from ...neighbors import check_fanouts, check_typed_fanouts
from .batch import DeviceBatch
from .sample import DeviceSample, HopBuilder
from .topology import DeviceLists, Topology
from .typed import TypedFanouts
from .varying import HopKey
from .workspace import DeviceWorkspace

_PIECE = 1024
"""The neighbours of a run that a warp looks at: as few as make a hub the work of many warps, and no more, as each piece
takes 12 bytes."""
_WARP = 32


def sample_labor(
    workspace: DeviceWorkspace,
    topology: Topology,
    seeds: np.ndarray | torch.Tensor,
    fanouts: Sequence[int] | np.ndarray,
    key: DrawKey,
    *,
    layer_dependency: bool = False,
    estimate: Literal["mean", "sum"] = "mean",
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
) -> DeviceSample:
    """Samples about ``fanout`` in-neighbours of each node, the same for nodes that share neighbours, as
    :func:`lightning_gnnload.ops.sample_labor` does on the CPU with ``importance=0``, where every argument is explained;
    ``seeds`` are int64 ``[S]`` on the host or on the device.

    ``fanouts`` are expected numbers, nearest hop first, -1 for all; of lists by type, int64 ``[L, K]``, 0 for none. The
    host waits once, at the end, and once for each hop, whose size chance decides. Raises SeedError for a seed out of
    range or repeated; SamplerConfigError for settings that do not work, or more than 2**31 - 1 edges; DeviceMemoryError
    where the device has no room.

    Source: Balin & Catalyurek, "Layer-neighbor sampling" (NeurIPS'23), section 3; ``kernels/sample_labor``.
    """
    # None where edges have types that the graph's lists are not divided by: each list is drawn from as a whole.
    lists = topology.lists or topology.whole_lists(workspace.device)
    if lists.is_untyped:
        fanouts = np.array(check_fanouts(fanouts), np.int64)[:, None]  # type: ignore[arg-type]
    table = check_typed_fanouts(np.asarray(fanouts), lists.num_edge_types, lists.is_untyped, key)
    check_choice("estimate", estimate, ("mean", "sum"))
    picker = _SharedPicker(
        TypedFanouts(workspace.device, lists, table),
        lists,
        is_one_layer=as_flag("layer_dependency", layer_dependency),
        sums=estimate == "sum",
        edge_ids=as_flag("edge_ids", edge_ids),
    )
    return DeviceBatch(workspace, topology, seeds, key, len(table)).run(picker, expand)


class _SharedDraws(NamedTuple):
    """``SharedDraws`` of ``kernels/sample_labor/sample_labor_cuda.cu``."""

    fanouts: torch.Tensor
    is_untyped: int
    sums: int
    piece_size: int


class _SharedPicker:
    """The :class:`.Picker` of a sampler whose sources draw, once for all destinations of a hop."""

    replaces_neighbors = False

    def __init__(
        self, fanouts: TypedFanouts, lists: DeviceLists, *, is_one_layer: bool, sums: bool, edge_ids: bool
    ) -> None:
        self.fanouts, self.lists, self.is_one_layer = fanouts, lists, is_one_layer
        self.edge_weights, self.edge_ids, self.edge_types = sums, edge_ids, not lists.is_untyped
        self._runs: HopBuilder | None = None  # the current hop, with runs in place of destinations
        self._pieces: HopBuilder | None = None  # likewise, with pieces of runs

    def most_edges(self, hop: HopBuilder) -> None:
        """A long list can give all its edges, however small the fanout."""
        return

    def count(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        device, width, zero = batch.device, self.lists.most_slots, batch.state.zero
        totals = device.empty(3, torch.int64)
        runs = self._runs = replace(
            hop,
            first=totals[:1],
            num_dst=totals[1:2],
            first_edge=zero,
            last_edge=totals[2:],
            most_dst=hop.most_dst * width,
            starts=device.empty(batch.most_nodes * width + 1, torch.int32),
        )
        num_pieces = device.empty(batch.most_nodes * width, torch.int32)
        batch.launch(
            "sample_labor",
            "count_pieces",
            (self.lists.offset_type,),
            blocks=batch.blocks(runs.most_dst),
            runs=self.lists,
            hop=hop,
            draws=self._draws(hop),
            first_run=runs.first,
            end_run=runs.num_dst,
            num_pieces=num_pieces,
        )
        batch.start_edges(runs, num_pieces)
        # A hop's destinations are distinct, so that their whole pieces are no more than the graph has.
        most_pieces = runs.most_dst + batch.topology.num_edges // _PIECE
        starts = device.empty(most_pieces + 1, torch.int32)
        pieces = self._pieces = replace(hop, first=zero, num_dst=runs.last_edge, most_dst=most_pieces, starts=starts)
        num_edges = device.empty(most_pieces, torch.int32)
        self._launch(batch, hop, "count_shared", num_edges=num_edges)
        batch.start_edges(pieces, num_edges)
        batch.launch(
            "sample_labor",
            "start_by_pieces",
            blocks=batch.blocks(hop.most_dst + 1),
            hop=hop,
            starts_of_runs=runs.starts,
            starts_of_pieces=starts,
            most_slots=width,
        )

    def pick(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        assert self._pieces is not None, "counted"
        self._launch(batch, hop, "pick_shared", hop=hop, edges=hop, starts_of_pieces=self._pieces.starts)

    def _launch(self, batch: DeviceBatch, hop: HopBuilder, kernel: str, /, **arguments: Any) -> None:
        """Starts a kernel with a warp a piece."""
        assert self._pieces is not None, "counted"
        batch.launch(
            "sample_labor",
            kernel,
            (batch.topology.index_type, self.lists.offset_type),
            blocks=batch.blocks(self._pieces.most_dst * _WARP),
            graph=batch.topology,
            runs=self.lists,
            runs_of_hop=self._runs,
            key=self._key(hop),
            draws=self._draws(hop),
            **arguments,
        )

    def _key(self, hop: HopBuilder) -> HopKey:
        return hop.key._replace(hop=0) if self.is_one_layer else hop.key

    def _draws(self, hop: HopBuilder) -> _SharedDraws:
        is_untyped, sums = int(self.lists.is_untyped), int(self.edge_weights)
        return _SharedDraws(self.fanouts.on_device(hop), is_untyped, sums, _PIECE)

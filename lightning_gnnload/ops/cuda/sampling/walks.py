"""Random walks on a device, and neighbourhoods of the nodes that walks visit most often.

Shapes: S seeds, W walks a node, T steps a walk, L hops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch

from ....errors import SamplerConfigError, SeedError
from ...checks import as_flag, check_kind
from ...dispatch import MAX_HOP_DRAWS, DrawKey
from ...walks import WalkRuns, Walks, check_starts, check_walk_hops, check_weighted_walks
from ..launch.device import Device, Mapped
from .batch import MAX_BOUND_EDGES, THREADS, DeviceBatch
from .sample import DeviceSample, HopBuilder
from .topology import Topology, offset_type
from .workspace import DeviceWorkspace

_MOST_THREADS = 1024
_TEAMS_THREADS = 128  # of a block of several teams
_VISITS_A_THREAD = 32
# A key and a node, of 64 bits each.
_VISIT_BYTES = 16
_MOST_SHARED_BYTES = 32 << 10
_MOST_SCRATCH_BYTES = 64 << 20


def random_walk(
    device: Device,
    topology: Topology,
    starts: np.ndarray,
    walks: Walks,
    key: DrawKey,
    *,
    runs: WalkRuns | None = None,
    weighted: bool = False,
) -> torch.Tensor:
    """Walks from each start, int64 ``[S]``, distinct, on the host, as :func:`lightning_gnnload.ops.random_walk` does;
    returns int64 ``[S * W, T + 1]`` on the device, and the host does not wait. ``runs`` have their ``run_ptr`` there;
    ``weighted`` steps by the topology's alias tables, of these runs where there are runs.

    Raises SeedError for a start out of range, of another type than the runs', or repeated; SamplerConfigError for a
    topology without alias tables, or walks that end within a round; DeviceMemoryError where the device has no room for
    the walks.
    """
    check_kind("walks", walks, Walks)
    check_kind("key", key, DrawKey)
    check_starts(starts)
    if len(beyond := np.flatnonzero((starts < 0) | (starts >= topology.num_nodes))):
        raise SeedError(
            f"starts[{beyond[0]}] is {starts[beyond[0]]}, but the graph has {topology.num_nodes} nodes: starts must "
            f"lie in [0, {topology.num_nodes})."
        )
    if runs is not None:
        runs.check(walks, starts, "starts")
    lists = _WalkLists.of(device, topology, runs)
    num_walks, width = len(starts) * walks.num_walks, walks.length + 1
    traces = device.empty(num_walks * width, torch.int64)
    device.launch(
        "random_walk",
        "trace_walks",
        (topology.index_type, lists.offset_type),
        blocks=max(-(-num_walks // THREADS), 1),
        threads=THREADS,
        graph=topology,
        lists=lists,
        tables=topology.tables,
        walks=_Settings.of(walks, topology, weighted=weighted),
        key=key,
        starts=device.put(starts),
        num_starts=len(starts),
        traces=traces,
    )
    return traces.reshape(num_walks, width)


def sample_walks(
    workspace: DeviceWorkspace,
    topology: Topology,
    seeds: np.ndarray | torch.Tensor,
    walks: Walks,
    key: DrawKey,
    *,
    num_hops: int,
    num_neighbors: int,
    include_self: bool = True,
    normalize: bool = False,
    expand: Literal["all", "new"] = "all",
    runs: WalkRuns | None = None,
    weighted: bool = False,
) -> DeviceSample:
    """Samples up to ``num_neighbors`` nodes that the walks of every node visit most often, hop by hop, with weights, as
    :func:`lightning_gnnload.ops.sample_walks` does on the CPU, where every argument is explained; ``seeds`` are on the
    host or on the device. ``runs`` and ``weighted`` are as in :func:`random_walk`.

    The host waits once, at the end; and up to twice more for each hop that could take more than 2**27 edges; and once
    first for seeds on the device, with ``runs``, to look at their types. Raises SeedError for a seed out of range, of
    another type than the runs', or repeated; SamplerConfigError for settings that do not work, or more than 2**31
    - 1 edges; DeviceMemoryError where the device has no room.

    Source: PinSage (KDD'18), section 3.2; GNNLab (EuroSys'22), section 7.1 for walks on any graph.
    """
    num_hops, num_neighbors = check_walk_hops(walks, num_hops, num_neighbors, key, runs)
    if runs is not None:
        seeds_here = seeds if isinstance(seeds, np.ndarray) else workspace.device.read(seeds)
        runs.check(walks, seeds_here, "seeds")
    lists = _WalkLists.of(workspace.device, topology, runs)
    picker = _VisitPicker(
        walks,
        _Settings.of(walks, topology, weighted=weighted),
        lists,
        num_neighbors,
        as_flag("include_self", include_self),
        as_flag("normalize", normalize),
    )
    return DeviceBatch(workspace, topology, seeds, key, num_hops).run(picker, expand)


@dataclass(frozen=True)
class _Teams:
    """The teams in which threads of a block share destinations (``kernels/common/cuda/team.h``): ``num_teams`` of
    ``team_size`` threads, with room for ``size`` visits each, in shared memory or in scratch. Kernels take it as
    ``Teams`` (``kernels/sample_walks/sample_walks_cuda.cu``)."""

    team_size: int
    num_teams: int
    size: int
    scratch: torch.Tensor | None = None

    @classmethod
    def of(cls, num_walks: int, num_rounds: int) -> _Teams:
        size = _power_of_two(num_rounds * num_walks)
        team_size = min(max(min(_power_of_two(num_walks), 32), size // _VISITS_A_THREAD), _MOST_THREADS)
        teams = cls(team_size, max(_TEAMS_THREADS // team_size, 1), size)
        # Fewer teams leave each more shared memory; down to one team, or to one warp, the least that can be launched.
        while not teams.are_shared and teams.threads > max(team_size, 32):
            teams = cls(team_size, teams.num_teams // 2, size)
        return teams

    @property
    def threads(self) -> int:
        return self.num_teams * self.team_size

    @property
    def block_bytes(self) -> int:
        return self.num_teams * self.size * _VISIT_BYTES

    @property
    def are_shared(self) -> bool:
        """Whether shared memory has room for the visits."""
        return self.block_bytes <= _MOST_SHARED_BYTES


class _Settings(NamedTuple):
    """``WalkSettings`` of ``kernels/random_walk/walk_settings.h``."""

    length: int
    num_walks: int
    end_below: int
    restart_below: int
    table: torch.Tensor | Mapped | None  # None: each in-neighbour is equally likely

    @classmethod
    def of(cls, walks: Walks, topology: Topology, *, weighted: bool) -> _Settings:
        if weighted and topology.table is None:
            raise SamplerConfigError(
                "The topology has no alias tables, by which walks choose by weight. Place the graph with weighted=True."
            )
        if weighted:
            check_weighted_walks(walks)
        table = topology.table if weighted else None
        return cls(walks.length, walks.num_walks, walks.end_below, walks.restart_below, table)


class _WalkLists(NamedTuple):
    """``RunLists`` of ``kernels/random_walk/walk_lists.h``."""

    ptr: torch.Tensor | Mapped
    steps: torch.Tensor  # int64, first and stride of each step of a round
    round: int

    @classmethod
    def of(cls, device: Device, topology: Topology, runs: WalkRuns | None) -> _WalkLists:
        """Of whole lists: runs that have the nodes' own numbers."""
        if runs is None:
            return cls(topology.indptr, device.put(np.array([0, 1])), 1)
        steps = np.array([runs.first, runs.stride], np.int64).T
        return cls(runs.run_ptr, device.put(np.ascontiguousarray(steps).ravel()), len(runs.first))

    @property
    def offset_type(self) -> str:
        return offset_type(self.ptr)


class _Visited(NamedTuple):
    """``Visited`` of ``kernels/sample_walks/sample_walks_cuda.cu``."""

    most: int
    num_edges: torch.Tensor
    neighbors: torch.Tensor
    weights: torch.Tensor


class _VisitPicker:
    edge_ids = edge_types = replaces_neighbors = False
    edge_weights = True

    def __init__(
        self,
        walks: Walks,
        settings: _Settings,
        lists: _WalkLists,
        num_neighbors: int,
        include_self: bool,
        normalize: bool,
    ) -> None:
        self.walks, self.settings, self.lists = walks, settings, lists
        self.include_self, self.normalize = include_self, normalize
        num_rounds = walks.length // lists.round
        self.teams = _Teams.of(walks.num_walks, num_rounds)
        self.most = min(num_neighbors, num_rounds * walks.num_walks)
        self._visited: _Visited | None = None  # of the current hop, from count() to pick()

    def most_edges(self, hop: HopBuilder) -> int:
        return hop.most_dst * self.most

    def count(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        device, topology, teams = batch.device, batch.topology, self.teams
        steps = self.walks.num_walks * self.walks.length
        # Bounds multiply with every hop: where they are too large, the true number is worth a wait.
        if hop.most_dst * self.most > MAX_BOUND_EDGES or hop.most_dst * steps > MAX_HOP_DRAWS:
            batch.narrow(hop)
        batch.check_draws(hop, hop.most_dst, hop.most_dst * steps, "steps of walks")
        visited = self._visited = _Visited(
            self.most,
            device.empty(batch.most_nodes, torch.int32),
            device.empty(hop.most_dst * self.most, topology.index_dtype),
            device.empty(hop.most_dst * self.most, torch.float32),
        )
        blocks = batch.blocks(hop.most_dst, teams.num_teams)
        if not teams.are_shared:
            blocks = max(min(blocks, _MOST_SCRATCH_BYTES // teams.block_bytes), 1)
            teams = replace(teams, scratch=device.empty(blocks * teams.block_bytes // 8, torch.int64))
        batch.launch(
            "sample_walks",
            "visit_most",
            (topology.index_type, self.lists.offset_type),
            blocks=blocks,
            threads=teams.threads,
            shared_bytes=teams.block_bytes if teams.are_shared else 0,
            graph=topology,
            lists=self.lists,
            tables=topology.tables,
            hop=hop,
            key=hop.key,
            walks=self.settings,
            visited=visited,
            teams=teams,
            include_self=int(self.include_self),
            normalize=int(self.normalize),
        )
        batch.start_edges(hop, visited.num_edges)

    def pick(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        visited, self._visited = self._visited, None
        blocks, types = batch.blocks(hop.most_dst * self.most), (batch.topology.index_type,)
        batch.launch("sample_walks", "put_visited", types, blocks=blocks, hop=hop, edges=hop, visited=visited)


def _power_of_two(count: int) -> int:
    """Returns the least power of two that is not below ``count``."""
    return 1 << (count - 1).bit_length()

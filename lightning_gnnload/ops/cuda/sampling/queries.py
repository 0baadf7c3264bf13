"""DeviceQueries: the queries of a mini-batch's seeds, where a device's kernels read them.

Shapes: S seeds, Q queries, X excluded edges.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from ...queries import Queries, check_queries
from ..launch import state as codes
from ..launch.device import Device
from .failures import fail
from .topology import Topology
from .varying import Varying, most_of
from .workspace import NumberTable

_NO_QUERIES_SHIFT = 62  # kernels/sample_typed/queries.h: all bits are a node's, or a position's


@dataclass(frozen=True)
class HostQueries:
    """:class:`.Queries` of a mini-batch as a device takes them, on the host."""

    num_queries: int  # Q
    shift: int  # a query's number is so many bits above a node, or above an edge's position
    above_seeds: np.ndarray  # the query of each seed, so many bits up, int64 [S]
    by_row: bool  # draws are named by rows
    path_end: int | None  # of queries along paths; None: those of other nodes stay as they are
    returns_queries: bool  # the sample says which query each node belongs to
    # What is put on a device, in this order, where it is there: name, since and until, int32 [Q]; the excluded edges,
    # ascending, each below its query, int64 [X]; and of queries along paths each above its bound, int64 [Q], and Q.
    arrays: dict[str, np.ndarray]

    @classmethod
    def of(cls, queries: Queries, num_seeds: int, topology: Topology) -> HostQueries:
        """Checks queries. Raises SeedError or SamplerConfigError as :func:`.check_queries`."""
        has_times = topology.edge_time is not None
        shift = check_queries(queries, num_seeds, topology.num_nodes, topology.num_edges, has_times)
        by_query = {"name": queries.name}
        if has_times:
            by_query |= {"since": queries.since, "until": queries.until}
        arrays = {name: array.view(np.int32) for name, array in by_query.items() if array is not None}
        if queries.excluded is not None and len(queries.excluded):
            assert queries.excluded_query is not None
            # unique() sorts, too: kernels find a query's exclusions by bisection.
            arrays["values"] = np.unique((queries.excluded_query.astype(np.int64) << shift) | queries.excluded)
        if queries.along_path:
            assert queries.until is not None, "checked"
            arrays["pairs"] = np.arange(queries.num_queries) << 32 | queries.until
            arrays["num_pairs"] = np.array([queries.num_queries])
        return cls(
            queries.num_queries,
            shift,
            queries.of_seed.astype(np.int64) << shift,
            queries.by_row,
            queries.path_end if queries.along_path else None,
            queries.differ,
            arrays,
        )

    @property
    def form(self) -> tuple[Hashable, ...]:
        """What batches have in common whose kernels can be launched alike."""
        sizes = tuple((name, most_of(len(array))) for name, array in self.arrays.items())
        return self.by_row, self.path_end, self.returns_queries, most_of(self.num_queries), sizes

    def ids(self, seeds: np.ndarray, num_nodes: int) -> np.ndarray:
        """Returns the seeds below their queries. Raises SeedError for the first one that is out of range or repeated,
        if one is out of range: with its query's number above it, no kernel could tell."""
        bad = np.flatnonzero((seeds < 0) | (seeds >= num_nodes))
        ids = self.above_seeds | seeds
        if len(bad):
            _, first = np.unique(ids[: bad[0]], return_index=True)
            repeats = np.setdiff1d(np.arange(bad[0]), first)
            if len(repeats):
                fail(codes.SEED_REPEATED, int(repeats[0]), seeds, num_nodes, self)
            fail(codes.SEED_OUT_OF_RANGE, int(bad[0]), seeds, num_nodes, self)
        return ids


@dataclass(frozen=True)
class DeviceQueries:
    """:class:`.Queries` on a device: ``Asked`` of ``kernels/sample_typed/sample_typed_cuda.cu``. Without ``host``, one
    query that counts every edge."""

    num_seeds: int  # S
    host: HostQueries | None = None
    name: torch.Tensor | None = None  # uint32 as int32 [Q], as ``since`` and ``until``
    since: torch.Tensor | None = None
    until: torch.Tensor | None = None
    values: torch.Tensor | None = None  # excluded edges, ascending, each below its query, int64 [X]
    paths: NumberTable | None = None  # the queries that arise along paths; None where queries stay as they are

    @classmethod
    def put(
        cls, queries: HostQueries | None, num_seeds: int, device: Device
    ) -> tuple[DeviceQueries, FirstPairs | None]:
        """Puts queries on a device; and those along paths as :class:`.DevicePaths` takes them."""
        seeds = Varying(num_seeds, "num_seeds")
        if queries is None:
            return cls(seeds), None
        placed = {name: device.put(array, each_batch=True) for name, array in queries.arrays.items()}
        if queries.path_end is None:
            return cls(seeds, queries, **placed), None  # type: ignore[arg-type]
        most, pairs, number = most_of(queries.num_queries), placed.pop("pairs"), placed.pop("num_pairs")
        return cls(seeds, queries, **placed), FirstPairs(pairs, number, most, queries.path_end)  # type: ignore[arg-type]

    @property
    def shift(self) -> int:
        return _NO_QUERIES_SHIFT if self.host is None else self.host.shift

    @property
    def by_row(self) -> bool:
        return self.host is not None and self.host.by_row

    @property
    def most_queries(self) -> int:
        """The number of queries, or a little more: a bound that similar batches share."""
        return 1 if self.host is None else most_of(self.host.num_queries)

    @property
    def returns_queries(self) -> bool:
        return self.host is not None and self.host.returns_queries

    @property
    def pairs(self) -> torch.Tensor | None:
        return None if self.paths is None else self.paths.nodes

    @property
    def excluded(self) -> _Excluded:
        return _Excluded(self.values, Varying(0 if self.values is None else len(self.values), "num_excluded"))


class FirstPairs(NamedTuple):
    """The queries along paths that the seeds of a batch have."""

    pairs: torch.Tensor  # each query above its bound, int64 [Q]
    num_pairs: torch.Tensor  # Q, int64 [1]
    most: int  # Q at most
    path_end: int


@dataclass(frozen=True)
class _Excluded:
    """``ExcludedEdges`` of ``kernels/sample_typed/excluded.h``."""

    values: torch.Tensor | None
    count: int

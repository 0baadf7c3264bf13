"""DeviceQueries: the queries of a mini-batch's seeds, where a device's kernels read them.

Shapes: S seeds, V nodes of the batch, Q queries, X excluded edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..queries import Queries, check_queries
from .device import Device
from .topology import Topology
from .workspace import NumberTable

_NO_QUERIES_SHIFT = 62  # kernels/sample_typed/queries.h: all bits are a node's, or a position's


@dataclass(frozen=True)
class DeviceQueries:
    """:class:`.Queries` on a device: ``Asked`` of ``kernels/sample_typed/sample_typed_cuda.cu``."""

    num_queries: int  # Q
    num_seeds: int  # S
    shift: int  # a query's number is so many bits above a node, or above an edge's position
    above_seeds: np.ndarray  # the query of each seed, so many bits up, int64 [S], on the host
    by_row: bool = False  # draws are named by rows
    name: torch.Tensor | None = None  # uint32 as int32 [Q], as ``since`` and ``until``
    since: torch.Tensor | None = None
    until: torch.Tensor | None = None
    values: torch.Tensor | None = None  # excluded edges, ascending, each below its query, int64 [X]
    paths: NumberTable | None = None  # the queries that arise along paths; None where queries stay as they are
    returns_queries: bool = True  # the sample says which query each node belongs to

    @classmethod
    def of(cls, queries: Queries | None, num_seeds: int, topology: Topology, device: Device) -> DeviceQueries:
        """Checks queries and puts them on a device; None becomes one query that counts every edge. Those along paths
        need ``paths`` as well. Raises SeedError or SamplerConfigError as :func:`.check_queries`."""
        if queries is None:
            return cls(1, num_seeds, _NO_QUERIES_SHIFT, np.zeros(num_seeds, np.int64), returns_queries=False)
        has_times = topology.edge_time is not None
        shift = check_queries(queries, num_seeds, topology.num_nodes, topology.num_edges, has_times)
        values = None
        if queries.excluded is not None and len(queries.excluded):
            assert queries.excluded_query is not None
            # unique() sorts, too: kernels find a query's exclusions by bisection.
            values = device.put(np.unique((queries.excluded_query.astype(np.int64) << shift) | queries.excluded))

        def put(codes: np.ndarray | None) -> torch.Tensor | None:
            return None if codes is None else device.put(codes.view(np.int32))

        return cls(
            queries.num_queries,
            num_seeds,
            shift,
            queries.of_seed.astype(np.int64) << shift,
            queries.by_row,
            put(queries.name),
            put(queries.since) if has_times else None,
            put(queries.until) if has_times else None,
            values,
            returns_queries=queries.differ,
        )

    @property
    def pairs(self) -> torch.Tensor | None:
        return None if self.paths is None else self.paths.nodes

    @property
    def excluded(self) -> _Excluded:
        return _Excluded(self.values, 0 if self.values is None else len(self.values))

    def nodes(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns the ids of a batch's nodes, int64 ``[V]``."""
        return rows & ((1 << self.shift) - 1) if self.returns_queries else rows

    def numbers(self, rows: torch.Tensor) -> torch.Tensor | None:
        """Returns the queries of a batch's nodes, int32 ``[V]``; None where these are not asked for."""
        if not self.returns_queries:
            return None
        numbers = rows >> self.shift
        return (numbers if self.paths is None else self.paths.nodes[numbers] >> 32).int()


@dataclass(frozen=True)
class _Excluded:
    """``ExcludedEdges`` of ``kernels/sample_typed/excluded.h``."""

    values: torch.Tensor | None
    count: int

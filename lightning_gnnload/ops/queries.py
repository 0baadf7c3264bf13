"""The queries by which the seeds of a mini-batch ask for their neighbours.

Shapes: S seeds, Q queries, X excluded edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..errors import SamplerConfigError, SeedError
from .checks import as_flag, as_integer, check_apart, check_array, check_kind
from .dispatch import DrawKey, kernels
from .inputs import SamplerInput
from .typed_lists import TypedLists, arrays_of


@dataclass(frozen=True)
class Queries:
    """What the seeds of a mini-batch ask for: since when and until when edges count, and by which name to draw them.

    A query is that of one seed row, or of all seeds of one time. Seeds are distinct within a query, and so are the
    nodes that are found for it: a node that two queries find is in the mini-batch twice.

    Attributes:
        of_seed: int32 ``[S]``, the query of each seed.
        name: uint32 ``[Q]``, which takes the place of the step in the names of draws; None: the step for all.
        by_row: draws are named by rows, so that they are independent of the batch that a row is in.
        since: uint32 ``[Q]``: edges of types with times are eligible from this code on; None: from the first.
        until: uint32 ``[Q]``: and below this one; None: whatever their time.
        along_path: a node found by an edge of code ``c`` asks for edges until ``c + path_end``, and not for those until
            its seed's time; needs ``until``.
        path_end: 1 where an edge's own time is included, 0 otherwise.
        excluded: int64 ``[X]``, positions in ``indices`` of edges into seeds that are not to be drawn, wherever along
            paths a seed's node is found again.
        excluded_query: int32 ``[X]``, for which query.
    """

    of_seed: np.ndarray
    name: np.ndarray | None = None
    by_row: bool = False
    since: np.ndarray | None = None
    until: np.ndarray | None = None
    along_path: bool = False
    path_end: int = 1
    excluded: np.ndarray | None = None
    excluded_query: np.ndarray | None = None

    @cached_property
    def num_queries(self) -> int:
        for array in (self.name, self.until, self.since):
            if array is not None:
                return len(array)
        return 1

    @property
    def differ(self) -> bool:
        """Whether the mini-batch says which query each node is of: not where all seeds always share one."""
        return any(array is not None for array in (self.name, self.since, self.until))

    @property
    def are_one(self) -> bool:
        """Whether a node is in the mini-batch once at most: there is one query, and no paths make more of it."""
        return self.num_queries == 1 and not self.along_path


class Draw(NamedTuple):
    """What a sampler is asked for: one mini-batch, beside the graph.

    Attributes:
        seeds: node ids, int64 ``[S]``, distinct within each query.
        key: decides every draw.
        queries: of the seeds, for a sampler that heeds them; None where all edges count for all.
    """

    seeds: np.ndarray
    key: DrawKey
    queries: Queries | None = None


def native_queries(queries: Queries, lists: TypedLists | None, inputs: SamplerInput) -> kernels.Queries:
    """Returns checked queries of the input's seeds, as kernels take them; of a graph without types, ``lists`` is None.

    Raises:
        SeedError, SamplerConfigError: as :func:`check_queries`.
    """
    has_times = lists is not None and lists.edge_time is not None
    shift = check_queries(queries, len(inputs.seeds), len(inputs.indptr) - 1, len(inputs.indices), has_times)
    check_apart("arena", inputs.arena, *arrays_of("queries", queries))
    return kernels.Queries(
        queries.of_seed,
        queries.name,
        queries.since,
        queries.until,
        queries.excluded,
        queries.excluded_query,
        queries.num_queries,
        shift,
        queries.by_row,
        queries.along_path,
        queries.path_end,
    )


def check_queries(queries: Queries, num_seeds: int, num_nodes: int, num_edges: int, has_times: bool) -> int:
    """Checks what seeds ask of a graph, and returns how many bits the numbers of its nodes and edges take."""
    check_kind("queries", queries, Queries)
    by_query = (("name", queries.name), ("since", queries.since), ("until", queries.until))
    for name, array in by_query:
        if array is not None:
            check_array(f"queries.{name}", array, (np.uint32,), 1, SeedError)
    num_queries, shift = queries.num_queries, max(num_nodes, num_edges).bit_length()
    if (num_queries - 1).bit_length() + shift > 63:
        raise SamplerConfigError(
            f"{num_queries} queries do not fit above the numbers of nodes and edges, {shift} bits, within 63 bits. Use "
            "a smaller batch."
        )
    for name, array in by_query:
        if array is not None and len(array) != num_queries:
            raise SeedError(f"queries.{name} has {len(array)} entries, but {num_queries} are needed.")
    _check_numbers("queries.of_seed", queries.of_seed, np.int32, num_seeds, num_queries)
    if (queries.excluded is None) != (queries.excluded_query is None):
        raise SeedError("queries.excluded and queries.excluded_query are given together, one of each an edge.")
    if queries.excluded is not None:
        _check_numbers("queries.excluded", queries.excluded, np.int64, None, num_edges)
        assert queries.excluded_query is not None
        _check_numbers("queries.excluded_query", queries.excluded_query, np.int32, len(queries.excluded), num_queries)
    as_flag("queries.by_row", queries.by_row)
    if as_flag("queries.along_path", queries.along_path) and (queries.until is None or not has_times):
        raise SamplerConfigError("queries along paths need queries.until, and lists with edge_time.")
    path_end = as_integer("queries.path_end", queries.path_end)
    if path_end not in (0, 1):
        raise SamplerConfigError(f"queries.path_end is {path_end}, but must be 0 or 1.")
    return shift


def _check_numbers(name: str, array: np.ndarray, dtype: type, count: int | None, end: int) -> None:
    check_array(name, array, (dtype,), 1, SeedError, count=count)
    if array.size and not 0 <= array.min() <= array.max() < end:
        bad = int(np.flatnonzero((array < 0) | (array >= end))[0])
        raise SeedError(f"{name}[{bad}] is {array[bad]}, but must lie in [0, {end}).")

"""The input of all sampling kernels: a graph, seeds, the key of their draws, and memory to sample into.

Shapes: N graph nodes, E edges, S seeds.
"""

from __future__ import annotations

import numpy as np

from ..errors import SamplerConfigError, SeedError
from .checks import ARENA_ALIGNMENT, check_apart, check_array, check_csc_form, check_global_ids, check_kind
from .dispatch import DrawKey, Workspace, kernels


class Adjacency:
    """A graph's arrays, checked once for all mini-batches that are sampled from it.

    ``indptr`` int64 ``[N + 1]`` and ``indices`` int32 or int64 ``[E]`` are a graph that passed :func:`check_csc`.
    ``names``, int64 ``[N]``, are the global ids of a part's nodes, by which they draw; None: the nodes' ids. Raises
    GraphFormatError.
    """

    __slots__ = ("arrays", "indices", "indptr", "names")

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, names: np.ndarray | None = None) -> None:
        check_csc_form(indptr, indices)
        check_global_ids(names, indptr)
        self.indptr, self.indices, self.names = indptr, indices, names
        self.arrays = ("indptr", indptr), ("indices", indices), ("names", names)


class SamplerInput:
    """The checked input of every native sampler: graph, seeds, key of draws, and memory.

    ``seeds`` are int64 ``[S]``, distinct; ``arena`` is uint8, writable, at a multiple of 64 bytes: the batch is written
    there. Arrays are not copied, and must not change while a kernel samples. Raises GraphFormatError, SeedError or
    SamplerConfigError for other dtypes or shapes, or an arena that is memory of another argument; whether seeds are
    distinct nodes, a kernel checks.
    """

    __slots__ = ("adjacency", "arena", "key", "native", "seeds")

    def __init__(
        self,
        workspace: Workspace,
        indptr: np.ndarray,
        indices: np.ndarray,
        seeds: np.ndarray,
        key: DrawKey,
        arena: np.ndarray,
        names: np.ndarray | None = None,
    ) -> None:
        check_kind("workspace", workspace, Workspace)
        check_kind("key", key, DrawKey)
        self._fill(workspace, Adjacency(indptr, indices, names), seeds, key, arena)

    @classmethod
    def of(
        cls, workspace: Workspace, adjacency: Adjacency, seeds: np.ndarray, key: DrawKey, arena: np.ndarray
    ) -> SamplerInput:
        """Returns the input of a graph whose arrays are checked already."""
        inputs = cls.__new__(cls)
        inputs._fill(workspace, adjacency, seeds, key, arena)
        return inputs

    def _fill(
        self, workspace: Workspace, adjacency: Adjacency, seeds: np.ndarray, key: DrawKey, arena: np.ndarray
    ) -> None:
        check_array("seeds", seeds, (np.int64,), 1, SeedError)
        check_array("arena", arena, (np.uint8,), 1, SamplerConfigError, writable=True)
        if arena.size and arena.ctypes.data % ARENA_ALIGNMENT:
            raise SamplerConfigError(
                f"arena starts at address {arena.ctypes.data:#x}, but must start at a multiple of {ARENA_ALIGNMENT} "
                "bytes."
            )
        check_apart("arena", arena, *adjacency.arrays, ("seeds", seeds))
        self.adjacency, self.seeds, self.key, self.arena = adjacency, seeds, key, arena
        self.native = kernels.SamplerInput(
            workspace.native,
            adjacency.indptr,
            adjacency.indices,
            seeds,
            key.seed,
            key.epoch,
            key.step,
            key.hop,
            adjacency.names,
            arena,
        )

    @property
    def indptr(self) -> np.ndarray:
        return self.adjacency.indptr

    @property
    def indices(self) -> np.ndarray:
        return self.adjacency.indices

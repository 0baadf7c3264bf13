"""Sampler: settings of a sampling algorithm, and the one way to run it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from lightning_gnnload.data.arrays import as_ids
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.pages import buffer_memory
from lightning_gnnload.ops import ArenaTooSmall, DrawKey, SampleLayout, SamplerInput, Workspace
from lightning_gnnload.sample.naming import local_seeds, name_batch

_FIRST_ARENA_BYTES = 1 << 20
_threads = threading.local()


class Sampler(ABC):
    """Settings of a sampling algorithm. It holds no state: a mini-batch is a pure function of what it is given."""

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """Number of blocks in a mini-batch."""

    @property
    def reach(self) -> int | None:
        """How many hops of in-neighbours it reads of a seed: so many a part of a graph has to hold for it.

        None where nobody said, or where it reads the whole graph; parts then do not serve it.
        """
        return None

    @abstractmethod
    def sample_into(self, graph: Graph, seeds: np.ndarray, key: DrawKey, arena: np.ndarray) -> SampleLayout:
        """Samples the neighbourhood of ``seeds`` straight into ``arena``.

        Args:
            graph: N nodes. A part of another graph is one like any other: ids are its own, but for draws, which are
                made in the name of :meth:`.Graph.names_of`.
            seeds: int64 ``[S]``, distinct.
            key: decides every draw.
            arena: writable uint8 ``[bytes]``, aligned to 64 bytes.

        Raises:
            ArenaTooSmall: sample again into a larger arena; the batch will be the same.
            SeedError: a seed is not a node, or repeats.
        """

    def sample(self, graph: Graph, seeds: Any, seed: int = 0, epoch: int = 0, step: int = 0) -> MiniBatch:
        """One mini-batch in memory of its own, without features.

        From a part of a graph, ids of nodes and edges are those of the whole graph, given and returned; and so is the
        batch, for the same seeds and key.

        Args:
            graph: N nodes.
            seeds: distinct node ids ``[S]``: tensor, array or list.
            seed: the random seed of the run.
            epoch: the epoch.
            step: the global optimizer step in the epoch.

        Raises:
            SeedError: a seed is not a node, or repeats.
            PartReachError: the graph is a part that does not hold as many hops of the seeds as :attr:`reach` says.
        """
        ids = as_ids(seeds, what="seeds")
        local = local_seeds(graph, ids, self.reach, self)
        arena, layout = self.sample_here(graph, local, DrawKey(seed, epoch, step))
        name_batch(graph, layout, arena)
        # The arena is this thread's for the next batch; what was sampled is a fraction of it.
        return MiniBatch.view(arena, layout, len(ids), epoch=epoch, step=step).clone()

    def sample_nodes(self, graph: Graph, seeds: np.ndarray, key: DrawKey) -> np.ndarray:
        """The nodes of one mini-batch alone, int64, seeds first: those whose features it gathers.

        Args:
            graph: N nodes, whose own ids these are.
            seeds: int64 ``[S]``, distinct.
            key: decides every draw.

        Raises:
            SeedError: a seed is not a node, or repeats.
        """
        arena, layout = self.sample_here(graph, seeds, key)
        return arena[: 8 * layout.num_nodes].view(np.int64).copy()

    def sample_here(self, graph: Graph, seeds: np.ndarray, key: DrawKey) -> tuple[np.ndarray, SampleLayout]:
        """One mini-batch in this thread's arena, where it stays until the thread samples the next."""
        arena = _thread_arena(0)
        while True:
            try:
                return arena, self.sample_into(graph, seeds, key, arena)
            except ArenaTooSmall as small:
                arena = _thread_arena(max(2 * arena.nbytes, small.needed_bytes))


def thread_workspace(num_nodes: int) -> Workspace:
    """This thread's scratch memory for graphs of up to this size; a thread keeps one, for the largest it sampled."""
    held: Workspace | None = getattr(_threads, "held", None)
    if held is None or held.num_nodes < num_nodes:
        _threads.held = None  # free the old table before the new one is allocated
        _threads.held = held = Workspace(num_nodes)
    return held


def sampler_input(graph: Graph, seeds: np.ndarray, key: DrawKey, arena: np.ndarray) -> SamplerInput:
    """What the ops that sample are given, with this thread's scratch memory."""
    workspace = thread_workspace(graph.num_nodes)
    return SamplerInput(workspace, graph.indptr, graph.indices, seeds, key, arena, graph.names)


def _thread_arena(num_bytes: int) -> np.ndarray:
    """This thread's arena of at least so many bytes: memory that was touched before costs no page faults."""
    arena: np.ndarray | None = getattr(_threads, "arena", None)
    if arena is None or arena.nbytes < num_bytes:
        _threads.arena = arena = np.frombuffer(buffer_memory(max(num_bytes, _FIRST_ARENA_BYTES)), np.uint8)
    return arena

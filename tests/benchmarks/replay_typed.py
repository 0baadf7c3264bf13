"""The ceiling of sampling by type and by time, as replay.py has that of untyped sampling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lightning_gnnload import Block, Graph, MiniBatch, NeighborSampler
from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.replay import Accesses, Expand, Recorded, both_ends, expanded, numbered_by, positions_of
from tests.benchmarks.seeds import seeds_of_turn, times_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.typed_graph import MAPPED, TYPED_GRAPHS

_LINE = 16  # codes of times in a line of memory: within one, a search reads nothing new


class TypedReplay:
    """Over a copy of one graph with types on 2 MB pages.

    Args:
        graph: its name; every edge type has times, if one has.
    """

    def __init__(self, graph: str) -> None:
        self.prepared = TYPED_GRAPHS[graph]
        mapped = self.prepared.load().graph
        arrays = {name: getattr(mapped, name) for name in MAPPED if name != "edge_order"}
        placed = {name: on_huge_pages(array) for name, array in arrays.items() if array is not None}
        self.graph = Graph(**placed, types=mapped.types, clock=mapped.clock)
        self._accesses = Accesses(self.graph.num_nodes)

    def replay(self, turn: int, num_batches: int, fanouts: list[int], expand: Expand = "all") -> dict[str, Any]:
        """What sampling by type reads."""
        sampler = NeighborSampler(fanouts, expand=expand, edge_ids=True, before=None, sharing="plain")
        batches = []
        for step, seeds in enumerate(self._seeds(turn, num_batches)):
            batch = sampler.sample(self.graph, seeds, epoch=turn, step=step)
            blocks = expanded(batch, expand)
            reads = self._lists(batch, blocks)
            edges = reads["adjacency"][1]
            batches.append(Recorded(reads, numbered_by(batch, blocks), batch.num_nodes, len(edges)))
        return self._accesses.replay(batches)

    def replay_timed(self, turn: int, num_batches: int, fanouts: list[int], pick: Any) -> dict[str, Any]:
        """What sampling by time reads, where seeds share no nodes: these are numbered in a table that fits a cache."""
        sampler = NeighborSampler(fanouts, expand="new", edge_ids=True, sharing="disjoint", pick=pick)
        times = times_of_turn(self.prepared.arrays.span, turn, num_batches)
        batches = []
        for step, seeds in enumerate(self._seeds(turn, num_batches)):
            batch = sampler.sample(self.graph, seeds, epoch=turn, step=step, times=times[step])
            reads = self._lists(batch, blocks := expanded(batch, "new"))
            probes = np.concatenate(list(self._probes(batch, blocks, times[step])))
            reads = {"runs": reads["runs"], "times": (self.graph.edge_time, probes), "adjacency": reads["adjacency"]}
            batches.append(Recorded(reads, np.empty(0, np.uint32), 0, len(reads["adjacency"][1])))
        return self._accesses.replay(batches)

    def _seeds(self, turn: int, num_batches: int) -> np.ndarray:
        nodes = self.graph.types.range_of(self.prepared.seed_type)
        return seeds_of_turn(np.arange(len(nodes)), turn, num_batches) + nodes.start

    def _lists(self, batch: MiniBatch, blocks: list[Block]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        first, num_slots = self._runs(_destinations(batch, blocks))
        return {
            "runs": (self.graph.run_ptr, both_ends(first, num_slots)),
            "adjacency": (self.graph.indices, positions_of(blocks)),
        }

    def _runs(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each node, the number of its first run, and how many it has."""
        types = self.graph.types
        first_node = np.array([types.range_of(name).start for name in types.node_types])
        num_slots = np.array([len(slots) for slots in types.slots])
        node_type = np.searchsorted(first_node, nodes, side="right") - 1
        per_node = num_slots[node_type]
        return types.first_run[node_type] + (nodes - first_node[node_type]) * per_node, per_node

    def _probes(self, batch: MiniBatch, blocks: list[Block], times: np.ndarray) -> Iterator[np.ndarray]:
        """Yields the positions, uint32, that a search of each run for its last edge in time reads, line by line."""
        graph = self.graph
        bounds = graph.clock.until(times, "<=")[_destinations(batch, blocks, batch.rows.numpy())]
        first, num_runs = self._runs(_destinations(batch, blocks))
        bound = np.repeat(bounds, num_runs)
        run = (
            np.repeat(first, num_runs) + np.arange(num_runs.sum()) - np.repeat(np.cumsum(num_runs) - num_runs, num_runs)
        )
        at = graph.run_ptr[run].astype(np.int64)
        left = graph.run_ptr[run + 1].astype(np.int64) - at
        at, left, bound = at[left > 0], left[left > 0], bound[left > 0]
        while len(at):
            half = (left + 1) // 2
            probe = at + half - 1
            yield probe.astype(np.uint32)
            at += np.where(graph.edge_time[probe] < bound, half, 0)
            left -= half
            at, left, bound = at[left > _LINE], left[left > _LINE], bound[left > _LINE]


def _destinations(batch: MiniBatch, blocks: list[Block], of_nodes: np.ndarray | None = None) -> np.ndarray:
    """The nodes that the blocks expand, or what an array says of each node of the batch."""
    of_nodes = batch.nodes.numpy() if of_nodes is None else of_nodes
    return np.concatenate([of_nodes[: block.num_dst] for block in blocks])


if __name__ == "__main__":
    serve(TypedReplay)

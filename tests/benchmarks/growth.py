"""Sampling as the graph grows: nanoseconds a sampled edge, with either table of known nodes."""

from __future__ import annotations

from typing import Any, Literal

from lightning_gnnload import ops
from lightning_gnnload.pipeline.slots import Slot
from tests.benchmarks.graphs import GRAPHS
from tests.benchmarks.memory import MIB, MemoryWatch, on_huge_pages, peak_bytes
from tests.benchmarks.seeds import seeds_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import timed


class Growth:
    """Args:
    graph: its name.
    in_memory: its topology in private memory on 2 MB pages; otherwise as it is loaded.
    """

    def __init__(self, graph: str, in_memory: bool) -> None:
        self.watch = MemoryWatch()
        data = GRAPHS[graph].load()
        self.train, self.num_nodes = data.train, data.num_nodes
        place = on_huge_pages if in_memory else (lambda array: array)
        self.indptr, self.indices = place(data.graph.indptr), place(data.graph.indices)
        self._workspaces: dict[str, ops.Workspace] = {}
        self._slot = Slot()

    def sample(
        self, turn: int, num_batches: int, fanouts: list[int], table: Literal["auto", "stamp", "hash"]
    ) -> dict[str, Any]:
        if table not in self._workspaces:
            self._workspaces = {table: ops.Workspace(self.num_nodes, table)}
        num_edges: list[int] = []

        def sample(request: tuple[int, Any]) -> None:
            step, seeds = request
            num_edges.append(self._sample(seeds, fanouts, ops.DrawKey(0, turn, step), self._workspaces[table]))

        took_ms = timed(sample, enumerate(seeds_of_turn(self.train, turn, num_batches)))["values"]
        self.watch.look()
        return {
            "values": [ms * 1e6 / edges for ms, edges in zip(took_ms, num_edges, strict=True)],
            "edges": sum(num_edges) / num_batches,
            "private MiB": self.watch.private_bytes / MIB,
            "peak MiB": peak_bytes() / MIB,
        }

    def _sample(self, seeds: Any, fanouts: list[int], key: ops.DrawKey, workspace: ops.Workspace) -> int:
        while True:
            try:
                inputs = ops.SamplerInput(workspace, self.indptr, self.indices, seeds, key, self._slot.array)
                layout = ops.sample_neighbors(inputs, fanouts)
            except ops.ArenaTooSmall as small:
                self._slot.grow(2 * small.needed_bytes)
            else:
                return sum(hop.num_edges for hop in layout.hops)


if __name__ == "__main__":
    serve(Growth)

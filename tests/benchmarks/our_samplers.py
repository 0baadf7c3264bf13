"""What lightning_gnnload is told to do besides uniform sampling."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import lightning_gnnload
from lightning_gnnload import Graph, GraphData
from lightning_gnnload.pipeline.slots import Slot
from tests.benchmarks.errors import Unavailable
from tests.benchmarks.graphs import GRAPHS, edge_weights
from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.ours import sample_into_slot, use
from tests.benchmarks.seeds import seeds_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import timed


class OurSamplers:
    """Over one graph, its topology in memory on 2 MB pages, as the peer's is here."""

    def __init__(self, graph: str) -> None:
        self.graph = graph
        loaded = GRAPHS[graph].load()
        topology = Graph(on_huge_pages(loaded.graph.indptr), on_huge_pages(loaded.graph.indices))
        self.data = GraphData(topology, train=loaded.train)
        self._slot = Slot()

    def sample(
        self,
        turn: int,
        num_batches: int,
        sampler: str,
        settings: dict[str, Any],
        weighted: bool = False,
        instruction_set: str | None = None,
    ) -> dict[str, Any]:
        """``sampler``: the name of a class of the package; ``settings``: its arguments.

        Raises:
            Unavailable: this version has no such sampler.
        """
        use(instruction_set)
        kind = _named(sampler)
        data = self._weighted if weighted else self.data
        return sample_into_slot(data, kind(**settings), self._slot, turn, num_batches)

    def walk(
        self,
        turn: int,
        num_batches: int,
        sampler: str,
        settings: dict[str, Any],
        weighted: bool,
        instruction_set: str | None = None,
    ) -> dict[str, Any]:
        """Walks, not a batch; ``settings``: arguments of the function ``sampler``."""
        use(instruction_set)
        walk, num_steps = _named(sampler), 0

        def sample(request: tuple[int, Any]) -> None:
            nonlocal num_steps
            step, starts = request
            num_steps += walk(self.data.graph, starts, epoch=turn, step=step, **settings)[:, 1:].numel()

        batches = seeds_of_turn(self.data.train, turn, num_batches)
        return timed(sample, enumerate(batches)) | {"edges": num_steps / num_batches}

    @cached_property
    def _weighted(self) -> GraphData:
        graph = self.data.graph
        weights = edge_weights(graph.num_edges)
        return GraphData(Graph(graph.indptr, graph.indices, edge_weight=weights), train=self.data.train)


def _named(name: str) -> Any:
    if not hasattr(lightning_gnnload, name):
        raise Unavailable(f"this version of lightning_gnnload has no {name}")
    return getattr(lightning_gnnload, name)


if __name__ == "__main__":
    serve(OurSamplers)

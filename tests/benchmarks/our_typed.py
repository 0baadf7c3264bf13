"""What lightning_gnnload is told to do with types, times and links."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from lightning_gnnload import Graph, GraphData, GraphDataModule, Negatives, NeighborSampler, SeedTable
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.sample.links import LinkSettings
from lightning_gnnload.sample.workload import Workload
from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.ours import sample_workload, use
from tests.benchmarks.seeds import BATCH_SIZE, NUM_LINKS, ends_of_links, links_of_turn, seeds_of_turn, times_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import steady_ms
from tests.benchmarks.typed_graph import MAPPED, TYPED_GRAPHS


class OurTyped:
    """Over one graph with types, its topology in memory on 2 MB pages, as the peers' is.

    Args:
        graph: its name.
    """

    def __init__(self, graph: str) -> None:
        self.prepared = TYPED_GRAPHS[graph]
        mapped = self.prepared.load()
        arrays = {name: getattr(mapped.graph, name) for name in MAPPED}
        placed = {name: on_huge_pages(array) for name, array in arrays.items() if array is not None}
        self.graph = Graph(**placed, types=mapped.graph.types, clock=mapped.graph.clock)
        self.untyped = Graph(placed["indptr"], placed["indices"])
        self.tables = mapped.tables
        self._slot = Slot()
        self._loaders: dict[str, SampledLoader] = {}

    def sample(
        self,
        turn: int,
        num_batches: int,
        fanouts: list[int],
        expand: Any,
        edge_ids: bool = False,
        instruction_set: str | None = None,
    ) -> dict[str, Any]:
        use(instruction_set)
        sampler = NeighborSampler(fanouts, expand=expand, edge_ids=edge_ids, before=None, sharing="plain")
        return self._sample(self.graph, sampler, self._seeds(turn, num_batches), turn)

    def sample_edges(
        self,
        turn: int,
        num_batches: int,
        fanouts: list[int],
        expand: Any,
        untyped: bool,
        instruction_set: str | None = None,
    ) -> dict[str, Any]:
        """Nanoseconds a sampled edge, of the lists as they are or as if there were no types."""
        use(instruction_set)
        graph = self.untyped if untyped else self.graph
        settings: dict[str, Any] = {} if untyped else {"before": None, "sharing": "plain"}
        sampler = NeighborSampler(fanouts, expand=expand, **settings)
        reply = self._sample(graph, sampler, self._seeds(turn, num_batches), turn)
        return reply | {"values": [took_ms * 1e6 / reply["edges"] for took_ms in reply["values"]]}

    def sample_timed(
        self,
        turn: int,
        num_batches: int,
        fanouts: list[int],
        pick: Any,
        edge_ids: bool = False,
        instruction_set: str | None = None,
    ) -> dict[str, Any]:
        """Each seed by itself, with its own time, by what the last hop found."""
        use(instruction_set)
        nodes = self._seeds(turn, num_batches)
        times = times_of_turn(self.prepared.arrays.span, turn, num_batches)
        table = SeedTable(nodes.ravel(), time=times.ravel())
        sampler = NeighborSampler(fanouts, expand="new", edge_ids=edge_ids, sharing="disjoint", pick=pick)
        rows = np.arange(len(table))
        workload = Workload(
            self.graph, sampler, rows, batch_size=BATCH_SIZE, order=Sequential(), seed=turn, table=table
        )
        return sample_workload(workload, self._slot, turn)

    def sample_ends(
        self,
        turn: int,
        num_batches: int,
        fanouts: list[int],
        num_negatives: int,
        expand: Any,
        edge_ids: bool = False,
        instruction_set: str | None = None,
    ) -> dict[str, Any]:
        """Links without what makes them: the sampler alone, for ends and negatives that are known."""
        use(instruction_set)
        arrays, types = self.prepared.arrays, self.graph.types
        assert types is not None
        first = [types.range_of(name).start for name in types.edge_types[self.prepared.link_type][::2]]
        columns = arrays.columns(self.prepared.link_type)
        sampler = NeighborSampler(fanouts, expand=expand, edge_ids=edge_ids, before=None, sharing="plain")
        found = [
            self._sample(self.graph, sampler, np.union1d(sources + first[0], targets + first[1])[None], turn)
            for sources, targets in (
                ends_of_links(links, num_negatives, *columns)
                for links in links_of_turn(len(columns.indices), turn, num_batches)
            )
        ]
        return {
            "values": [took_ms for reply in found for took_ms in reply["values"]],
            **{name: float(np.median([reply[name] for reply in found])) for name in found[0] if name != "values"},
        }

    def sample_links(
        self,
        turn: int,
        num_batches: int,
        fanouts: list[int],
        num_negatives: int,
        expand: Any,
        edge_ids: bool = False,
        instruction_set: str | None = None,
    ) -> dict[str, Any]:
        """Negatives included; links and their reverses are left out of what is drawn."""
        use(instruction_set)
        links = links_of_turn(self.prepared.arrays.num_edges(self.prepared.link_type), turn, num_batches)
        table = self._table(links.ravel())
        sampler = NeighborSampler(fanouts, expand=expand, edge_ids=edge_ids, before=None)
        settings = LinkSettings(Negatives("triplet", num_negatives), "reverse")
        rows = np.arange(len(table))
        workload = Workload(
            self.graph, sampler, rows, batch_size=BATCH_SIZE, order=Sequential(), table=table, links=settings
        )
        return sample_workload(workload, self._slot, turn)

    def load_links(
        self,
        turn: int,
        num_batches: int,
        fanouts: list[int],
        num_negatives: int,
        batch_format: Any,
        num_threads: int,
        edge_ids: bool = False,
        instruction_set: str | None = None,
    ) -> dict[str, Any]:
        """The begin of an epoch, features included; a turn is an epoch."""
        use(instruction_set)
        expand = "new" if batch_format == "pyg" else "all"
        kind = repr((fanouts, num_negatives, batch_format, num_threads, edge_ids))
        if kind not in self._loaders:
            module = GraphDataModule(
                GraphData(self.graph, tables=self.tables, train=self._some_links),
                NeighborSampler(fanouts, expand=expand, edge_ids=edge_ids, before=None),
                batch_size=BATCH_SIZE,
                batch_format=batch_format,
                num_threads=num_threads,
                drop_last=True,
                negatives=Negatives("triplet", num_negatives),
            )
            self._loaders[kind] = module.train_dataloader()
        loader = self._loaders[kind]
        loader.set_epoch(turn)
        return steady_ms(loader, num_batches)

    @cached_property
    def _some_links(self) -> SeedTable:
        """As many as feed the peers' loaders."""
        num_edges = self.prepared.arrays.num_edges(self.prepared.link_type)
        return self._table(np.random.default_rng(0).permutation(num_edges)[:NUM_LINKS])

    def _table(self, links: np.ndarray) -> SeedTable:
        arrays, k = self.prepared.arrays, self.prepared.link_type
        indptr, indices = arrays.columns(k)
        targets = np.searchsorted(indptr, links, side="right") - 1
        return SeedTable(
            src=indices[links], dst=targets, edge_type=arrays.edge_types[k], edge_ids=arrays.given(k)[links]
        )

    def _seeds(self, turn: int, num_batches: int) -> np.ndarray:
        """int64 ``[num_batches, BATCH_SIZE]``, ids in the graph."""
        types = self.graph.types
        assert types is not None
        nodes = types.range_of(self.prepared.seed_type)
        return seeds_of_turn(np.arange(len(nodes)), turn, num_batches) + nodes.start

    def _sample(self, graph: Graph, sampler: NeighborSampler, seeds: np.ndarray, turn: int) -> dict[str, Any]:
        workload = Workload(graph, sampler, seeds.ravel(), batch_size=seeds.shape[1], order=Sequential())
        return sample_workload(workload, self._slot, turn)


if __name__ == "__main__":
    serve(OurTyped)

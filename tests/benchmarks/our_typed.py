"""What lightning_gnnload is told to do with types, times and links."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from lightning_gnnload import Graph, GraphData, GraphDataModule, Negatives, NeighborSampler, SeedTable
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.sample.seeds.links import LinkSettings, seed_kind
from lightning_gnnload.sample.seeds.rows import SeedKind
from lightning_gnnload.sample.workload import Workload
from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.ours import sample_workload, use
from tests.benchmarks.seeds import BATCH_SIZE, NUM_LINKS, ends_of_links, links_of_turn, seeds_of_turn, times_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import steady_ms
from tests.benchmarks.typed_graph import MAPPED, TYPED_GRAPHS

_PLAIN: dict[str, Any] = {"before": None, "sharing": "plain"}
"""Settings that ignore times, so that seeds share what they find."""


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

    def sample(self, turn: int, num_batches: int, fanouts: list[int], **settings: Any) -> dict[str, Any]:
        return self._sample(turn, self._seeds(turn, num_batches), fanouts, **_PLAIN, **settings)

    def sample_edges(
        self, turn: int, num_batches: int, fanouts: list[int], untyped: bool, **settings: Any
    ) -> dict[str, Any]:
        """Nanoseconds a sampled edge, of the lists as they are or as if there were no types."""
        settings |= {"graph": self.untyped} if untyped else _PLAIN
        reply = self._sample(turn, self._seeds(turn, num_batches), fanouts, **settings)
        return reply | {"values": [took_ms * 1e6 / reply["edges"] for took_ms in reply["values"]]}

    def sample_timed(self, turn: int, num_batches: int, fanouts: list[int], **settings: Any) -> dict[str, Any]:
        """Each seed by itself, with its own time, by what the last hop found."""
        times = times_of_turn(self.prepared.arrays.span, turn, num_batches)
        table = SeedTable(self._seeds(turn, num_batches).ravel(), time=times.ravel())
        rows = np.arange(len(table)).reshape(times.shape)
        settings |= {"expand": "new", "sharing": "disjoint"}
        return self._sample(turn, rows, fanouts, partial(seed_kind, seeds=table), **settings)

    def sample_ends(
        self, turn: int, num_batches: int, fanouts: list[int], num_negatives: int, **settings: Any
    ) -> dict[str, Any]:
        """Links without what makes them: the sampler alone, for ends and negatives that are known."""
        arrays, types = self.prepared.arrays, self.graph.types
        assert types is not None
        first = [types.range_of(name).start for name in types.edge_types[self.prepared.link_type][::2]]
        columns = arrays.columns(self.prepared.link_type)
        found = [
            self._sample(turn, np.union1d(sources + first[0], targets + first[1])[None], fanouts, **_PLAIN, **settings)
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
        self, turn: int, num_batches: int, fanouts: list[int], num_negatives: int, **settings: Any
    ) -> dict[str, Any]:
        """Negatives included; links and their reverses are left out of what is drawn."""
        links = links_of_turn(self.prepared.arrays.num_edges(self.prepared.link_type), turn, num_batches)
        rows = np.arange(links.size).reshape(links.shape)
        settings_of_links = LinkSettings(Negatives("triplet", num_negatives), "reverse")
        seeds = partial(seed_kind, seeds=self._table(links.ravel()), settings=settings_of_links)
        return self._sample(turn, rows, fanouts, seeds, before=None, **settings)

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

    def _sample(
        self,
        turn: int,
        rows: np.ndarray,
        fanouts: list[int],
        seeds: Callable[..., SeedKind] | None = None,
        graph: Graph | None = None,
        instruction_set: str | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        """Times batches of rows ``[num_batches, B]``; settings are the sampler's."""
        use(instruction_set)
        sampler = NeighborSampler(fanouts, **settings)
        size, order = rows.shape[1], Sequential()
        workload = Workload(graph or self.graph, sampler, seeds or rows.ravel(), batch_size=size, order=order)
        return sample_workload(workload, self._slot, turn)


if __name__ == "__main__":
    serve(OurTyped)

"""What DGL is told to do with types and links, in the way its documentation advises. It has no times."""

from __future__ import annotations

import warnings
from functools import cache, cached_property
from typing import Any

import dgl
import numpy as np
import torch

from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.seeds import BATCH_SIZE, NUM_LINKS, ends_of_links, links_of_turn, seeds_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import steady_ms, timed
from tests.benchmarks.typed_arrays import TypedArrays


class PeerDGLTyped:
    """Over int64 lists by edge type, in memory on 2 MB pages.

    Args:
        folder: the prepared graph.
        seed_type: of nodes.
        link_type: number of the edge type of links.
    """

    def __init__(self, folder: str, seed_type: str, link_type: int) -> None:
        warnings.filterwarnings("ignore", module="dgl")
        self.arrays = arrays = TypedArrays(folder)
        self.seed_type, self.link_type = seed_type, link_type
        unnumbered = torch.empty(0, dtype=torch.int64)  # it numbers the edges where none are given
        columns = [map(torch.from_numpy, arrays.columns(k, on_huge_pages)) for k in range(len(arrays.edge_types))]
        lists = {
            kind: ("csc", (*of_type, unnumbered)) for kind, of_type in zip(arrays.edge_types, columns, strict=True)
        }
        whole = dgl.heterograph(lists, dict(zip(arrays.node_types, arrays.num_nodes, strict=True)))
        self.topology = whole.formats("csc")  # else a loader would make and keep two more forms of the graph
        self.kind: tuple[str, str, str] = arrays.edge_types[link_type]

    def sample(self, turn: int, num_batches: int, fanouts: list[int], fused: bool) -> dict[str, Any]:
        nodes = np.arange(self.arrays.num_nodes[self.arrays.type_number(self.seed_type)])
        batches = [{self.seed_type: torch.from_numpy(seeds)} for seeds in seeds_of_turn(nodes, turn, num_batches)]
        return self._sample(batches, fanouts, fused)

    def sample_ends(
        self, turn: int, num_batches: int, fanouts: list[int], num_negatives: int, fused: bool
    ) -> dict[str, Any]:
        """Links without what makes them: the sampler alone, for ends and negatives that are known."""
        columns, batches = self.arrays.columns(self.link_type), []
        src, _, dst = self.kind
        for links in links_of_turn(len(columns.indices), turn, num_batches):
            sources, targets = ends_of_links(links, num_negatives, *columns)
            ends = {src: np.union1d(sources, targets)} if src == dst else {src: sources, dst: targets}
            batches.append({name: torch.from_numpy(each) for name, each in ends.items()})
        return self._sample(batches, fanouts, fused)

    def sample_links(
        self, turn: int, num_batches: int, fanouts: list[int], num_negatives: int, fused: bool, exclude: bool
    ) -> dict[str, Any]:
        """As its loader does it, negatives included; with ``exclude``, links and their reverses are not drawn."""
        sampler, num_edges = self._links_sampler(tuple(fanouts), num_negatives, fused, exclude, prefetch=False), 0

        def sample(links: torch.Tensor) -> None:
            nonlocal num_edges
            blocks = sampler.sample(self._with_pairs, {self.kind: links})[-1]
            num_edges += sum(block.num_edges() for block in blocks)

        batches = map(torch.from_numpy, links_of_turn(self.arrays.num_edges(self.link_type), turn, num_batches))
        return timed(sample, batches) | {"edges": num_edges / num_batches}

    def load_links(
        self, turn: int, num_batches: int, fanouts: list[int], num_negatives: int, num_workers: int
    ) -> dict[str, Any]:
        """Features included, links and their reverses left out."""
        torch.manual_seed(turn)
        loader = dgl.dataloading.DataLoader(
            self._with_features,
            {self.kind: self._some_links},
            self._links_sampler(tuple(fanouts), num_negatives, fused=True, exclude=True, prefetch=True),
            batch_size=BATCH_SIZE,
            shuffle=True,
            drop_last=True,
            num_workers=num_workers,
        )
        return steady_ms(loader, num_batches, num_workers=num_workers)

    def _sample(self, batches: list[dict[str, torch.Tensor]], fanouts: list[int], fused: bool) -> dict[str, Any]:
        sampler, num_edges = self._sampler(tuple(fanouts), fused, prefetch=False), 0

        def sample(seeds: dict[str, torch.Tensor]) -> None:
            nonlocal num_edges
            num_edges += sum(block.num_edges() for block in sampler.sample(self.topology, seeds)[2])

        return timed(sample, batches) | {"edges": num_edges / len(batches)}

    @cache  # noqa: B019  one worker a process
    def _sampler(self, fanouts: tuple[int, ...], fused: bool, prefetch: bool) -> Any:
        """One for all turns, as it keeps its deduplication table. DGL lists the outermost hop first."""
        hops = [dict.fromkeys(self.arrays.edge_types, fanout) for fanout in reversed(fanouts)]
        wanted = {"prefetch_node_feats": {name: ["feat"] for name in self._tables}} if prefetch else {}
        return dgl.dataloading.NeighborSampler(hops, fused=fused, **wanted)

    @cache  # noqa: B019
    def _links_sampler(
        self, fanouts: tuple[int, ...], num_negatives: int, fused: bool, exclude: bool, prefetch: bool
    ) -> Any:
        return dgl.dataloading.as_edge_prediction_sampler(
            self._sampler(fanouts, fused, prefetch),
            exclude=self._with_reverses if exclude else None,
            negative_sampler=dgl.dataloading.negative_sampler.Uniform(num_negatives),
        )

    def _with_reverses(self, links: dict[Any, torch.Tensor]) -> dict[Any, torch.Tensor]:
        """DGL's "reverse_types" wants an edge and its reverse to have one number; here these are places in lists."""
        chosen = links[self.kind]
        reverse = self.arrays.reverse[self.link_type]
        if reverse is None:
            return links
        return {self.kind: chosen, self.arrays.edge_types[reverse]: self._reverse[chosen].long()}

    @cached_property
    def _reverse(self) -> torch.Tensor:
        """int32 ``[E_k]``: where the reverse of each link lies."""
        reverse = self.arrays.reverse[self.link_type]
        assert reverse is not None
        given = self.arrays.given(reverse)
        place = np.empty_like(given)
        place[given] = np.arange(len(given), dtype=given.dtype)
        return torch.from_numpy(place[self.arrays.given(self.link_type)])

    @cached_property
    def _with_pairs(self) -> dgl.DGLGraph:
        """Which nodes an edge joins is told by pairs alone, which are made for the links."""
        return self.topology.formats(["csc", "coo"])

    @cached_property
    def _tables(self) -> dict[str, torch.Tensor]:
        found = {name: self.arrays.features(t) for t, name in enumerate(self.arrays.node_types)}
        return {name: torch.from_numpy(x) for name, x in found.items() if x is not None}

    @cached_property
    def _with_features(self) -> dgl.DGLGraph:
        graph = self._with_pairs.local_var()
        for name, x in self._tables.items():
            graph.nodes[name].data["feat"] = x
        return graph

    @cached_property
    def _some_links(self) -> torch.Tensor:
        return torch.randperm(self.arrays.num_edges(self.link_type))[:NUM_LINKS]


if __name__ == "__main__":
    serve(PeerDGLTyped)

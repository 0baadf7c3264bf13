"""What GraphBolt is told to do with types and times: its sampling graph is one, with types of nodes in ranges, too."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.seeds import ends_of_links, links_of_turn, seeds_of_turn, times_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import timed
from tests.benchmarks.typed_arrays import TypedArrays

warnings.filterwarnings("ignore")
import dgl.graphbolt as gb  # noqa: E402  it warns on import

Nodes = dict[str, torch.Tensor]


class PeerGraphBoltTyped:
    """Over int32 indices, in memory on 2 MB pages.

    Args:
        folder: the prepared graph.
        seed_type: of nodes.
        link_type: number of the edge type of links.
    """

    def __init__(self, folder: str, seed_type: str, link_type: int) -> None:
        self.arrays = arrays = TypedArrays(folder)
        self.seed_type, self.link_type = seed_type, link_type
        names = [":".join(kind) for kind in arrays.edge_types]
        attributes = {}
        if arrays.is_timed:
            code = arrays.flat("edge_time")
            attributes["time"] = torch.from_numpy(on_huge_pages(code.astype(np.int64) + arrays.span[0]))
        self.graph = gb.fused_csc_sampling_graph(
            torch.from_numpy(on_huge_pages(arrays.flat("indptr"))),
            torch.from_numpy(on_huge_pages(arrays.flat("indices"))),
            node_type_offset=torch.from_numpy(np.concatenate([[0], np.cumsum(arrays.num_nodes)])),
            type_per_edge=torch.from_numpy(_type_of_edges(arrays)),
            node_type_to_id={name: t for t, name in enumerate(arrays.node_types)},
            edge_type_to_id={name: k for k, name in enumerate(names)},
            edge_attributes=attributes,
        )

    def sample(self, turn: int, num_batches: int, fanouts: list[int]) -> dict[str, Any]:
        nodes = np.arange(self.arrays.num_nodes[self.arrays.type_number(self.seed_type)])
        return self._sample([{self.seed_type: seeds} for seeds in seeds_of_turn(nodes, turn, num_batches)], fanouts)

    def sample_ends(self, turn: int, num_batches: int, fanouts: list[int], num_negatives: int) -> dict[str, Any]:
        """Links without what makes them: the sampler alone, for ends and negatives that are known."""
        columns, batches = self.arrays.columns(self.link_type), []
        src, _, dst = self.arrays.edge_types[self.link_type]
        for links in links_of_turn(len(columns.indices), turn, num_batches):
            sources, targets = ends_of_links(links, num_negatives, *columns)
            batches.append({src: np.union1d(sources, targets)} if src == dst else {src: sources, dst: targets})
        return self._sample(batches, fanouts)

    def sample_timed(self, turn: int, num_batches: int, fanouts: list[int]) -> dict[str, Any]:
        """Edges before a seed's time, drawn uniformly; a node is found anew by each edge that leads to it."""
        nodes = np.arange(self.arrays.num_nodes[self.arrays.type_number(self.seed_type)])
        batches = zip(
            seeds_of_turn(nodes, turn, num_batches), times_of_turn(self.arrays.span, turn, num_batches), strict=True
        )
        hops, num_edges = self._hops(fanouts), 0

        def sample(request: tuple[Nodes, Nodes]) -> None:
            nonlocal num_edges
            found, times = request
            for fanout in hops:
                drawn = self.graph.temporal_sample_neighbors(found, times, fanout, edge_timestamp_attr_name="time")
                found, blocks, times = gb.compact_csc_format(drawn.sampled_csc, found, times)
                num_edges += sum(block.indices.numel() for block in blocks.values())

        no_nodes: Nodes = dict.fromkeys(self.arrays.node_types, torch.empty(0, dtype=torch.int32))
        no_times: Nodes = dict.fromkeys(self.arrays.node_types, torch.empty(0, dtype=torch.int64))
        requests = [
            (
                no_nodes | {self.seed_type: torch.from_numpy(seeds).int()},
                no_times | {self.seed_type: torch.from_numpy(times)},
            )
            for seeds, times in batches
        ]
        return timed(sample, requests) | {"edges": num_edges / num_batches}

    def _sample(self, batches: list[dict[str, np.ndarray]], fanouts: list[int]) -> dict[str, Any]:
        """What its pipeline calls for each batch, without the pipeline."""
        hops, num_edges = self._hops(fanouts), 0

        def sample(found: Nodes) -> None:
            nonlocal num_edges
            for fanout in hops:
                drawn = self.graph.sample_neighbors(found, fanout)
                found, blocks = gb.unique_and_compact_csc_formats(drawn.sampled_csc, found)
                num_edges += sum(block.indices.numel() for block in blocks.values())

        tensors = [{name: torch.from_numpy(each).int() for name, each in batch.items()} for batch in batches]
        return timed(sample, tensors) | {"edges": num_edges / len(batches)}

    def _hops(self, fanouts: list[int]) -> list[torch.Tensor]:
        return [torch.full((len(self.arrays.edge_types),), fanout) for fanout in fanouts]


def _type_of_edges(arrays: TypedArrays) -> np.ndarray:
    """uint8 ``[E]``: runs lie by node, and those of a node by edge type."""
    of_run = [
        np.tile(np.array([k for k, (_, _, dst) in enumerate(arrays.edge_types) if dst == name], np.uint8), count)
        for name, count in zip(arrays.node_types, arrays.num_nodes, strict=True)
    ]
    return np.repeat(np.concatenate(of_run), np.diff(arrays.flat("run_ptr").astype(np.int64)))


if __name__ == "__main__":
    serve(PeerGraphBoltTyped)

"""What PyG is told to do with types, times and links: pyg-lib's kernel alone, and PyG's own sampler and loader."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
import torch

from tests.benchmarks.errors import Unavailable
from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.seeds import BATCH_SIZE, NUM_LINKS, ends_of_links, links_of_turn, seeds_of_turn, times_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import steady_ms, timed
from tests.benchmarks.typed_arrays import TypedArrays

warnings.filterwarnings("ignore")
try:
    import pyg_lib  # noqa: F401  it gives torch.ops.pyg
except (ImportError, OSError) as error:
    raise Unavailable(f"pyg_lib does not import: {error}") from error


class PeerPyGTyped:
    """Lists by edge type, in memory on 2 MB pages.

    Args:
        folder: the prepared graph.
        seed_type: of nodes.
        link_type: number of the edge type of links.
    """

    def __init__(self, folder: str, seed_type: str, link_type: int) -> None:
        self.arrays = arrays = TypedArrays(folder)
        self.seed_type, self.link_type = seed_type, link_type
        self.names = ["__".join(kind) for kind in arrays.edge_types]
        columns = [arrays.columns(k, on_huge_pages) for k in range(len(arrays.edge_types))]
        self.indptr = {name: torch.from_numpy(each.indptr) for name, each in zip(self.names, columns, strict=True)}
        self.indices = {name: torch.from_numpy(each.indices) for name, each in zip(self.names, columns, strict=True)}

    def sample(
        self, turn: int, num_batches: int, fanouts: list[int], int32: bool = False, edge_ids: bool = True
    ) -> dict[str, Any]:
        nodes = np.arange(self.arrays.num_nodes[self.arrays.type_number(self.seed_type)])
        batches = [{self.seed_type: seeds} for seeds in seeds_of_turn(nodes, turn, num_batches)]
        return self._sample(batches, fanouts, int32, edge_ids)

    def sample_timed(
        self, turn: int, num_batches: int, fanouts: list[int], pick: str, edge_ids: bool = True
    ) -> dict[str, Any]:
        nodes = np.arange(self.arrays.num_nodes[self.arrays.type_number(self.seed_type)])
        batches = [{self.seed_type: seeds} for seeds in seeds_of_turn(nodes, turn, num_batches)]
        times = [{self.seed_type: of_batch} for of_batch in times_of_turn(self.arrays.span, turn, num_batches)]
        return self._sample(batches, fanouts, False, edge_ids, times, pick)

    def sample_ends(
        self,
        turn: int,
        num_batches: int,
        fanouts: list[int],
        num_negatives: int,
        int32: bool = False,
        edge_ids: bool = True,
    ) -> dict[str, Any]:
        """Links without what makes them: the kernel alone, for ends and negatives that are known."""
        src, _, dst = self.arrays.edge_types[self.link_type]
        columns = self.arrays.columns(self.link_type)
        batches = []
        for links in links_of_turn(len(columns.indices), turn, num_batches):
            sources, targets = ends_of_links(links, num_negatives, *columns)
            one = src == dst
            batches.append({src: np.union1d(sources, targets)} if one else {src: sources, dst: targets})
        return self._sample(batches, fanouts, int32, edge_ids)

    def sample_links(self, turn: int, num_batches: int, fanouts: list[int], num_negatives: int) -> dict[str, Any]:
        """As PyG's loader does it, negatives included; links are not left out of what is drawn."""
        from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NeighborSampler

        sampler = NeighborSampler(self._data, fanouts, is_sorted=True)
        negative, kind, num_edges = NegativeSampling("triplet", num_negatives), self._data.edge_types[self.link_type], 0

        def sample(links: torch.Tensor) -> None:
            nonlocal num_edges
            given = EdgeSamplerInput(None, self._ends[0][links], self._ends[1][links], input_type=kind)
            drawn = sampler.sample_from_edges(given, negative)
            num_edges += sum(row.numel() for row in drawn.row.values())

        batches = map(torch.from_numpy, links_of_turn(self._ends.shape[1], turn, num_batches))
        return timed(sample, batches) | {"edges": num_edges / num_batches}

    def load_links(
        self, turn: int, num_batches: int, fanouts: list[int], num_negatives: int, num_workers: int
    ) -> dict[str, Any]:
        from torch_geometric.loader import LinkNeighborLoader
        from torch_geometric.sampler import NegativeSampling

        torch.manual_seed(turn)
        loader = LinkNeighborLoader(
            self._data,
            num_neighbors=fanouts,
            edge_label_index=(self._data.edge_types[self.link_type], self._ends[:, self._some_links]),
            neg_sampling=NegativeSampling("triplet", num_negatives),
            batch_size=BATCH_SIZE,
            shuffle=True,
            drop_last=True,
            num_workers=num_workers,
            is_sorted=True,
        )
        return steady_ms(loader, num_batches, num_workers=num_workers)

    def _sample(
        self,
        batches: list[dict[str, np.ndarray]],
        fanouts: list[int],
        int32: bool,
        edge_ids: bool,
        times: list[dict[str, np.ndarray]] | None = None,
        pick: str = "uniform",
    ) -> dict[str, Any]:
        arrays, num_edges = self.arrays, 0
        indptr, indices = self._int32 if int32 else (self.indptr, self.indices)
        every = dict.fromkeys(self.names, fanouts)
        edge_time = None if times is None else self._times
        dtype = torch.int32 if int32 else torch.int64

        def sample(request: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor] | None]) -> None:
            nonlocal num_edges
            seeds, seed_time = request
            rows = torch.ops.pyg.hetero_neighbor_sample(
                arrays.node_types,
                arrays.edge_types,
                indptr,
                indices,
                seeds,
                every,
                None,  # node times
                edge_time,
                seed_time,
                None,  # weights
                True,  # CSC
                False,  # replace
                True,  # directed
                times is not None,  # disjoint
                pick,
                edge_ids,
            )[0]
            num_edges += sum(row.numel() for row in rows.values())

        tensors = [{name: torch.from_numpy(each).to(dtype) for name, each in batch.items()} for batch in batches]
        seed_times: list[Any] = [None] * len(batches)
        if times is not None:
            seed_times = [{name: torch.from_numpy(each) for name, each in of_batch.items()} for of_batch in times]
        return timed(sample, zip(tensors, seed_times, strict=True)) | {"edges": num_edges / len(batches)}

    @cached_property
    def _int32(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        narrow = [torch.from_numpy(on_huge_pages(each.numpy().astype(np.int32))) for each in self.indices.values()]
        return {name: each.int() for name, each in self.indptr.items()}, dict(zip(self.names, narrow, strict=True))

    @cached_property
    def _times(self) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(on_huge_pages(self.arrays.time(k))) for k, name in enumerate(self.names)}

    @cached_property
    def _data(self) -> Any:
        from torch_geometric.data import HeteroData

        data = HeteroData()
        for t, name in enumerate(self.arrays.node_types):
            x = self.arrays.features(t)
            if x is not None:
                data[name].x = torch.from_numpy(x)
            data[name].num_nodes = self.arrays.num_nodes[t]
        for kind, name in zip(self.arrays.edge_types, self.names, strict=True):
            data[kind].edge_index = _pairs(self.indptr[name], self.indices[name])
        return data

    @cached_property
    def _ends(self) -> torch.Tensor:
        """int64 ``[2, E_k]``: the links, all of them."""
        name = self.names[self.link_type]
        return _pairs(self.indptr[name], self.indices[name])

    @cached_property
    def _some_links(self) -> torch.Tensor:
        return torch.randperm(self._ends.shape[1])[:NUM_LINKS]


def _pairs(indptr: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    targets = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    return torch.stack([indices, targets])


if __name__ == "__main__":
    serve(PeerPyGTyped)

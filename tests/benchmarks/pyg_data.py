"""The graphs as PyG's users have them: Data and HeteroData in this process's own memory.

Edges lie in no order that helps anybody: by source, as PyG's ``coalesce`` leaves them, or as they were drawn.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

from tests.benchmarks.stored_arrays import stored_arrays
from tests.benchmarks.typed_arrays import TypedArrays


class PlainData:
    """A graph without types.

    Args:
        folder: of the prepared graph.
        by_source: the file of its edges' ends, int64 ``[2, E]``, by source.

    Attributes:
        seeds: what a loader begins at.
    """

    def __init__(self, folder: str, by_source: str) -> None:
        arrays = stored_arrays(folder)
        self.seeds = torch.from_numpy(np.array(arrays["train"]))
        x, y = (torch.from_numpy(np.array(arrays[name])) for name in ("x", "y"))
        self._data = Data(x=x, y=y, edge_index=torch.from_numpy(np.load(by_source)))

    def data(self, is_timed: bool) -> Data:
        return self._data


class TypedData:
    """A graph with types.

    Args:
        folder: of the prepared graph.
        seed_type: of nodes.
        link_type: number of the edge type of links.

    Attributes:
        seeds: what a loader of nodes begins at.
    """

    def __init__(self, folder: str, seed_type: str, link_type: int) -> None:
        self.arrays = arrays = TypedArrays(folder)
        self.seeds, self.link_type = seed_type, arrays.edge_types[link_type]
        self._x = {
            name: torch.from_numpy(np.array(x))
            for t, name in enumerate(arrays.node_types)
            if (x := arrays.features(t)) is not None
        }
        self._edges = {
            kind: torch.from_numpy(np.stack(arrays.pairs(k)).astype(np.int64))
            for k, kind in enumerate(arrays.edge_types)
        }

    def data(self, is_timed: bool) -> HeteroData:
        """Both have the same features and edges; that with times says when each edge came to be."""
        data = HeteroData()
        for name, count in zip(self.arrays.node_types, self.arrays.num_nodes, strict=True):
            data[name].num_nodes = count
            if name in self._x:
                data[name].x = self._x[name]
        for k, (kind, edge_index) in enumerate(self._edges.items()):
            data[kind].edge_index = edge_index
            if is_timed:
                data[kind].time = torch.from_numpy(np.array(self.arrays.time_given(k)))
        return data

    @cached_property
    def seed_times(self) -> torch.Tensor:
        """int64 ``[N]``: of each seed, in the later half of the graph's."""
        first, last = self.arrays.span
        count = self.arrays.num_nodes[self.arrays.type_number(self.seeds)]
        return torch.from_numpy(np.random.default_rng(0).integers((first + last) // 2, last, count))

    def links(self, number: int) -> tuple[Any, torch.Tensor]:
        """The type of the links, and the ends of some, int64 ``[2, number]``."""
        ends = self._edges[self.link_type]
        some = torch.randperm(ends.shape[1], generator=torch.Generator().manual_seed(0))[:number]
        return self.link_type, ends[:, some]

"""What PyG is told to do, by pyg-lib or by torch-sparse, whichever its Python has.

Both expand only the nodes that the last hop found, as ours does with ``expand="new"``.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
import torch

from tests.benchmarks.errors import Unavailable
from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.seeds import BATCH_SIZE, seeds_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.stored_arrays import stored_arrays
from tests.benchmarks.timing import steady_ms, timed

warnings.filterwarnings("ignore")


class PeerPyG:
    """Args:
    folder: the prepared graph.
    wide: the file of its indices as int64.
    in_memory: topology on 2 MB pages instead of mapped.
    """

    def __init__(self, folder: str, wide: str, in_memory: bool = False) -> None:
        arrays = stored_arrays(folder)
        place = on_huge_pages if in_memory else (lambda array: array)
        self.indptr = torch.from_numpy(place(arrays["indptr"]))
        self.narrow = arrays["indices"]
        self.indices = torch.from_numpy(place(np.load(wide, mmap_mode="c")))
        self.train = np.array(arrays["train"])
        self.x, self.y = (torch.from_numpy(arrays[name]) for name in ("x", "y"))

    def sample(
        self, turn: int, num_batches: int, fanouts: list[int], library: str, int32: bool = False, edge_ids: bool = True
    ) -> dict[str, Any]:
        draw = self._pyg_lib(fanouts, int32, edge_ids) if library == "pyg-lib" else self._torch_sparse(fanouts)
        dtype = torch.int32 if int32 else torch.int64
        batches = [torch.from_numpy(seeds).to(dtype) for seeds in seeds_of_turn(self.train, turn, num_batches)]
        num_edges = 0

        def sample(seeds: torch.Tensor) -> None:
            nonlocal num_edges
            num_edges += draw(seeds).numel()

        return timed(sample, batches) | {"edges": num_edges / num_batches}

    def load(self, turn: int, num_batches: int, fanouts: list[int], num_workers: int) -> dict[str, Any]:
        from torch_geometric.loader import NeighborLoader

        torch.manual_seed(turn)
        loader = NeighborLoader(
            self._data,
            num_neighbors=fanouts,
            input_nodes=torch.from_numpy(self.train),
            batch_size=BATCH_SIZE,
            shuffle=True,
            drop_last=True,
            num_workers=num_workers,
        )
        return steady_ms(loader, num_batches, num_workers=num_workers)

    def _torch_sparse(self, fanouts: list[int]) -> Any:
        _import("torch_sparse")
        draw = torch.ops.torch_sparse.neighbor_sample
        return lambda seeds: draw(self.indptr, self.indices, seeds, fanouts, False, True)[1]

    def _pyg_lib(self, fanouts: list[int], int32: bool, edge_ids: bool) -> Any:
        draw = _import("pyg_lib").sampler.neighbor_sample
        indptr, indices = self._int32 if int32 else (self.indptr, self.indices)
        options = {"csc": True, "return_edge_id": edge_ids}
        return lambda seeds: draw(indptr, indices, seeds, fanouts, **options)[0]

    @cached_property
    def _int32(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.indptr.int(), torch.from_numpy(on_huge_pages(self.narrow))

    @cached_property
    def _data(self) -> Any:
        from torch_geometric.data import Data

        size = (len(self.x), len(self.x))
        try:
            from torch_sparse import SparseTensor

            adjacency = SparseTensor(
                rowptr=self.indptr, col=self.indices, sparse_sizes=size, is_sorted=True, trust_data=True
            )
        except ImportError:
            ones = torch.ones(len(self.indices), dtype=torch.bool)
            adjacency = torch.sparse_csr_tensor(self.indptr, self.indices, ones, size=size)
        return Data(x=self.x, y=self.y, adj_t=adjacency)


def _import(module: str) -> Any:
    try:
        return __import__(module)
    except (ImportError, OSError) as error:
        raise Unavailable(f"{module} does not import: {error}") from error


if __name__ == "__main__":
    serve(PeerPyG)

"""The graphs that are sampled, the same for every library."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lightning_gnnload import Graph
from lightning_gnnload.datasets.debian import Debian
from lightning_gnnload.datasets.stored import StoredDataset
from lightning_gnnload.datasets.synthetic import Synthetic
from tests.benchmarks.growth_graph import GrowthGraph
from tests.benchmarks.serve import serve
from tests.benchmarks.typed_graph import TYPED_GRAPHS

# In nodes, edges and train nodes as ogbn-arxiv, ogbn-products and ogbn-papers100M.
G2 = Synthetic("chung-lu", num_nodes=170_000, num_edges=1_200_000, num_features=128, train_fraction=0.54)
G3 = Synthetic("chung-lu", num_nodes=400_000, num_edges=20_000_000, num_features=128)  # between them
G1 = Synthetic("chung-lu", num_nodes=2_400_000, num_edges=124_000_000, num_features=128)
GRAPHS: dict[str, StoredDataset] = {"debian": Debian(), "g2": G2, "g3": G3, "g1": G1, "growth": GrowthGraph()}


def wide_indices(name: str) -> Path:
    """The file of ``indices`` as int64, which DGL needs: its fused sampler breaks on int32 graphs.

    Both libraries map their topology from a file, so that neither pays for a copy the other does not make.
    """
    folder = GRAPHS[name].folder
    return folder.with_name(f"{folder.name}.int64-indices.npy")


def ends_by_source(name: str) -> Path:
    """The file of the edges' ends as int64 ``[2, E]``, by source and then by target: as PyG's ``coalesce`` has them."""
    folder = GRAPHS[name].folder
    return folder.with_name(f"{folder.name}.by-source.npy")


def edge_weights(num_edges: int) -> np.ndarray:
    """float32 ``[E]`` in [0.1, 1.1), the same for every library."""
    weights = np.random.default_rng(0).random(num_edges, np.float32)
    weights += np.float32(0.1)
    return weights


class Preparation:
    """Builds what is missing, in a process that ends: building takes memory that nobody should inherit."""

    def prepare(self, graph: str) -> dict[str, int]:
        if graph in TYPED_GRAPHS:
            return self._prepare_typed(graph)
        GRAPHS[graph].prepare()
        data = GRAPHS[graph].load()
        if graph != "growth":  # no peer runs there, and its int64 copy would be 13 GB
            made_from = GRAPHS[graph].folder / "manifest.json"
            _widen(data.graph.indices, wide_indices(graph), made_from)
            _turn(data.graph, ends_by_source(graph), made_from)
        return {
            "num_nodes": data.num_nodes,
            "num_edges": data.graph.num_edges,
            "num_features": data.num_features,
        }

    @staticmethod
    def _prepare_typed(graph: str) -> dict[str, int]:
        TYPED_GRAPHS[graph].prepare()
        arrays = TYPED_GRAPHS[graph].arrays
        kinds = range(len(arrays.edge_types))
        return {
            "num_nodes": sum(arrays.num_nodes),
            "num_edges": sum(map(arrays.num_edges, kinds)),
            "num_edge_types": len(kinds),
        }


def _widen(indices: np.ndarray, file: Path, made_from: Path) -> None:
    if file.exists() and file.stat().st_mtime >= made_from.stat().st_mtime:
        return
    partial = file.with_suffix(".partial")
    wide = np.lib.format.open_memmap(partial, "w+", np.int64, indices.shape)
    for chunk in _chunks(len(wide)):
        wide[chunk] = indices[chunk]
    wide.flush()
    partial.rename(file)


def _turn(graph: Graph, file: Path, made_from: Path) -> None:
    if file.exists() and file.stat().st_mtime >= made_from.stat().st_mtime:
        return
    targets = np.repeat(np.arange(graph.num_nodes, dtype=np.int32), np.diff(graph.indptr))
    turned = Graph.from_coo(targets, np.asarray(graph.indices), graph.num_nodes)
    partial = file.with_suffix(".partial")
    ends = np.lib.format.open_memmap(partial, "w+", np.int64, (2, turned.num_edges))
    ends[0] = np.repeat(np.arange(turned.num_nodes), np.diff(turned.indptr))
    ends[1] = turned.indices
    ends.flush()
    partial.rename(file)


def _chunks(length: int, size: int = 1 << 24) -> Iterator[slice]:
    return (slice(begin, begin + size) for begin in range(0, length, size))


if __name__ == "__main__":
    print(f"preparing graphs in {GRAPHS['debian'].folder.parent}", file=sys.stderr)
    serve(Preparation)

"""The graphs that are sampled, the same for every library."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lightning_gnnload.data.datasets.debian import Debian
from lightning_gnnload.data.datasets.stored import StoredDataset
from lightning_gnnload.data.datasets.synthetic import Synthetic
from tests.benchmarks.serve import serve

BATCH_SIZE = 1024


def dataset(name: str) -> StoredDataset:
    """``"debian"``: 63 k nodes, 0.7 M edges; ``"synthetic"``: 2.4 M nodes, 124 M edges (as ogbn-products)."""
    if name == "debian":
        return Debian()
    return Synthetic("chung-lu", num_nodes=2_400_000, num_edges=124_000_000, num_features=128)


def wide_indices(name: str) -> Path:
    """The file of ``indices`` as int64, which DGL needs: its fused sampler breaks on int32 graphs.

    Both libraries map their topology from a file, so that neither pays for a copy the other does not make.
    """
    folder = dataset(name).folder
    return folder.with_name(f"{folder.name}.int64-indices.npy")


def seeds_of_turn(train: np.ndarray, turn: int, num_batches: int) -> np.ndarray:
    """int64 ``[num_batches, BATCH_SIZE]``: distinct within a batch, the same for every library."""
    draw = np.random.default_rng(turn)
    return np.stack([draw.choice(train, BATCH_SIZE, replace=False) for _ in range(num_batches)])


class Preparation:
    """Builds what is missing, in a process that ends: building takes memory that nobody should inherit."""

    def prepare(self, graph: str) -> dict[str, int]:
        dataset(graph).prepare()
        data = dataset(graph).load()
        file = wide_indices(graph)
        made_from = dataset(graph).folder / "manifest.json"
        if not file.exists() or file.stat().st_mtime < made_from.stat().st_mtime:
            partial = file.with_suffix(".partial")
            wide = np.lib.format.open_memmap(partial, "w+", np.int64, data.graph.indices.shape)
            for chunk in _chunks(len(wide)):
                wide[chunk] = data.graph.indices[chunk]
            wide.flush()
            partial.rename(file)
        return {
            "num_nodes": data.num_nodes,
            "num_edges": data.graph.num_edges,
            "num_features": data.num_features,
        }


def _chunks(length: int, size: int = 1 << 24) -> Iterator[slice]:
    return (slice(begin, begin + size) for begin in range(0, length, size))


if __name__ == "__main__":
    print(f"preparing graphs in {dataset('debian').folder.parent}", file=sys.stderr)
    serve(Preparation)

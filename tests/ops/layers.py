"""Layer-wise batches for tests: what all of them need around the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_gnnload.ops import DrawKey, SamplerInput, Workspace, importance_tree, sample_layers

from .graphs import KEY, Batch, sampled

METHODS = ["ladies", "fastgcn", "dsp"]


def sample(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: Any,
    budgets: list[int],
    method: Any = "ladies",
    key: DrawKey = KEY,
    workspace: Workspace | None = None,
    **options: Any,
) -> Batch:
    """A batch in an arena that grows until it fits; ``edge_ids`` unless told otherwise."""
    workspace = workspace or Workspace(len(indptr) - 1)
    graph, names = (workspace, indptr, indices, np.asarray(seeds, np.int64), key), options.pop("names", None)
    options.setdefault("edge_ids", True)
    if method == "fastgcn" and "importance_tree" not in options:
        options["importance_tree"] = importance_tree(indptr, indices, options.get("weights"))
    return sampled(lambda arena: sample_layers(SamplerInput(*graph, arena, names), budgets, method, **options))


def assert_same(got: Batch, want: Batch) -> None:
    np.testing.assert_array_equal(got.nodes, want.nodes)
    for a, b in zip(got.hops, want.hops, strict=True):
        for column in ("indptr", "indices", "edge_ids", "edge_weights"):
            np.testing.assert_array_equal(getattr(a, column), getattr(b, column))


def uneven_star(num_seeds: int, degrees: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """``len(degrees)`` leaves, each an in-neighbour of so many of the ``num_seeds`` first nodes, from node 0 on."""
    rows = [[num_seeds + leaf for leaf, degree in enumerate(degrees) if seed < degree] for seed in range(num_seeds)]
    lengths = [len(row) for row in rows] + [0] * len(degrees)
    return np.concatenate([[0], np.cumsum(lengths)]), np.concatenate([np.array(row, np.int64) for row in rows])

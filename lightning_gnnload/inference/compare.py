"""Comparison with what the model gives on its own mini-batches: results are not believed before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from lightning_gnnload.errors import InferenceError
from lightning_gnnload.inference.calls import rows_of
from lightning_gnnload.inference.neighborhoods import InLists
from lightning_gnnload.inference.stages import Stages

_MOST_EDGES = 200_000
"""Of a node's whole neighbourhood, beyond which it is not compared."""
_TRIES = 4  # for each node to compare


class Difference(NamedTuple):
    """How far rows are apart, as a share of the larger of a row's own numbers and their typical size."""

    share: float
    place: int


def difference(found: torch.Tensor, wanted: torch.Tensor) -> Difference:
    """Returns the largest difference and its row; NaN counts as equal to NaN alone.

    Example:
        >>> difference(torch.tensor([[1.0], [float("nan")]]), torch.tensor([[1.0], [2.0]]))
        Difference(share=inf, place=1)
    """
    if found.shape != wanted.shape:
        return Difference(float("inf"), 0)
    found, wanted = (each.detach().cpu().double().reshape(len(each), -1) for each in (found, wanted))
    if not found.numel():
        return Difference(0.0, 0)
    typical = wanted[wanted.isfinite()].abs().mean().nan_to_num(0.0)
    share = (found - wanted).abs() / torch.maximum(wanted.abs(), typical).clamp(min=1e-12)
    share = torch.where((found == wanted) | (found.isnan() & wanted.isnan()), 0.0, share.nan_to_num(torch.inf))
    rows = share.amax(dim=1)
    place = int(rows.argmax())
    return Difference(float(rows[place]), place)


def own_rows(stages: Stages, lists: InLists, node: np.ndarray, reach: int, node_type: str) -> torch.Tensor | None:
    """Returns what the model gives for nodes on a mini-batch of their own neighbourhood; None where that is large."""
    most = _MOST_EDGES if lists.fanout == -1 else None
    batch = lists.hops(node, reach, most)
    if batch is None:
        return None
    with torch.no_grad():
        output = stages.run(stages.batches.whole(batch))
    return rows_of(output, "the model", node_type)[node_type][: len(node)]


def check(found: torch.Tensor, wanted: torch.Tensor, nodes: np.ndarray, tolerance: float) -> None:
    """Raises InferenceError: rows of these nodes, int64 ``[S]``, differ by more than rounding."""
    apart = difference(found, wanted)
    if apart.share <= tolerance:
        return
    raise InferenceError(
        f"layer by layer, the model gives other rows than on a mini-batch of the whole neighbourhood: those of node "
        f"{nodes[apart.place]} differ by {apart.share:.2g} of their size, but at most {tolerance:g} is rounding. Some "
        "layer needs more than the in-neighbours of a node: a mean or norm over all nodes of a mini-batch (PairNorm, "
        "GraphNorm, BatchNorm in training), degrees of sources, dropout that evaluation leaves on, or several hops in "
        "one convolution. Predict batch by batch: gnnload predict."
    )


def some_nodes(first: int, stop: int, count: int, seed: int) -> np.ndarray:
    """Returns nodes to try, at random, more than are to be compared."""
    size = min(stop - first, _TRIES * count)
    return first + np.random.default_rng(seed).choice(stop - first, size=size, replace=False)

"""Comparison with what the model gives on its own mini-batches: no results are returned before."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from lightning_gnnload.errors import InferenceError
from lightning_gnnload.inference.calls import rows_by_type
from lightning_gnnload.inference.neighborhoods import InLists
from lightning_gnnload.inference.passes import Bounds, Passes
from lightning_gnnload.inference.request import NodesByType
from lightning_gnnload.inference.rows import StoredRows
from lightning_gnnload.inference.stages import Key, Stages

_log = logging.getLogger("lightning_gnnload")
_REHEARSED = 12  # nodes
_MOST_EDGES = 200_000  # of a node's whole neighbourhood, which is computed at once to compare with
_TRIES = 4  # for each node to compare, as some have too many edges


class Difference(NamedTuple):
    """How far rows are apart at the most, as a share of the larger of a row's own numbers and their typical size, and
    which."""

    share: float
    row: int


def difference(actual: torch.Tensor, expected: torch.Tensor) -> Difference:
    """Returns the largest difference and its row; NaN equals NaN alone.

    Example:
        >>> difference(torch.tensor([[1.0], [float("nan")]]), torch.tensor([[1.0], [2.0]]))
        Difference(share=inf, row=1)
    """
    if actual.shape != expected.shape:
        return Difference(float("inf"), 0)
    actual, expected = (tensor.detach().cpu().double().reshape(len(tensor), -1) for tensor in (actual, expected))
    if not actual.numel():
        return Difference(0.0, 0)
    # A row of numbers near 0 is compared with what is usual, as a share of itself would be all rounding.
    typical = expected[expected.isfinite()].abs().mean().nan_to_num(0.0)
    share = (actual - expected).abs() / torch.maximum(expected.abs(), typical).clamp(min=1e-12)
    share = torch.where((actual == expected) | (actual.isnan() & expected.isnan()), 0.0, share.nan_to_num(torch.inf))
    by_row = share.amax(dim=1)
    row = int(by_row.argmax())
    return Difference(float(by_row[row]), row)


def tolerance_of(bounds: Bounds) -> float:
    """Returns the share of a difference that may be rounding."""
    return 1e-2 if bounds.half else 1e-4


def own_rows(stages: Stages, lists: InLists, node: np.ndarray, reach: int, node_type: str) -> torch.Tensor | None:
    """Returns what the model gives for nodes on a mini-batch of their own neighbourhood; None where that is large."""
    # A few neighbours of few hops are never many: only whole neighbourhoods may be the graph itself.
    most = _MOST_EDGES if lists.fanout == -1 else None
    batch = lists.hops(node, reach, most)
    if batch is None:
        return None
    with torch.no_grad():
        output = stages.run(stages.batches.whole(batch))
    return rows_by_type(output, "the model", node_type)[node_type][: len(node)]


def check_equal(rows: torch.Tensor, expected: torch.Tensor, nodes: np.ndarray, tolerance: float) -> None:
    """Raises InferenceError: rows of these nodes, int64 ``[S]``, differ by more than rounding."""
    apart = difference(rows, expected)
    if apart.share <= tolerance:
        return
    raise InferenceError(
        f"layer by layer, the model gives other rows than on a mini-batch of the whole neighbourhood: those of node "
        f"{nodes[apart.row]} differ by {apart.share:.2g} of their size, but at most {tolerance:g} is rounding. Some "
        "layer needs more than the in-neighbours of a node: a mean or norm over all nodes of a mini-batch (PairNorm, "
        "GraphNorm, BatchNorm in training), degrees of sources, dropout that evaluation leaves on, or several hops in "
        "one convolution. Predict batch by batch: gnnload predict."
    )


def some_nodes(first: int, stop: int, count: int, seed: int) -> np.ndarray:
    """Returns nodes to try, at random, more than are to be compared."""
    size = min(stop - first, _TRIES * count)
    return first + np.random.default_rng(seed).choice(stop - first, size=size, replace=False)


def rehearse(passes: Passes, requested: NodesByType, reach: int, seed: int) -> None:
    """Compares the passes over a few neighbours of few nodes with the model on all of these at once."""
    for node_type in requested:
        count, first = passes.num_nodes(node_type), passes.first_of(node_type)
        nodes = some_nodes(first, first + count, _REHEARSED, seed)[:_REHEARSED]
        if not len(nodes):
            continue
        reached = passes.lists.hops(nodes, reach)
        assert reached is not None
        by_type = passes.stages.ids_by_type(reached.nodes)
        # Blocks so small that several are needed: what crosses a block's border is compared, too.
        few = replace(passes.bounds, max_nodes=max(reached.num_nodes // 3, 1))
        here = replace(passes, bounds=few, stored={}, plan=passes.plan_for(node_type))

        def of_stage(
            key: Key, name: str, nodes: np.ndarray = nodes, first: int = first, by_type: dict[str, np.ndarray] = by_type
        ) -> np.ndarray:
            return nodes - first if key == passes.stages.output else np.sort(by_type[name])

        stored = here.over(of_stage, lambda _: None)[node_type]
        expected = own_rows(passes.stages, passes.lists, nodes, reach, node_type)
        assert expected is not None
        check_equal(stored.take(np.arange(len(nodes))), expected, nodes - first, tolerance_of(few))
        stored.remove()


def compare(
    passes: Passes,
    rows: Mapping[str, StoredRows],
    requested: NodesByType,
    reach: int,
    count: int,
    seed: int,
) -> None:
    """Compares rows with what the model gives on whole neighbourhoods, and logs of how many."""
    compared = 0
    for node_type, ids in requested.items():
        positions = some_nodes(0, passes.num_nodes(node_type) if ids is None else len(ids), count, seed)
        num_done = 0
        for position in positions.tolist():
            node = np.array([position if ids is None else ids[position]])
            expected = own_rows(passes.stages, passes.lists, node + passes.first_of(node_type), reach, node_type)
            if expected is not None:
                check_equal(rows[node_type].take(np.array([position])), expected, node, tolerance_of(passes.bounds))
                num_done += 1
            if num_done == count:
                break
        compared += num_done
    if compared or not count:
        _log.info("infer: %d nodes were compared with their whole neighbourhoods.", compared)
    else:
        _log.warning(
            "infer: no node's whole neighbourhood is small enough to compare with; parts of some were compared."
        )

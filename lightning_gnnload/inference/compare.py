"""Comparison with what the model gives on its own mini-batches: results are not believed before."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from lightning_gnnload.errors import InferenceError
from lightning_gnnload.inference.asked import Wanted
from lightning_gnnload.inference.calls import rows_of
from lightning_gnnload.inference.neighborhoods import InLists
from lightning_gnnload.inference.passes import Bounds, Passes
from lightning_gnnload.inference.rows import StoredRows
from lightning_gnnload.inference.stages import Key, Stages

_log = logging.getLogger("lightning_gnnload")
_REHEARSED = 12  # nodes
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


def tolerance_of(bounds: Bounds) -> float:
    """Returns what may be rounding, as a share."""
    return 1e-2 if bounds.half else 1e-4


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


def rehearse(passes: Passes, wanted: Wanted, reach: int, seed: int) -> None:
    """Compares the passes over a few neighbours of few nodes with the model on all of these at once."""
    for node_type in wanted:
        count, first = passes.num_nodes(node_type), passes.first_of(node_type)
        nodes = some_nodes(first, first + count, _REHEARSED, seed)[:_REHEARSED]
        if not len(nodes):
            continue
        reached = passes.lists.hops(nodes, reach)
        assert reached is not None
        by_type = passes.stages.ids_by_type(reached.nodes)
        few = replace(passes.bounds, max_nodes=max(reached.num_nodes // 3, 1))
        here = replace(passes, bounds=few, stored={}, plan=passes.of_output(node_type))

        def of_stage(
            key: Key, name: str, nodes: np.ndarray = nodes, first: int = first, by_type: dict[str, np.ndarray] = by_type
        ) -> np.ndarray:
            return nodes - first if key == passes.stages.output else np.sort(by_type[name])

        found = here.over(of_stage, lambda _: None)[node_type]
        wanted_rows = own_rows(passes.stages, passes.lists, nodes, reach, node_type)
        assert wanted_rows is not None
        check(found.take(np.arange(len(nodes))), wanted_rows, nodes - first, tolerance_of(few))
        found.remove()


def compare(
    passes: Passes,
    rows: Mapping[str, StoredRows],
    wanted: Wanted,
    reach: int,
    count: int,
    seed: int,
) -> None:
    """Compares rows with what the model gives on whole neighbourhoods, and says of how many."""
    compared = 0
    for node_type, ids in wanted.items():
        places = some_nodes(0, passes.num_nodes(node_type) if ids is None else len(ids), count, seed)
        done = 0
        for place in places.tolist():
            node = np.array([place if ids is None else ids[place]])
            own = own_rows(passes.stages, passes.lists, node + passes.first_of(node_type), reach, node_type)
            if own is not None:
                check(rows[node_type].take(np.array([place])), own, node, tolerance_of(passes.bounds))
                done += 1
            if done == count:
                break
        compared += done
    if compared or not count:
        _log.info("infer: %d nodes were compared with their whole neighbourhoods.", compared)
    else:
        _log.warning(
            "infer: no node's whole neighbourhood is small enough to compare with; parts of some were compared."
        )

"""What is allowed in graph data, but seldom meant: said once, before anybody trains on it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch

from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.errors import GraphDataError

_MOST_BYTES = 1 << 28
"""Of features looked at, a tenth of a second's worth; of larger ones, rows at equal distances."""
_MOST_ROWS = 1 << 12
"""Of features looked at where each row may be a page that has to be read from disk first."""


_NO_CLASS = -100
"""What torch's cross entropy passes over."""


_MOST_EDGES = 1 << 24
"""Looked at to tell whether edges lead the other way."""


_CSR = "; if the graph was made of lists of out-neighbours (CSR), take Graph.from_csr"
_TURN = (
    "swap them, Graph.from_coo(dst, src), or have them both ways; of lists of out-neighbours (CSR), take Graph.from_csr"
)


class SanityIssue(NamedTuple):
    """Holds one finding of the sanity checks, and tells whether it is probably a mistake."""

    text: str
    is_suspicious: bool


def sanity_issues(data: GraphData, *, mapped: bool, double: bool = True) -> list[SanityIssue]:
    """Finds splits that overlap, features that are no numbers or twice as wide as the model's, labels that are no
    numbers, and seeds without in-neighbours.

    Args:
        data: whose splits and a bounded part of whose features are read.
        mapped: the features lie in a file, of which few rows are looked at.
        double: the model computes in float64.
    """
    return [*_overlaps(data), *_not_numbers(data, mapped), *_too_wide(data, double), *_empty_seeds(data)]


def check_training_labels(data: GraphData) -> None:
    """Checks the labels of the seeds to train on, ``[S]``: of several columns, a loss may well leave some out.

    Raises:
        GraphDataError: a negative class other than -100, which torch's losses pass over; one of ``num_classes`` or
            more; or NaN.
    """
    table, seeds = data.table("train"), _seeds(data, "train")
    of_rows = table is not None and (table.y is not None or table.is_links)
    labels = table.y if of_rows and table is not None else None if data.y is None else data.y[tensor_view(seeds)]
    if labels is None or labels.ndim != 1 or not len(labels):
        return
    if labels.is_floating_point():
        bad, needed = labels.isnan(), "a number is needed"
    else:
        bad = (labels < 0) & (labels != _NO_CLASS)
        needed = "classes count from 0; targets of a regression are floats"
        if data._num_classes is not None and not bool(bad.any()):
            bad, needed = labels >= data._num_classes, f"classes lie in [0, {data._num_classes})"
    if bool(bad.any()):
        at = int(torch.argmax(bad.byte()))
        first = f"row {at}" if of_rows else f"node {seeds[at]}"
        raise GraphDataError(
            f"of {len(labels)} seeds to train on, {int(bad.sum())} have a label that is none, first {first} with "
            f"{labels[at]}: {needed}. Leave them out: GraphData(..., train=ids of labelled nodes)."
        )


def _overlaps(data: GraphData) -> list[SanityIssue]:
    found = []
    # A node may well be in rows of several splits, with other times.
    for one, other in combinations([name for name in SPLITS if data.table(name) is None], 2):
        common = np.intersect1d(data.split(one), data.split(other), assume_unique=True)
        if len(common):
            text = f"the splits {one} and {other} share nodes, {len(common)} in all, such as {common[0]}"
            found.append(SanityIssue(f"{text}: what is measured on {other} was seen in {one}.", True))
    return found


def _not_numbers(data: GraphData, mapped: bool) -> list[SanityIssue]:
    found = [issue for name, store in data.stores.items() if (issue := _not_a_number(name, store, mapped)) is not None]
    for split in SPLITS if data.y is not None and data.y.is_floating_point() else ():
        assert data.y is not None
        if (table := data.table(split)) is not None and table.y is not None:
            continue  # it was checked when it was made
        seeds = _seeds(data, split)
        bad = ~data.y[tensor_view(seeds)].isfinite()
        bad = bad.any(1) if bad.ndim == 2 else bad
        if bool(bad.any()):
            node = seeds[int(torch.argmax(bad.byte()))]
            text = f"of {len(seeds)} nodes to {split} on, {int(bad.sum())} have no number as label, such as {node}"
            found.append(SanityIssue(f"{text}. Leave them out of the split, or of the loss.", True))
    return found


def _too_wide(data: GraphData, double: bool) -> list[SanityIssue]:
    wide = [name for name, store in data.stores.items() if store.dtype is torch.float64 and not double]
    names = [name for name in wide if name.split(".")[0] == "x"]  # models choose what they take of other tables
    text = f"features {', '.join(names)} are float64, which a model in float32 does not take"
    return [SanityIssue(f"{text}: give them as float32, or Trainer(precision='64-true').", True)] if names else []


def _not_a_number(name: str, store: FeatureStore, mapped: bool) -> SanityIssue | None:
    if not isinstance(store, MemoryFeatureStore) or not store.dtype.is_floating_point or not store.rows.numel():
        return None
    most = _MOST_ROWS if mapped else max(_MOST_BYTES // max(store.row_bytes, 1), 1)
    every = -(-len(store.rows) // most)
    rows, columns = (~store.rows[::every].isfinite()).nonzero(as_tuple=True)
    if not len(rows):
        return None
    row, column = int(rows[0]) * every, int(columns[0])
    more = f", one of {len(rows)} such entries among those looked at" if len(rows) > 1 else ""
    where = f"features {name}[{row}, {column}] is {store.rows[row, column]}"
    return SanityIssue(f"{where}{more}: the loss will be NaN. Fill in what is missing.", True)


def _empty_seeds(data: GraphData) -> list[SanityIssue]:
    issue = lone_seeds_issue(data.graph, {f"nodes to {split} on": _seeds(data, split) for split in SPLITS})
    return [] if issue is None else [issue]


def lone_seeds_issue(
    graph: Graph, seeds: Mapping[str, np.ndarray], turn: str = _TURN, otherwise: str = _CSR
) -> SanityIssue | None:
    """Says which seeds no edge leads to; None where there are none of these.

    Args:
        graph: that is sampled.
        seeds: ids of nodes by what they are: ``{"nodes to train on": ids}``.
        turn: what turns edges around, where most of these seeds have edges that lead from them.
        otherwise: what to do where they have not.
    """
    found, most = [], []
    for what, nodes in seeds.items():
        is_lone = graph.indptr[nodes + 1] == graph.indptr[nodes]
        if num_lone := int(is_lone.sum()):
            found.append(f"{num_lone} of {len(nodes)} {what}")
        if 2 * num_lone > len(nodes):
            most.append(nodes[is_lone])
    if not found:
        return None
    advice = ""
    if most:
        advice = otherwise
        if _lead_out(graph, np.concatenate(most)):
            advice = (
                ", though most of them have out-neighbours. An edge src -> dst carries features from src into dst: if "
                f"edges were given the wrong way round, {turn}"
            )
    return SanityIssue(
        f"without in-neighbours, by their own features alone, are {', '.join(found)}{advice}.", bool(most)
    )


def _lead_out(graph: Graph, nodes: np.ndarray) -> bool:
    """Returns whether edges lead from most of the nodes, by as many edges as are looked at."""
    has_out = np.zeros(graph.num_nodes, bool)
    has_out[graph.indices[:_MOST_EDGES]] = True
    return 2 * int(has_out[nodes].sum()) > len(nodes)


def _seeds(data: GraphData, split: str) -> np.ndarray:
    """Gives the seeds that are nodes. Others, written to the split later, are an error where they are sampled."""
    seeds = data.split(split)
    return seeds[(seeds >= 0) & (seeds < data.num_nodes)]

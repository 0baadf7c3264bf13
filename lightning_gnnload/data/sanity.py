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
from lightning_gnnload.data.seen import MOST_ROWS, SeenEdges
from lightning_gnnload.errors import GraphDataError

_MOST_BYTES = 1 << 28
"""Of features looked at, a tenth of a second's worth; of larger ones, rows at equal distances."""
_MOST_ROWS = 1 << 12
"""Of features looked at where each row may be a page that has to be read from disk first."""


_NO_CLASS = -100
"""What torch's cross entropy passes over."""


_FEW_SEEN = 4
"""Times as many edges as seeds see by their nodes' times: more are a sign that others were meant."""


_MOST_EDGES = 1 << 24
"""Looked at to tell whether edges lead the other way."""


_CSR = "; if the graph was made of lists of out-neighbours (CSR), take Graph.from_csr"
_TURN = (
    "swap them, Graph.from_coo(dst, src), or have them both ways, as reverse: true in graph.yaml does; of lists of "
    "out-neighbours (CSR), take Graph.from_csr"
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
    return [*_overlaps(data), *_not_numbers(data, mapped, double), *_too_wide(data, double), *_empty_seeds(data)]


def seen_issue(seen: SeenEdges, seeds: str, remedy: str) -> SanityIssue | None:
    """Says which seeds see little of a graph with times; None where there is nothing to say.

    Args:
        seen: what they see.
        seeds: begins the sentence: ``"the seeds to train on"``.
        remedy: what to do where they have the times of their nodes, but should not.
    """
    few = f", of {seen.num_rows} rows looked at," if seen.num_rows == MOST_ROWS else ""
    blind = f"{seen.num_blind} of {seen.num_rows}{few} see no edge that has a time"
    counted = f"{seen.num_seen} of {seen.num_edges} such edges of theirs count"
    (low, high), (first, last) = seen.times, seen.of_graph
    unit = "Are both in the same unit? Dates are nanoseconds since 1970."
    if seen.are_own:
        if seen.num_seen == seen.num_edges:
            return None
        text = f"{seeds} have no times of their own: each sees the graph as of its node's time, so that {blind}, and "
        is_most = 2 * seen.num_blind > seen.num_dated or _FEW_SEEN * seen.num_seen < seen.num_edges
        return SanityIssue(f"{text}{counted}. If they ask about a later time, {remedy}.", is_most)
    if seen.are_early:
        return SanityIssue(
            f"{seeds}: {blind}: all come before {first}, the graph's earliest, up to {high}. {unit}", True
        )
    if seen.are_late:
        return SanityIssue(f"{seeds} come far behind {last}, the graph's latest, from {low} on. {unit}", True)
    if not seen.num_blind:
        return None
    return SanityIssue(f"{seeds}: at their times {blind}.", 2 * seen.num_blind > seen.num_dated)


def check_training_labels(data: GraphData) -> None:
    """Checks the labels of the seeds to train on, ``[S]``: of several columns, a loss may well leave some out.

    Raises:
        GraphDataError: a negative class other than -100, which torch's losses pass over; one of ``num_classes`` or
            more; or one that is infinite or NaN.
    """
    table, seeds = data.table("train"), _seeds(data, "train")
    of_rows = table is not None and not table.takes_labels_of_nodes
    labels = table.y if of_rows and table is not None else None if data.y is None else data.y[tensor_view(seeds)]
    if labels is None or labels.ndim != 1 or not len(labels):
        return
    if labels.is_floating_point():
        bad, needed = ~labels.isfinite(), "a number is needed"
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


def _not_numbers(data: GraphData, mapped: bool, double: bool) -> list[SanityIssue]:
    issues = (_not_a_number(name, store, mapped, double) for name, store in data.stores.items())
    found = [issue for issue in issues if issue is not None]
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


def _not_a_number(name: str, store: FeatureStore, mapped: bool, double: bool) -> SanityIssue | None:
    if not isinstance(store, MemoryFeatureStore) or not store.dtype.is_floating_point or not store.rows.numel():
        return None
    most = _MOST_ROWS if mapped else max(_MOST_BYTES // max(store.row_bytes, 1), 1)
    every = -(-len(store.rows) // most)
    held = store.rows[::every]
    # As the model has them: numbers beyond float32 become infinite.
    held = held if double or store.dtype is not torch.float64 else held.float()
    rows, columns = (~held.isfinite()).nonzero(as_tuple=True)
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

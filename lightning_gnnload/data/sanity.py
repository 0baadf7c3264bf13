"""Checks for what is allowed in graph data but is probably a mistake; each is said once, before training."""

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
from lightning_gnnload.data.visibility import MOST_ROWS, VisibleEdges
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.host.pages import source_of

_MOST_BYTES = 1 << 28  # of features that are checked: a tenth of a second; of larger ones, rows at equal distances
_MOST_ROWS = 1 << 12  # of mapped features that are checked: each row may be a page to read from disk
_MOST_EDGES = 1 << 24  # that are read to find out whether edges lead the other way
NO_CLASS = -100  # the label that torch's cross entropy ignores
_FEW_VISIBLE = 4  # where seeds see less than a quarter of their edges by their nodes' times, other times were meant

_CSR = "; if the graph was made of lists of out-neighbours (CSR), take Graph.from_csr"
_TURN = (
    "swap them, Graph.from_coo(dst, src), or have them both ways, as reverse: true in graph.yaml does; of lists of "
    "out-neighbours (CSR), take Graph.from_csr"
)


class SanityIssue(NamedTuple):
    """A finding of the sanity checks, and whether it is probably a mistake."""

    text: str
    is_suspicious: bool


def sanity_issues(data: GraphData, *, mapped: bool, double: bool = True) -> list[SanityIssue]:
    """Finds splits that overlap, NaN in features and labels, features in float64, and seeds without in-neighbours.

    It reads the splits and a bounded part of the features, which is small where these are ``mapped`` files; ``double``
    says that the model computes in float64.
    """
    return [*_overlaps(data), *_not_numbers(data, mapped, double), *_too_wide(data, double), *_empty_seeds(data)]


def visibility_issue(visible: VisibleEdges, seeds: str, remedy: str) -> SanityIssue | None:
    """Returns an issue where seeds see few edges of a graph with times.

    ``seeds`` begins its sentence: ``"the seeds to train on"``. ``remedy`` says how to give them times other than those
    of their nodes.
    """
    few = f", of {visible.num_rows} rows looked at," if visible.num_rows == MOST_ROWS else ""
    blind = f"{visible.num_blind} of {visible.num_rows}{few} see no edge that has a time"
    counted = f"{visible.num_visible} of {visible.num_edges} such edges of theirs count"
    (low, high), (first, last) = visible.times, visible.graph_times
    unit = "Are both in the same unit? Dates are nanoseconds since 1970."
    if visible.use_node_times:
        if visible.num_visible == visible.num_edges:
            return None
        text = f"{seeds} have no times of their own: each sees the graph as of its node's time, so that {blind}, and "
        is_most = 2 * visible.num_blind > visible.num_dated or _FEW_VISIBLE * visible.num_visible < visible.num_edges
        return SanityIssue(f"{text}{counted}. If they ask about a later time, {remedy}.", is_most)
    if visible.are_early:
        return SanityIssue(
            f"{seeds}: {blind}: all come before {first}, the graph's earliest, up to {high}. {unit}", True
        )
    if visible.are_late:
        return SanityIssue(f"{seeds} come far behind {last}, the graph's latest, from {low} on. {unit}", True)
    if not visible.num_blind:
        return None
    return SanityIssue(f"{seeds}: at their times {blind}.", 2 * visible.num_blind > visible.num_dated)


def check_training_labels(data: GraphData) -> None:
    """Raises GraphDataError where a seed to train on has a label that no loss takes: NaN, infinite, or no class."""
    table, seeds = data.table("train"), _seeds(data, "train")
    labels: torch.Tensor | None = None
    has_row_labels = table is not None and not table.takes_labels_of_nodes
    stored = table.y if table is not None and has_row_labels else data.y
    if has_row_labels:
        labels = stored
    elif data.y is not None:
        labels = data.y[tensor_view(seeds)]
    # Of several columns, a loss may well leave some out.
    if labels is None or labels.ndim != 1 or not len(labels):
        return
    bad, needed = bad_labels(labels, data._num_classes)
    if bool(bad.any()):
        at = int(torch.argmax(bad.byte()))
        first = f"row {at}" if has_row_labels else f"node {seeds[at]}"
        raise GraphDataError(
            f"of {len(labels)} seeds to train on, {int(bad.sum())} have a label that is none, first {first} with "
            f"{labels[at]}: {needed}. Leave them out: GraphData(..., train=ids of labelled nodes)."
            f"{'' if stored is None else source_of(stored.data_ptr())}"
        )


def bad_labels(labels: torch.Tensor, num_classes: int | None) -> tuple[torch.Tensor, str]:
    """Returns which labels ``[S]`` are bad, bool, and what is needed instead."""
    if labels.is_floating_point():
        return ~labels.isfinite(), "a number is needed"
    labels = labels.long()  # torch compares no unsigned numbers of more than 8 bits
    negative = (labels < 0) & (labels != NO_CLASS)
    if num_classes is not None and not bool(negative.any()):
        return labels >= num_classes, f"classes lie in [0, {num_classes})"
    return negative, "classes count from 0; targets of a regression are floats"


def _overlaps(data: GraphData) -> list[SanityIssue]:
    issues = []
    # A node may well be in rows of several splits, with other times.
    for first, second in combinations([name for name in SPLITS if data.table(name) is None], 2):
        # GraphData refuses a split that has a node twice.
        common = np.intersect1d(data.split(first), data.split(second), assume_unique=True)
        if len(common):
            text = f"the splits {first} and {second} share nodes, {len(common)} in all, such as {common[0]}"
            issues.append(SanityIssue(f"{text}: what is measured on {second} was seen in {first}.", True))
    return issues


def _not_numbers(data: GraphData, mapped: bool, double: bool) -> list[SanityIssue]:
    issues = [_not_a_number(name, store, mapped, double) for name, store in data.stores.items()]
    if data.y is not None and data.y.is_floating_point():
        issues += [_unlabelled(data.y, split, data) for split in SPLITS]
    return [issue for issue in issues if issue is not None]


def _unlabelled(y: torch.Tensor, split: str, data: GraphData) -> SanityIssue | None:
    table = data.table(split)
    if table is not None and table.y is not None:
        return None  # a table checks its labels when it is made
    seeds = _seeds(data, split)
    bad = ~y[tensor_view(seeds)].isfinite()
    bad = bad.any(1) if bad.ndim == 2 else bad
    if not bool(bad.any()):
        return None
    node = seeds[int(torch.argmax(bad.byte()))]
    text = f"of {len(seeds)} nodes to {split} on, {int(bad.sum())} have no number as label, such as {node}"
    return SanityIssue(f"{text}. Leave them out of the split, or of the loss.", True)


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
    sampled = store.rows[::every]
    # In the model's dtype: numbers beyond float32 become infinite.
    sampled = sampled if double or store.dtype is not torch.float64 else sampled.float()
    rows, columns = (~sampled.isfinite()).nonzero(as_tuple=True)
    if not len(rows):
        return None
    row, column = int(rows[0]) * every, int(columns[0])
    more = f", one of {len(rows)} such entries among those looked at" if len(rows) > 1 else ""
    where = f"features {name}[{row}, {column}] is {store.rows[row, column]}"
    return SanityIssue(f"{where}{more}: the loss will be NaN. Fill in what is missing.", True)


def _empty_seeds(data: GraphData) -> list[SanityIssue]:
    if not data.graph.has_lists:
        return []
    issue = lone_seeds_issue(data.graph, {f"nodes to {split} on": _seeds(data, split) for split in SPLITS})
    return [] if issue is None else [issue]


def lone_seeds_issue(
    graph: Graph, seeds: Mapping[str, np.ndarray], turn: str = _TURN, otherwise: str = _CSR
) -> SanityIssue | None:
    """Returns an issue where no edge leads to some seeds: ids by purpose, as ``{"nodes to train on": ids}``.

    ``turn`` says how to reverse the edges, for seeds with out-edges alone; ``otherwise`` is the advice for others.
    """
    counts, most = [], []
    for purpose, nodes in seeds.items():
        is_lone = graph.indptr[nodes + 1] == graph.indptr[nodes]
        if num_lone := int(is_lone.sum()):
            counts.append(f"{num_lone} of {len(nodes)} {purpose}")
        if 2 * num_lone > len(nodes):
            most.append(nodes[is_lone])
    if not counts:
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
        f"without in-neighbours, by their own features alone, are {', '.join(counts)}{advice}.", bool(most)
    )


def _lead_out(graph: Graph, nodes: np.ndarray) -> bool:
    """Returns whether edges lead from most of the nodes, among the first _MOST_EDGES."""
    has_out = np.zeros(graph.num_nodes, bool)
    has_out[graph.indices[:_MOST_EDGES]] = True
    return 2 * int(has_out[nodes].sum()) > len(nodes)


def _seeds(data: GraphData, split: str) -> np.ndarray:
    # Ids that were written into the split later may be anything, and are an error where they are sampled.
    seeds = data.split(split)
    return seeds[(seeds >= 0) & (seeds < data.num_nodes)]

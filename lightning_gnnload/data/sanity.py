"""What is allowed in graph data, but seldom meant: said once, before anybody trains on it."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch

from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.data.graphdata import SPLITS, GraphData

_MOST_BYTES = 1 << 28
"""Of features looked at, a tenth of a second's worth; of larger ones, rows at equal distances."""
_MOST_ROWS = 1 << 12
"""Of features looked at where each row may be a page that has to be read from disk first."""


class SanityIssue(NamedTuple):
    """Holds one finding of the sanity checks, and tells whether it is probably a mistake."""

    text: str
    is_suspicious: bool


def sanity_issues(data: GraphData, *, mapped: bool) -> list[SanityIssue]:
    """Finds splits that overlap, features and labels that are no numbers, and seeds without in-neighbours.

    Args:
        data: whose splits and a bounded part of whose features are read.
        mapped: the features lie in a file, of which few rows are looked at.
    """
    return [*_overlaps(data), *_not_numbers(data, mapped), *_empty_seeds(data)]


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
    indptr, found, is_most = data.graph.indptr, [], False
    for split in SPLITS:
        seeds = _seeds(data, split)
        if num_empty := int((indptr[seeds + 1] == indptr[seeds]).sum()):
            found.append(f"{num_empty} of {len(seeds)} nodes to {split} on")
            is_most |= 2 * num_empty > len(seeds)
    if not found:
        return []
    advice = "; if the graph was made of lists of out-neighbours (CSR), take Graph.from_csr" if is_most else ""
    return [
        SanityIssue(f"without in-neighbours, by their own features alone, are {', '.join(found)}{advice}.", is_most)
    ]


def _seeds(data: GraphData, split: str) -> np.ndarray:
    """Gives the seeds that are nodes. Others, written to the split later, are an error where they are sampled."""
    seeds = data.split(split)
    return seeds[(seeds >= 0) & (seeds < data.num_nodes)]

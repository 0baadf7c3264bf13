"""The sets of a task in GraphBolt's folders, as labels and splits: nodes, or rows of nodes or links.

Shapes: R rows of a set, Q queries, M negatives of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_rows
from lightning_gnnload.data.datasets.described import Description
from lightning_gnnload.data.datasets.graphbolt_files import read_rows
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS
from lightning_gnnload.data.seedtable import RESERVED, SeedTable
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import DatasetError

SETS = dict(zip(SPLITS, ("train_set", "validation_set", "test_set"), strict=True))
_SEEDS = ("seeds", "seed_nodes", "node_pairs")  # the latter two as GraphBolt called them up to DGL 2.1
_TIMES = ("timestamp", "timestamps", "time")
_NEGATIVES = {"dst": "negative_dsts", "src": "negative_srcs"}


def edge_type_of(entry: Description, name: str) -> EdgeType:
    """Returns the triple that a field writes as ``"source:relation:target"``."""
    parts = entry.take(name, str).split(":")
    if len(parts) != 3 or not all(parts):
        raise entry.error(name, "an edge type is needed, as 'source type:relation:target type'")
    return parts[0], parts[1], parts[2]


@dataclass
class SeedSet:
    """One set of seeds: nodes or links of one type, each a row."""

    place: str
    of_type: str | EdgeType | None
    ends: np.ndarray  # int64 [R], or [R, 2] of links
    labels: torch.Tensor | None
    columns: dict[str, torch.Tensor]

    @property
    def is_links(self) -> bool:
        return self.ends.ndim == 2

    @property
    def table(self) -> SeedTable:
        columns = dict(self.columns)
        time = next((columns.pop(name) for name in _TIMES if name in columns), None)
        ends: dict[str, Any] = {"nodes": self.ends, "node_type": self.of_type}
        if self.is_links:
            ends = {"src": self.ends[:, 0], "dst": self.ends[:, 1], "edge_type": self.of_type}
        return SeedTable(**ends, time=time, weight=columns.pop("weight", None), y=self.labels, columns=columns)


@dataclass
class SetReader:
    """Reads the sets of a task of GraphBolt's, as labels and splits.

    Attributes:
        file: that describes it.
        graph: that the seeds are nodes and links of.
        left_out: names of data that no seeds can carry, filled as sets are read.
        notes: what else the user is to know, likewise.
    """

    file: Path
    graph: Graph
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def seeds(self, described: Mapping[str, list[Description]]) -> dict[str, Any]:
        """Returns the arguments ``y``, ``train``, ``val`` and ``test`` of :class:`.GraphData`, by type where dicts.

        Raises:
            DatasetError: a set that is broken, or beside which another stands that cannot go with it.
        """
        sets = {split: list(map(self._set, of_split)) for split, of_split in described.items()}
        self.notes = list(dict.fromkeys(self.notes))
        every = [each for of_split in sets.values() for each in of_split]
        y = _labels_by_node(every, self.graph) if _are_nodes(every) else None
        if y is not None:
            by_split = {split: {each.of_type: each.ends for each in of_split} for split, of_split in sets.items()}
            return {"y": y, **by_split}
        tables: dict[str, Any] = {}
        for split, of_split in sets.items():
            if len(of_split) > 1:
                types = ", ".join(_written(each.of_type) for each in of_split)
                raise self._error(
                    f"{SETS[split]} has rows of several types, {types}, which do not come in one mini-batch; give "
                    "seed_type=, one of them"
                )
            for each in of_split:
                tables[split] = each.table
        return tables

    def _set(self, entry: Description) -> SeedSet:
        data: dict[str, torch.Tensor] = {}
        for part in entry.parts("data"):
            name = part.take("name", str)
            if name in data:
                raise part.error("name", "it is there twice; each name once is needed")
            data[name] = as_rows(read_rows(part), name=f"{entry.file}: {part.place}")
        given = [name for name in _SEEDS if name in data]
        if len(given) != 1:
            raise self._error(f"{entry.place}.data has {sorted(data)}, but 'seeds' are needed, once")
        seeds = data.pop(given[0])
        for name, rows in data.items():
            if len(rows) != len(seeds):
                raise self._error(f"{entry.place}: {name} has {len(rows)} rows for {len(seeds)} of {given[0]}")
        if seeds.ndim not in (1, 2) or seeds.shape[1:] not in ((), (2,)):
            raise self._error(
                f"{entry.place}: {given[0]} is {list(seeds.shape)}, but nodes [R] or links [R, 2] are needed"
            )
        of_type, ends = self._type_of(entry, is_links=seeds.ndim == 2)
        columns = zip(seeds.reshape(len(seeds), len(ends)).unbind(1), ends, strict=True)
        ids = np.stack([self._ids(column, end, f"{entry.place}: {given[0]}") for column, end in columns], axis=1)
        labels = data.pop("labels", None)
        found = SeedSet(entry.place, of_type, ids if seeds.ndim == 2 else ids[:, 0], labels, data)
        if found.is_links:
            self._negatives(found, dict(zip(("src", "dst"), ends, strict=True)))
        self._leave_columns(found)
        return found

    def _type_of(self, entry: Description, *, is_links: bool) -> tuple[str | EdgeType | None, list[str | None]]:
        """Returns the type of a set, and of each end of its rows the node type."""
        types = self.graph.types
        if types is None:
            if entry.has("type"):
                raise entry.error("type", "the graph has no types, so sets can have none. Leave it out")
            return None, [None] * (1 + is_links)
        if is_links:
            of_type = edge_type_of(entry, "type")
            if of_type not in types.edge_types:
                raise entry.error("type", f"the edge types are {', '.join(map(_written, types.edge_types))}")
            return of_type, [of_type[0], of_type[2]]
        node_type = entry.choose("type", types.node_types)
        return node_type, [node_type]

    def _ids(self, rows: torch.Tensor, node_type: str | None, what: str) -> np.ndarray:
        """Returns node ids of a type, int64, of the same shape."""
        if rows.is_floating_point() or rows.dtype is torch.bool:
            raise self._error(f"{what} are {rows.dtype}, but node ids are whole numbers")
        ids = rows.numpy().astype(np.int64, copy=False)
        types = self.graph.types
        count = self.graph.num_nodes if node_type is None or types is None else len(types.range_of(node_type))
        bad = np.argwhere((ids < 0) | (ids >= count))
        if len(bad):
            at = tuple(bad[0].tolist())
            of_type = "" if node_type is None else f" of type {node_type!r}"
            raise self._error(
                f"{what}, row {at[0]}: {ids[at]} is no node{of_type}; ids must lie in [0, {count}), counted from 0"
            )
        return ids

    def _negatives(self, found: SeedSet, end_types: dict[str, str | None]) -> None:
        """Turns negatives of either form into the column of a :class:`.SeedTable` that holds them."""
        by_end = {}
        for end, name in _NEGATIVES.items():
            if (rows := found.columns.pop(name, None)) is not None:
                rows = rows.flatten(1) if rows.ndim > 1 else rows[:, None]
                by_end[end] = self._ids(rows, end_types[end], f"{found.place}: {name}")
        if by_end:
            end = self._replaced(found, by_end)
            negatives = by_end[end]
        elif found.labels is None or "indexes" not in found.columns:
            return
        else:
            labels, indexes = found.labels.double().numpy(), found.columns["indexes"].long().numpy()
            grouped = _queries(found.ends, labels, indexes)
            if grouped is None:
                return
            found.ends, end, negatives = grouped
            others = [name for name in found.columns if name != "indexes"]
            self.left_out += [f"{found.place}: {name}, as rows are queries" for name in others]
            found.labels, found.columns = None, {}
        found.columns["negatives"] = torch.from_numpy(np.ascontiguousarray(negatives))
        if end == "src":
            self.notes.append("Its negatives replace sources: give negatives=Negatives('hard', corrupt='src').")

    def _replaced(self, found: SeedSet, by_end: dict[str, np.ndarray]) -> str:
        """Returns which end negatives replace: that of which alone they are given, or at which alone they differ."""
        for end, other, column in (("dst", "src", 0), ("src", "dst", 1)):
            if end in by_end and (other not in by_end or (by_end[other] == found.ends[:, [column]]).all()):
                return end
        raise self._error(
            f"{found.place}: negative_srcs and negative_dsts differ from the pairs at both ends, but a negative here "
            "replaces one end of its row. Give one of them, or all pairs as seeds [R, 2] with labels"
        )

    def _leave_columns(self, found: SeedSet) -> None:
        taken = {*RESERVED} - {*_TIMES, "weight"}
        for name in [name for name in found.columns if name in taken or not name.isidentifier()]:
            del found.columns[name]
            self.left_out.append(f"{found.place}: {name}, which names no column")

    def _error(self, problem: str) -> DatasetError:
        return DatasetError(f"{self.file}: {problem}.")


def _are_nodes(every: list[SeedSet]) -> bool:
    """Returns whether splits are nodes, each once and with a label that is the same wherever it stands, or none has
    one: what labels and ids of nodes say as well as rows do."""
    if any(each.is_links or each.columns or len(np.unique(each.ends)) < len(each.ends) for each in every):
        return False
    return len({each.labels is None for each in every}) < 2


def _labels_by_node(every: list[SeedSet], graph: Graph) -> dict[Any, torch.Tensor] | None:
    """Returns labels ``[N_t, ...]`` by node type, NaN or -1 where there is none; None where a node has several, or sets
    have labels of several kinds."""
    given: dict[Any, list[tuple[np.ndarray, torch.Tensor]]] = {}
    for each in every:
        if each.labels is not None:
            given.setdefault(each.of_type, []).append((each.ends, each.labels))
    if len({(rows.shape[1:], rows.is_floating_point()) for sets in given.values() for _, rows in sets}) > 1:
        return None
    y: dict[Any, torch.Tensor] = {}
    for of_type, sets in given.items():
        ids = torch.from_numpy(np.concatenate([ends for ends, _ in sets]))
        values = torch.cat([rows for _, rows in sets])
        count = graph.num_nodes if graph.types is None else len(graph.types.range_of(of_type))
        if not values.is_floating_point():
            values = values.long()
        nothing = float("nan") if values.is_floating_point() else -1
        y[of_type] = torch.full((count, *values.shape[1:]), nothing, dtype=values.dtype)
        y[of_type][ids] = values
        if not torch.allclose(y[of_type][ids], values, rtol=0, atol=0, equal_nan=True):
            return None
    return y


def _queries(ends: np.ndarray, labels: np.ndarray, indexes: np.ndarray) -> tuple[np.ndarray, str, np.ndarray] | None:
    """Takes rows whose labels say which are true as queries: the rows of one index, of which one is true.

    Returns:
        The true links ``[Q, 2]``, by rising index; which end the false ones replace, ``"src"`` or ``"dst"``; their ids
        ``[Q, M]``. None where rows are no such queries, all of one size.
    """
    if labels.ndim != 1 or indexes.ndim != 1 or not len(labels) or not np.isin(labels, (0, 1)).all():
        return None
    order = np.lexsort((labels == 0, indexes))  # the true row of an index first
    _, counts = np.unique(indexes, return_counts=True)
    size = int(counts[0])
    if size < 2 or (counts != size).any() or (labels[order].reshape(-1, size).sum(1) != 1).any():
        return None
    rows = ends[order].reshape(-1, size, 2)
    for column, end in ((1, "dst"), (0, "src")):
        kept = rows[:, :, 1 - column]
        if (kept == kept[:, :1]).all():
            return rows[:, 0], end, rows[:, 1:, column]
    return None


def _written(of_type: str | EdgeType | None) -> str:
    return of_type if isinstance(of_type, str) else ":".join(of_type or ())

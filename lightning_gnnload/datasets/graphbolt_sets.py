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
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS
from lightning_gnnload.data.seedtable import RESERVED, SeedTable
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.datasets.description import Description
from lightning_gnnload.datasets.graphbolt_files import map_array
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

    where: str  # it stands in the description
    type: str | EdgeType | None
    ids: np.ndarray  # int64 [R], or [R, 2] of links
    labels: torch.Tensor | None
    columns: dict[str, torch.Tensor]

    @property
    def is_links(self) -> bool:
        return self.ids.ndim == 2

    @property
    def table(self) -> SeedTable:
        columns = dict(self.columns)
        time = next((columns.pop(name) for name in _TIMES if name in columns), None)
        rows: dict[str, Any] = {"nodes": self.ids, "node_type": self.type}
        if self.is_links:
            rows = {"src": self.ids[:, 0], "dst": self.ids[:, 1], "edge_type": self.type}
        return SeedTable(**rows, time=time, weight=columns.pop("weight", None), y=self.labels, columns=columns)


@dataclass
class SetReader:
    """Reads the sets of a task of GraphBolt's, as labels and splits."""

    file: Path
    graph: Graph
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def seeds(self, descriptions: Mapping[str, list[Description]]) -> dict[str, Any]:
        """Returns the arguments ``y``, ``train``, ``val`` and ``test`` of :class:`.GraphData`, by type where dicts;
        raises DatasetError for a set that is broken, or that does not go with another one."""
        sets = {split: list(map(self._set, entries)) for split, entries in descriptions.items()}
        # Each set may say the same.
        self.notes = list(dict.fromkeys(self.notes))
        every = [seed_set for split_sets in sets.values() for seed_set in split_sets]
        y = _labels_by_node(every, self.graph) if _are_nodes(every) else None
        if y is not None:
            return {"y": y, **{split: {s.type: s.ids for s in split_sets} for split, split_sets in sets.items()}}
        for split, split_sets in sets.items():
            if len(split_sets) > 1:
                types = ", ".join(_written(seed_set.type) for seed_set in split_sets)
                raise self._error(
                    f"{SETS[split]} has rows of several types, {types}, which do not come in one mini-batch; give "
                    "seed_type=, one of them"
                )
        return {split: split_sets[0].table for split, split_sets in sets.items() if split_sets}

    def _data(self, entry: Description) -> dict[str, torch.Tensor]:
        data: dict[str, torch.Tensor] = {}
        for part in entry.parts("data"):
            name = part.take("name", str)
            if name in data:
                raise part.error("name", "it is there twice; each name once is needed")
            data[name] = as_rows(map_array(part), name=f"{entry.file}: {part.where}")
        return data

    def _set(self, entry: Description) -> SeedSet:
        data = self._data(entry)
        seed_names = [name for name in _SEEDS if name in data]
        if len(seed_names) != 1:
            raise self._error(f"{entry.where}.data has {sorted(data)}, but 'seeds' are needed, once")
        [seed_name] = seed_names
        rows = data.pop(seed_name)
        for name, column in data.items():
            if len(column) != len(rows):
                raise self._error(f"{entry.where}: {name} has {len(column)} rows for {len(rows)} of {seed_name}")
        if rows.ndim not in (1, 2) or rows.shape[1:] not in ((), (2,)):
            raise self._error(
                f"{entry.where}: {seed_name} is {list(rows.shape)}, but nodes [R] or links [R, 2] are needed"
            )
        type_, node_types = self._type_of(entry, is_links=rows.ndim == 2)
        columns = zip(rows.reshape(len(rows), len(node_types)).unbind(1), node_types, strict=True)
        ids = np.stack([self._ids(column, t, f"{entry.where}: {seed_name}") for column, t in columns], axis=1)
        labels = data.pop("labels", None)
        seeds = SeedSet(entry.where, type_, ids if rows.ndim == 2 else ids[:, 0], labels, data)
        if seeds.is_links:
            self._negatives(seeds, dict(zip(("src", "dst"), node_types, strict=True)))
        self._leave_columns(seeds)
        return seeds

    def _type_of(self, entry: Description, *, is_links: bool) -> tuple[str | EdgeType | None, list[str | None]]:
        """Returns the type of a set, and of each end of its rows the node type."""
        types = self.graph.types
        if types is None:
            if entry.has("type"):
                raise entry.error("type", "the graph has no types, so sets can have none. Leave it out")
            return None, [None] * (1 + is_links)
        if is_links:
            edge_type = edge_type_of(entry, "type")
            if edge_type not in types.edge_types:
                raise entry.error("type", f"the edge types are {', '.join(map(_written, types.edge_types))}")
            return edge_type, [edge_type[0], edge_type[2]]
        node_type = entry.choose("type", types.node_types)
        return node_type, [node_type]

    def _ids(self, rows: torch.Tensor, node_type: str | None, where: str) -> np.ndarray:
        """Returns node ids of a type, int64, of the same shape."""
        if rows.is_floating_point() or rows.dtype is torch.bool:
            raise self._error(f"{where} are {rows.dtype}, but node ids are whole numbers")
        ids = rows.numpy().astype(np.int64, copy=False)
        types = self.graph.types
        count = self.graph.num_nodes if node_type is None or types is None else len(types.range_of(node_type))
        bad = np.argwhere((ids < 0) | (ids >= count))
        if len(bad):
            at = tuple(bad[0].tolist())
            type_ = "" if node_type is None else f" of type {node_type!r}"
            raise self._error(
                f"{where}, row {at[0]}: {ids[at]} is no node{type_}; ids must lie in [0, {count}), counted from 0"
            )
        return ids

    def _negatives(self, seeds: SeedSet, end_types: dict[str, str | None]) -> None:
        """Turns negatives of either form into the column of a :class:`.SeedTable` that holds them."""
        by_end = {}
        for end, name in _NEGATIVES.items():
            if (rows := seeds.columns.pop(name, None)) is not None:
                rows = rows.flatten(1) if rows.ndim > 1 else rows[:, None]
                by_end[end] = self._ids(rows, end_types[end], f"{seeds.where}: {name}")
        if by_end:
            end = self._replaced_end(seeds, by_end)
            negatives = by_end[end]
        elif seeds.labels is None or "indexes" not in seeds.columns:
            return
        else:
            labels, indexes = seeds.labels.double().numpy(), seeds.columns["indexes"].long().numpy()
            grouped = _queries(seeds.ids, labels, indexes)
            if grouped is None:
                return
            seeds.ids, end, negatives = grouped
            columns = [name for name in seeds.columns if name != "indexes"]
            self.left_out += [f"{seeds.where}: {name}, as rows are queries" for name in columns]
            seeds.labels, seeds.columns = None, {}
        seeds.columns["negatives"] = torch.from_numpy(np.ascontiguousarray(negatives))
        if end == "src":
            self.notes.append("Its negatives replace sources: give negatives=Negatives('hard', corrupt='src').")

    def _replaced_end(self, seeds: SeedSet, by_end: dict[str, np.ndarray]) -> str:
        """Returns which end negatives replace: that of which alone they are given, or at which alone they differ."""
        for end, opposite, column in (("dst", "src", 0), ("src", "dst", 1)):
            if end in by_end and (opposite not in by_end or (by_end[opposite] == seeds.ids[:, [column]]).all()):
                return end
        raise self._error(
            f"{seeds.where}: negative_srcs and negative_dsts differ from the pairs at both ends, but a negative here "
            "replaces one end of its row. Give one of them, or all pairs as seeds [R, 2] with labels"
        )

    def _leave_columns(self, seeds: SeedSet) -> None:
        reserved = {*RESERVED} - {*_TIMES, "weight"}
        for name in [name for name in seeds.columns if name in reserved or not name.isidentifier()]:
            del seeds.columns[name]
            self.left_out.append(f"{seeds.where}: {name}, which names no column")

    def _error(self, problem: str) -> DatasetError:
        return DatasetError(f"{self.file}: {problem}.")


def _are_nodes(every: list[SeedSet]) -> bool:
    """Returns whether splits are nodes, each once and with a label that is the same wherever it stands, or none has
    one: what labels and ids of nodes say as well as rows do."""
    if any(seeds.is_links or seeds.columns or len(np.unique(seeds.ids)) < len(seeds.ids) for seeds in every):
        return False
    return len({seeds.labels is None for seeds in every}) < 2


def _labels_by_node(every: list[SeedSet], graph: Graph) -> dict[Any, torch.Tensor] | None:
    """Returns labels ``[N_t, ...]`` by node type, NaN or -1 where there is none; None where a node has several, or sets
    have labels of several dtypes or widths."""
    by_type: dict[Any, list[tuple[np.ndarray, torch.Tensor]]] = {}
    for seeds in every:
        if seeds.labels is not None:
            by_type.setdefault(seeds.type, []).append((seeds.ids, seeds.labels))
    if len({(rows.shape[1:], rows.is_floating_point()) for sets in by_type.values() for _, rows in sets}) > 1:
        return None
    y = {}
    for type_, sets in by_type.items():
        count = graph.num_nodes if graph.types is None else len(graph.types.range_of(type_))
        if (labels := _spread(sets, count)) is None:
            return None
        y[type_] = labels
    return y


def _spread(sets: list[tuple[np.ndarray, torch.Tensor]], num_nodes: int) -> torch.Tensor | None:
    """Returns the labels of all nodes, those of sets at their ids; None where a node has several."""
    ids = torch.from_numpy(np.concatenate([node_ids for node_ids, _ in sets]))
    values = torch.cat([rows for _, rows in sets])
    if not values.is_floating_point():
        values = values.long()
    nothing = float("nan") if values.is_floating_point() else -1
    labels = torch.full((num_nodes, *values.shape[1:]), nothing, dtype=values.dtype)
    labels[ids] = values
    # A node of several sets keeps the last one's label: it must be that of all.
    return labels if torch.allclose(labels[ids], values, rtol=0, atol=0, equal_nan=True) else None


def _queries(links: np.ndarray, labels: np.ndarray, indexes: np.ndarray) -> tuple[np.ndarray, str, np.ndarray] | None:
    """Takes rows whose labels say which are true as queries: the rows of one index, of which one is true. Returns the
    true links ``[Q, 2]`` by rising index, the end that the false ones replace, ``"src"`` or ``"dst"``, and their ids
    ``[Q, M]``; None where rows are no such queries, all of one size."""
    if labels.ndim != 1 or indexes.ndim != 1 or not len(labels) or not np.isin(labels, (0, 1)).all():
        return None
    order = np.lexsort((labels == 0, indexes))  # the true row of an index first
    _, counts = np.unique(indexes, return_counts=True)
    size = int(counts[0])
    if size < 2 or (counts != size).any() or (labels[order].reshape(-1, size).sum(1) != 1).any():
        return None
    rows = links[order].reshape(-1, size, 2)
    for column, end in ((1, "dst"), (0, "src")):
        fixed = rows[:, :, 1 - column]
        if (fixed == fixed[:, :1]).all():
            return rows[:, 0], end, rows[:, 1:, column]
    return None


def _written(type_: str | EdgeType | None) -> str:
    return type_ if isinstance(type_, str) else ":".join(type_ or ())

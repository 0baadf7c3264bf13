"""Readers of OGB's raw files with several types of nodes, in both layouts (``csv.gz`` and ``npz``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lightning_gnnload.data.datasets.ogb_raw import (
    REMEDY,
    checked_labels,
    csv_ends,
    csv_table,
    has_array,
    npz_ends,
    npz_table,
    one_column,
    one_count,
    pandas,
    reading,
    small_csv,
    whole_array,
)
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import DatasetError


@dataclass
class RawTyped:
    """Holds the contents of a typed graph's raw files. Shapes by type: N_t nodes, E_k edges, F_t features."""

    num_nodes: dict[str, int]
    ends: dict[EdgeType, np.ndarray] = field(default_factory=dict)  # int32 or int64 [2, E_k]
    x: dict[str, np.ndarray] = field(default_factory=dict)  # float32 [N_t, F_t], of types that have some
    labels: dict[str, np.ndarray] = field(default_factory=dict)  # [N_t, T], likewise
    tables: dict[str, np.ndarray] = field(default_factory=dict)  # int64 [N_t], the column that was asked for
    edge_columns: dict[EdgeType, np.ndarray] = field(default_factory=dict)  # int64 [E_k], likewise


def read_raw_typed(
    raw: Path,
    scratch: Path,
    *,
    table: str | None = None,
    edge_column: str | None = None,
    labels: bool = True,
) -> RawTyped:
    """Reads whichever layout ``raw`` has. Types come in the order of their names, as OGB's own reader has them.

    Args:
        scratch: a folder for the mapped files; they must outlive the arrays' use.
        table: a column of nodes to read of those types that have it, as OGB names it.
        edge_column: likewise, of edges.
        labels: whether nodes have some.

    Raises:
        DatasetError: a file is missing, broken, or does not fit the others; the message names it.
    """
    if (raw / "edge_index_dict.npz").exists():
        return _read_npz(raw, scratch, table, edge_column, labels)
    return _read_csv(raw, scratch, table, edge_column, labels)


def read_split_typed(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Reads the node ids for training, validation and test by type, int64."""
    names = _types_with(folder / "nodetype-has-split.csv.gz")
    train, val, test = (
        {name: one_column(folder / name / f"{split}.csv.gz") for name in names} for split in ("train", "valid", "test")
    )
    return train, val, test


def _read_csv(raw: Path, scratch: Path, table: str | None, edge_column: str | None, labels: bool) -> RawTyped:
    file = raw / "num-node-dict.csv.gz"
    with reading(file):
        counts = pandas().read_csv(file, dtype="int64")
    found = RawTyped({name: one_count(counts[name].to_numpy(), file) for name in _names(file, sorted(counts))})
    for number, kind in enumerate(_triples(raw / "triplet-type-list.csv.gz", found.num_nodes)):
        folder = raw / "relations" / "___".join(kind)
        num_edges = one_count(small_csv(folder / "num-edge-list.csv.gz", "int64"), folder / "num-edge-list.csv.gz")
        place, limits = scratch / f"ends-{number}", (found.num_nodes[kind[0]], found.num_nodes[kind[2]])
        found.ends[kind] = csv_ends(folder / "edge.csv.gz", place, num_edges, limits)
        if edge_column is not None and (folder / f"{edge_column}.csv.gz").exists():
            found.edge_columns[kind] = one_column(folder / f"{edge_column}.csv.gz", num_edges)
    for number, (name, count) in enumerate(found.num_nodes.items()):
        folder = raw / "node-feat" / name
        if (folder / "node-feat.csv.gz").exists():
            found.x[name] = csv_table(folder / "node-feat.csv.gz", scratch / f"x-{number}", count)
        if table is not None and (folder / f"{table}.csv.gz").exists():
            found.tables[name] = one_column(folder / f"{table}.csv.gz", count)
    for name in _types_with(raw / "nodetype-has-label.csv.gz") if labels else ():
        file = raw / "node-label" / name / "node-label.csv.gz"
        found.labels[name] = checked_labels(small_csv(file, "float64"), _count_of(found, name, file), file)
    return found


def _read_npz(raw: Path, scratch: Path, table: str | None, edge_column: str | None, labels: bool) -> RawTyped:
    file = raw / "num_nodes_dict.npz"
    found = RawTyped({name: one_count(whole_array(file, name), file) for name in _keys(file)})
    file = raw / "edge_index_dict.npz"
    for number, key in enumerate(_keys(file)):
        kind = _triple(key.split("___"), found.num_nodes, file)
        num_edges = one_count(whole_array(raw / "num_edges_dict.npz", key), raw / "num_edges_dict.npz")
        place, limits = scratch / f"ends-{number}", (found.num_nodes[kind[0]], found.num_nodes[kind[2]])
        found.ends[kind] = npz_ends(file, key, place, num_edges, limits)
        if edge_column is not None and has_array(raw / f"{edge_column}.npz", key):
            found.edge_columns[kind] = _npz_column(raw / f"{edge_column}.npz", key, num_edges)
    features = raw / "node_feat_dict.npz"
    for number, (name, count) in enumerate(found.num_nodes.items()):
        if features.exists() and has_array(features, name):
            found.x[name] = npz_table(features, name, scratch / f"x-{number}", count)
        if table is not None and has_array(raw / f"{table}.npz", name):
            found.tables[name] = _npz_column(raw / f"{table}.npz", name, count)
    file = raw / "node-label.npz"
    for name in _keys(file) if labels else ():
        found.labels[name] = checked_labels(whole_array(file, name), _count_of(found, name, file), file)
    return found


def _npz_column(file: Path, key: str, num_rows: int) -> np.ndarray:
    rows = whole_array(file, key)
    if rows.size != num_rows or len(rows) != num_rows or rows.dtype.kind not in "iu":
        raise DatasetError(
            f"{file}: {key} is {rows.dtype} {list(rows.shape)}; {num_rows} whole numbers are needed. {REMEDY}"
        )
    return rows.reshape(-1).astype(np.int64)


def _keys(file: Path) -> list[str]:
    with reading(file), np.load(file) as archive:  # which reads the list of names alone
        names = sorted(archive.files)
    return _names(file, names)


def _types_with(file: Path) -> list[str]:
    """Reads which types have something: names in the first row, true or false in the second."""
    with reading(file):
        rows = pandas().read_csv(file)
        names = [name for name in rows if bool(rows[name].to_numpy()[0])]
    if not names:
        raise DatasetError(f"{file} names no type of nodes. {REMEDY}")
    return _names(file, names)


def _triples(file: Path, num_nodes: dict[str, int]) -> list[EdgeType]:
    with reading(file):
        rows = pandas().read_csv(file, header=None, dtype=str, keep_default_na=False).to_numpy().tolist()
    return sorted(_triple(row, num_nodes, file) for row in rows)


def _triple(names: list[str], num_nodes: dict[str, int], file: Path) -> EdgeType:
    if len(names) != 3 or names[0] not in num_nodes or names[2] not in num_nodes:
        raise DatasetError(f"{file}: {names!r:.200} is no edge type between {', '.join(num_nodes)}. {REMEDY}")
    src, relation, dst = _names(file, names)
    return src, relation, dst


def _names(file: Path, names: list[str]) -> list[str]:
    """Raises DatasetError: names that would lead out of the folder, of which they become a part."""
    for name in names:
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            raise DatasetError(f"{file}: {name!r:.200} cannot name a type. {REMEDY}")
    return names


def _count_of(found: RawTyped, name: str, file: Path) -> int:
    if name not in found.num_nodes:
        raise DatasetError(f"{file}: {name!r:.200} is none of the types {', '.join(found.num_nodes)}. {REMEDY}")
    return found.num_nodes[name]

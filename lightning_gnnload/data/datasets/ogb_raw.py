"""OGB's raw folders, of one type of nodes or of several, in both layouts (``csv.gz`` and ``npz``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lightning_gnnload.data.datasets.foreign import reading
from lightning_gnnload.data.datasets.ogb_files import REMEDY, CsvArray, NpzArray, RawArray, pandas
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import DatasetError

_KEYS = {"edge": "edge_index", "num-node-list": "num_nodes_list", "num-edge-list": "num_edges_list"}
_ARCHIVES = {"edge": "edge_index_dict", "num-edge-list": "num_edges_dict", "node-feat": "node_feat_dict"}


@dataclass
class RawGraph:
    """Holds the contents of one graph's raw files. Shapes: N nodes, E edges, F features, T tasks."""

    ends: np.ndarray  # int32 or int64 [2, E], [2, 2 E] with inverse edges: sources, destinations
    num_nodes: int
    x: np.ndarray | None = None  # float [N, F]
    labels: np.ndarray | None = None  # [N, T], NaN where a node has none; None for link prediction
    table: np.ndarray | None = None  # int64 [N], the column of nodes that was asked for
    edge_x: np.ndarray | None = None  # float32 [E, F], [2 E, F] with inverse edges
    edge_columns: dict[str, np.ndarray] = field(default_factory=dict)  # int64 [E] by name, [2 E] with inverse edges


@dataclass
class RawTyped:
    """Holds the contents of a typed graph's raw files. Shapes by type: N_t nodes, E_k edges, F_t features."""

    num_nodes: dict[str, int]
    ends: dict[EdgeType, np.ndarray] = field(default_factory=dict)  # int32 or int64 [2, E_k]
    x: dict[str, np.ndarray] = field(default_factory=dict)  # float32 [N_t, F_t], of types that have some
    labels: dict[str, np.ndarray] = field(default_factory=dict)  # [N_t, T], likewise
    tables: dict[str, np.ndarray] = field(default_factory=dict)  # int64 [N_t], the column that was asked for
    edge_columns: dict[EdgeType, np.ndarray] = field(default_factory=dict)  # int64 [E_k], likewise


def read_raw(
    raw: Path,
    scratch: Path,
    *,
    add_inverse_edge: bool,
    table: str | None = None,
    edge_features: bool = False,
    edge_columns: Sequence[str] = (),
    labels: bool = True,
) -> RawGraph:
    """Reads a graph with one type of nodes.

    Args:
        scratch: a folder for the mapped files; they must outlive the arrays' use.
        add_inverse_edge: append every edge turned round (OGB's own reader interleaves them).
        table: a further column of nodes to read, as OGB names it.
        edge_features: read those too.
        edge_columns: columns of edges to read, as OGB names them.
        labels: whether nodes have some.

    Raises:
        DatasetError: a file is missing, broken, or does not fit the others; the message names it.
    """
    archive, ways = raw / "data.npz", 2 if add_inverse_edge else 1

    def array(name: str) -> RawArray:
        if not archive.exists():
            return CsvArray(raw / f"{name}.csv.gz")
        if name == "node-label":
            return NpzArray(raw / "node-label.npz", "node_label")
        return NpzArray(archive, _KEYS.get(name, name.replace("-", "_")))

    num_nodes, num_edges = array("num-node-list").count(), array("num-edge-list").count()
    graph = RawGraph(array("edge").ends(scratch / "ends", num_edges, (num_nodes, num_nodes), ways), num_nodes)
    if array("node-feat").exists():
        graph.x = array("node-feat").table(scratch / "x", num_nodes)
    if labels:
        graph.labels = array("node-label").labels(num_nodes)
    if table is not None:
        graph.table = array(table).column(num_nodes)
    if edge_features:
        graph.edge_x = array("edge-feat").table(scratch / "edge_x", num_edges, ways)
    graph.edge_columns = {name: np.tile(array(name).column(num_edges), ways) for name in edge_columns}
    return graph


def read_split(folder: Path, num_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads the node ids for training, validation and test, int64."""
    train, val, test = (CsvArray(folder / f"{name}.csv.gz").ids(num_nodes) for name in ("train", "valid", "test"))
    return train, val, test


def read_raw_typed(
    raw: Path,
    scratch: Path,
    *,
    table: str | None = None,
    edge_column: str | None = None,
    labels: bool = True,
) -> RawTyped:
    """Reads a graph with types. These come in the order of their names, as OGB's own reader has them.

    Args:
        scratch: a folder for the mapped files; they must outlive the arrays' use.
        table: a column of nodes to read of those types that have it, as OGB names it.
        edge_column: likewise, of edges.
        labels: whether nodes have some.

    Raises:
        DatasetError: a file is missing, broken, or does not fit the others; the message names it. Or no type has what
            was asked for.
    """
    packed = (raw / "edge_index_dict.npz").exists()

    def array(folder: str, of_type: str, name: str) -> RawArray:
        if packed:
            return NpzArray(raw / f"{_ARCHIVES.get(name, name)}.npz", of_type)
        return CsvArray(raw / folder / of_type / f"{name}.csv.gz")

    found = RawTyped(_packed_counts(raw / "num_nodes_dict.npz") if packed else _counts(raw / "num-node-dict.csv.gz"))
    for number, kind in enumerate(_kinds(raw, packed, found.num_nodes)):
        key, limits = "___".join(kind), (found.num_nodes[kind[0]], found.num_nodes[kind[2]])
        num_edges = array("relations", key, "num-edge-list").count()
        found.ends[kind] = array("relations", key, "edge").ends(scratch / f"ends-{number}", num_edges, limits)
        if edge_column is not None and (column := array("relations", key, edge_column)).exists():
            found.edge_columns[kind] = column.column(num_edges)
    for number, (name, count) in enumerate(found.num_nodes.items()):
        if (features := array("node-feat", name, "node-feat")).exists():
            found.x[name] = features.table(scratch / f"x-{number}", count)
        if table is not None and (column := array("node-feat", name, table)).exists():
            found.tables[name] = column.column(count)
    if table is not None and not found.tables:
        raise DatasetError(f"{raw}: no type of nodes has {table}. {REMEDY}")
    if labels:
        file = raw / ("node-label.npz" if packed else "nodetype-has-label.csv.gz")
        for name in _names(file, NpzArray.names(file)) if packed else _types_with(file):
            found.labels[name] = array("node-label", name, "node-label").labels(_count_of(found.num_nodes, name, file))
    return found


def read_split_typed(
    folder: Path, num_nodes: Mapping[str, int]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Reads the node ids for training, validation and test by type, int64."""
    file = folder / "nodetype-has-split.csv.gz"
    counts = {name: _count_of(num_nodes, name, file) for name in _types_with(file)}
    splits = {name: read_split(folder / name, count) for name, count in counts.items()}
    train, val, test = ({name: ids[number] for name, ids in splits.items()} for number in range(3))
    return train, val, test


def _counts(file: Path) -> dict[str, int]:
    with reading(file, REMEDY):
        counts = pandas().read_csv(file, dtype="int64")
    names = _names(file, sorted(counts))
    if len(counts) != 1 or (counts < 0).to_numpy().any():
        raise DatasetError(f"{file}: {len(counts)} rows of counts, {counts.to_numpy()!s:.80}; one is needed. {REMEDY}")
    return {name: int(counts[name].iloc[0]) for name in names}


def _packed_counts(file: Path) -> dict[str, int]:
    return {name: NpzArray(file, name).count() for name in _names(file, NpzArray.names(file))}


def _kinds(raw: Path, packed: bool, num_nodes: Mapping[str, int]) -> list[EdgeType]:
    if packed:
        file = raw / "edge_index_dict.npz"
        rows = [name.split("___") for name in NpzArray.names(file)]
    else:
        file = raw / "triplet-type-list.csv.gz"
        with reading(file, REMEDY):
            rows = pandas().read_csv(file, header=None, dtype=str, keep_default_na=False).to_numpy().tolist()
    for row in rows:
        if len(row) != 3 or not {row[0], row[2]} <= num_nodes.keys():
            raise DatasetError(f"{file}: {row!r:.200} is no edge type between {', '.join(num_nodes)}. {REMEDY}")
    return sorted((src, relation, dst) for src, relation, dst in (_names(file, row) for row in rows))


def _types_with(file: Path) -> list[str]:
    """Reads which types have something: names in the first row, true or false in the second."""
    with reading(file, REMEDY):
        rows = pandas().read_csv(file)
        names = [name for name in rows if bool(rows[name].to_numpy()[0])]
    if not names:
        raise DatasetError(f"{file} names no type of nodes. {REMEDY}")
    return _names(file, names)


def _names(file: Path, names: list[str]) -> list[str]:
    """Raises DatasetError: names that would lead out of the folder, of which they become a part."""
    for name in names:
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            raise DatasetError(f"{file}: {name!r:.200} cannot name a type. {REMEDY}")
    return names


def _count_of(num_nodes: Mapping[str, int], name: str, file: Path) -> int:
    if name not in num_nodes:
        raise DatasetError(f"{file}: {name!r:.200} is none of the types {', '.join(num_nodes)}. {REMEDY}")
    return num_nodes[name]

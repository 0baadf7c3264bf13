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
    """Holds the contents of one graph's raw files by type: N_t nodes, E_k edges, F_t features, T tasks. A graph without
    types has one of each, whose names are empty."""

    num_nodes: dict[str, int]
    ends: dict[EdgeType, np.ndarray] = field(default_factory=dict)  # int32 or int64 [2, E_k]: sources, destinations
    x: dict[str, np.ndarray] = field(default_factory=dict)  # float32 [N_t, F_t], of types that have some
    labels: dict[str, np.ndarray] = field(default_factory=dict)  # [N_t, T], likewise, NaN where a node has none
    tables: dict[str, np.ndarray] = field(default_factory=dict)  # int64 [N_t], the column that was asked for, likewise
    edge_x: dict[EdgeType, np.ndarray] = field(default_factory=dict)  # float32 [E_k, F_k]
    edge_columns: dict[str, dict[EdgeType, np.ndarray]] = field(default_factory=dict)  # int64 [E_k] by name and type


def read_raw(
    raw: Path,
    scratch: Path,
    *,
    typed: bool,
    ways: int = 1,
    table: str | None = None,
    edge_features: bool = False,
    edge_columns: Sequence[str] = (),
    labels: bool = True,
) -> RawGraph:
    """Reads whichever layout ``raw`` has. Types come in the order of their names, as OGB's own reader has them.

    Args:
        scratch: a folder for the mapped files; they must outlive the arrays' use.
        typed: whether there are types.
        ways: 2: after all edges come all turned round, with what belongs to them (OGB's own reader interleaves them).
        table: a further column of nodes to read of those types that have it, as OGB names it.
        edge_features: read those too.
        edge_columns: columns of edges to read, as OGB names them.
        labels: whether nodes have some.

    Raises:
        DatasetError: a file is missing, broken, or does not fit the others; the message names it.
    """
    packed = (raw / ("edge_index_dict.npz" if typed else "data.npz")).exists()

    def array(name: str, folder: str = "", of_type: str = "") -> RawArray:
        if not packed:
            return CsvArray((raw / folder / of_type if typed else raw) / f"{name}.csv.gz")
        if typed:
            return NpzArray(raw / f"{_ARCHIVES.get(name, name)}.npz", of_type)
        archive = raw / ("node-label.npz" if name == "node-label" else "data.npz")
        return NpzArray(archive, _KEYS.get(name, name.replace("-", "_")))

    found = RawGraph(_num_nodes(raw, packed) if typed else {"": array("num-node-list").count()})
    for number, kind in enumerate(_kinds(raw, packed, found.num_nodes) if typed else [("", "", "")]):
        at = "relations", "___".join(kind)
        num_edges, limits = array("num-edge-list", *at).count(), (found.num_nodes[kind[0]], found.num_nodes[kind[2]])
        found.ends[kind] = array("edge", *at).ends(scratch / f"ends-{number}", num_edges, limits, ways)
        if edge_features:
            found.edge_x[kind] = array("edge-feat", *at).table(scratch / f"edge-x-{number}", num_edges, ways)
        for name in edge_columns:
            found.edge_columns.setdefault(name, {})[kind] = np.tile(array(name, *at).column(num_edges), ways)
    for number, (name, count) in enumerate(found.num_nodes.items()):
        if (features := array("node-feat", "node-feat", name)).exists():
            found.x[name] = features.table(scratch / f"x-{number}", count)
        if table is not None and (column := array(table, "node-feat", name)).exists():
            found.tables[name] = column.column(count)
    if table is not None and not found.tables:
        raise DatasetError(f"{raw}: no nodes have {table}. {REMEDY}")
    if labels:
        file = raw / ("node-label.npz" if packed else "nodetype-has-label.csv.gz")
        types = [""] if not typed else _names(file, NpzArray.names(file)) if packed else _types_with(file)
        for name in types:
            found.labels[name] = array("node-label", "node-label", name).labels(_count_of(found.num_nodes, name, file))
    return found


def read_splits(folder: Path, num_nodes: Mapping[str, int], *, typed: bool) -> list[dict[str, np.ndarray]]:
    """Reads the node ids for training, validation and test by type, int64."""
    file = folder / "nodetype-has-split.csv.gz"
    counts = {name: _count_of(num_nodes, name, file) for name in (_types_with(file) if typed else [""])}
    return [
        {name: CsvArray(folder / name / f"{split}.csv.gz").ids(count) for name, count in counts.items()}
        for split in ("train", "valid", "test")
    ]


def _num_nodes(raw: Path, packed: bool) -> dict[str, int]:
    if packed:
        file = raw / "num_nodes_dict.npz"
        return {name: NpzArray(file, name).count() for name in _names(file, NpzArray.names(file))}
    file = raw / "num-node-dict.csv.gz"
    with reading(file, REMEDY):
        counts = pandas().read_csv(file, dtype="int64")
    if len(counts) != 1 or (counts < 0).to_numpy().any():
        raise DatasetError(f"{file}: {len(counts)} rows of counts, {counts.to_numpy()!s:.80}; one is needed. {REMEDY}")
    return {name: int(counts[name].iloc[0]) for name in _names(file, sorted(counts))}


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

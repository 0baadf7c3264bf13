"""OGB's raw folders, of one type of nodes or of several, in both layouts (``csv.gz`` and ``npz``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.datasets.foreign import reading
from lightning_gnnload.datasets.ogb_files import REMEDY, CsvArray, NpzArray, RawArray, pandas
from lightning_gnnload.errors import DatasetError

_KEYS = {"edge": "edge_index", "num-node-list": "num_nodes_list", "num-edge-list": "num_edges_list"}
_ARCHIVES = {"edge": "edge_index_dict", "num-edge-list": "num_edges_dict", "node-feat": "node_feat_dict"}


@dataclass
class RawGraph:
    """Holds the contents of one graph's raw files by type: N_t nodes, E_k edges, F_t features, T tasks. A graph without
    types has one of each, whose names are empty."""

    num_nodes: dict[str, int]
    edges: dict[EdgeType, np.ndarray] = field(default_factory=dict)  # int32 or int64 [2, E_k]: sources, destinations
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

    Mapped files lie in ``scratch``, as long as the arrays are used. With ``ways=2``, all edges turned round follow
    after all edges, with what belongs to them; OGB's own reader interleaves them. ``table`` names a further column of
    nodes, ``edge_columns`` those of edges. Raises DatasetError for a file that is missing, broken, or does not fit the
    others.
    """
    folder = _RawFolder(raw, typed)
    graph = RawGraph(folder.num_nodes())
    for number, edge_type in enumerate(folder.edge_types(graph.num_nodes)):
        at = "relations", "___".join(edge_type)
        num_edges = folder.array("num-edge-list", *at).count()
        limits = graph.num_nodes[edge_type[0]], graph.num_nodes[edge_type[2]]
        edges = folder.array("edge", *at).edges(scratch / f"ends-{number}", num_edges, limits, ways)
        graph.edges[edge_type] = edges
        if edge_features:
            features = folder.array("edge-feat", *at).table(scratch / f"edge-x-{number}", num_edges, ways)
            graph.edge_x[edge_type] = features
        for name in edge_columns:
            column = folder.array(name, *at).column(num_edges)
            graph.edge_columns.setdefault(name, {})[edge_type] = np.tile(column, ways)
    _read_nodes(folder, graph, scratch, table)
    if labels:
        for name in folder.label_types():
            count = _count_of(graph.num_nodes, name, folder.label_file)
            graph.labels[name] = folder.array("node-label", "node-label", name).labels(count)
    return graph


def _read_nodes(folder: _RawFolder, graph: RawGraph, scratch: Path, table: str | None) -> None:
    for number, (name, count) in enumerate(graph.num_nodes.items()):
        if (features := folder.array("node-feat", "node-feat", name)).exists():
            graph.x[name] = features.table(scratch / f"x-{number}", count)
        if table is not None and (column := folder.array(table, "node-feat", name)).exists():
            graph.tables[name] = column.column(count)
    if table is not None and not graph.tables:
        raise DatasetError(f"{folder.raw}: no nodes have {table}. {REMEDY}")


@dataclass(frozen=True)
class _RawFolder:
    """Where a raw folder has its arrays: in files of text or in archives, which of the two OGB chose."""

    raw: Path
    typed: bool

    @property
    def packed(self) -> bool:
        return (self.raw / ("edge_index_dict.npz" if self.typed else "data.npz")).exists()

    @property
    def label_file(self) -> Path:
        return self.raw / ("node-label.npz" if self.packed else "nodetype-has-label.csv.gz")

    def array(self, name: str, folder: str = "", type_: str = "") -> RawArray:
        if not self.packed:
            return CsvArray((self.raw / folder / type_ if self.typed else self.raw) / f"{name}.csv.gz")
        if self.typed:
            return NpzArray(self.raw / f"{_ARCHIVES.get(name, name)}.npz", type_)
        archive = self.raw / ("node-label.npz" if name == "node-label" else "data.npz")
        return NpzArray(archive, _KEYS.get(name, name.replace("-", "_")))

    def label_types(self) -> list[str]:
        if not self.typed:
            return [""]
        file = self.label_file
        return _names(file, NpzArray.names(file)) if self.packed else _types_with(file)

    def num_nodes(self) -> dict[str, int]:
        if not self.typed:
            return {"": self.array("num-node-list").count()}
        if self.packed:
            file = self.raw / "num_nodes_dict.npz"
            return {name: NpzArray(file, name).count() for name in _names(file, NpzArray.names(file))}
        file = self.raw / "num-node-dict.csv.gz"
        with reading(file, REMEDY):
            counts = pandas().read_csv(file, dtype="int64")
        if len(counts) != 1 or (counts < 0).to_numpy().any():
            raise DatasetError(
                f"{file}: {len(counts)} rows of counts, {counts.to_numpy()!s:.80}; one is needed. {REMEDY}"
            )
        return {name: int(counts[name].iloc[0]) for name in _names(file, sorted(counts))}

    def edge_types(self, num_nodes: Mapping[str, int]) -> list[EdgeType]:
        if not self.typed:
            return [("", "", "")]
        if self.packed:
            file = self.raw / "edge_index_dict.npz"
            rows = [name.split("___") for name in NpzArray.names(file)]
        else:
            file = self.raw / "triplet-type-list.csv.gz"
            with reading(file, REMEDY):
                rows = pandas().read_csv(file, header=None, dtype=str, keep_default_na=False).to_numpy().tolist()
        for row in rows:
            if len(row) != 3 or not {row[0], row[2]} <= num_nodes.keys():
                raise DatasetError(f"{file}: {row!r:.200} is no edge type between {', '.join(num_nodes)}. {REMEDY}")
        return sorted((src, relation, dst) for src, relation, dst in (_names(file, row) for row in rows))


def read_splits(folder: Path, num_nodes: Mapping[str, int], *, typed: bool) -> list[dict[str, np.ndarray]]:
    """Reads the node ids for training, validation and test by type, int64."""
    file = folder / "nodetype-has-split.csv.gz"
    counts = {name: _count_of(num_nodes, name, file) for name in (_types_with(file) if typed else [""])}
    return [
        {name: CsvArray(folder / name / f"{split}.csv.gz").ids(count) for name, count in counts.items()}
        for split in ("train", "valid", "test")
    ]


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

"""OGB: data sets of the Open Graph Benchmark whose task is of nodes or of links, from their raw files."""

from __future__ import annotations

import logging
import os
import re
import zipfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.datasets.base import default_root
from lightning_gnnload.datasets.download import fetch, unpack
from lightning_gnnload.datasets.foreign import assemble_data, assemble_graph
from lightning_gnnload.datasets.ogb_links import read_links, seeds_of_links
from lightning_gnnload.datasets.ogb_raw import RawGraph, read_raw, read_splits
from lightning_gnnload.datasets.stored import StoredDataset
from lightning_gnnload.errors import DatasetError

log = logging.getLogger(__name__)


class _Facts(NamedTuple):
    """Holds facts of a data set's column in OGB's ``master.csv``, so that files on disk can be read without ogb."""

    archive: str
    split: str
    num_outputs: int | None  # classes, or tasks where each is yes or no; None: links
    add_inverse_edge: bool = False
    table: str | None = None  # a further column of nodes
    edge_features: bool = False
    edge_columns: tuple[str, ...] = ()  # further ones of edges
    typed: bool = False  # several kinds of nodes

    @property
    def year(self) -> str | None:
        """The column that says since when nodes or edges are there."""
        return next((name for name in (self.table, *self.edge_columns) if name in ("node_year", "edge_year")), None)


_FACTS = {
    "ogbn-arxiv": _Facts("arxiv", "time", 40, table="node_year"),
    "ogbn-mag": _Facts("mag", "time", 349, table="node_year", edge_columns=("edge_reltype",), typed=True),
    "ogbn-papers100M": _Facts("papers100M-bin", "time", 172, table="node_year"),
    "ogbn-products": _Facts("products", "sales_ranking", 47, True),
    "ogbn-proteins": _Facts("proteins", "species", 112, True, "node_species", edge_features=True),
    "ogbl-biokg": _Facts("biokg", "random", None, edge_columns=("edge_reltype",), typed=True),
    "ogbl-citation2": _Facts("citation-v2", "time", None, table="node_year"),
    "ogbl-collab": _Facts("collab", "time", None, True, edge_columns=("edge_weight", "edge_year")),
    "ogbl-ddi": _Facts("ddi", "target", None, True),
    "ogbl-ppa": _Facts("ppassoc", "throughput", None, True),
    "ogbl-vessel": _Facts("vessel", "spatial", None, edge_features=True),
    "ogbl-wikikg2": _Facts("wikikg-v2", "time", None, edge_columns=("edge_reltype",)),
}
_RECIPE = 1  # part of the settings: raise it when the same raw files would give other arrays
_SITE = "snap.stanford.edu/ogb/data"
_RECORD = "archive.sha256"  # beside the files that were unpacked
_RAW = ("data.npz", "edge.csv.gz", "edge_index_dict.npz", "triplet-type-list.csv.gz")  # one of which is there


@dataclass(frozen=True)
class OGB(StoredDataset):
    """Provides an OGB data set of nodes or links: its graph, features, labels and standard split.

    Files are looked for where the ogb package keeps them, ``<root>/ogbn_products/{raw,split}``. No code in them is run;
    those of ``torch.save``, the splits of links, need torch 2.6 or newer. Labels are int64 ``[N]``, -1 where a node has
    none; with several tasks (ogbn-proteins) float32 ``[N, tasks]``, NaN where there is none. Features are float32. With
    ``extras``, data sets that have years have a table ``node_year``, int64 ``[N, 1]``, and ogbn-proteins
    ``node_species``; ogbn-proteins and ogbl-vessel have features of edges, float32 ``[E, F]``, alike both ways, and
    ogbl-collab an edge table ``edge_year``, int64.

    ogbn-mag is a graph with types: all is by type. Inverse edges are then types of their own, ``rev_<relation>``. Of
    the data sets of links, the graph has the edges to train on, and the splits are :class:`.SeedTable`: false edges are
    rows of label 0 after the true ones; false ends of single rows are the column ``"negatives"``, for
    ``Negatives("hard")``. The guide says what each data set has.

    Reading ``csv.gz`` files needs pandas, which comes with the extra ``ogb``. Converting takes, beside the raw files,
    twice the disk space of the result while it runs; memory holds the result's topology, for ogbn-papers100M about
    10 GB (17 GB with inverse edges), not the features. Splits of links are read whole: 4 GB for ogbl-wikikg2's false
    ends.

    Args:
        name: as OGB has it: ``"ogbn-arxiv"``, ``"ogbl-collab"``.
        root: the folder that holds ``ogbn_products`` and the like; a per-user cache folder by default.
        add_inverse_edge: append every edge turned round; None does what OGB does for this data set.
        extras: what the data set has beside features and labels, as above; kept in a folder of its own.
        download: fetch the archive (over 50 GB for papers100M) when there are no raw files; nothing is asked.
        times: years are the times of the graph, since when its nodes (of ogbl-collab edges) are there, and of seeds.
        sha256: of the archive, 64 hexadecimal digits: another one is not unpacked, and files that were unpacked from
            another one are not read. What was downloaded is known by ``archive.sha256`` beside its files.
        plain_http: fetch by http rather than https, which anyone on the way can change: give ``sha256`` with it.

    Raises:
        DatasetError: no such data set, one without years as ``times``, or a ``sha256`` that is none.

    Example:
        >>> OGB("ogbn-products", root="dataset").folder.as_posix()
        'dataset/ogbn-products-both-ways'
    """

    name: str
    root: str | Path | None = None
    add_inverse_edge: bool | None = None
    download: bool = True
    extras: bool = False
    times: bool = False
    sha256: str | None = None
    plain_http: bool = False

    def __post_init__(self) -> None:
        if self.name not in _FACTS:
            raise DatasetError(
                f"OGB: {self.name!r} cannot be used: there is no such data set. Choose one of {', '.join(_FACTS)}."
            )
        if self.times and self._facts.year is None:
            dated = [name for name, facts in _FACTS.items() if facts.year is not None]
            raise DatasetError(f"OGB: {self.name} has no years for times=True; these have: {', '.join(dated)}.")
        if self.sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", str(self.sha256)):
            raise DatasetError(f"OGB: sha256 is {self.sha256!r}, but must be 64 hexadecimal digits, or None.")

    @property
    def settings(self) -> dict[str, Any]:
        further: dict[str, Any] = {name: True for name in ("extras", "times") if getattr(self, name)}
        further |= {} if self.sha256 is None else {"sha256": self.sha256.lower()}  # else another archive's would do
        return {"dataset": self.name, "recipe": _RECIPE, "add_inverse_edge": self._both_ways, **further}

    @property
    def folder(self) -> Path:
        further = "".join(f"-{name}" for name in ("extras", "times") if getattr(self, name))
        return self._root / f"{self.name}-{'both-ways' if self._both_ways else 'one-way'}{further}"

    def build(self, scratch: Path) -> GraphData:
        if not any((self._raw_home / "raw" / file).exists() for file in _RAW):
            self._fetch(scratch)
        self._check_record()
        return self._links(scratch) if self._facts.num_outputs is None else self._nodes(scratch)

    def _nodes(self, scratch: Path) -> GraphData:
        facts, raw = self._facts, self._raw(scratch)
        splits: list[Any] = list(read_splits(self._raw_home / "split" / facts.split, raw.num_nodes, typed=facts.typed))
        if self.times:
            splits = [_seeds_in_time(ids, raw.tables) for ids in splits]
        edges = dict(raw.edges)
        # Untyped edges are turned round as they are read (ways=2), in the mapped file.
        if facts.typed and self._both_ways:
            edges |= {(dst, f"rev_{relation}", src): pairs[::-1] for (src, relation, dst), pairs in raw.edges.items()}
        return assemble_data(
            assemble_graph(
                raw.num_nodes,
                edges,
                typed=facts.typed,
                keep_order=bool(raw.edge_x),
                node_time=raw.tables if self.times else {},
            ),
            x=raw.x,
            y={name: _labels(labels) for name, labels in raw.labels.items()},
            **dict(zip(SPLITS, splits, strict=True)),
            num_classes=facts.num_outputs,
            tables=self._tables(raw),
            edge_x=raw.edge_x,
        )

    def _raw(self, scratch: Path) -> RawGraph:
        facts = self._facts
        links = facts.num_outputs is None
        return read_raw(
            self._raw_home / "raw",
            scratch,
            typed=facts.typed,
            ways=2 if self._both_ways and not facts.typed else 1,
            table=facts.table if self.extras or self.times else None,
            edge_features=facts.edge_features and self.extras,
            edge_columns=facts.edge_columns if links else (),
            labels=not links,
        )

    def _tables(self, raw: RawGraph) -> dict[str, dict[str, np.ndarray]]:
        name = self._facts.table
        return {} if name is None or not self.extras else {type_: {name: rows} for type_, rows in raw.tables.items()}

    def _links(self, scratch: Path) -> GraphData:
        facts, raw = self._facts, self._raw(scratch)
        tables, ranges = self._tables(raw), None
        if facts.typed:
            edges, relations, ranges, node_types = _in_one_range(raw, self._both_ways)
            tables = {"": {"node_type": node_types}}
            columns, num_nodes = {"edge_reltype": relations}, sum(raw.num_nodes.values())
        else:
            [edges], [num_nodes] = raw.edges.values(), raw.num_nodes.values()
            columns = {name: next(iter(rows.values())) for name, rows in raw.edge_columns.items()}
        years = raw.tables.get("") if self.times else None  # those of nodes; else edges and rows have their own
        edge_tables = {"": {"edge_year": columns["edge_year"]}} if self.extras and "edge_year" in columns else None
        keep_order = bool(raw.edge_x) or edge_tables is not None
        folder = self._raw_home / "split" / facts.split
        seeds = [
            seeds_of_links(split, f"{folder}/{name}.pt", ranges, self.times if years is None else years)
            for name, split in zip(("train", "valid", "test"), read_links(folder), strict=True)
        ]
        return assemble_data(
            Graph.from_coo(
                edges[0], edges[1], num_nodes, **self._edge_arguments(columns, years), keep_order=keep_order
            ),
            # Features by type do not fit one table: their widths differ.
            x={} if facts.typed else raw.x,
            **dict(zip(SPLITS, seeds, strict=True)),
            tables=tables,
            edge_x=raw.edge_x,
            edge_tables=edge_tables,
        )

    def _edge_arguments(self, columns: dict[str, np.ndarray], years: np.ndarray | None) -> dict[str, Any]:
        """Returns times, weights and types as :meth:`.Graph.from_coo` takes them."""
        arguments: dict[str, Any] = {}
        if self.times:
            arguments = {"edge_time": columns[str(self._facts.year)]} if years is None else {"node_time": years}
        if "edge_weight" in columns:
            arguments["edge_weight"] = columns["edge_weight"].astype(np.float32)
        if "edge_reltype" in columns:
            arguments["edge_type"] = self._relations(columns["edge_reltype"])
        return arguments

    def _relations(self, relations: np.ndarray) -> np.ndarray:
        """Returns the numbers of the edges' types; inverse ones count on from the last."""
        if not self._both_ways or not len(relations):
            return relations
        half = len(relations) // 2
        return np.append(relations[:half], relations[half:] + int(relations.max()) + 1)

    @property
    def _facts(self) -> _Facts:
        return _FACTS[self.name]

    @property
    def _both_ways(self) -> bool:
        return self._facts.add_inverse_edge if self.add_inverse_edge is None else self.add_inverse_edge

    @property
    def _root(self) -> Path:
        return Path(self.root or default_root())

    @property
    def _raw_home(self) -> Path:
        return self._root / self.name.replace("-", "_")

    def _fetch(self, scratch: Path) -> None:
        """Downloads and unpacks beside the final folder, then moves: a broken download leaves nothing."""
        archive_name, target = self._facts.archive, self._raw_home.absolute()
        scheme, task = "http" if self.plain_http else "https", "link" if self._facts.num_outputs is None else "node"
        url = f"{scheme}://{_SITE}/{task}proppred/{archive_name}.zip"
        by_hand = (
            f"{self.name}: none of raw/{', raw/'.join(_RAW)} is in {target}. To fetch it by hand, "
            f"download {url}, unzip it, and rename the folder {archive_name!r} to that path. "
            f"Or give the root that has it."
        )
        if not self.download:
            raise DatasetError(f"{by_hand} Or let prepare() fetch it: download=True.")
        if os.path.lexists(target) and not (target.is_dir() and not os.listdir(target)):  # now, not after 50 GB
            raise DatasetError(f"{by_hand} It is not fetched, as something else is there: move that away.")
        archive = scratch / f"{archive_name}.zip"
        try:
            log.info("%s: downloading %s", self.name, url)
            digest = fetch(url, archive, self.sha256)
            log.info("%s: the archive has SHA-256 %s", self.name, digest)
            unpack(archive, scratch, archive_name)
            archive.unlink()
            # Inside the folder that is moved, so that files never stand without their record.
            (scratch / archive_name / _RECORD).write_text(f"{digest}  {archive.name}\n")  # as sha256sum has it
            os.rename(scratch / archive_name, target)  # both lie in the root, on one file system
        except (OSError, RuntimeError, ValueError, DatasetError, zipfile.BadZipFile) as error:
            raise DatasetError(f"{by_hand} Fetching it failed: {error}") from error

    def _check_record(self) -> None:
        """Raises DatasetError: the files there were not unpacked from the archive that ``sha256`` names."""
        record = self._raw_home / _RECORD
        recorded = record.read_text().split()[:1] if record.is_file() else []
        if self.sha256 is not None and recorded != [self.sha256.lower()]:
            origin = (
                f"come from an archive with SHA-256 {recorded[0]}" if recorded else f"have no {_RECORD} that says so"
            )
            raise DatasetError(
                f"{self.name}: sha256 is {self.sha256}, but the files in {self._raw_home} {origin}. Move them away, so "
                f"that they are fetched again, or leave sha256 out."
            )


def _in_one_range(raw: RawGraph, both_ways: bool) -> tuple[np.ndarray, np.ndarray, dict[str, range], np.ndarray]:
    """Makes a graph with types one without, whose nodes lie type by type: returns its edges ``[2, E]``, their column of
    the files ``[E]``, the ids of each type's nodes, and the number of each node's type ``[N]``."""
    counts = list(raw.num_nodes.values())
    starts = np.cumsum([0, *counts]).tolist()
    ranges = {name: range(*pair) for name, pair in zip(raw.num_nodes, pairwise(starts), strict=True)}
    offsets = {(src, name, dst): [[ranges[src].start], [ranges[dst].start]] for src, name, dst in raw.edges}
    merged = np.concatenate([edges + np.array(offsets[edge_type]) for edge_type, edges in raw.edges.items()], axis=1)
    [column] = raw.edge_columns.values()
    relations = np.concatenate(list(column.values()))
    if both_ways:
        merged, relations = np.concatenate([merged, merged[::-1]], axis=1), np.tile(relations, 2)
    return merged, relations, ranges, np.repeat(np.arange(len(counts)), counts)


def _seeds_in_time(ids: dict[str, np.ndarray], times: dict[str, np.ndarray]) -> SeedTable:
    """Makes a seed table of a split's nodes, all of one type, at their own times."""
    if len(ids) != 1 or not ids.keys() <= times.keys():
        raise DatasetError(f"OGB: seeds of {', '.join(ids)} have no times of one type. Use times=False.")
    ((name, nodes),) = ids.items()
    return SeedTable(nodes, node_type=name or None, time=times[name][nodes])


def _labels(values: np.ndarray) -> np.ndarray:
    """Converts labels ``[N, T]`` to the shape and dtype that :class:`OGB` promises."""
    if values.shape[1] != 1:
        return values.astype(np.float32)
    column = values[:, 0]
    return np.where(np.isnan(column), -1, column).astype(np.int64)

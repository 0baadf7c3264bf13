"""OGB: node-property data sets of the Open Graph Benchmark, from their raw files."""

from __future__ import annotations

import logging
import os
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lightning_gnnload.data.datasets.base import default_root
from lightning_gnnload.data.datasets.ogb_raw import read_raw, read_split
from lightning_gnnload.data.datasets.stored import StoredDataset
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import DatasetError, MissingExtraError

log = logging.getLogger(__name__)


class _Facts(NamedTuple):
    """Holds facts of a data set's column in OGB's ``master.csv``, so that files on disk can be read without ogb."""

    archive: str
    split: str
    num_outputs: int  # classes, or tasks where each is yes or no
    add_inverse_edge: bool
    table: str | None = None  # a further column of nodes
    edge_features: bool = False


_FACTS = {
    "ogbn-arxiv": _Facts("arxiv", "time", 40, False, "node_year"),
    "ogbn-papers100M": _Facts("papers100M-bin", "time", 172, False, "node_year"),
    "ogbn-products": _Facts("products", "sales_ranking", 47, True),
    "ogbn-proteins": _Facts("proteins", "species", 112, True, "node_species", edge_features=True),
}
_RECIPE = 1  # part of the settings: raise it when the same raw files would give other arrays
_SITE = "http://snap.stanford.edu/ogb/data/nodeproppred"


@dataclass(frozen=True)
class OGB(StoredDataset):
    """Provides an OGB data set with one kind of node: its graph, features, labels and standard split.

    Files are looked for where the ogb package keeps them, ``<root>/ogbn_products/{raw,split}``, and are never
    unpickled. Labels are int64 ``[N]``, -1 where a node has none; with several tasks (ogbn-proteins) float32
    ``[N, tasks]``, NaN where there is none. Features are float32. With ``extras``, ogbn-arxiv and
    ogbn-papers100M have a table ``node_year`` and ogbn-proteins ``node_species``, int64 ``[N, 1]``; ogbn-proteins,
    which has no features of nodes, then has those of edges, float32 ``[E, 8]``, alike both ways.

    Reading ``csv.gz`` files needs pandas, downloading needs ogb; both come with the extra ``ogb``. Converting
    takes, beside the raw files, twice the disk space of the result while it runs; memory holds the result's
    topology, for ogbn-papers100M about 10 GB (17 GB with inverse edges), not the features.

    Args:
        name: ``"ogbn-arxiv"``, ``"ogbn-products"``, ``"ogbn-papers100M"`` or ``"ogbn-proteins"``.
        root: the folder that holds ``ogbn_products`` and the like; a per-user cache folder by default.
        add_inverse_edge: append every edge turned round; None does what OGB does for this data set.
        extras: what the data set has beside features and labels, as above; kept in a folder of its own.
        download: fetch the archive (over 50 GB for papers100M) when there are no raw files; nothing is asked.

    Raises:
        DatasetError: no such data set, or one with several kinds of nodes.

    Example:
        >>> OGB("ogbn-products", root="dataset").folder.as_posix()
        'dataset/ogbn-products-both-ways'
    """

    name: str
    root: str | Path | None = None
    add_inverse_edge: bool | None = None
    download: bool = True
    extras: bool = False

    def __post_init__(self) -> None:
        if self.name not in _FACTS:
            why = "it has several kinds of nodes" if self.name == "ogbn-mag" else "there is no such data set"
            raise DatasetError(f"OGB: {self.name!r} cannot be used: {why}. Choose one of {', '.join(_FACTS)}.")

    @property
    def settings(self) -> dict[str, Any]:
        extras = {"extras": True} if self.extras else {}
        return {"dataset": self.name, "recipe": _RECIPE, "add_inverse_edge": self._both_ways, **extras}

    @property
    def folder(self) -> Path:
        extras = "-extras" if self.extras else ""
        return self._root / f"{self.name}-{'both-ways' if self._both_ways else 'one-way'}{extras}"

    def build(self, scratch: Path) -> GraphData:
        facts, home = _FACTS[self.name], self._raw_home
        if not any((home / "raw" / file).exists() for file in ("data.npz", "edge.csv.gz")):
            self._fetch(scratch)
        table, edge_features = (facts.table, facts.edge_features) if self.extras else (None, False)
        raw = read_raw(
            home / "raw", scratch, add_inverse_edge=self._both_ways, table=table, edge_features=edge_features
        )
        splits = read_split(home / "split" / facts.split)
        graph = Graph.from_coo(raw.ends[0], raw.ends[1], raw.num_nodes, keep_order=edge_features)
        return GraphData(
            graph,
            raw.x,
            _labels(raw.labels),
            *splits,
            num_classes=facts.num_outputs,
            tables={} if table is None else {table: raw.table},
            edge_x=raw.edge_x,
        )

    @property
    def _both_ways(self) -> bool:
        return _FACTS[self.name].add_inverse_edge if self.add_inverse_edge is None else self.add_inverse_edge

    @property
    def _root(self) -> Path:
        return Path(self.root or default_root())

    @property
    def _raw_home(self) -> Path:
        return self._root / self.name.replace("-", "_")

    def _fetch(self, scratch: Path) -> None:
        """Downloads and unpacks beside the final place, then moves: a broken download leaves nothing."""
        archive_name, place = _FACTS[self.name].archive, self._raw_home.absolute()
        url = f"{_SITE}/{archive_name}.zip"
        by_hand = (
            f"{self.name}: neither raw/edge.csv.gz nor raw/data.npz is in {place}. To fetch it by hand, "
            f"download {url}, unzip it, and rename the folder {archive_name!r} to that path. "
            f"Or give the root that has it."
        )
        if not self.download:
            raise DatasetError(f"{by_hand} Or let prepare() fetch it: download=True.")
        download_url, extract_zip = _ogb_transfer()
        try:
            # A first request with a time limit: the download has none and would hang without a network.
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=30) as reply:
                size_bytes = int(reply.headers.get("Content-Length") or 0)
            log.info("%s: downloading %.1f GB from %s", self.name, size_bytes / 1e9, url)
            archive = download_url(url, str(scratch), log=False)
            extract_zip(archive, str(scratch), log=False)
            os.unlink(archive)
            os.rename(scratch / archive_name, place)  # both lie in the root, on one file system
        except (OSError, RuntimeError, ValueError, zipfile.BadZipFile) as error:
            raise DatasetError(f"{by_hand} Fetching it failed: {error}") from error


def _ogb_transfer() -> tuple[Any, Any]:
    try:
        from ogb.utils.url import download_url, extract_zip
    except ImportError as error:
        raise MissingExtraError("ogb", "ogb", "Downloading OGB data sets", error) from error
    return download_url, extract_zip


def _labels(values: np.ndarray) -> np.ndarray:
    """Converts labels ``[N, T]`` to the shape and dtype that :class:`OGB` promises."""
    if values.shape[1] != 1:
        return values.astype(np.float32)
    column = values[:, 0]
    return np.where(np.isnan(column), -1, column).astype(np.int64)

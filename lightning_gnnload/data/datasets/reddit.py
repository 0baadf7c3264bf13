"""Reddit: the graph of posts that GraphSAGE was measured on, of the two files that DGL distributes."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.data.datasets.base import default_root
from lightning_gnnload.data.datasets.stored import StoredDataset
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import DatasetError, GraphFormatError

DATA, GRAPH = "reddit_data.npz", "reddit_graph.npz"
_ENDS = {"coo": ("row", "col"), "csr": ("indptr", "indices"), "csc": ("indices", "indptr")}
"""By the format of a sparse matrix of SciPy's: where its rows and columns are; pointers are of what is compressed."""
_SPLITS = {"train": 1, "val": 2, "test": 3}


@dataclass(frozen=True)
class Reddit(StoredDataset):
    """Converts the two files of DGL's ``reddit.zip`` into a graph folder; nothing is unpickled.

    ``reddit_graph.npz`` is a sparse matrix of SciPy's, an edge from the row to the column of each entry.
    ``reddit_data.npz`` has ``feature [N, F]``, ``label [N]`` and ``node_types [N]``: 1 to train on, 2 to validate, 3 to
    test. Values of the matrix are not read.

    Args:
        source: the folder that the archive was unpacked to.
        root: the folder to keep the graph in; a per-user cache folder by default.

    Raises:
        DatasetError: on ``prepare``: a file is missing, is none of NumPy's, or does not hold what is said.

    Source: GraphSAGE (NIPS'17), section 4.2, as DGL's ``RedditDataset`` keeps it.

    Example:
        >>> Reddit("reddit", root="graphs").folder.parent.name
        'graphs'
    """

    source: str | Path
    root: str | Path | None = None

    @property
    def settings(self) -> dict[str, Any]:
        return {"dataset": "reddit", "recipe": 1, "source": str(Path(self.source).absolute())}

    @property
    def folder(self) -> Path:
        digest = hashlib.sha256(self.settings["source"].encode()).hexdigest()[:12]
        return Path(self.root or default_root()) / f"reddit-{digest}"

    def build(self, scratch: Path) -> GraphData:
        with _arrays(Path(self.source) / DATA) as data:
            kinds = data["node_types"]
            splits = [np.flatnonzero(kinds == number) for number in _SPLITS.values()]
            x, y = data["feature"].astype(np.float32, copy=False), data["label"].astype(np.int64, copy=False)
        return GraphData(self._graph(len(kinds)), x, y, *splits)

    def _graph(self, num_nodes: int) -> Graph:
        file = Path(self.source) / GRAPH
        with _arrays(file) as matrix:
            kind, shape = matrix["format"].item(), matrix["shape"].tolist()
            kind = kind.decode() if isinstance(kind, bytes) else str(kind)
            if kind not in _ENDS or shape != [num_nodes, num_nodes]:
                raise DatasetError(
                    f"{file} is a matrix of the format {kind!r}, {shape}; one of {', '.join(_ENDS)} is needed, "
                    f"[{num_nodes}, {num_nodes}], as {DATA} has so many nodes."
                )
            src, dst = (matrix[name] for name in _ENDS[kind])
        if kind == "csr":
            src = np.repeat(np.arange(num_nodes), np.diff(src))
        if kind == "csc":
            dst = np.repeat(np.arange(num_nodes), np.diff(dst))
        try:
            return Graph.from_coo(src, dst, num_nodes)
        except GraphFormatError as error:
            raise DatasetError(f"{file}: {error}") from error


@contextmanager
def _arrays(file: Path) -> Iterator[Any]:
    """Opens an ``.npz``; what is missing of it, or is no array of numbers, is told as a DatasetError."""
    try:
        with np.load(file, allow_pickle=False) as opened:
            yield opened
    except FileNotFoundError as error:
        raise DatasetError(
            f"there is no {file}. Unpack the reddit.zip that DGL's RedditDataset downloads, with {DATA} and {GRAPH}, "
            "and give its folder."
        ) from error
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{file} does not hold what DGL's Reddit has: {error}. Download it again.") from error

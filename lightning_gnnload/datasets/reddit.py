"""Reddit: the graph of posts that GraphSAGE was measured on, of the two files that DGL distributes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.datasets.foreign import ForeignFolder, reading
from lightning_gnnload.errors import DatasetError

DATA, GRAPH = "reddit_data.npz", "reddit_graph.npz"
# By the format of a sparse matrix of SciPy's: where its rows and columns are; pointers are of what is compressed.
_ENDS = {"coo": ("row", "col"), "csr": ("indptr", "indices"), "csc": ("indices", "indptr")}
_SPLITS = {"train": 1, "val": 2, "test": 3}


@dataclass(frozen=True)
class Reddit(ForeignFolder):
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

    KIND: ClassVar[str] = "Reddit"
    REMEDY: ClassVar[str] = f"Unpack the reddit.zip that DGL's RedditDataset downloads, with {DATA} and {GRAPH}, anew."
    source: str | Path
    root: str | Path | None = None

    def files(self) -> list[Path]:
        return [self.home / DATA, self.home / GRAPH]

    def converted(self, scratch: Path) -> GraphData:
        data_file, graph_file = self.files()
        with _arrays(data_file) as data:
            kinds = data["node_types"]
            splits = [np.flatnonzero(kinds == number) for number in _SPLITS.values()]
            x, y = data["feature"].astype(np.float32, copy=False), data["label"].astype(np.int64, copy=False)
        num_nodes = len(kinds)
        with _arrays(graph_file) as matrix:
            format_, shape = matrix["format"].item(), matrix["shape"].tolist()
            format_ = format_.decode() if isinstance(format_, bytes) else str(format_)
            if format_ not in _ENDS or shape != [num_nodes, num_nodes]:
                raise DatasetError(
                    f"{graph_file} is a matrix of the format {format_!r}, {shape}; one of {', '.join(_ENDS)} is "
                    f"needed, [{num_nodes}, {num_nodes}], as {DATA} has so many nodes."
                )
            src, dst = (matrix[name] for name in _ENDS[format_])
            if format_ == "csr":
                src = np.repeat(np.arange(num_nodes), np.diff(src))
            if format_ == "csc":
                dst = np.repeat(np.arange(num_nodes), np.diff(dst))
        return GraphData(Graph.from_coo(src, dst, num_nodes), x, y, *splits)


@contextmanager
def _arrays(file: Path) -> Iterator[Any]:
    """Opens an ``.npz`` without unpickling; what is missing of it, or is none, is a DatasetError."""
    with reading(file, Reddit.REMEDY), np.load(file, allow_pickle=False) as opened:
        yield opened

"""EdgeListFile: a graph of a text file of edges, as SNAP and WebGraph have them, larger than memory as it may be."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.datasets.base import default_root
from lightning_gnnload.datasets.stored import StoredDataset, scratch_array
from lightning_gnnload.errors import DatasetError, TableError
from lightning_gnnload.host.progress import progress
from lightning_gnnload.ingest.build import build_graph_folder
from lightning_gnnload.ingest.dataset import file_state
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.ingest.sql import literal
from lightning_gnnload.storage.graphs import load_graph_data

_COMMENTS = "#%"
_ONE_KIND = (
    "Comments may be of one kind, that before the first edge, or # where there is none: leave the others out, as by "
    "grep -v '^[#%]'."
)
_SEPARATORS = {"\t": "a tab", " ": "a space", ",": "a comma"}
_MOST_COMMENTS = 10_000  # lines before the first edge
_STRETCH_ROWS = 1 << 14


@dataclass(frozen=True, repr=False)
class EdgeListFile(StoredDataset):
    """Builds the graph of a text file with an edge a line: the source's id and the target's, whole numbers.

    Between them is a tab, a space or a comma; lines that begin with ``#``, or else ``%``, are comments. The file may be
    compressed (``.gz``). So are SNAP's edge lists (com-Friendster, Twitter) and WebGraph's lists of arcs. Memory is
    bounded, whatever the number of edges, which go through a file beside the folder. The graph is built again when the
    settings have changed, or the size or time of the file.

    Such graphs have no features and labels. For measurements, random ones can be made up, as GNNLab does.

    Args:
        path: of the file.
        root: the folder to keep the graph in; a per-user cache folder by default.
        undirected: each line is an edge in both directions; a node's edge to itself stays one.
        num_nodes: N: ids are the numbers of nodes, 0 to N - 1. None: nodes are those that edges have, in the order of
            their ids, which are kept (``GraphData.user_ids``).
        num_features: width of random float32 features; 0 for none.
        num_classes: of random labels; 0 for none.
        train_fraction: of the nodes with in-neighbours, at random; likewise ``val_fraction`` and ``test_fraction``.
        seed: of what is random.
        memory: that the build may take, as ``"4GB"``.

    Raises:
        DatasetError: settings that cannot work; on ``prepare``, a file that is not there, or a line that is no edge.
        MissingExtraError: on ``prepare``: duckdb or pyarrow is not installed.

    Source: SNAP (snap.stanford.edu/data), for the format; GNNLab (EuroSys'22), section 7.1, for random features and
    labels.

    Example:
        >>> EdgeListFile("com-friendster.ungraph.txt.gz", "graphs", undirected=True)
        EdgeListFile('com-friendster.ungraph.txt.gz')
    """

    path: str | Path
    root: str | Path | None = None
    undirected: bool = False
    num_nodes: int | None = None
    num_features: int = 0
    num_classes: int = 0
    train_fraction: float = 0.01
    val_fraction: float = 0.0
    test_fraction: float = 0.0
    seed: int = 0
    memory: str = "4GB"

    def __post_init__(self) -> None:
        for name in ("num_features", "num_classes", "seed"):
            if not _is_count(getattr(self, name)):
                raise DatasetError(
                    f"EdgeListFile: {name} is {getattr(self, name)!r}; a whole number of 0 or more is needed."
                )
        if self.num_nodes is not None and not (_is_count(self.num_nodes) and 0 < self.num_nodes < 2**32):
            raise DatasetError(
                f"EdgeListFile: num_nodes is {self.num_nodes!r}; a whole number from 1 to 2**32 - 1 is needed, or None "
                "where ids have gaps."
            )
        shares = self.train_fraction, self.val_fraction, self.test_fraction
        if not (all(0 <= share <= 1 for share in shares) and sum(shares) <= 1 + 1e-9):
            raise DatasetError(
                f"EdgeListFile: train_fraction, val_fraction and test_fraction are {shares}; each must lie in [0, 1], "
                "and their sum, too."
            )

    @property
    def settings(self) -> dict[str, Any]:
        return {**self._choices, "state": list(file_state(str(self.path)))}

    @property
    def _choices(self) -> dict[str, Any]:
        chosen = {name: value for name, value in asdict(self).items() if name not in ("path", "root", "memory")}
        return {"dataset": "edge list", "recipe": 1, "path": str(Path(self.path).absolute()), **chosen}

    @property
    def folder(self) -> Path:
        digest = hashlib.sha256(json.dumps(self._choices, sort_keys=True).encode()).hexdigest()[:12]
        name = Path(self.path).name.removesuffix(".gz").rpartition(".")[0] or Path(self.path).name
        return Path(self.root or default_root()) / f"{name}-{digest}"

    def __repr__(self) -> str:
        return f"EdgeListFile({str(self.path)!r})"

    def build(self, scratch: Path) -> GraphData:
        edges = self._edges()
        ids = f"select range as id from range({self.num_nodes})"
        if self.num_nodes is None:
            ids = f"select distinct unnest([src, dst]) as id from ({edges}) order by id"
        both = f"{edges} union all select dst, src from ({edges}) where src <> dst" if self.undirected else edges
        spec = GraphSpec.of(
            {
                "version": 1,
                "nodes": {"node": {"from": ids, "id": "id"}},
                "edges": {"edge": {"from": both, "src": "node.src", "dst": "node.dst"}},
                "build": {"memory": self.memory},
            }
        )
        try:
            build_graph_folder(spec, scratch / "graph")
        except TableError as error:
            below = "" if self.num_nodes is None else f" below {self.num_nodes}"
            also = _ONE_KIND if re.search(r'convert string "[#%]', str(error)) else ""
            raise DatasetError(
                f"{self!r}: each line needs two whole numbers{below}, but {error} {also}".rstrip()
            ) from error
        data = load_graph_data(scratch / "graph")
        rng = np.random.Generator(np.random.Philox(self.seed))
        order = rng.permutation(np.flatnonzero(data.graph.in_degrees))  # a sampler finds nothing for the others
        bounds = np.rint(np.cumsum([self.train_fraction, self.val_fraction, self.test_fraction]) * len(order)).astype(
            int
        )
        return GraphData(
            Graph(data.graph.indptr, data.graph.indices),  # without the numbers of lines
            self._features(rng, data.num_nodes, scratch / "x") if self.num_features else None,
            rng.integers(0, self.num_classes, data.num_nodes) if self.num_classes else None,
            *np.split(order[: bounds[-1]], bounds[:2]),
            num_classes=self.num_classes or None,
            user_ids=data.user_ids[""] if self.num_nodes is None else None,
        )

    def _features(self, rng: np.random.Generator, num_nodes: int, file: Path) -> np.ndarray:
        """Draws features, float32 ``[N, F]``, in a mapped file: they need not fit into memory."""
        x = scratch_array(file, np.float32, (num_nodes, self.num_features))
        with progress("Drawing features", num_nodes) as advance:
            for begin in range(0, num_nodes, _STRETCH_ROWS):
                rows = x[begin : begin + _STRETCH_ROWS]
                rng.random(out=rows.reshape(-1), dtype=np.float32)
                advance(len(rows))
        return x

    def _edges(self) -> str:
        """Returns the SQL of the edges, in the order of the file's lines."""
        separator, num_columns, comment = self._form()
        columns = {"src": "BIGINT", "dst": "BIGINT"} | {
            f"left_out_{number}": "VARCHAR" for number in range(2, num_columns)
        }
        if num_columns > 2:
            print(f"{self!r}: lines have {num_columns} columns; those after the first two are left out.", flush=True)
        named = ", ".join(f"{name}: {literal(type_)}" for name, type_ in columns.items())
        return (
            f"from (select src, dst from read_csv({literal(str(Path(self.path).absolute()))}, auto_detect=false, "
            f"header=false, delim={literal(separator)}, comment={literal(comment)}, quote='', escape='', "
            f"columns={{{named}}}))"
        )

    def _form(self) -> tuple[str, int, str]:
        """Reads the first edge; returns the separator of its ends, how many columns there are, and what begins
        comments."""
        path, comments = Path(self.path), set[str]()
        try:
            with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
                for line in islice(file, _MOST_COMMENTS):
                    if line[:1] not in _COMMENTS:
                        return *self._separator(line), min(comments, default=_COMMENTS[0])
                    comments.add(line[0])
                    if len(comments) > 1:
                        raise DatasetError(f"{self!r}: some comments begin with # and others with %. {_ONE_KIND}")
        except (OSError, UnicodeDecodeError) as error:
            raise DatasetError(
                f"{self!r}: {path.absolute()} cannot be read: {error}. Give the path of a file."
            ) from error
        raise DatasetError(f"{self!r}: there is no edge in the first {_MOST_COMMENTS} lines of {path.absolute()}.")

    def _separator(self, line: str) -> tuple[str, int]:
        """Returns what is between the ends of an edge, and how many columns its line has."""
        for separator in _SEPARATORS:
            fields = line.rstrip("\r\n").split(separator)
            if len(fields) > 1 and all(map(_is_id, fields[:2])):
                return separator, len(fields)
        raise DatasetError(
            f"{self!r}: the first line after comments is {line.rstrip()!r:.100}; two whole numbers are "
            f"needed, with {', '.join(_SEPARATORS.values())} between. Read other tables by Tables."
        )


def _is_id(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii()


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

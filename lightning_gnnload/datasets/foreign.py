"""Folders that another library laid out, converted once and again when their files change; and how that is done."""

from __future__ import annotations

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.tables import RESERVED, check_name
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.datasets.base import default_root
from lightning_gnnload.datasets.stored import StoredDataset
from lightning_gnnload.errors import DatasetError, GnnLoadError, GraphDataError, GraphFormatError, SeedError, warn


class ForeignFolder(StoredDataset):
    """Reads a folder of another library, and writes nothing into it: what is prepared lies in a folder of its own.

    A subclass is a dataclass, whose fields decide what is read: all but ``source``, the folder to read, and ``root``,
    the folder to keep prepared graphs in, a per-user cache folder by default.
    """

    KIND: ClassVar[str]  # what such folders are called, in errors and in names of prepared ones
    RECIPE: ClassVar[int] = 1  # part of the settings: raised when the same files would give other arrays
    REMEDY: ClassVar[str] = "Is the folder complete?"  # said of a file that is missing
    source: str | Path
    root: str | Path | None

    def __post_init__(self) -> None:
        for name in ("source", "root"):
            path = getattr(self, name)
            if not (isinstance(path, str | os.PathLike) and "\0" not in str(path)) and (name, path) != ("root", None):
                raise DatasetError(f"{self.KIND}: {name} is {path!r}, but the path of a folder is needed.")

    @abstractmethod
    def converted(self, scratch: Path) -> GraphData:
        """Reads the folder; files may lie in ``scratch`` until what is returned is written."""

    def build(self, scratch: Path) -> GraphData:
        try:
            return self.converted(scratch)
        except (GraphDataError, GraphFormatError, SeedError) as error:
            raise DatasetError(f"{self.KIND} {self.source}: {error}") from error

    @abstractmethod
    def files(self) -> list[Path]:
        """Returns the files that are converted; raises DatasetError where the folder's description is missing or
        broken."""

    @property
    def choices(self) -> dict[str, Any]:
        """The fields that decide what is read, as JSON holds them."""
        names = [field.name for field in fields(self) if field.name not in ("source", "root")]  # type: ignore[arg-type]
        return dict(json.loads(json.dumps({name: getattr(self, name) for name in names}, default=str)))

    @property
    def home(self) -> Path:
        """The folder that is read."""
        return Path(self.source).expanduser().resolve()

    @property
    def folder(self) -> Path:
        # By the folder and the choices, not by contents: a source that changed replaces what was made of it before.
        digest = hashlib.sha256(json.dumps([str(self.home), self.choices]).encode()).hexdigest()
        root = Path(self.root or default_root()).expanduser()
        return root / f"{self.KIND.lower()}-{self.home.name}-{digest[:12]}"

    @property
    def settings(self) -> dict[str, Any]:
        stats = {}
        for file in self.files():
            with reading(file, self.REMEDY):
                stats[str(file)] = file.stat()
        return {
            "dataset": self.KIND,
            "recipe": self.RECIPE,
            "source": str(self.home),
            # A copy of a file has another time, too, and is read again: contents are not compared.
            "files": {name: [stat.st_size, stat.st_mtime_ns] for name, stat in sorted(stats.items())},
            **self.choices,
        }

    def demand(self, argument: str, columns: Any) -> None:
        """Raises DatasetError: an argument names columns, and there are none of that name."""
        name = getattr(self, argument)
        if name is not None and not columns:
            raise DatasetError(f"{self.KIND} {self.source}: {argument} is {name!r}, but there is no such column.")

    def tell(self, left_out: Iterable[str], notes: Iterable[str] = ()) -> None:
        """Warns, at once, of all that was not read, and of what else the user is to know."""
        names = list(left_out)
        sentences = [*([f"it does not read {', '.join(names)}."] if names else []), *notes]
        if sentences:  # where a folder is converted, once a machine
            warn(f"{self.KIND} {self.source}: {' '.join(sentences)}")


def load_tensors(file: Path, *, mmap: bool = False, safe_classes: Sequence[Any] = ()) -> Any:
    """Reads what ``torch.save`` wrote, as tensors, plain values and ``safe_classes`` alone; refuses torch before 2.6,
    whose unpickler a file can make run code (CVE-2025-32434)."""
    if torch.__version__ < "2.6":  # which compares by numbers
        raise DatasetError(
            f"{file} is a file of torch.save, and reading one by torch {torch.__version__} may run code that somebody "
            "has put into it (CVE-2025-32434). Install torch 2.6 or newer."
        )
    with torch.serialization.safe_globals(list(safe_classes)):
        return torch.load(file, map_location="cpu", weights_only=True, mmap=mmap)


@contextmanager
def reading(file: Path, remedy: str) -> Iterator[None]:
    """Names the file in whatever goes wrong while it is read, and says what to do."""
    if not file.is_file():  # nor a pipe or a device, whose reading may not end
        raise DatasetError(f"{file} is missing. {remedy}")
    try:
        yield
    except (GnnLoadError, MemoryError):
        raise
    except Exception as error:  # parsers of damaged bytes raise whatever their inner workings do
        problem = " ".join(str(error).split()) or type(error).__name__
        raise DatasetError(f"{file} cannot be read: {problem[:300].rstrip('.')}. {remedy}") from error


def assemble_graph(
    num_nodes: Mapping[str, int],
    edges: Mapping[EdgeType, Any],
    *,
    typed: bool,
    keep_order: bool = False,
    **columns: Mapping[Any, np.ndarray],
) -> Graph:
    """Builds a graph with types of sources and targets ``[2, E_k]`` by edge type; where ``typed`` is false, of the only
    type that there is, one without. ``columns`` are ``edge_weight``, ``edge_time`` and ``node_time`` by type."""
    if typed:
        by_type: dict[str, Any] = {name: rows or None for name, rows in columns.items()}
        return Graph.from_hetero(num_nodes, edges, keep_order=keep_order, **by_type)
    src, dst = next(iter(edges.values()), np.empty((2, 0), np.int64))
    count = next(iter(num_nodes.values()), 0)
    untyped: dict[str, Any] = {name: next(iter(rows.values()), None) for name, rows in columns.items()}
    return Graph.from_coo(src, dst, count, keep_order=keep_order, **untyped)


def assemble_data(graph: Graph, **arguments: Any) -> GraphData:
    """Makes a :class:`.GraphData` of arguments by type, without those that are None or empty; features may be columns.
    What is no dict is passed as it is."""
    plain: dict[str, Any] = {}
    for name, rows in arguments.items():
        plain[name] = _present(graph, name, rows) if isinstance(rows, Mapping) else rows
    return GraphData(graph, **plain)


def _present(graph: Graph, name: str, by_type: Any) -> Any:
    by_type = {k: rows for k, rows in by_type.items() if not (rows is None or (isinstance(rows, Mapping) and not rows))}
    if name in ("x", "edge_x"):
        by_type = {k: rows[:, None] if rows.ndim == 1 else rows for k, rows in by_type.items()}
    if graph.types is None:
        by_type = next(iter(by_type.values()), None)
    return by_type or None if isinstance(by_type, Mapping) else by_type


def can_name(name: str, reserved: Container[str] = RESERVED) -> bool:
    """Returns whether a table can have this name."""
    try:
        check_name(name, reserved)
    except GraphDataError:
        return False
    return True

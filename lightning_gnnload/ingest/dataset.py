"""Tables of files or of memory as graphs: a data set that is built of them once, and GraphData.from_tables."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.datasets.stored import StoredDataset
from lightning_gnnload.errors import GraphSpecError, warn
from lightning_gnnload.ingest.build import build_graph_folder
from lightning_gnnload.ingest.open_tables import named_files
from lightning_gnnload.ingest.report import as_text
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.ingest.sql import EVERYWHERE
from lightning_gnnload.storage.graphs import load_graph_data


class Tables(StoredDataset):
    """Builds the graph of tables into a folder, as ``gnnload build`` does, and maps it ever after.

    It is built again when the description has changed, or the size or time of a file that it names.

    Args:
        graph: the path of a graph.yaml, whose paths count from its own folder; None: the description is ``nodes``,
            ``edges`` and ``tasks``, whose paths count from the current folder.
        read: folders beside that of graph.yaml where SQL in it may read files.
        folder: to write the graph to.
        nodes: as graph.yaml has them: ``{"paper": {"from": "papers.parquet", "id": "doi"}}``.
        edges: likewise.
        tasks: likewise.
        build: likewise.
        task: whose splits to take, of several.

    Raises:
        GraphSpecError: the description has a key or value that is wrong.
        DatasetError: on ``prepare``: a table cannot be read, or does not hold what is said.

    Example:
        >>> cites = {"from": "cites.parquet", "src": "paper.citing", "dst": "paper.cited"}
        >>> Tables(nodes={"paper": {"from": "papers.parquet", "id": "doi"}}, edges={"cites": cites}, folder="graph")
        Tables('graph')
    """

    def __init__(
        self,
        graph: str | None = None,
        *,
        folder: str,
        nodes: dict[str, Any] | None = None,
        edges: dict[str, Any] | None = None,
        tasks: dict[str, Any] | None = None,
        build: dict[str, Any] | None = None,
        task: str | None = None,
        read: Sequence[str] = (),
    ) -> None:
        sections = {"nodes": nodes, "edges": edges, "tasks": tasks, "build": build}
        sections = {name: section for name, section in sections.items() if section is not None}
        if (graph is None) == (not sections):
            raise GraphSpecError("Tables: give the path of a graph.yaml, or nodes= and edges=; one of the two.")
        self.spec = GraphSpec.of({"version": 1, **sections}) if graph is None else GraphSpec.read(graph)
        self.home = Path() if graph is None else Path(graph).absolute().parent
        self.reads = EVERYWHERE if graph is None else tuple(map(Path, read))
        self._folder, self.task = Path(folder), task

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def settings(self) -> dict[str, Any]:
        """A digest of the description, and of the sizes and times of the files that it names."""
        # Sizes and times instead of contents: to hash all tables would take as long as to build the graph.
        described = repr(self.spec), sorted(map(file_state, named_files(self.spec, self.home)))
        return {"built_from": "tables", "state": hashlib.sha256(json.dumps(described).encode()).hexdigest()}

    def write(self, settings: dict[str, Any]) -> None:
        print(f"Building {self.folder} of tables.", flush=True)
        report = build_graph_folder(
            self.spec, self.folder, home=self.home, reads=self.reads, overwrite=True, attributes=settings
        )
        print(as_text(report))

    def load(self) -> GraphData:
        data = super().load()
        return data if self.task is None else data.with_task(self.task)

    def __repr__(self) -> str:
        return f"Tables({str(self.folder)!r})"


def file_state(file: str) -> tuple[str, int, int]:
    """Returns a file's path, size and time of the last change in nanoseconds; -1 where it is not there."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return file, -1, -1  # which reading it will tell
    return file, status.st_size, status.st_mtime_ns


def from_tables(
    *,
    nodes: Mapping[str, Any],
    edges: Mapping[str, Any],
    tasks: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    task: str | None = None,
    transforms: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    show: bool = True,
    **build: Any,
) -> GraphData:
    """Builds the graph of tables, as ``gnnload build`` does of a graph.yaml, and maps it.

    Args:
        nodes: as graph.yaml has them: ``{"user": {"from": table, "id": "user_id"}}``; ``from`` is a table of
            pandas, polars or pyarrow, or what graph.yaml may name.
        edges: likewise.
        tasks: likewise.
        folder: to write and keep; None: one that is gone once it is mapped.
        task: whose splits to take, of several.
        transforms: a folder that was built before, whose features and classes are applied.
        overwrite: replace ``folder``, if it is one of a graph and holds nothing else.
        show: print the report, and bars; else its notes are warnings.
        **build: further settings of graph.yaml's ``build``: ``memory="4GB"``.

    Raises:
        MissingExtraError: duckdb or pyarrow is not installed; the extra ``tables`` brings them.
        GraphSpecError: a key or value that is none.
        TableError: a table does not hold what is said.

    Example:
        >>> import pyarrow as pa
        >>> from lightning_gnnload import GraphData
        >>> papers = pa.table({"doi": ["a", "b", "c"], "field": ["math", "art", "art"]})
        >>> cites = pa.table({"citing": ["a", "a", "c"], "cited": ["b", "c", "b"]})
        >>> data = GraphData.from_tables(
        ...     nodes={"paper": {"from": papers, "id": "doi"}},
        ...     edges={"cites": {"from": cites, "src": "paper.citing", "dst": "paper.cited"}},
        ...     tasks={"field": {"seed": "paper.doi", "y": "field", "split": {"share": [1.0, 0.0, 0.0]}}},
        ...     show=False,
        ... )
        >>> data.class_names, data.user_ids[""].take(data.graph.in_neighbors(1)).tolist()
        (('art', 'math'), ['a', 'c'])
    """
    spec = GraphSpec.of({"version": 1, "nodes": nodes, "edges": edges, "tasks": tasks or {}, "build": build})
    with tempfile.TemporaryDirectory(prefix="gnnload-") as scratch:
        target = Path(scratch) / "graph" if folder is None else Path(folder)
        report = build_graph_folder(
            spec,
            target,
            overwrite=overwrite,
            transforms=None if transforms is None else Path(transforms),
            show_progress=show,
        )
        data = load_graph_data(target, task=task)
    if folder is None:
        # The files are mapped, and have no names any more: nothing may be asked to open them again.
        data.folder = data.folder_fingerprint = None
    if show:
        print(as_text(report))
    for sentence in [] if show else report["notes"]:
        warn(f"GraphData.from_tables: {sentence}")
    return data

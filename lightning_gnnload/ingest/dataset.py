"""Tables: a data set that is built from tables once, so that a run's configuration can name them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_gnnload.data.datasets.stored import StoredDataset
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import GraphSpecError
from lightning_gnnload.ingest.build import build_graph
from lightning_gnnload.ingest.opened import named_files
from lightning_gnnload.ingest.report import as_text
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.ingest.sql import EVERYWHERE


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
        given = {"nodes": nodes, "edges": edges, "tasks": tasks, "build": build}
        given = {name: section for name, section in given.items() if section is not None}
        if (graph is None) == (not given):
            raise GraphSpecError("Tables: give the path of a graph.yaml, or nodes= and edges=; one of the two.")
        self.spec = GraphSpec.of({"version": 1, **given}) if graph is None else GraphSpec.read(graph)
        self.home = Path() if graph is None else Path(graph).absolute().parent
        self.reads = EVERYWHERE if graph is None else tuple(map(Path, read))
        self._folder, self.task = Path(folder), task

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def settings(self) -> dict[str, Any]:
        """A digest of the description, and of the sizes and times of the files that it names."""
        described = repr(self.spec), sorted(map(file_state, named_files(self.spec, self.home)))
        return {"built_from": "tables", "state": hashlib.sha256(json.dumps(described).encode()).hexdigest()}

    def write(self, settings: dict[str, Any]) -> None:
        print(f"Building {self.folder} of tables.", flush=True)
        report = build_graph(
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
        found = os.stat(file)
    except (OSError, ValueError):
        return file, -1, -1  # which reading it will tell
    return file, found.st_size, found.st_mtime_ns

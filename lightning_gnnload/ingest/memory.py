"""Tables in memory as GraphData."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.storage.graphs import load_graph_data
from lightning_gnnload.errors import warn
from lightning_gnnload.ingest.build import build_graph
from lightning_gnnload.ingest.report import as_text
from lightning_gnnload.ingest.spec import GraphSpec


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
    with tempfile.TemporaryDirectory(prefix="gnnload-") as place:
        target = Path(place) / "graph" if folder is None else Path(folder)
        report = build_graph(
            spec,
            target,
            overwrite=overwrite,
            transforms=None if transforms is None else Path(transforms),
            shown=show and sys.stderr.isatty(),
        )
        data = load_graph_data(target, task=task)
    if folder is None:
        data.folder = data.folder_fingerprint = None
    if show:
        print(as_text(report))
    for sentence in [] if show else report["notes"]:
        warn(f"GraphData.from_tables: {sentence}")
    return data

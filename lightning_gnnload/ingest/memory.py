"""GraphData of tables in memory, for :meth:`.GraphData.from_tables`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_gnnload.data.storage.graphs import load_graph_data
from lightning_gnnload.errors import warn
from lightning_gnnload.ingest.build import build_graph
from lightning_gnnload.ingest.report import as_text
from lightning_gnnload.ingest.spec import GraphSpec


def data_of_tables(
    given: Mapping[str, Any],
    folder: str | os.PathLike[str] | None,
    *,
    task: str | None,
    transforms: str | os.PathLike[str] | None,
    overwrite: bool,
    show: bool,
) -> Any:
    """Builds a folder, and maps it; without a name for it, the files go once they are mapped."""
    spec = GraphSpec.of(given)
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

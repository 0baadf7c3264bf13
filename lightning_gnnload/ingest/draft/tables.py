"""Which files are which tables, and the draft of them all."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.host.progress import progress
from lightning_gnnload.ingest.draft.look import SEEN_ROWS, look_at
from lightning_gnnload.ingest.draft.write import Draft, type_of_file
from lightning_gnnload.ingest.spec import BuildSpec
from lightning_gnnload.ingest.sql import matching_files, open_database

_TABLE = re.compile(r"\.(parquet|pq|csv|tsv|feather|arrow|ipc)(\.(gz|zst))?$", re.IGNORECASE)
_PART = re.compile(r"[-_.]?(part[-_.]?)?\d+(?=\.[^/]*$)", re.IGNORECASE)


def draft_of(paths: Sequence[str], home: Path, *, rows: int = SEEN_ROWS, show: bool = True) -> Draft:
    """Looks at tables, by their files, folders or globs, and drafts a graph.yaml in ``home`` of them.

    ``rows`` of each are looked at. A table that cannot be read is left out, and the draft says why; raises
    GraphSpecError where there is none at all.
    """
    groups = _groups([file for path in paths for file in _files(path)], home)
    tables, notes = [], []
    everything = [os.path.join(home, path) for group in groups.values() for path in group]
    with tempfile.TemporaryDirectory(prefix="gnnload-") as scratch:
        con = open_database(BuildSpec(), Path(scratch), home, files=everything)
        with progress("Looking at tables", len(groups), show=show) as advance:
            for name, group in groups.items():
                try:
                    tables.append(look_at(con, name, group[0] if len(group) == 1 else group, home, rows=rows))
                except TableError as error:
                    notes.append(f"Left out: {' '.join(str(error).split())}")
                advance(1)
        if not tables:
            raise GraphSpecError("\n".join(notes))
        draft = Draft(tables, notes)
        con.close()
    return draft


def _files(path: str) -> Iterator[str]:
    """Yields the files of tables that a path, a folder or a glob names."""
    whole = os.path.expanduser(path)
    if os.path.isdir(whole):
        inside = sorted(os.path.join(whole, name) for name in os.listdir(whole))
        tables = [file for file in inside if _TABLE.search(file) and os.path.isfile(file)]
        if not tables:
            raise GraphSpecError(f"{path}: the folder has no file of Parquet, CSV or Arrow, as a.parquet or b.csv.gz.")
        yield from tables
        return
    files = matching_files(path, Path())
    if not files or not all(map(os.path.isfile, files)):
        raise GraphSpecError(f"{path}: there is no such file. Give files of Parquet, CSV or Arrow, folders or globs.")
    for file in files:
        if not _TABLE.search(file):
            raise GraphSpecError(f"{file}: its end is that of no table: .parquet, .csv, .tsv, .arrow, .feather, .gz.")
        yield file


def _groups(files: Sequence[str], home: Path) -> dict[str, list[str]]:
    """Returns the tables by name, each with its files: those that differ by a number alone are parts of one."""
    stems: dict[str, list[str]] = {}
    for file in dict.fromkeys(os.path.abspath(file) for file in files):
        stems.setdefault(_PART.sub("", file), []).append(file)
    groups: dict[str, list[str]] = {}
    for stem, parts in stems.items():
        path = Path(parts[0] if len(parts) == 1 else stem)
        bare = not _TABLE.sub("", path.name)  # part-0.parquet, whose folder has the name
        name = type_of_file(path.parent if bare or path.name.startswith(".") else path)
        number = 2
        while name in groups:
            name, number = f"{re.sub(r'_[0-9]+$', '', name)}_{number}", number + 1
        pattern = _pattern(parts)
        groups[name] = [os.path.relpath(part, home) for part in ([pattern] if pattern else parts)]
    return groups


def _pattern(parts: Sequence[str]) -> str | None:
    """Returns the glob of several files, where it names these and no others."""
    pattern = re.sub(r"[0-9]+(?=[^0-9/]*$)", "*", parts[0])
    return pattern if len(parts) > 1 and matching_files(pattern, Path()) == sorted(parts) else None

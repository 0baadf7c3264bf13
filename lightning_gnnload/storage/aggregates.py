"""Tables that are aggregates of others: added to a graph's folder, and refused where what they are made of changed."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lightning_gnnload.data.aggregates import Aggregate
from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import StaleTableError, StoreFormatError
from lightning_gnnload.storage.folders import byte_chunks, new_folder, write_manifest
from lightning_gnnload.storage.manifest import CHECKSUM, MANIFEST
from lightning_gnnload.storage.open_folder import OpenFolder
from lightning_gnnload.storage.tables import raw_stores, table_name

_NOT_SETTINGS = ("format", "version", CHECKSUM, "arrays", "tables", "aggregates")


class AddedTable(NamedTuple):
    """A table whose array was written to a folder: its entry in the manifest, the first node that it has a row for
    (None: it has one for each), and what it is an aggregate of."""

    entry: dict[str, Any]
    first: int | None
    aggregate: Aggregate


AddTables = Callable[[Path], Mapping[str, AddedTable]]
"""Writes arrays to a folder, and returns the tables by name."""


def add_tables(folder: OpenFolder, add: AddTables) -> None:
    """Writes further tables to an open graph folder, atomically; those of the same names are replaced.

    The new version shares the files of the old one, which takes no room.

    Raises:
        StoreFormatError: another process writes the folder, or has replaced it.
        StaleTableError: another table is an aggregate of one that would be replaced.
        FeatureFileError: no room, or the disk fails; the folder then stays as it was.
    """
    with new_folder(folder.path, "graph", overwrite=True, alone=True) as new:
        more = add(new)
        manifest = {name: value for name, value in folder.manifest.items() if name not in _NOT_SETTINGS}
        arrays = folder.manifest["arrays"] | {table_name(name): table.entry for name, table in more.items()}
        tables = folder.manifest.get("tables", {}) | {name: table.first for name, table in more.items()}
        before = open_aggregates(folder.path, folder.manifest, check=False)
        aggregates = before | {name: table.aggregate for name, table in more.items()}
        # What is made anew may be what another table is made of. One that was stale before can only be mended itself.
        stale = {name for name, aggregate in before.items() if changed_sources(aggregate, folder.manifest["arrays"])}
        checked = {name: aggregate for name, aggregate in aggregates.items() if name in more or name not in stale}
        check_entries(folder.path, arrays, checked)
        for name in folder.names().keys() - {MANIFEST} - {table.entry["file"] for table in more.values()}:
            _share(folder, name, new)
        described = {name: aggregate.to_json() for name, aggregate in aggregates.items()}
        write_manifest(new, arrays, tables=tables, aggregates=described, **manifest)
        if folder.is_replaced:
            raise StoreFormatError(
                f"{folder.path} was replaced by another process while tables of it were aggregated. Do it again."
            )


def _share(folder: OpenFolder, name: str, new: Path) -> None:
    """Gives a file a second name in a new folder, or a copy of it where the file system has one name a file."""
    with suppress(OSError):
        folder.link(name, new / name)
        return
    with open(folder.open_file(name), "rb") as source, open(new / name, "xb") as copy:
        shutil.copyfileobj(source, copy, 1 << 22)
        copy.flush()
        os.fsync(copy.fileno())


def open_aggregates(path: Path, manifest: Mapping[str, Any], *, check: bool) -> dict[str, Aggregate]:
    """Reads what a folder's tables are aggregates of.

    Raises:
        StoreFormatError: the manifest does not say so in its form.
        StaleTableError: with ``check``, a table is an aggregate of other arrays than the folder has.
    """
    aggregates = {name: Aggregate.from_json(values) for name, values in manifest.get("aggregates", {}).items()}
    if check:
        check_entries(path, manifest["arrays"], aggregates)
    return aggregates


def check_entries(path: Path, entries: Mapping[str, Any], aggregates: Mapping[str, Aggregate]) -> None:
    """Raises StaleTableError: the entries of a folder's arrays have other checksums than aggregates were made of."""
    for name, aggregate in aggregates.items():
        if changed := changed_sources(aggregate, entries):
            raise _stale(f"{path}: table {name!r}", aggregate, changed[0], is_there=changed[0] in entries)


def changed_sources(aggregate: Aggregate, entries: Mapping[str, Any]) -> list[str]:
    """Returns which of the arrays that an aggregate was made of are not there, or have other checksums."""
    return [name for name, crc in aggregate.sources.items() if entries.get(name, {}).get("crc32") != crc]


def check_fresh(data: GraphData, name: str) -> None:
    """Checks that a table is an aggregate of the graph and the rows that are there now.

    Where these are not the very objects that it was made of, they are read, once, to compare checksums.

    Raises:
        StaleTableError: they differ.
    """
    aggregate, stores = data.aggregates[name], data.stores
    # Where data were loaded without the other table, the folder has been checked.
    if aggregate.table not in stores or aggregate.is_of(data.graph, stores[aggregate.table]):
        return
    now = checksums(data, aggregate)
    for source, checksum in aggregate.sources.items():
        if now.get(source) != checksum:
            raise _stale(f"table {name!r}", aggregate, source, is_there=source in now)
    data.aggregates[name] = aggregate.bound(data.graph, stores[aggregate.table])


def _stale(table: str, aggregate: Aggregate, source: str, *, is_there: bool) -> StaleTableError:
    problem = "has changed since" if is_there else "is not there"
    return StaleTableError(
        f"{table} is the {aggregate}, but {source!r}, which it was made of, {problem}. Make it again: "
        "preaggregate(...), gnnload preaggregate; or leave it out: del data.tables[name]."
    )


def source_arrays(data: GraphData, aggregate: Aggregate) -> dict[str, torch.Tensor | FeatureStore]:
    """Returns the arrays that an aggregate is made of, by the names that they have in a folder."""
    graph, is_x = data.graph, aggregate.table == "x"
    names = ["indptr", "indices", *["run_ptr"] * (graph.types is not None)]
    names += ["edge_weight"] * aggregate.weighted + ["edge_time"] * (aggregate.as_of is not None)
    arrays: dict[str, torch.Tensor | FeatureStore] = {name: tensor_view(getattr(graph, name)) for name in names}
    return arrays | raw_stores({"x" if is_x else table_name(aggregate.table): data.stores[aggregate.table]})


def checksums(data: GraphData, aggregate: Aggregate) -> dict[str, int]:
    """Returns the checksums (CRC-32) of :func:`source_arrays`, which are read once."""
    return {name: _checksum(array) for name, array in source_arrays(data, aggregate).items()}


def _checksum(array: torch.Tensor | FeatureStore) -> int:
    checksum = 0
    for chunk in byte_chunks(array):
        checksum = zlib.crc32(chunk, checksum)
    return checksum

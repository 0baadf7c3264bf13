"""The nodes of one type, numbered in the order of their table: their ids are written, and found by key."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lightning_gnnload.errors import TableError
from lightning_gnnload.host.pages import mapped_bytes, release_pages
from lightning_gnnload.host.progress import progress
from lightning_gnnload.ingest.source import IdType, Reading, Source
from lightning_gnnload.ingest.spec import NodeSpec
from lightning_gnnload.ingest.times import nanoseconds_of
from lightning_gnnload.ops import MAX_IDS, NO_TIME, FoundRows, IdIndex
from lightning_gnnload.storage.folders import ArrayWriter
from lightning_gnnload.storage.graphs import ids_name

if TYPE_CHECKING:
    import pyarrow as pa

_STRETCH_ROWS = 1 << 20
_SHOWN_BYTES = 60  # of an id, in an error


class Keys(NamedTuple):
    """Ids or keys as :class:`.IdIndex` takes them: numbers, or bytes and their offsets; and which are missing."""

    values: np.ndarray
    offsets: np.ndarray | None
    is_null: np.ndarray | None

    @classmethod
    def of(cls, column: pa.Array) -> Keys:
        """Views what a column of int64 or text holds, without a copy."""
        import pyarrow as pa

        is_null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        # Arrow's layout: which are valid, then numbers, or offsets and bytes.
        _, first, *rest = column.buffers()
        rows = slice(column.offset, column.offset + len(column))
        if pa.types.is_int64(column.type):
            return cls(_view(first, np.int64)[rows], None, is_null)
        wide = pa.types.is_large_string(column.type)
        if not wide and not pa.types.is_string(column.type):
            return cls.of(column.cast(pa.large_string()))
        offsets = _view(first, np.int64 if wide else np.int32)[rows.start : rows.stop + 1]
        # An empty column may have no offsets at all, not even the first.
        return cls(_view(rest[0], np.uint8), offsets if len(offsets) else np.zeros(1, np.int64), is_null)


def _view(buffer: Any, dtype: type) -> np.ndarray:
    """Views a buffer of Arrow's; none where a column is empty."""
    if buffer is None or not buffer.size:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, buffer.size // np.dtype(dtype).itemsize)


class NodeFiles(NamedTuple):
    """The files of a node type's ids and times, from which another process finds its nodes as well."""

    values: Path
    offsets: Path | None
    time: Path | None


@dataclass(frozen=True)
class NumberedNodes:
    """The nodes of one type, numbered in the order of their table."""

    node_type: str
    column: str
    id_type: IdType
    num_nodes: int
    num_rows: int  # of the table
    repeated: np.ndarray  # int64 [D], ascending: rows that were left out, since an earlier one has their id
    time: np.ndarray | None  # int64 nanoseconds [num_nodes], mapped, or NO_TIME; None: no column of times
    num_without_time: int
    index: IdIndex
    files: NodeFiles

    def find(self, column: pa.Array) -> FoundRows:
        """Finds the numbers of the nodes that a column of keys names. Threads may call it at once."""
        return self.index.find(*Keys.of(column))

    @classmethod
    def of_files(cls, nodes: Mapping[str, Any], files: NodeFiles) -> NumberedNodes:
        """Opens the files of nodes that were numbered elsewhere, whose other fields are ``nodes``."""
        values, offsets, time = (
            None if file is None else _map_file(file, np.uint8 if is_text else np.int64)
            for file, is_text in zip(files, (nodes["id_type"] == "text", False, False), strict=True)
        )
        assert values is not None
        index = _index(values, offsets, f"nodes.{nodes['node_type']}", show_progress=False)
        return cls(**nodes, time=time, index=index, files=files)

    def rest(self) -> None:
        """Takes the ids off this process's memory until they are looked at again."""
        for array in (self.index.values, self.index.offsets, self.time):
            if array is not None:
                release_pages(array)

    def in_graph(self, begin: int, end: int) -> np.ndarray | None:
        """Returns which rows of the table, from ``begin`` to ``end``, are nodes, bool; None: all of them."""
        if not len(self.repeated):
            return None
        mask = np.ones(end - begin, np.bool_)
        first, last = np.searchsorted(self.repeated, (begin, end))
        mask[self.repeated[first:last] - begin] = False
        return mask


def write_node_ids(
    node_type: str,
    spec: NodeSpec,
    source: Source,
    folder: Path,
    scratch: Path,
    entries: dict[str, Any],
    *,
    is_typed: bool = True,
    show_progress: bool = True,
) -> NumberedNodes:
    """Writes the ids of a node table to the folder, as ``ids.<node type>``, and numbers its rows.

    The first row of an id is its node. Ids are compared byte by byte, so that no two are taken for one. Times stay in
    ``scratch`` until those of all types are known. Raises TableError for rows without an id, or that repeat one.
    """
    where, name = f"nodes.{node_type}", ids_name(node_type if is_typed else "")
    id_type: IdType | None = None if spec.id_type == "auto" else spec.id_type  # type: ignore[assignment]
    key = source.key(spec.id, id_type, cast=id_type is not None)
    num_rows = source.num_rows
    if num_rows > MAX_IDS:
        raise TableError(f"{where}: {num_rows} rows are too many for one node type: there may be {MAX_IDS}.")
    keeps_first = spec.on_duplicate == "first"
    time_file = None if spec.time is None else (scratch, f"time.{name}")
    chunks = _chunks(spec, source, key, where, show_progress)
    written = _write(chunks, scratch if keeps_first else folder, name, key.id_type, time_file)
    index = _index(*written.ids, where, show_progress)
    repeated, originals = index.repeats()
    if len(repeated) and not keeps_first:
        raise TableError(
            f"{where}: {len(repeated)} rows repeat the {spec.id!r} of an earlier one. The first is row {repeated[0]}, "
            f"which has {_id_text(*written.ids, int(repeated[0]))}, as row {originals[0]} does. Clean the table, or "
            "keep the first row of each: on_duplicate: first."
        )
    if keeps_first:
        del index  # before there is another
        time_file = None if spec.time is None else (scratch, f"time.{name}.first")
        written = _write(_without(written, repeated), folder, name, key.id_type, time_file)
        index = _index(*written.ids, where, show_progress)
    entries |= written.entries
    without_time = 0 if written.time is None else int(np.count_nonzero(written.time == NO_TIME))
    return NumberedNodes(
        node_type,
        spec.id,
        key.id_type,
        index.num_ids,
        num_rows,
        repeated,
        written.time,
        without_time,
        index,
        written.files,
    )


# Some rows of a node table: their ids, none of them missing, and their times, where they have any.
_Chunk = tuple[Keys, np.ndarray | None]


def _chunks(spec: NodeSpec, source: Source, key: Reading, where: str, show_progress: bool) -> Iterator[_Chunk]:
    """Yields all rows of a node table; raises TableError in the end where some have no id."""
    readings = [key] if spec.time is None else [key, source.time(spec.time, spec.time_unit, spec.timezone)]
    with progress(f"Reading {where}", source.num_rows, show=show_progress) as advance:
        num_read, num_null, first_null = 0, 0, 0
        for batch in source.batches(readings):
            keys = Keys.of(batch.column(0))
            if keys.is_null is not None:
                first_null = first_null if num_null else num_read + int(keys.is_null.argmax())
                num_null += int(np.count_nonzero(keys.is_null))
            yield keys, nanoseconds_of(batch.column(1), f"{where}.time") if spec.time is not None else None
            num_read += len(batch)
            advance(len(batch))
    if num_null:
        raise TableError(
            f"{where}: {num_null} rows have no {spec.id!r}, the first is row {first_null}. Every node needs an id. "
            'Complete them, or leave these rows out: from: "select * from ... where '
            f'{source.column(spec.id)} is not null".'
        )


class _Written(NamedTuple):
    """What was written of a node table, mapped: ids as values and offsets, and times; and entries of the manifest."""

    ids: tuple[np.ndarray, np.ndarray | None]
    time: np.ndarray | None
    entries: dict[str, Any]
    files: NodeFiles


def _write(
    chunks: Iterator[_Chunk], folder: Path, name: str, id_type: IdType, time_file: tuple[Path, str] | None
) -> _Written:
    """Writes ids to a folder, and times to a file elsewhere, if there are any."""
    with ExitStack() as stack:
        values = stack.enter_context(ArrayWriter(folder, name, np.uint8 if id_type == "text" else np.int64))
        offsets = stack.enter_context(ArrayWriter(folder, f"{name}.offsets", np.int64)) if id_type == "text" else None
        time = None if time_file is None else stack.enter_context(ArrayWriter(*time_file, np.int64))
        if offsets is not None:
            offsets.append(np.zeros(1, np.int64))
        for keys, times in chunks:
            _append(values, offsets, keys)
            if time is not None and times is not None:
                time.append(times)
        entries = {name: values.entry()}
        if offsets is not None:
            entries[f"{name}.offsets"] = offsets.entry()
        if time is not None:
            time.entry()
    files = NodeFiles(values.path, None if offsets is None else offsets.path, None if time is None else time.path)
    ids = _map_file(values.path, values.dtype), None if offsets is None else _map_file(offsets.path, np.int64)
    return _Written(ids, None if time is None else _map_file(time.path, np.int64), entries, files)


def _append(values: ArrayWriter, offsets: ArrayWriter | None, keys: Keys) -> None:
    if offsets is None or keys.offsets is None:
        values.append(keys.values)
        return
    # Offsets of a chunk count from the beginning of its buffer, where rows of no chunk may lie.
    first, last = keys.offsets[0], keys.offsets[-1]
    offsets.append(keys.offsets[1:].astype(np.int64) + (values.num_rows - int(first)))
    values.append(keys.values[first:last])


def _map_file(file: Path, dtype: Any) -> np.ndarray:
    if not file.stat().st_size:
        return np.empty(0, dtype)
    return mapped_bytes(file).view(dtype)


def _index(values: np.ndarray, offsets: np.ndarray | None, where: str, show_progress: bool) -> IdIndex:
    # A key of its own for every build: nobody can choose ids that all fall into one place.
    index = IdIndex(values, offsets, key=secrets.randbits(64))
    with progress(f"Numbering {where}", index.num_ids, show=show_progress) as advance:
        for begin in range(0, index.num_ids, _STRETCH_ROWS):
            index.add(min(begin + _STRETCH_ROWS, index.num_ids))
            advance(index.num_added - begin)
    return index


def _without(written: _Written, repeated: np.ndarray) -> Iterator[_Chunk]:
    """Yields the rows that were written but for the repeated ones."""
    values, offsets = written.ids
    num_rows = len(values) if offsets is None else len(offsets) - 1
    for begin in range(0, max(num_rows, 1), _STRETCH_ROWS):
        end = min(begin + _STRETCH_ROWS, num_rows)
        stays = np.ones(end - begin, np.bool_)
        stays[repeated[slice(*np.searchsorted(repeated, (begin, end)))] - begin] = False
        times = None if written.time is None else written.time[begin:end][stays]
        if offsets is None:
            yield Keys(values[begin:end][stays], None, None), times
            continue
        lengths = np.diff(offsets[begin : end + 1])
        raw = values[offsets[begin] : offsets[end]][np.repeat(stays, lengths)]
        yield Keys(raw, np.concatenate([[0], np.cumsum(lengths[stays])]).astype(np.int64), None), times


def _id_text(values: np.ndarray, offsets: np.ndarray | None, row: int) -> str:
    if offsets is None:
        return str(values[row])
    raw = values[offsets[row] : offsets[row + 1]]
    return repr(raw[:_SHOWN_BYTES].tobytes().decode(errors="replace")) + "..." * (len(raw) > _SHOWN_BYTES)

"""The nodes of one type, numbered in the order of their table: their ids are written, and found by key."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lightning_gnnload.data.pages import mapped_bytes, release_pages
from lightning_gnnload.data.progress import progress
from lightning_gnnload.data.storage.folders import ArrayWriter
from lightning_gnnload.data.storage.graphs import ids_name
from lightning_gnnload.errors import TableError
from lightning_gnnload.ingest.source import Kind, Source
from lightning_gnnload.ingest.spec import NodeSpec
from lightning_gnnload.ingest.times import times_of
from lightning_gnnload.ops import MAX_IDS, NO_TIME, FoundRows, IdIndex

if TYPE_CHECKING:
    import pyarrow as pa

_STRETCH_ROWS = 1 << 20
_SHOWN_BYTES = 60


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
        _, first, *rest = column.buffers()
        rows = slice(column.offset, column.offset + len(column))
        if pa.types.is_int64(column.type):
            return cls(_view(first, np.int64)[rows], None, is_null)
        wide = pa.types.is_large_string(column.type)
        if not wide and not pa.types.is_string(column.type):
            return cls.of(column.cast(pa.large_string()))
        offsets = _view(first, np.int64 if wide else np.int32)[rows.start : rows.stop + 1]
        return cls(_view(rest[0], np.uint8), offsets if len(offsets) else np.zeros(1, np.int64), is_null)


def _view(buffer: Any, dtype: type) -> np.ndarray:
    """Views a buffer of Arrow's; none where a column is empty."""
    if buffer is None or not buffer.size:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, buffer.size // np.dtype(dtype).itemsize)


@dataclass(frozen=True)
class NumberedNodes:
    """The nodes of one type, numbered in the order of their table.

    Attributes:
        node_type: its name.
        column: of their ids.
        kind: of their ids.
        num_nodes: how many there are.
        num_rows: how many rows the table has.
        repeated: int64 ``[D]``: the rows that were left out, ascending, since an earlier one has their id.
        time: int64 nanoseconds ``[num_nodes]``, mapped; ``NO_TIME`` where there is none; None: no column of times.
        num_without_time: how many lack one.
        index: finds the number of a node by its id.
    """

    node_type: str
    column: str
    kind: Kind
    num_nodes: int
    num_rows: int
    repeated: np.ndarray
    time: np.ndarray | None
    num_without_time: int
    index: IdIndex

    def find(self, column: pa.Array) -> FoundRows:
        """Finds the numbers of the nodes that a column of keys names. Threads may call it at once."""
        return self.index.find(*Keys.of(column))

    def rest(self) -> None:
        """Takes the ids off this process's memory until they are looked at again."""
        for array in (self.index.values, self.index.offsets, self.time):
            if array is not None:
                release_pages(array)

    def rows_kept(self, begin: int, end: int) -> np.ndarray | None:
        """Returns which rows of a stretch of the table are nodes, bool ``[end - begin]``; None: all of them."""
        if not len(self.repeated):
            return None
        kept = np.ones(end - begin, np.bool_)
        first, last = np.searchsorted(self.repeated, (begin, end))
        kept[self.repeated[first:last] - begin] = False
        return kept


def number_nodes(
    node_type: str,
    spec: NodeSpec,
    source: Source,
    made: Path,
    scratch: Path,
    entries: dict[str, Any],
    *,
    is_typed: bool = True,
    shown: bool = True,
) -> NumberedNodes:
    """Writes the ids of a node table to the folder that is being made, and numbers its rows.

    The first row of an id is its node. Ids are compared byte by byte, so that no two are taken for one.

    Args:
        node_type: its name.
        spec: what graph.yaml says of it.
        source: its table.
        made: the folder: ``ids.<node type>``, and for texts their offsets.
        scratch: a folder on a disk with room; times are kept there until those of all types are known.
        entries: of the manifest; those of the ids are added.
        is_typed: whether the graph has types; one that has none knows its nodes' type as ``""``.
        shown: show a bar.

    Raises:
        TableError: rows without an id, or that repeat one; counted, and with the first.
        FeatureFileError: no room, or the disk fails.
    """
    where, name = f"nodes.{node_type}", ids_name(node_type if is_typed else "")
    kind: Kind | None = None if spec.id_type == "auto" else spec.id_type  # type: ignore[assignment]
    key = source.key(spec.id, kind, cast=kind is not None)
    readings = [key] if spec.time is None else [key, source.time(spec.time, spec.time_unit, spec.timezone)]
    num_rows = source.num_rows
    if num_rows > MAX_IDS:
        raise TableError(f"{where}: {num_rows} rows are too many for one node type: there may be {MAX_IDS}.")

    def chunks() -> Iterator[_Chunk]:
        with progress(f"Reading {where}", num_rows, show=shown) as advance:
            done, num_null, first_null = 0, 0, 0
            for batch in source.batches(readings):
                keys = Keys.of(batch.column(0))
                if keys.is_null is not None:
                    first_null = first_null if num_null else done + int(keys.is_null.argmax())
                    num_null += int(np.count_nonzero(keys.is_null))
                yield keys, times_of(batch.column(1), f"{where}.time") if spec.time is not None else None
                done += len(batch)
                advance(len(batch))
        if num_null:
            raise TableError(
                f"{where}: {num_null} rows have no {spec.id!r}, the first is row {first_null}. Every node needs an id. "
                'Complete them, or leave these rows out: from: "select * from ... where '
                f'{source.column(spec.id)} is not null".'
            )

    of_first = spec.on_duplicate == "first"
    has_time = spec.time is not None
    time_of = (scratch, f"time.{name}") if has_time else None
    written = _write(chunks(), scratch if of_first else made, name, key.kind, time_of)
    index = _index(*written.ids, where, shown)
    repeated, of = index.repeats()
    if len(repeated) and not of_first:
        raise TableError(
            f"{where}: {len(repeated)} rows repeat the {spec.id!r} of an earlier one. The first is row {repeated[0]}, "
            f"which has {_shown(*written.ids, int(repeated[0]))}, as row {of[0]} does. Clean the table, or keep the "
            "first row of each: on_duplicate: first."
        )
    if of_first:
        del index  # before there is another
        time_of = (scratch, f"time.{name}.first") if has_time else None
        written = _write(_without(written, repeated), made, name, key.kind, time_of)
        index = _index(*written.ids, where, shown)
    entries |= written.entries
    without_time = 0 if written.time is None else int(np.count_nonzero(written.time == NO_TIME))
    return NumberedNodes(
        node_type, spec.id, key.kind, index.num_ids, num_rows, repeated, written.time, without_time, index
    )


_Chunk = tuple[Keys, np.ndarray | None]
"""Some rows of a node table: their ids, none of them missing, and their times, where they have any."""


class _Written(NamedTuple):
    """What was written of a node table, mapped: ids as values and offsets, and times; and entries of the manifest."""

    ids: tuple[np.ndarray, np.ndarray | None]
    time: np.ndarray | None
    entries: dict[str, Any]


def _write(
    chunks: Iterator[_Chunk], folder: Path, name: str, kind: Kind, time_file: tuple[Path, str] | None
) -> _Written:
    """Writes ids to a folder, and times to a file elsewhere, if there are any."""
    with ExitStack() as opened:
        values = opened.enter_context(ArrayWriter(folder, name, np.uint8 if kind == "text" else np.int64))
        offsets = opened.enter_context(ArrayWriter(folder, f"{name}.offsets", np.int64)) if kind == "text" else None
        time = None if time_file is None else opened.enter_context(ArrayWriter(*time_file, np.int64))
        if offsets is not None:
            offsets.append(np.zeros(1, np.int64))
        for keys, times in chunks:
            if offsets is not None and keys.offsets is not None:
                first, last = keys.offsets[0], keys.offsets[-1]
                offsets.append(keys.offsets[1:].astype(np.int64) + (values.num_rows - int(first)))
                values.append(keys.values[first:last])
            else:
                values.append(keys.values)
            if time is not None and times is not None:
                time.append(times)
        entries = {name: values.entry()}
        if offsets is not None:
            entries[f"{name}.offsets"] = offsets.entry()
        if time is not None:
            time.entry()
    ids = _mapped(values), None if offsets is None else _mapped(offsets)
    return _Written(ids, None if time is None else _mapped(time), entries)


def _mapped(written: ArrayWriter) -> np.ndarray:
    if not written.num_rows:
        return np.empty(0, written.dtype)
    return mapped_bytes(written.path).view(written.dtype)


def _index(values: np.ndarray, offsets: np.ndarray | None, where: str, shown: bool) -> IdIndex:
    # A key of its own for every build: nobody can choose ids that all fall into one place.
    index = IdIndex(values, offsets, key=secrets.randbits(64))
    with progress(f"Numbering {where}", index.num_ids, show=shown) as advance:
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
        kept = np.ones(end - begin, np.bool_)
        kept[repeated[slice(*np.searchsorted(repeated, (begin, end)))] - begin] = False
        times = None if written.time is None else written.time[begin:end][kept]
        if offsets is None:
            yield Keys(values[begin:end][kept], None, None), times
            continue
        lengths = np.diff(offsets[begin : end + 1])
        raw = values[offsets[begin] : offsets[end]][np.repeat(kept, lengths)]
        yield Keys(raw, np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int64), None), times


def _shown(values: np.ndarray, offsets: np.ndarray | None, row: int) -> str:
    if offsets is None:
        return str(values[row])
    raw = values[offsets[row] : offsets[row + 1]]
    return repr(raw[:_SHOWN_BYTES].tobytes().decode(errors="replace")) + "..." * (len(raw) > _SHOWN_BYTES)

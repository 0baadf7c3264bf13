"""Readers of OGB's raw files, in both layouts (``csv.gz`` and ``npz``), in pieces and without pickle.

Edges and features go piece by piece into mapped scratch files, so that memory holds one piece of them. No file is
trusted: what it claims to hold is reserved only if so much can be in it.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.data.datasets.stored import scratch_array
from lightning_gnnload.data.progress import progress
from lightning_gnnload.errors import DatasetError, MissingExtraError

_PIECE = 1 << 20  # numbers, or rows of a csv file, read at once
_MOST_INFLATED = 1032  # bytes that deflate packs into one, at the very most
_MAX_LABEL = 1 << 31  # nobody has so many classes: such a number is damage


@dataclass
class RawGraph:
    """Holds the contents of one graph's raw files. Shapes: N nodes, E edges, F features, T tasks."""

    ends: np.ndarray  # int32 or int64 [2, E], [2, 2 E] with inverse edges: sources, destinations
    num_nodes: int
    x: np.ndarray | None  # float [N, F]
    labels: np.ndarray  # [N, T], NaN where a node has none
    table: np.ndarray | None = None  # [N, 1], the column of nodes that was asked for
    edge_x: np.ndarray | None = None  # float32 [E, F], [2 E, F] with inverse edges


def read_raw(
    raw: Path, scratch: Path, *, add_inverse_edge: bool, table: str | None = None, edge_features: bool = False
) -> RawGraph:
    """Reads whichever layout ``raw`` has.

    Args:
        scratch: a folder for the mapped files; they must outlive the arrays' use.
        add_inverse_edge: append every edge turned round (OGB's own reader interleaves them).
        table: a further column of nodes to read, as OGB names it.
        edge_features: read those too; only ``csv.gz`` files have any.

    Raises:
        DatasetError: a file is missing, broken, or does not fit the others; the message names it.
    """
    ways = 2 if add_inverse_edge else 1
    if (raw / "data.npz").exists():
        graph = _read_npz(raw, scratch, ways)
        rows = None if table is None else _whole(raw / "data.npz", table)
    else:
        graph = _read_csv(raw, scratch, ways)
        rows = None if table is None else _small_csv(raw / f"{table}.csv.gz", "int64")
        if edge_features:
            graph.edge_x = _csv_table(raw / "edge-feat.csv.gz", scratch / "edge_x", graph.ends.shape[1] // ways, ways)
    if rows is not None and rows.shape != (graph.num_nodes, 1):
        raise DatasetError(f"{raw}: {table} is {list(rows.shape)}, but [{graph.num_nodes}, 1] is needed. {_REMEDY}")
    graph.table = rows
    return graph


def read_split(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads the node ids for training, validation and test, int64."""
    train, val, test = (_column(folder / f"{name}.csv.gz") for name in ("train", "valid", "test"))
    return train, val, test


def _column(file: Path) -> np.ndarray:
    ids = _small_csv(file, "int64")
    if ids.shape[1] != 1:
        raise DatasetError(f"{file} has {ids.shape[1]} columns; one, of node ids, is needed. {_REMEDY}")
    return ids[:, 0]


def _read_csv(raw: Path, scratch: Path, ways: int) -> RawGraph:
    num_nodes = _only(_small_csv(raw / "num-node-list.csv.gz", "int64"), raw / "num-node-list.csv.gz")
    num_edges = _only(_small_csv(raw / "num-edge-list.csv.gz", "int64"), raw / "num-edge-list.csv.gz")
    edge_file = raw / "edge.csv.gz"
    _check_inflated(edge_file, 4 * num_edges)  # two digits, a comma and a line's end
    ends = _empty_ends(scratch, num_nodes, ways * num_edges)
    for start, rows in _csv_pieces(edge_file, "int64", num_edges):
        if rows.shape[1] != 2:
            raise DatasetError(f"{edge_file} has {rows.shape[1]} columns; source and destination are needed.")
        _put_ids(ends[:, start : start + len(rows)], rows.T, num_nodes, edge_file)
    _add_inverse(ends, num_edges)
    feature_file = raw / "node-feat.csv.gz"
    x = _csv_table(feature_file, scratch / "x", num_nodes) if feature_file.exists() else None
    labels = _small_csv(raw / "node-label.csv.gz", "float64")
    return RawGraph(ends, num_nodes, x, _checked_labels(labels, num_nodes, raw / "node-label.csv.gz"))


def _csv_table(file: Path, place: Path, num_rows: int, ways: int = 1) -> np.ndarray:
    """Reads a table to a mapped file at ``place``, float32 ``[ways * num_rows, F]``: all rows, ``ways`` times over."""
    table = np.empty((0, 0), np.float32)
    for start, rows in _csv_pieces(file, "float32", num_rows):
        if start == 0:
            _check_inflated(file, 2 * num_rows * rows.shape[1])  # a digit and a comma or a line's end
            table = scratch_array(place, np.float32, (ways * num_rows, rows.shape[1]))
        for way in range(ways):
            table[way * num_rows + start : way * num_rows + start + len(rows)] = rows
    return table


def _csv_pieces(file: Path, dtype: str, num_rows: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields ``(first row, rows)`` until all ``num_rows`` were read.

    Raises:
        DatasetError: the file has another number of rows.
    """
    start = 0
    with (
        progress(f"Reading {file.name}", num_rows) as advance,
        _reading(file),
        np.errstate(invalid="raise"),  # numbers beyond those of the dtype
        _pandas().read_csv(file, header=None, dtype=dtype, chunksize=_PIECE) as pieces,
    ):
        for piece in pieces:
            if start + len(piece) <= num_rows:  # rows beyond are counted for the error, but nobody has room for them
                yield start, piece.to_numpy()
            start += len(piece)
            advance(len(piece))
    if start != num_rows:
        raise DatasetError(f"{file} has {start} rows, but {num_rows} are needed. {_REMEDY}")


def _small_csv(file: Path, dtype: str) -> np.ndarray:
    with _reading(file), np.errstate(invalid="raise"):
        # A missing label may stand as an empty line: skipping it would shift all labels after it.
        rows = _pandas().read_csv(file, header=None, dtype=dtype, skip_blank_lines=dtype == "int64")
        values: np.ndarray = rows.to_numpy()
        return values


def _pandas() -> Any:
    try:
        return import_module("pandas")
    except ImportError as error:
        raise MissingExtraError("pandas", "ogb", "Reading OGB's csv files", error) from error


def _read_npz(raw: Path, scratch: Path, ways: int) -> RawGraph:
    file = raw / "data.npz"
    num_nodes = _only(_whole(file, "num_nodes_list"), file)
    num_edges = _only(_whole(file, "num_edges_list"), file)
    with _member(file, "edge_index") as (shape, by_column, numbers):
        if shape != (2, num_edges):
            raise DatasetError(f"{file}: edge_index is {list(shape)}, but [2, {num_edges}] is needed. {_REMEDY}")
        ends = _empty_ends(scratch, num_nodes, ways * num_edges)
        stored = ends[:, :num_edges]
        if by_column:  # source, destination, source, ...: _PIECE is even, so that no piece cuts a pair
            for start, ids in numbers:
                _put_ids(stored[:, start // 2 : (start + len(ids)) // 2], ids.reshape(-1, 2).T, num_nodes, file)
        else:
            for start, ids in numbers:  # all sources, then all destinations
                cut = min(max(num_edges - start, 0), len(ids))
                _put_ids(stored[0, start : start + cut], ids[:cut], num_nodes, file)
                low = max(start - num_edges, 0)
                _put_ids(stored[1, low : low + len(ids) - cut], ids[cut:], num_nodes, file)
    _add_inverse(ends, num_edges)
    x = _npz_features(file, scratch, num_nodes) if _has_member(file, "node_feat") else None
    label_file = raw / "node-label.npz"
    labels = _whole(label_file, "node_label")
    return RawGraph(ends, num_nodes, x, _checked_labels(labels, num_nodes, label_file))


def _npz_features(file: Path, scratch: Path, num_nodes: int) -> np.ndarray:
    with _member(file, "node_feat") as (shape, by_column, numbers):
        if len(shape) != 2 or shape[0] != num_nodes:
            raise DatasetError(f"{file}: node_feat is {list(shape)}, but [{num_nodes}, F] is needed. {_REMEDY}")
        x = scratch_array(scratch / "x", np.float32, shape[::-1] if by_column else shape)
        flat = x.reshape(-1)
        for start, values in numbers:
            with _reading(file), np.errstate(over="raise", invalid="raise"):
                flat[start : start + len(values)] = values
    return x.T if by_column else x


def _has_member(file: Path, key: str) -> bool:
    with _reading(file), zipfile.ZipFile(file) as archive:
        return f"{key}.npy" in archive.namelist()


def _whole(file: Path, key: str) -> np.ndarray:
    """Reads a small array of an npz file."""
    flat = np.empty(0)
    with _member(file, key) as (shape, by_column, numbers):
        for start, values in numbers:
            if start == 0:
                flat = np.empty(math.prod(shape), values.dtype)
            flat[start : start + len(values)] = values
    return flat.reshape(shape[::-1]).T if by_column else flat.reshape(shape)


@contextmanager
def _member(file: Path, key: str) -> Iterator[tuple[tuple[int, ...], bool, Iterator[tuple[int, np.ndarray]]]]:
    """Reads one array of an npz file: its shape, whether it is stored by column, and ``(start, numbers)`` as stored."""
    with ExitStack() as opened:
        with _reading(file):
            archive = opened.enter_context(zipfile.ZipFile(file))
            member = archive.getinfo(f"{key}.npy")
            stream = opened.enter_context(archive.open(member))
            old = np.lib.format.read_magic(stream) == (1, 0)
            read_header = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
            shape, by_column, dtype = read_header(stream)
        if dtype.kind not in "iuf":
            raise DatasetError(f"{file}: {key} has dtype {dtype}; numbers are needed. {_REMEDY}")
        total = math.prod(shape)
        claimed_bytes = stream.tell() + total * dtype.itemsize
        if min(shape, default=0) < 0 or claimed_bytes != member.file_size:
            raise DatasetError(f"{file}: {key} says that it is {dtype} {list(shape)}, but it is not. {_REMEDY}")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DatasetError(f"{file}: {key} is compressed in a way that NumPy does not write. {_REMEDY}")
        _check_inflated(file, claimed_bytes)

        def numbers() -> Iterator[tuple[int, np.ndarray]]:
            with progress(f"Reading {key}", total) as advance, _reading(file):
                for start in range(0, total, _PIECE):
                    count = min(_PIECE, total - start)
                    piece = stream.read(count * dtype.itemsize)
                    values = np.frombuffer(piece, dtype)
                    if len(values) != count:
                        raise DatasetError(f"{file}: {key} ends before its {total} numbers. {_REMEDY}")
                    yield start, values
                    advance(count)

        yield shape, by_column and len(shape) == 2, numbers()


def _check_inflated(file: Path, num_bytes: int) -> None:
    """Raises DatasetError: so many bytes cannot be in that file. To reserve room for them could fill the disk."""
    with _reading(file):
        file_bytes = file.stat().st_size
    if num_bytes > _MOST_INFLATED * file_bytes:
        raise DatasetError(f"{file} has {file_bytes} bytes, too few for what it, or its count, claims. {_REMEDY}")


def _empty_ends(scratch: Path, num_nodes: int, num_edges: int) -> np.ndarray:
    return scratch_array(scratch / "ends", np.int32 if num_nodes < 2**31 else np.int64, (2, num_edges))


def _put_ids(out: np.ndarray, ids: np.ndarray, num_nodes: int, file: Path) -> None:
    """Copies node ids. They are checked first: narrowing would wrap a bad id into a good one."""
    if ids.dtype.kind not in "iu":
        raise DatasetError(f"{file} names nodes by {ids.dtype}; integers are needed. {_REMEDY}")
    bad = (ids < 0) | (ids >= num_nodes)
    if bad.any():
        raise DatasetError(f"{file} names node {ids[bad][0]}, but ids must lie in [0, {num_nodes}). {_REMEDY}")
    out[...] = ids


def _add_inverse(ends: np.ndarray, num_edges: int) -> None:
    if ends.shape[1] > num_edges:
        ends[:, num_edges:] = ends[::-1, :num_edges]


def _only(counts: np.ndarray, file: Path) -> int:
    if counts.size != 1 or counts.dtype.kind not in "iu" or counts.reshape(-1)[0] < 0:
        raise DatasetError(f"{file} counts {counts.size} graphs; a node-property data set has one. {_REMEDY}")
    return int(counts.reshape(-1)[0])


def _checked_labels(labels: np.ndarray, num_nodes: int, file: Path) -> np.ndarray:
    if labels.ndim != 2 or len(labels) != num_nodes:
        raise DatasetError(f"{file}: labels are {list(labels.shape)}, but [{num_nodes}, tasks] is needed. {_REMEDY}")
    known = labels[~np.isnan(labels)].astype(np.float64)
    wrong = known[(np.floor(known) != known) | (known < -1) | (known >= _MAX_LABEL)]
    if wrong.size:
        raise DatasetError(f"{file}: {wrong[0]} is no label; labels are classes, counted from 0. {_REMEDY}")
    return labels


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Names the file in whatever goes wrong while it is read."""
    if not file.is_file():  # nor a pipe or a device, whose reading may not end
        raise DatasetError(f"{file} is missing. {_REMEDY}")
    try:
        yield
    except (DatasetError, MissingExtraError, MemoryError):
        raise
    except Exception as error:  # parsers of damaged bytes raise whatever their inner workings do
        raise DatasetError(f"{file} cannot be read: {error}. {_REMEDY}") from error


_REMEDY = "The raw folder is incomplete or damaged: delete it and prepare again, or unzip OGB's archive anew."

"""Readers of OGB's raw files, in both layouts (``csv.gz`` and ``npz``), in pieces and without pickle.

Edges and features go piece by piece into mapped scratch files, so that memory holds one piece of them. No file is
trusted: what it claims to hold is reserved only if so much can be in it.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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
    labels: np.ndarray | None  # [N, T], NaN where a node has none; None for link prediction
    table: np.ndarray | None = None  # [N, 1], the column of nodes that was asked for
    edge_x: np.ndarray | None = None  # float32 [E, F], [2 E, F] with inverse edges
    edge_columns: dict[str, np.ndarray] = field(default_factory=dict)  # int64 [E] by name, [2 E] with inverse edges


def read_raw(
    raw: Path,
    scratch: Path,
    *,
    add_inverse_edge: bool,
    table: str | None = None,
    edge_features: bool = False,
    edge_columns: Sequence[str] = (),
    labels: bool = True,
) -> RawGraph:
    """Reads whichever layout ``raw`` has.

    Args:
        scratch: a folder for the mapped files; they must outlive the arrays' use.
        add_inverse_edge: append every edge turned round (OGB's own reader interleaves them).
        table: a further column of nodes to read, as OGB names it.
        edge_features: read those too.
        edge_columns: columns of edges to read, as OGB names them; only ``csv.gz`` files have any.
        labels: whether nodes have some.

    Raises:
        DatasetError: a file is missing, broken, or does not fit the others; the message names it.
    """
    ways = 2 if add_inverse_edge else 1
    if (raw / "data.npz").exists():
        graph = _read_npz(raw, scratch, ways, labels)
        rows = None if table is None else whole_array(raw / "data.npz", table)
        if edge_features:
            graph.edge_x = npz_table(raw / "data.npz", "edge_feat", scratch / "edge_x", graph.ends.shape[1] // ways)
            if add_inverse_edge:
                graph.edge_x = np.concatenate([graph.edge_x, graph.edge_x])
    else:
        graph = _read_csv(raw, scratch, ways, labels)
        rows = None if table is None else small_csv(raw / f"{table}.csv.gz", "int64")
        num_edges = graph.ends.shape[1] // ways
        if edge_features:
            graph.edge_x = csv_table(raw / "edge-feat.csv.gz", scratch / "edge_x", num_edges, ways)
        for name in edge_columns:
            graph.edge_columns[name] = np.tile(one_column(raw / f"{name}.csv.gz", num_edges), ways)
    if rows is not None and rows.shape != (graph.num_nodes, 1):
        raise DatasetError(f"{raw}: {table} is {list(rows.shape)}, but [{graph.num_nodes}, 1] is needed. {REMEDY}")
    graph.table = rows
    return graph


def read_split(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads the node ids for training, validation and test, int64."""
    train, val, test = (one_column(folder / f"{name}.csv.gz") for name in ("train", "valid", "test"))
    return train, val, test


def one_column(file: Path, num_rows: int | None = None) -> np.ndarray:
    """Reads a file of whole numbers, one a line, int64 ``[R]``, of as many rows as are needed."""
    ids = small_csv(file, "int64")
    if ids.shape[1] != 1:
        raise DatasetError(f"{file} has {ids.shape[1]} columns; one, of node ids, is needed. {REMEDY}")
    if num_rows is not None and len(ids) != num_rows:
        raise DatasetError(f"{file} has {len(ids)} rows, but {num_rows} are needed. {REMEDY}")
    return ids[:, 0]


def _read_csv(raw: Path, scratch: Path, ways: int, has_labels: bool) -> RawGraph:
    num_nodes = one_count(small_csv(raw / "num-node-list.csv.gz", "int64"), raw / "num-node-list.csv.gz")
    num_edges = one_count(small_csv(raw / "num-edge-list.csv.gz", "int64"), raw / "num-edge-list.csv.gz")
    ends = csv_ends(raw / "edge.csv.gz", scratch / "ends", num_edges, (num_nodes, num_nodes), ways)
    feature_file = raw / "node-feat.csv.gz"
    x = csv_table(feature_file, scratch / "x", num_nodes) if feature_file.exists() else None
    labels = None
    if has_labels:
        labels = small_csv(raw / "node-label.csv.gz", "float64")
        labels = checked_labels(labels, num_nodes, raw / "node-label.csv.gz")
    return RawGraph(ends, num_nodes, x, labels)


def csv_ends(file: Path, place: Path, num_edges: int, num_nodes: tuple[int, int], ways: int = 1) -> np.ndarray:
    """Reads edges to a mapped file at ``place``, ``[2, ways * num_edges]``: as they are, then turned round.

    Args:
        num_nodes: how many sources there may be, and how many destinations.
    """
    check_inflated(file, 4 * num_edges)  # two digits, a comma and a line's end
    ends = _empty_ends(place, max(num_nodes), ways * num_edges)
    for start, rows in csv_pieces(file, "int64", num_edges):
        if rows.shape[1] != 2:
            raise DatasetError(f"{file} has {rows.shape[1]} columns; source and destination are needed.")
        for end, ids, count in zip(ends, rows.T, num_nodes, strict=True):
            put_ids(end[start : start + len(rows)], ids, count, file)
    _add_inverse(ends, num_edges)
    return ends


def csv_table(file: Path, place: Path, num_rows: int, ways: int = 1) -> np.ndarray:
    """Reads a table to a mapped file at ``place``, float32 ``[ways * num_rows, F]``: all rows, ``ways`` times over."""
    table = np.empty((0, 0), np.float32)
    for start, rows in csv_pieces(file, "float32", num_rows):
        if start == 0:
            check_inflated(file, 2 * num_rows * rows.shape[1])  # a digit and a comma or a line's end
            table = scratch_array(place, np.float32, (ways * num_rows, rows.shape[1]))
        for way in range(ways):
            table[way * num_rows + start : way * num_rows + start + len(rows)] = rows
    return table


def csv_pieces(file: Path, dtype: str, num_rows: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields ``(first row, rows)`` until all ``num_rows`` were read.

    Raises:
        DatasetError: the file has another number of rows.
    """
    start = 0
    with (
        progress(f"Reading {file.name}", num_rows) as advance,
        reading(file),
        np.errstate(invalid="raise"),  # numbers beyond those of the dtype
        pandas().read_csv(file, header=None, dtype=dtype, chunksize=_PIECE) as pieces,
    ):
        for piece in pieces:
            if start + len(piece) <= num_rows:  # rows beyond are counted for the error, but nobody has room for them
                yield start, piece.to_numpy()
            start += len(piece)
            advance(len(piece))
    if start != num_rows:
        raise DatasetError(f"{file} has {start} rows, but {num_rows} are needed. {REMEDY}")


def small_csv(file: Path, dtype: str) -> np.ndarray:
    """Reads a file of numbers whole."""
    with reading(file), np.errstate(invalid="raise"):
        # A missing label may stand as an empty line: skipping it would shift all labels after it.
        rows = pandas().read_csv(file, header=None, dtype=dtype, skip_blank_lines=dtype == "int64")
        values: np.ndarray = rows.to_numpy()
        return values


def pandas() -> Any:
    """Returns the module, which the extra ``ogb`` brings."""
    try:
        return import_module("pandas")
    except ImportError as error:
        raise MissingExtraError("pandas", "ogb", "Reading OGB's csv files", error) from error


def _read_npz(raw: Path, scratch: Path, ways: int, has_labels: bool) -> RawGraph:
    file = raw / "data.npz"
    num_nodes = one_count(whole_array(file, "num_nodes_list"), file)
    num_edges = one_count(whole_array(file, "num_edges_list"), file)
    ends = npz_ends(file, "edge_index", scratch / "ends", num_edges, (num_nodes, num_nodes), ways)
    x = npz_table(file, "node_feat", scratch / "x", num_nodes) if has_array(file, "node_feat") else None
    labels, label_file = None, raw / "node-label.npz"
    if has_labels:
        labels = checked_labels(whole_array(label_file, "node_label"), num_nodes, label_file)
    return RawGraph(ends, num_nodes, x, labels)


def npz_ends(
    file: Path, key: str, place: Path, num_edges: int, num_nodes: tuple[int, int], ways: int = 1
) -> np.ndarray:
    """Reads edges as :func:`csv_ends` does, from an array ``[2, num_edges]``."""
    with array_member(file, key) as (shape, by_column, numbers):
        if shape != (2, num_edges):
            raise DatasetError(f"{file}: {key} is {list(shape)}, but [2, {num_edges}] is needed. {REMEDY}")
        ends = _empty_ends(place, max(num_nodes), ways * num_edges)
        for start, ids in numbers:
            if by_column:  # source, destination, source, ...: _PIECE is even, so that no piece cuts a pair
                for end, column, count in zip(ends, ids.reshape(-1, 2).T, num_nodes, strict=True):
                    put_ids(end[start // 2 : (start + len(ids)) // 2], column, count, file)
            else:  # all sources, then all destinations
                cut = min(max(num_edges - start, 0), len(ids))
                put_ids(ends[0, start : start + cut], ids[:cut], num_nodes[0], file)
                low = max(start - num_edges, 0)
                put_ids(ends[1, low : low + len(ids) - cut], ids[cut:], num_nodes[1], file)
    _add_inverse(ends, num_edges)
    return ends


def npz_table(file: Path, key: str, place: Path, num_rows: int) -> np.ndarray:
    """Reads an array ``[num_rows, F]`` to a mapped file at ``place``, float32."""
    with array_member(file, key) as (shape, by_column, numbers):
        if len(shape) != 2 or shape[0] != num_rows:
            raise DatasetError(f"{file}: {key} is {list(shape)}, but [{num_rows}, F] is needed. {REMEDY}")
        x = scratch_array(place, np.float32, shape[::-1] if by_column else shape)
        flat = x.reshape(-1)
        for start, values in numbers:
            with reading(file), np.errstate(over="raise", invalid="raise"):
                flat[start : start + len(values)] = values
    return x.T if by_column else x


def has_array(file: Path, key: str) -> bool:
    """Tells whether an npz file has that array."""
    with reading(file), zipfile.ZipFile(file) as archive:
        return f"{key}.npy" in archive.namelist()


def whole_array(file: Path, key: str) -> np.ndarray:
    """Reads a small array of an npz file."""
    flat = np.empty(0)
    with array_member(file, key) as (shape, by_column, numbers):
        for start, values in numbers:
            if start == 0:
                flat = np.empty(math.prod(shape), values.dtype)
            flat[start : start + len(values)] = values
    return flat.reshape(shape[::-1]).T if by_column else flat.reshape(shape)


@contextmanager
def array_member(file: Path, key: str) -> Iterator[tuple[tuple[int, ...], bool, Iterator[tuple[int, np.ndarray]]]]:
    """Reads one array of an npz file: its shape, whether it is stored by column, and ``(start, numbers)`` as stored."""
    with ExitStack() as opened:
        with reading(file):
            archive = opened.enter_context(zipfile.ZipFile(file))
            member = archive.getinfo(f"{key}.npy")
            stream = opened.enter_context(archive.open(member))
            old = np.lib.format.read_magic(stream) == (1, 0)
            read_header = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
            shape, by_column, dtype = read_header(stream)
        if dtype.kind not in "iuf":
            raise DatasetError(f"{file}: {key} has dtype {dtype}; numbers are needed. {REMEDY}")
        total = math.prod(shape)
        claimed_bytes = stream.tell() + total * dtype.itemsize
        if min(shape, default=0) < 0 or claimed_bytes != member.file_size:
            raise DatasetError(f"{file}: {key} says that it is {dtype} {list(shape)}, but it is not. {REMEDY}")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DatasetError(f"{file}: {key} is compressed in a way that NumPy does not write. {REMEDY}")
        check_inflated(file, claimed_bytes)

        def numbers() -> Iterator[tuple[int, np.ndarray]]:
            with progress(f"Reading {key}", total) as advance, reading(file):
                for start in range(0, total, _PIECE):
                    count = min(_PIECE, total - start)
                    piece = stream.read(count * dtype.itemsize)
                    values = np.frombuffer(piece, dtype)
                    if len(values) != count:
                        raise DatasetError(f"{file}: {key} ends before its {total} numbers. {REMEDY}")
                    yield start, values
                    advance(count)

        yield shape, by_column and len(shape) == 2, numbers()


def check_inflated(file: Path, num_bytes: int) -> None:
    """Raises DatasetError: so many bytes cannot be in that file. To reserve room for them could fill the disk."""
    with reading(file):
        file_bytes = file.stat().st_size
    if num_bytes > _MOST_INFLATED * file_bytes:
        raise DatasetError(f"{file} has {file_bytes} bytes, too few for what it, or its count, claims. {REMEDY}")


def _empty_ends(place: Path, num_nodes: int, num_edges: int) -> np.ndarray:
    return scratch_array(place, np.int32 if num_nodes < 2**31 else np.int64, (2, num_edges))


def put_ids(out: np.ndarray, ids: np.ndarray, num_nodes: int, file: Path) -> None:
    """Copies node ids. They are checked first: narrowing would wrap a bad id into a good one."""
    if ids.dtype.kind not in "iu":
        raise DatasetError(f"{file} names nodes by {ids.dtype}; integers are needed. {REMEDY}")
    bad = (ids < 0) | (ids >= num_nodes)
    if bad.any():
        raise DatasetError(f"{file} names node {ids[bad][0]}, but ids must lie in [0, {num_nodes}). {REMEDY}")
    out[...] = ids


def _add_inverse(ends: np.ndarray, num_edges: int) -> None:
    if ends.shape[1] > num_edges:
        ends[:, num_edges:] = ends[::-1, :num_edges]


def one_count(counts: np.ndarray, file: Path) -> int:
    """Raises DatasetError: counts of several graphs, or of none."""
    if counts.size != 1 or counts.dtype.kind not in "iu" or counts.reshape(-1)[0] < 0:
        raise DatasetError(f"{file} counts {counts.size} graphs; one is needed. {REMEDY}")
    return int(counts.reshape(-1)[0])


def checked_labels(labels: np.ndarray, num_nodes: int, file: Path) -> np.ndarray:
    """Raises DatasetError: not a row a node, or numbers that are no classes."""
    if labels.ndim != 2 or len(labels) != num_nodes:
        raise DatasetError(f"{file}: labels are {list(labels.shape)}, but [{num_nodes}, tasks] is needed. {REMEDY}")
    known = labels[~np.isnan(labels)].astype(np.float64)
    wrong = known[(np.floor(known) != known) | (known < -1) | (known >= _MAX_LABEL)]
    if wrong.size:
        raise DatasetError(f"{file}: {wrong[0]} is no label; labels are classes, counted from 0. {REMEDY}")
    return labels


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Names the file in whatever goes wrong while it is read."""
    if not file.is_file():  # nor a pipe or a device, whose reading may not end
        raise DatasetError(f"{file} is missing. {REMEDY}")
    try:
        yield
    except (DatasetError, MissingExtraError, MemoryError):
        raise
    except Exception as error:  # parsers of damaged bytes raise whatever their inner workings do
        raise DatasetError(f"{file} cannot be read: {error}. {REMEDY}") from error


REMEDY = "The raw folder is incomplete or damaged: delete it and prepare again, or unzip OGB's archive anew."

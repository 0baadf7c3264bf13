"""The arrays of OGB's raw folders, each a ``csv.gz`` file or a member of an ``npz`` archive, in pieces, without pickle.

Edges and features go piece by piece into mapped scratch files, so that memory holds one piece of them. No file is
trusted: what it claims to hold is reserved only if so much can be in it.
"""

from __future__ import annotations

import math
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.datasets.download import MOST_INFLATED
from lightning_gnnload.datasets.foreign import reading
from lightning_gnnload.datasets.stored import scratch_array
from lightning_gnnload.errors import DatasetError, MissingExtraError
from lightning_gnnload.host.progress import progress

REMEDY = "The raw folder is incomplete or damaged: delete it and prepare again, or unzip OGB's archive anew."
_PIECE = 1 << 20  # numbers, or rows of a csv file, read at once
_MAX_LABEL = 1 << 31  # nobody has so many classes: such a number is damage


@dataclass(frozen=True)
class RawArray(ABC):
    """Reads one array of a raw folder; what does not fit is a :class:`.DatasetError` that names it."""

    file: Path

    @abstractmethod
    def exists(self) -> bool: ...

    @abstractmethod
    def whole(self, dtype: str) -> np.ndarray:
        """Reads a small array, of this dtype where it is stored as text."""

    @abstractmethod
    def edges(self, target: Path, num_edges: int, num_nodes: tuple[int, int], ways: int = 1) -> np.ndarray:
        """Reads edges to a mapped file at ``target``, ``[2, ways * num_edges]``: as they are, then turned round;
        ``num_nodes`` is how many sources there may be, and how many destinations."""

    @abstractmethod
    def table(self, target: Path, num_rows: int, ways: int = 1) -> np.ndarray:
        """Reads a table to a mapped file at ``target``, float32 ``[ways * num_rows, F]``: all rows, ``ways`` times."""

    def column(self, num_rows: int | None = None) -> np.ndarray:
        """Reads whole numbers, one a row, int64 ``[R]``, of as many rows as are needed."""
        rows = self.whole("int64")
        if rows.dtype.kind not in "iu" or rows.shape != (len(rows) if num_rows is None else num_rows, 1):
            needed = "R" if num_rows is None else num_rows
            raise self.error(f"it is {rows.dtype} {list(rows.shape)}, but whole numbers [{needed}, 1] are needed")
        return rows[:, 0].astype(np.int64, copy=False)

    def ids(self, num_nodes: int) -> np.ndarray:
        """Reads node ids, int64 ``[R]``."""
        ids = self.column()
        self._check(ids, num_nodes)
        return ids

    def count(self) -> int:
        """Reads the count of one graph's nodes or edges."""
        counts = self.whole("int64").reshape(-1)
        if len(counts) != 1 or counts.dtype.kind not in "iu" or counts[0] < 0:
            raise self.error(f"it counts {len(counts)} graphs, {counts[:2]!s:.50}, but one is needed")
        return int(counts[0])

    def labels(self, num_nodes: int) -> np.ndarray:
        """Reads labels ``[num_nodes, tasks]``, NaN where there is none."""
        labels = self.whole("float64")
        if labels.ndim != 2 or len(labels) != num_nodes:
            raise self.error(f"labels are {list(labels.shape)}, but [{num_nodes}, tasks] is needed")
        present = labels[~np.isnan(labels)].astype(np.float64)
        wrong = present[(np.floor(present) != present) | (present < -1) | (present >= _MAX_LABEL)]
        if wrong.size:
            raise self.error(f"{wrong[0]} is no label; labels are classes, counted from 0")
        return labels

    def error(self, problem: str) -> DatasetError:
        return DatasetError(f"{self}: {problem}. {REMEDY}")

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self.file, REMEDY)

    def _check(self, ids: np.ndarray, num_nodes: int) -> None:
        if ids.dtype.kind not in "iu":
            raise self.error(f"it names nodes by {ids.dtype}; integers are needed")
        bad = (ids < 0) | (ids >= num_nodes)
        if bad.any():
            raise self.error(f"it names node {ids[bad][0]}, but ids must lie in [0, {num_nodes})")

    def _put_ids(self, out: np.ndarray, ids: np.ndarray, num_nodes: int) -> None:
        """Copies node ids. They are checked first: narrowing would wrap a bad id into a good one."""
        self._check(ids, num_nodes)
        out[...] = ids

    def _check_inflated(self, num_bytes: int) -> None:
        """Raises DatasetError: so many bytes cannot be in that file. To reserve room for them could fill the disk."""
        with self._reading():
            file_bytes = self.file.stat().st_size
        if num_bytes > MOST_INFLATED * file_bytes:
            raise self.error(f"it has {file_bytes} bytes, too few for what it, or its count, claims")


class CsvArray(RawArray):
    """One that is a file of text without a header."""

    def __str__(self) -> str:
        return str(self.file)

    def exists(self) -> bool:
        return self.file.exists()

    def whole(self, dtype: str) -> np.ndarray:
        with self._reading(), np.errstate(invalid="raise"):
            # A missing label may stand as an empty line: skipping it would shift all labels after it.
            rows = pandas().read_csv(self.file, header=None, dtype=dtype, skip_blank_lines=dtype == "int64")
            values: np.ndarray = rows.to_numpy()
            return values

    def edges(self, target: Path, num_edges: int, num_nodes: tuple[int, int], ways: int = 1) -> np.ndarray:
        self._check_inflated(4 * num_edges)  # two digits, a comma and a line's end
        edges = _empty_edges(target, max(num_nodes), ways * num_edges)
        for start, rows in self._pieces("int64", num_edges):
            if rows.shape[1] != 2:
                raise self.error(f"it has {rows.shape[1]} columns; source and destination are needed")
            for end, ids, count in zip(edges, rows.T, num_nodes, strict=True):
                self._put_ids(end[start : start + len(rows)], ids, count)
        _add_inverse(edges, num_edges)
        return edges

    def table(self, target: Path, num_rows: int, ways: int = 1) -> np.ndarray:
        table = np.empty((0, 0), np.float32)
        for start, rows in self._pieces("float32", num_rows):
            if start == 0:
                self._check_inflated(2 * num_rows * rows.shape[1])  # a digit and a comma or a line's end
                table = scratch_array(target, np.float32, (ways * num_rows, rows.shape[1]))
            for way in range(ways):
                table[way * num_rows + start : way * num_rows + start + len(rows)] = rows
        return table

    def _pieces(self, dtype: str, num_rows: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yields ``(first row, rows)`` until all ``num_rows`` were read, no more and no fewer."""
        start = 0
        with (
            progress(f"Reading {self.file.name}", num_rows) as advance,
            self._reading(),
            np.errstate(invalid="raise"),  # numbers beyond those of the dtype
            pandas().read_csv(self.file, header=None, dtype=dtype, chunksize=_PIECE) as pieces,
        ):
            for piece in pieces:
                if start + len(piece) <= num_rows:  # rows beyond are counted for the error: nobody has room for them
                    yield start, piece.to_numpy()
                start += len(piece)
                advance(len(piece))
        if start != num_rows:
            raise self.error(f"it has {start} rows, but {num_rows} are needed")


@dataclass(frozen=True)
class NpzArray(RawArray):
    """One that is a member of an archive of NumPy's."""

    key: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}"

    def exists(self) -> bool:
        return self.file.exists() and self.key in self.names(self.file)

    @staticmethod
    def names(file: Path) -> list[str]:
        """Reads which arrays an archive has, by the alphabet."""
        with reading(file, REMEDY), zipfile.ZipFile(file) as archive:
            return sorted(name.removesuffix(".npy") for name in archive.namelist())

    def whole(self, dtype: str) -> np.ndarray:
        flat = np.empty(0)
        with self._member() as (shape, by_column, numbers):
            for start, values in numbers:
                if start == 0:
                    flat = np.empty(math.prod(shape), values.dtype)
                flat[start : start + len(values)] = values
        return flat.reshape(shape[::-1]).T if by_column else flat.reshape(shape)

    def edges(self, target: Path, num_edges: int, num_nodes: tuple[int, int], ways: int = 1) -> np.ndarray:
        with self._member() as (shape, by_column, numbers):
            if shape != (2, num_edges):
                raise self.error(f"it is {list(shape)}, but [2, {num_edges}] is needed")
            edges = _empty_edges(target, max(num_nodes), ways * num_edges)
            for start, ids in numbers:
                if by_column:  # source, destination, source, ...: _PIECE is even, so that no piece cuts a pair
                    for end, column, count in zip(edges, ids.reshape(-1, 2).T, num_nodes, strict=True):
                        self._put_ids(end[start // 2 : (start + len(ids)) // 2], column, count)
                else:  # all sources, then all destinations
                    cut = min(max(num_edges - start, 0), len(ids))
                    self._put_ids(edges[0, start : start + cut], ids[:cut], num_nodes[0])
                    low = max(start - num_edges, 0)
                    self._put_ids(edges[1, low : low + len(ids) - cut], ids[cut:], num_nodes[1])
        _add_inverse(edges, num_edges)
        return edges

    def table(self, target: Path, num_rows: int, ways: int = 1) -> np.ndarray:
        with self._member() as (shape, by_column, numbers):
            if len(shape) != 2 or shape[0] != num_rows:
                raise self.error(f"it is {list(shape)}, but [{num_rows}, F] is needed")
            table = scratch_array(target, np.float32, shape[::-1] if by_column else shape)
            flat = table.reshape(-1)
            for start, values in numbers:
                with self._reading(), np.errstate(over="raise", invalid="raise"):
                    flat[start : start + len(values)] = values
        table = table.T if by_column else table
        return table if ways == 1 else np.concatenate([table] * ways)

    @contextmanager
    def _member(self) -> Iterator[tuple[tuple[int, ...], bool, Iterator[tuple[int, np.ndarray]]]]:
        """Yields the shape, whether numbers are stored by column, and ``(start, numbers)`` as they are stored."""
        with ExitStack() as opened:
            with self._reading():
                archive = opened.enter_context(zipfile.ZipFile(self.file))
                member = archive.getinfo(f"{self.key}.npy")
                stream = opened.enter_context(archive.open(member))
                # np.load would read the whole member: a stream is read piece by piece, and its header alone is NumPy's.
                old = np.lib.format.read_magic(stream) == (1, 0)
                read_header = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
                shape, by_column, dtype = read_header(stream)
            if dtype.kind not in "iuf":
                raise self.error(f"it has dtype {dtype}; numbers are needed")
            total = math.prod(shape)
            claimed_bytes = stream.tell() + total * dtype.itemsize
            if min(shape, default=0) < 0 or claimed_bytes != member.file_size:
                raise self.error(f"it says that it is {dtype} {list(shape)}, but it is not")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise self.error("it is compressed in a way that NumPy does not write")
            self._check_inflated(claimed_bytes)

            def numbers() -> Iterator[tuple[int, np.ndarray]]:
                with progress(f"Reading {self.key}", total) as advance, self._reading():
                    for start in range(0, total, _PIECE):
                        count = min(_PIECE, total - start)
                        values = np.frombuffer(stream.read(count * dtype.itemsize), dtype)
                        if len(values) != count:
                            raise self.error(f"it ends before its {total} numbers")
                        yield start, values
                        advance(count)

            yield shape, by_column and len(shape) == 2, numbers()


def pandas() -> Any:
    """Returns the module, which the extra ``ogb`` brings."""
    try:
        return import_module("pandas")
    except ImportError as error:
        raise MissingExtraError("pandas", "ogb", "Reading OGB's csv files", error) from error


def _empty_edges(target: Path, num_nodes: int, num_edges: int) -> np.ndarray:
    return scratch_array(target, np.int32 if num_nodes < 2**31 else np.int64, (2, num_edges))


def _add_inverse(edges: np.ndarray, num_edges: int) -> None:
    if edges.shape[1] > num_edges:
        edges[:, num_edges:] = edges[::-1, :num_edges]

"""OutputFile: writes rows of named columns to a Parquet, CSV or NumPy file, which appears when it is complete."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from lightning_gnnload.errors import MissingExtraError, OutputError
from lightning_gnnload.storage.csv_output import CsvWriter, csv_suffix
from lightning_gnnload.storage.folders import clear_leftovers, staging_folder
from lightning_gnnload.storage.targets import check_creatable

TABLE_SUFFIXES = (".parquet", ".csv", ".csv.gz")
"""Formats of rows with named columns, which other programs read."""
SUFFIXES = (*TABLE_SUFFIXES, ".npz", ".npy")
GROUP_BYTES = 1 << 26
"""Rows that are buffered and written together, as a row group of Parquet."""
TEXT_BYTES = 96
"""The size of a text in memory, as a guess: groups need not be of equal sizes."""


def check_output(path: str | os.PathLike[str]) -> Path:
    """Checks that an :class:`OutputFile` can be written at ``path``, before the results are computed.

    Raises:
        OutputError: the suffix is none of ``SUFFIXES``, or ``path`` is a folder.
        StoreFormatError: nothing can be made there.
        MissingExtraError: pyarrow is needed, and not installed.
    """
    path = Path(path)
    if suffix_of(path) not in SUFFIXES:
        raise OutputError(
            f"{path} ends in {path.suffix or 'no suffix'}, which names no format of results. Give a file that ends in "
            f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}."
        )
    if path.is_dir():
        raise OutputError(f"{path} is a folder; give the path of a file.")
    check_creatable(path)
    if path.suffix == ".parquet":
        _arrow(path)
    return path


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Returns the suffix of a file that says its format: ``".csv.gz"`` is one."""
    return csv_suffix(Path(path)) or Path(path).suffix


def beside(path: str | os.PathLike[str], name: str) -> Path:
    """Returns the path of a further file of the same format: ``"out.paper.csv.gz"`` beside ``"out.csv.gz"``."""
    path, suffix = Path(path), suffix_of(path)
    return path.with_name(f"{path.name.removesuffix(suffix)}.{name}{suffix}")


class OutputFile:
    """Writes rows of named columns to a file, some at a time, in the format that the file's suffix names.

    ``.parquet`` takes numbers ``[n]``, texts, and several numbers a row, ``[n, ...]``, as lists of a fixed size; dates
    are passed in UTC and get the time ``zone``. ``.csv`` and ``.csv.gz`` are as :class:`.CsvWriter` has them. ``.npz``
    holds an array a column; texts are padded to the longest.
    ``.npy`` holds the column ``values``; each other column gets a file beside it: ``users.user_id.npy`` beside
    ``users.npy``.

    The file replaces an old one when the ``with`` block ends; if the block raises, the old one stays. Only its owner
    can read it. Memory holds ``GROUP_BYTES`` of rows.

    Raises:
        OutputError, StoreFormatError, MissingExtraError: as :func:`check_output`.

    Example:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp()) / "users.npz"
        >>> with OutputFile(path, values="embedding") as file:
        ...     file.write({"user_id": ["eve", "bob"], "embedding": np.zeros((2, 4), np.float32)})
        >>> {name: rows.shape for name, rows in np.load(path).items()}
        {'user_id': (2,), 'embedding': (2, 4)}
    """

    def __init__(self, path: str | os.PathLike[str], *, values: str = "prediction", zone: str | None = None) -> None:
        self.path = check_output(path)
        self.values, self.zone = values, zone
        self.num_rows = 0
        self._stack = ExitStack()
        self._buffer: dict[str, np.ndarray] = {}
        self._buffered = 0

    def __enter__(self) -> OutputFile:
        with explain_write_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            clear_leftovers(self.path)
            staging = self._stack.enter_context(staging_folder(self.path))
        self._writer: _ParquetWriter | _LinesWriter | _ArraysWriter
        if self.path.suffix == ".parquet":
            self._writer = _ParquetWriter(staging, self.path, self.zone)
        elif suffix_of(self.path) in TABLE_SUFFIXES:
            self._writer = _LinesWriter(staging, self.path, self.zone)
        else:
            self._writer = _ArraysWriter(staging, self.path, self.values)
        return self

    def write(self, columns: Mapping[str, Any]) -> None:
        """Appends copies of columns: arrays, tensors or lists of numbers ``[n, ...]``, or of texts or dates ``[n]``.

        Each call needs the same names, widths and dtypes. Floats that a format lacks become float32, without a loss.
        """
        arrays = {name: self._column(name, rows) for name, rows in columns.items()}
        lengths = {name: len(rows) for name, rows in arrays.items()}
        if len(set(lengths.values())) != 1:
            raise OutputError(f"{self.path}: columns must be of one length, but these are {lengths}.")
        if not self._buffer:
            self._allocate(arrays)
        forms, first_forms = ({name: _form(rows) for name, rows in table.items()} for table in (arrays, self._buffer))
        if forms != first_forms:
            raise OutputError(f"{self.path}: these rows have the columns {forms}, but those before had {first_forms}.")
        begin, num_rows = 0, next(iter(lengths.values()))
        size = len(next(iter(self._buffer.values())))
        while begin < num_rows:
            count = min(size - self._buffered, num_rows - begin)
            for name, rows in arrays.items():
                self._buffer[name][self._buffered : self._buffered + count] = rows[begin : begin + count]
            self._buffered += count
            begin += count
            if self._buffered == size:
                self._flush()
        self.num_rows += num_rows

    def __exit__(self, exception_type: type[BaseException] | None, *exception: object) -> None:
        with self._stack:
            try:
                if exception_type is not None:
                    return
                if self._buffered or not self.num_rows:
                    self._flush()
                with explain_write_errors(self.path):
                    for temporary, final in self._writer.finish().items():
                        temporary.replace(final)
            finally:
                # Closing writes what is buffered, to a disk that may be full, or to a file that is closed already. Any
                # error of that is raised above, or the block has raised another.
                with suppress(OSError):
                    self._writer.close()

    def _allocate(self, arrays: dict[str, np.ndarray]) -> None:
        """Makes the buffer of a group of rows, after the first rows have shown their sizes."""
        size = max(GROUP_BYTES // sum(map(_row_bytes, arrays.values())), 1)
        self._buffer = {name: np.empty((size, *rows.shape[1:]), rows.dtype) for name, rows in arrays.items()}
        if self.path.suffix == ".npy" and self.values not in arrays:
            raise OutputError(f"{self.path}: there is no column {self.values!r} to hold, but {', '.join(arrays)}.")

    def _flush(self) -> None:
        with explain_write_errors(self.path):
            self._writer.write({name: rows[: self._buffered] for name, rows in self._buffer.items()})
        self._buffered = 0

    def _column(self, name: str, rows: Any) -> np.ndarray:
        array = _as_array(rows)
        if array.dtype == np.float16 and self.path.suffix == ".parquet":  # few readers of Parquet know it
            array = array.astype(np.float32)
        form = "U" if _are_texts(array) else array.dtype.kind
        is_column = array.ndim == 1 if form in "UM" else form in "iufb" and array.ndim > 0
        if not is_column or 0 in array.shape[1:]:
            raise OutputError(
                f"{self.path}: {name!r} is {array.dtype} {list(array.shape)}, which is no column: numbers [n, ...], "
                f"dates or texts [n] are needed, at least one a row."
            )
        return array.astype(object) if form == "U" else array


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Raises OutputError, which names the file, in place of the system's errors."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error}. Give a file in a folder that you may write to, on a disk with room "
            "for all rows."
        ) from error


class _ParquetWriter:
    """Writes each group of rows as a row group."""

    def __init__(self, folder: Path, path: Path, zone: str | None) -> None:
        self._arrow, self._parquet = _arrow(path)
        self._temporary, self._path, self._zone = folder / path.name, path, zone
        self._writer: Any = None

    def write(self, columns: dict[str, np.ndarray]) -> None:
        table = self._arrow.table({name: self._column(rows) for name, rows in columns.items()})
        if self._writer is None:
            self._temporary.touch(0o600)
            texts = [name for name, rows in columns.items() if rows.dtype == object]
            self._writer = self._parquet.ParquetWriter(self._temporary, table.schema, use_dictionary=texts)
        self._writer.write_table(table, row_group_size=max(len(table), 1))

    def finish(self) -> dict[Path, Path]:
        self.close()
        return {self._temporary: self._path}

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _column(self, rows: np.ndarray) -> Any:
        if rows.dtype == object:
            return self._arrow.array(rows, self._arrow.string())
        column = self._arrow.array(rows.reshape(-1))
        if rows.dtype.kind == "M" and self._zone is not None:
            column = column.cast(self._arrow.timestamp(np.datetime_data(rows.dtype)[0], self._zone))
        # From the last dimension on, each a list of fixed size over the one behind it.
        for size in rows.shape[:0:-1]:
            column = self._arrow.FixedSizeListArray.from_arrays(column, size)
        return column


class _LinesWriter:
    """Writes each group of rows as lines."""

    def __init__(self, folder: Path, path: Path, zone: str | None) -> None:
        self._temporary, self._path = folder / "whole", path
        file = private_file(self._temporary)
        self._writer = CsvWriter(file, compressed=path.suffix == ".gz", zone=zone)

    def write(self, columns: dict[str, np.ndarray]) -> None:
        self._writer.write(columns)

    def finish(self) -> dict[Path, Path]:
        self._writer.close()
        return {self._temporary: self._path}

    def close(self) -> None:
        self._writer.close()


class _ArraysWriter:
    """Collects each column in a file, and writes the arrays at the end: their headers say how many rows follow."""

    def __init__(self, folder: Path, path: Path, values: str) -> None:
        self._folder, self._path, self._values = folder, path, values
        self._columns: dict[str, _ColumnFile] = {}

    def write(self, columns: dict[str, np.ndarray]) -> None:
        for number, (name, rows) in enumerate(columns.items()):
            if name not in self._columns:
                self._columns[name] = _ColumnFile(self._folder / f"{number}.rows")
            self._columns[name].append(rows.astype(str) if rows.dtype == object else rows)

    def finish(self) -> dict[Path, Path]:
        if self._path.suffix == ".npz":
            temporary = self._folder / "whole"
            with private_file(temporary) as file, zipfile.ZipFile(file, "w") as whole:
                for name, column in self._columns.items():
                    with whole.open(f"{name}.npy", "w", force_zip64=True) as member:
                        column.save(member)
            return {temporary: self._path}
        # The file that the user named comes last: once it is new, the others are, too.
        names = sorted(self._columns, key=lambda name: name == self._values)
        moves: dict[Path, Path] = {}
        for name in names:
            temporary = self._folder / f"{len(moves)}.npy"
            with private_file(temporary) as file:
                self._columns[name].save(file)
            moves[temporary] = self._path if name == self._values else self._path.with_suffix(f".{name}.npy")
        return moves

    def close(self) -> None:
        for column in self._columns.values():
            column.file.close()


class _ColumnFile:
    """The rows of one column so far, in a file."""

    def __init__(self, path: Path) -> None:
        self.file = private_file(path)
        self._num_rows, self._num_groups = 0, 0
        self._dtype: np.dtype[Any] | None = None

    def append(self, rows: np.ndarray) -> None:
        # One array behind the other: np.load reads each with its own dtype, which of texts is that of the longest.
        np.save(self.file, rows, allow_pickle=False)
        self._num_rows, self._num_groups = self._num_rows + len(rows), self._num_groups + 1
        # Texts have the dtype of the longest one so far.
        self._dtype = rows.dtype if self._dtype is None else np.promote_types(self._dtype, rows.dtype)
        self._row_shape = rows.shape[1:]

    def save(self, to: IO[bytes]) -> None:
        assert self._dtype is not None, "save() before append()"
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._num_rows, *self._row_shape)}
        np.lib.format.write_array_header_1_0(to, header)
        with self.file:
            self.file.seek(0)
            for _ in range(self._num_groups):
                rows = np.load(self.file, allow_pickle=False).astype(self._dtype, copy=False)
                to.write(rows.reshape(-1).view(np.uint8).data)


def private_file(path: Path) -> IO[bytes]:
    """Opens a new or emptied file to write and read, which only its owner can read."""
    return open(path, "w+b", opener=lambda name, flags: os.open(name, flags, 0o600))


def _as_array(rows: Any) -> np.ndarray:
    if isinstance(rows, torch.Tensor):
        rows = rows.detach().cpu()
        rows = rows.float() if rows.dtype is torch.bfloat16 else rows  # NumPy has none
    return np.asarray(rows)


def _are_texts(array: np.ndarray) -> bool:
    is_object = array.dtype == object
    return array.dtype.kind == "U" or (is_object and all(isinstance(entry, str) for entry in array.flat))


def _row_bytes(rows: np.ndarray) -> int:
    return TEXT_BYTES if rows.dtype == object else rows.itemsize * math.prod(rows.shape[1:])


def _form(rows: np.ndarray) -> str:
    """Describes dtype and width, which all calls must share."""
    return f"{'text' if rows.dtype == object else rows.dtype} {list(rows.shape[1:])}"


def _arrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        purpose = f"Writing {path}, unlike {' and '.join(SUFFIXES[1:])} files,"
        raise MissingExtraError("pyarrow", "tables", purpose, error) from error
    return pyarrow, pyarrow.parquet

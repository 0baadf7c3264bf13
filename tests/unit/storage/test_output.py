"""OutputFile: what is read back is what was written, whatever the format, the groups and who fails."""

from __future__ import annotations

import csv
import gzip
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import MissingExtraError, OutputError, StoreFormatError
from lightning_gnnload.storage import output
from lightning_gnnload.storage.output import SUFFIXES, TABLE_SUFFIXES, OutputFile, beside

ROWS = 1000
_RNG = np.random.default_rng(3)
COLUMNS: dict[str, Any] = {
    "user_id": np.array([f"u{'é' * (n % 7)}{n}" for n in range(ROWS)], object),  # longer texts come later
    "time": np.arange(ROWS) * 10**12,
    "right": np.arange(ROWS) % 3 == 0,
    "prediction": _RNG.normal(size=(ROWS, 5)).astype(np.float32),
    "grid": _RNG.integers(0, 99, (ROWS, 2, 3)),
}


def read(path: Path) -> dict[str, Any]:
    if path.suffix == ".parquet":
        import pyarrow.parquet as parquet

        table = parquet.read_table(path)
        return {name: np.array(table[name].to_pylist()) for name in table.column_names}
    if path.suffix == ".npz":
        return dict(np.load(path, allow_pickle=False))
    if path.suffix in (".csv", ".gz"):
        return read_lines(path)
    others = {file.name.split(".")[1]: np.load(file) for file in path.parent.glob(f"{path.stem}.*.npy")}
    return others | {"prediction": np.load(path)}


def read_lines(path: Path) -> dict[str, Any]:
    """Columns of a CSV file, those of several numbers a row as they were written."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="") as file:
        names, *lines = csv.reader(file)
    columns: dict[str, list[Any]] = {}
    for name, texts in zip(names, np.array(lines, object).reshape(-1, len(names)).T, strict=True):
        base = name.rpartition("_")[0] if name.rpartition("_")[2].isdigit() else name
        columns.setdefault(base, []).append([*map(parsed, texts)])
    found = {name: np.array(parts if len(parts) > 1 else parts[0]).T for name, parts in columns.items()}
    if "grid" in found:
        found["grid"] = found["grid"].reshape(-1, 2, 3)
    return found


def parsed(text: str) -> Any:
    """The number, as float32 where it is a fraction, or the text."""
    if text in ("True", "False"):
        return text == "True"
    for number in (int, np.float32):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def write(path: Path, columns: dict[str, Any] = COLUMNS, step: int = 37) -> None:
    with OutputFile(path) as file:
        for begin in range(0, ROWS, step):
            piece = {name: rows[begin : begin + step].copy() for name, rows in columns.items()}
            file.write(piece)
            piece["prediction"][:] = -1  # a caller's buffer may be used again


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("group_rows", [1, 64, 10**6])
def test_rows_come_back_as_they_were_written(
    tmp_path: Path, suffix: str, group_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_bytes = output.TEXT_BYTES + 8 + 1 + 20 + 48
    monkeypatch.setattr(output, "GROUP_BYTES", group_rows * row_bytes)
    path = tmp_path / "new" / f"out{suffix}"
    write(path, step=37 if group_rows > 1 else 500)
    found = read(path)
    assert found.keys() == COLUMNS.keys()
    for name, rows in COLUMNS.items():
        assert np.array_equal(found[name], rows), name
    if suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as parquet

        file = parquet.ParquetFile(path)
        assert file.schema_arrow.field("prediction").type == pa.list_(pa.float32(), 5)
        assert file.num_row_groups == -(-ROWS // min(group_rows, ROWS))
    elif suffix == ".npz":
        assert found["prediction"].dtype == np.float32
    assert all(file.stat().st_mode & 0o077 == 0 for file in path.parent.iterdir())
    assert all(file.name.startswith("out.") for file in path.parent.iterdir())  # nothing is left beside


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_stays_when_the_next_one_fails(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    write(path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(RuntimeError, match="stop"), OutputFile(path) as file:  # noqa: PT012
        file.write({"prediction": np.zeros((2, 5))})
        raise RuntimeError("stop")
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_rows_make_a_file_all_the_same(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    with OutputFile(path) as file:
        file.write({"prediction": np.empty((0, 3), np.float32)})
        assert sum(rows.nbytes for rows in file._buffer.values()) <= output.GROUP_BYTES
    found = read(path)
    assert len(found["prediction"]) == 0
    if suffix == ".npy":
        assert found["prediction"].shape == (0, 3)


def test_tensors_lists_and_halves_are_columns(tmp_path: Path) -> None:
    halves = torch.tensor([[0.5, 1.25], [3.0, -1.0]])
    columns = {"name": ["eve", "bob"], "half": halves.half().numpy(), "brain": halves.bfloat16()}
    for suffix in (*TABLE_SUFFIXES, ".npz"):
        with OutputFile(tmp_path / f"out{suffix}") as file:
            file.write(columns)
        found = read(tmp_path / f"out{suffix}")
        assert found["name"].tolist() == ["eve", "bob"]
        assert np.array_equal(found["half"], halves.numpy())
        assert np.array_equal(found["brain"], halves.numpy())


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"prediction": np.zeros((3, 4))}, r"'float64 \[4\]'.*but those before had.*'float64 \[5\]'"),
        ({"prediction": np.zeros((3, 5), np.float32)}, "float32.*before had.*float64"),
        ({"other": np.zeros((3, 5))}, "other.*before had.*prediction"),
        ({"prediction": np.zeros((3, 5)), "more": [1, 2]}, "of one length.*'more': 2"),
        ({"prediction": np.zeros((3, 0))}, "at least one a row"),
        ({"prediction": 3.0}, "no column"),
        ({"prediction": np.array(["a", None], object)}, "no column"),
        ({}, "of one length"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, columns: Any, told: str) -> None:
    with pytest.raises(OutputError, match=told), OutputFile(tmp_path / "out.npz") as file:  # noqa: PT012
        file.write({"prediction": np.zeros((2, 5))})
        file.write(columns)
    assert not list(tmp_path.iterdir())


def test_a_npy_file_needs_the_column_that_it_holds(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no column 'prediction' to hold, but user_id"):  # noqa: SIM117
        with OutputFile(tmp_path / "out.npy") as file:
            file.write({"user_id": [1, 2]})


@pytest.mark.parametrize("name", ["out", "out.tsv", "out.npz.gz"])
def test_other_suffixes_are_refused_with_those_that_there_are(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match=r"Give a file that ends in \.parquet, \.csv, \.csv\.gz, \.npz or \.npy\."):
        OutputFile(tmp_path / name)


@pytest.mark.parametrize(
    ("unit", "zone", "text"),
    [
        ("D", None, "2026-07-01"),
        ("D", "Europe/Berlin", "2026-07-01"),  # a day has no time of the day
        ("s", None, "2026-07-01T12:30:00"),
        ("us", "Europe/Berlin", "2026-07-01T14:30:00+02:00"),
        ("ns", "UTC", "2026-07-01T12:30:00+00:00"),
    ],
)
def test_dates_in_csv_are_iso_8601(tmp_path: Path, unit: str, zone: str | None, text: str) -> None:
    times = np.array(["2026-07-01T12:30", "NaT"], "datetime64[ns]").astype(f"datetime64[{unit}]")
    for _ in range(2):
        with OutputFile(tmp_path / "out.csv.gz", zone=zone) as file:
            file.write({"time": times, "name": ['a "b"', "c,\nd"]})
    with gzip.open(tmp_path / "out.csv.gz", "rt", newline="") as lines:
        assert [*csv.reader(lines)] == [["time", "name"], [text, 'a "b"'], ["", "c,\nd"]]


def test_equal_rows_are_equal_bytes_when_compressed(tmp_path: Path) -> None:
    for name in ("one.csv.gz", "two.csv.gz"):
        write(tmp_path / name)
    assert (tmp_path / "one.csv.gz").read_bytes() == (tmp_path / "two.csv.gz").read_bytes()
    assert beside(tmp_path / "one.csv.gz", "user").name == "one.user.csv.gz"


def test_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a folder"):
        OutputFile(tmp_path / "folder.npz")
    with pytest.raises(StoreFormatError, match="is no folder"):
        OutputFile(tmp_path / "file" / "out.npz")


def test_without_pyarrow_the_extra_and_the_other_suffixes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError, match=r"unlike \.csv and \.csv\.gz and \.npz and \.npy files.*lightning-gnnload\[tables\]"
    ):
        OutputFile(tmp_path / "out.parquet")
    write(tmp_path / "out.npz")  # which do without


def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OutputError, match=r"No space left.*on a disk with room"):
        write(tmp_path / "out.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_grows_beyond_its_limit(suffix: str, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        with pytest.raises(OutputError, match=r"out\.[\w.]+ cannot be written"):
            write(tmp_path / f"out{suffix}", {"prediction": np.random.default_rng(0).random((1 << 16, 16))}, 1 << 14)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())

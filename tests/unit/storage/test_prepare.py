"""A table is written whole or not at all, from rows in any form."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import DiskFeatureStore, MemoryFeatureStore, save_features
from lightning_gnnload.errors import FeatureFileError, GraphDataError, StoreFormatError

ROWS = torch.arange(60, dtype=torch.float32).view(20, 3)


def read_back(folder: Path) -> torch.Tensor:
    store = DiskFeatureStore(folder, direct=False)
    out = torch.empty(store.shape, dtype=store.dtype)
    store.gather(torch.arange(len(out)), out)
    store.close()
    return out


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        ROWS.numpy(),
        MemoryFeatureStore(ROWS),
        [ROWS[:7], ROWS[7:7], ROWS[7:].numpy()],
        (ROWS[start : start + 4] for start in range(0, 20, 4)),
        ROWS.to(torch.bfloat16),
        ROWS[:, ::2],
    ],
    ids=["tensor", "array", "store", "chunks", "generator", "bfloat16", "strided"],
)
def test_rows_of_any_form_are_read_back(tmp_path: Path, rows: Any) -> None:
    save_features(rows, tmp_path / "new" / "x", progress=False)
    wanted = rows if isinstance(rows, torch.Tensor) else ROWS
    assert torch.equal(read_back(tmp_path / "new" / "x"), wanted)
    assert os.listdir(tmp_path / "new") == ["x"]


def test_a_store_from_disk_is_copied_by_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning_gnnload.storage.folders.CHUNK_BYTES", 7 * 12)
    save_features(ROWS, tmp_path / "x", progress=False)
    store = DiskFeatureStore(tmp_path / "x")
    save_features(store, tmp_path / "again", progress=True)
    store.close()
    assert torch.equal(read_back(tmp_path / "again"), ROWS)


def broken_chunks() -> Iterator[torch.Tensor]:
    yield ROWS
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([ROWS, ROWS[:, :2]], GraphDataError, r"from row 20 on are 2 numbers of torch\.float32.* 3 of torch\.float32"),
        ([ROWS, ROWS.double()], GraphDataError, r"torch\.float64"),
        ([], GraphDataError, "no chunk at all"),
        (ROWS[0], GraphDataError, r"must be \[N, F\], but the shape is \[3\]"),
        (5, GraphDataError, "features are a int"),
        (np.array([["a"]]), GraphDataError, "dtype"),
        (broken_chunks(), KeyboardInterrupt, None),
    ],
)
def test_nothing_is_left_behind_of_rows_that_are_none(
    tmp_path: Path, rows: Any, error: type[BaseException], message: str | None
) -> None:
    with pytest.raises(error, match=message):
        save_features(rows, tmp_path / "x", progress=False)
    assert os.listdir(tmp_path) == []


def test_a_folder_is_replaced_only_when_told(tmp_path: Path) -> None:
    save_features(ROWS, tmp_path / "x", progress=False)
    with pytest.raises(StoreFormatError, match="exists already"):
        save_features(ROWS, tmp_path / "x", progress=False)
    with pytest.raises(GraphDataError):
        save_features([ROWS, ROWS[:, :2]], tmp_path / "x", overwrite=True, progress=False)
    assert torch.equal(read_back(tmp_path / "x"), ROWS)  # the old rows, whole
    save_features(ROWS + 1, tmp_path / "x", overwrite=True, progress=False)
    assert torch.equal(read_back(tmp_path / "x"), ROWS + 1)
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("form", ["whole", "chunks"])
def test_no_room_is_an_error_that_leaves_nothing_behind(tmp_path: Path, form: str) -> None:
    """A limit on the size of files stands for the full disk: the system refuses in the same places."""
    rows = torch.zeros(1000, 1000)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, most))
    try:
        with pytest.raises(FeatureFileError, match=r"no room for .*x: it needs (3\.8 MiB|more).* MiB left"):
            save_features(rows if form == "whole" else iter(rows.split(100)), tmp_path / "x", progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert os.listdir(tmp_path) == []


def test_a_full_disk_and_a_failing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, message in ((errno.ENOSPC, "no room for"), (errno.EIO, "cannot be written: .*Input/output error")):

        def fail(fd: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(FeatureFileError, match=message):
                save_features(ROWS, tmp_path / "x", progress=False)
        assert os.listdir(tmp_path) == []

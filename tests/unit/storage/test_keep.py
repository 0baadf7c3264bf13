"""Arrays kept from one run to the next: written once, whole, for their owner alone, and checked when they are read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gnnload.errors import StoreFormatError
from lightning_gnnload.storage.keep import kept_arrays

SHAPES = {"cluster": ("<i4", 3), "norm": ("<f4", 2)}
ARRAYS = {"cluster": np.array([2, 0, 1], np.int32), "norm": np.array([0.5, 2.0], np.float32)}


def kept(path: Path, made_of: int = 7, make: Any = None) -> dict[str, Any]:
    arrays = kept_arrays(path, SHAPES, made_of, make or (lambda: pytest.fail("it is made anew")))
    return {name: array.tolist() for name, array in arrays.items()}


def test_arrays_are_made_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "arrays.npz"
    first = kept(path, make=lambda: ARRAYS)
    assert first == kept(path) == {"cluster": [2, 0, 1], "norm": [0.5, 2.0]}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["arrays.npz"]


def test_nothing_is_left_where_making_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        kept(tmp_path / "arrays.npz", make=lambda: 1 // 0)
    assert not [*tmp_path.iterdir()]


def _pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(ARRAYS))


def _objects(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, made_of=np.array([7], "<u4"), cluster=np.array([1, "a", None], object), norm=ARRAYS["norm"])


def _longer(path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, made_of=np.array([7], "<u4"), cluster=np.zeros(1 << 20, "<i4"), norm=ARRAYS["norm"])


def _lacking(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, made_of=np.array([7], "<u4"), cluster=ARRAYS["cluster"])


@pytest.mark.parametrize("damage", [_pickled, _objects, _longer, _lacking, Path.touch])
def test_other_files_are_refused_and_stay(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "arrays.npz"
    damage(path)
    before = path.read_bytes()
    with pytest.raises(StoreFormatError, match="is no file of cluster, norm"):
        kept(path)
    assert path.read_bytes() == before


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    kept(path, make=lambda: ARRAYS)
    whole = path.read_bytes()
    at = whole.index(ARRAYS["cluster"].tobytes())
    path.write_bytes(whole[:at] + b"\1" + whole[at + 1 :])
    with pytest.raises(StoreFormatError, match="CRC"):
        kept(path)


def test_arrays_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    kept(path, make=lambda: ARRAYS)
    with pytest.raises(StoreFormatError, match="made of another graph"):
        kept(path, made_of=8)

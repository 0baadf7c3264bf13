"""Predictions that real ranks write: every id once and beside its own row, whoever samples and however many predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.scripts import launch
from tests.integration.scripts.predict import SEEDS
from tests.rings import mostly_matrix

pytestmark = pytest.mark.timeout(400)
SCRIPT = Path(__file__).parent / "scripts" / "predict.py"


def read(folder: Path) -> dict[str, Any]:
    """By suffix, the columns as lists."""
    import pyarrow.parquet as parquet

    with np.load(folder / "found.npz", allow_pickle=False) as arrays:
        found: dict[str, Any] = {".npz": {name: rows.tolist() for name, rows in arrays.items()}}
    table = parquet.read_table(folder / "found.parquet").to_pydict()
    # In a table, each class has a column.
    chances = [list(row) for row in zip(*(table.pop(name) for name in list(table) if name[:2] == "p_"), strict=True)]
    found[".parquet"] = {"user_id": table["user_id"], "prediction": chances, "class": table["class"]}
    return found


@pytest.mark.parametrize(("num_devices", "num_samplers"), mostly_matrix([(2, 0), (3, 1), (2, 1)], (3, 1)))
def test_every_id_comes_once_beside_its_own_row(tmp_path: Path, num_devices: int, num_samplers: int) -> None:
    launch.run(SCRIPT, num_samplers, ".npz", ".parquet", folder=tmp_path, num_devices=num_devices, timeout_s=300)
    found = read(tmp_path / "out")
    for columns in found.values():
        assert list(columns) == ["user_id", "prediction", "class"]
        assert columns["user_id"] == [f"user {node}" for node in SEEDS]
        assert [int(row[0]) for row in columns["prediction"]] == list(SEEDS)
        assert columns["class"] == ["own" if row[0] >= row[1] else "first" for row in columns["prediction"]]
    assert found[".npz"] == found[".parquet"]
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["found.npz", "found.parquet"]

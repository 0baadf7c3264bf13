"""Reddit: DGL's two files become the graph, features, labels and splits that they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Reddit
from lightning_gnnload.errors import DatasetError

N, SRC, DST = 5, np.array([0, 1, 3, 4]), np.array([1, 2, 3, 0])
BY_FORMAT: dict[str, dict[str, Any]] = {
    "coo": {"row": SRC, "col": DST},
    "csr": {"indptr": np.array([0, 1, 2, 2, 3, 4]), "indices": DST},
    "csc": {"indptr": np.array([0, 1, 2, 3, 4, 4]), "indices": np.array([4, 0, 1, 3])},
}
NODES: dict[str, Any] = {
    "feature": np.arange(15.0).reshape(N, 3),
    "label": np.array([2, 0, 1, 1, 2]),
    "node_types": np.array([1, 3, 1, 2, 3]),
    "node_ids": np.arange(N),
}


def written(folder: Path, kind: str, nodes: dict[str, Any] = NODES, **changed: Any) -> Reddit:
    matrix = {**BY_FORMAT[kind], "format": kind.encode(), "shape": np.array([N, N]), "data": np.ones(4), **changed}
    np.savez(folder / "reddit_data.npz", **nodes)
    np.savez_compressed(folder / "reddit_graph.npz", **matrix)
    return Reddit(folder, folder / "root")


@pytest.mark.parametrize("kind", BY_FORMAT)
def test_files_of_each_format(tmp_path: Path, kind: str) -> None:
    dataset = written(tmp_path, kind)
    dataset.prepare()
    data = dataset.load()
    dst = np.repeat(np.arange(N), data.graph.in_degrees)
    assert sorted(zip(data.graph.indices, dst, strict=True)) == sorted(zip(SRC, DST, strict=True))
    assert data.x is not None
    assert data.y is not None
    rows = torch.empty(N, 3)
    data.x.gather(torch.arange(N), rows)
    assert rows.tolist() == NODES["feature"].tolist()
    assert data.y.tolist() == NODES["label"].tolist()
    assert [split.tolist() for split in (data.train, data.val, data.test)] == [[0, 2], [3], [1, 4]]


@pytest.mark.parametrize(
    ("nodes", "changed", "said"),
    [
        (NODES, {"format": b"bsr"}, "the format 'bsr'"),
        (NODES, {"shape": np.array([N, 6])}, r"\[5, 6\]; .* is needed, \[5, 5\]"),
        (NODES, {"row": np.array([0, 1, 3, 5])}, "Reddit .*5"),
        ({**NODES, "label": np.array([None] * N)}, {}, "reddit_data.npz .*allow_pickle"),
        ({"feature": NODES["feature"]}, {}, "reddit_data.npz .*node_types"),
    ],
    ids=["format", "shape", "ends", "pickle", "missing"],
)
def test_files_that_hold_something_else(
    tmp_path: Path, nodes: dict[str, Any], changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(DatasetError, match=said):
        written(tmp_path, "coo", nodes, **changed).prepare()


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"reddit_data\.npz is missing\. Unpack the reddit\.zip"):
        Reddit(tmp_path, tmp_path / "root").prepare()
    dataset = written(tmp_path, "coo")
    (tmp_path / "reddit_graph.npz").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(DatasetError, match=r"reddit_graph\.npz cannot be read"):
        dataset.prepare()


def test_files_that_have_changed_are_read_again(tmp_path: Path) -> None:
    dataset = written(tmp_path, "coo")
    dataset.prepare()
    written(tmp_path, "coo", {**NODES, "label": np.array([3, 3, 3, 3, 4])}).prepare()
    labels = dataset.load().y
    assert labels is not None
    assert labels.tolist() == [3, 3, 3, 3, 4]

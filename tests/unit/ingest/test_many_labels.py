"""Several labels a row: what becomes true or a number, what is refused, and how they come to mini-batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from lightning_gnnload import GraphData, GraphDataModule, NeighborSampler, load_graph_data
from lightning_gnnload.errors import GraphSpecError, TableError

IDS = list("abcdef")
EDGES = {"e": {"from": pa.table({"a": IDS, "b": [*IDS[1:], IDS[0]]}), "src": "n.a", "dst": "n.b"}}
T, F, N = True, False, None


def data_of(columns: dict[str, Any], y: Any, kind: str = "auto", **more: Any) -> GraphData:
    table = pa.table({"id": IDS, **columns})
    task = {"seed": "n.id", "y": y, "kind": kind, "split": {"share": [1, 0, 0]}}
    nodes = {"n": {"from": table, "id": "id"}}
    return GraphData.from_tables(nodes=nodes, edges=EDGES, tasks={"t": task}, show=False, threads=1, **more)


@pytest.mark.parametrize(
    ("columns", "y", "kind", "names", "labels"),
    [
        ({"p": [T, F, T, F, T, N], "q": [0, 0, 1, 1, 0, 0]}, ["q", "p"], "auto", ("q", "p"), [[F, T], [F, F], [T, T]]),
        ({"p": [1.0, 0.0, 1.0] * 2, "q": [F, F, T] * 2}, ["p", "q"], "class", ("p", "q"), [[T, F], [F, F], [T, T]]),
        ({"p": [0.5, 2.0, 1.0] * 2, "q": [3, 4, 5] * 2}, ["p", "q"], "auto", ("p", "q"), [[0.5, 3], [2, 4], [1, 5]]),
        ({"v": [[T, F], [F, F], [T, T]] * 2}, ["v"], "auto", ("v[0]", "v[1]"), [[T, F], [F, F], [T, T]]),
        ({"v": [[1, 0], [0, 0], N] * 2}, "v", "auto", ("v[0]", "v[1]"), [[T, F], [F, F]]),
        ({"v": [[0.5, 1.0], [0.0, N], [2.0, 3.0]] * 2}, "v", "auto", ("v[0]", "v[1]"), [[0.5, 1], [2, 3]]),
        ({"v": [["x", "z"], [], ["y"]] * 2}, "v", "auto", ("x", "y", "z"), [[T, F, T], [F, F, F], [F, T, F]]),
    ],
)
def test_labels_of_each_form(columns: Any, y: Any, kind: str, names: Any, labels: Any, tmp_path: Path) -> None:
    data = data_of(columns, y, kind, folder=tmp_path / "graph")
    table, wanted = load_graph_data(tmp_path / "graph").table("train"), torch.tensor(labels)
    assert (data.label_names, data.class_names) == (names, None)
    assert table.y.dtype == (torch.bool if wanted.dtype is torch.bool else torch.float32)
    assert table.y[: len(labels)].tolist() == wanted.tolist()
    # Rows that lack one of their labels are to be predicted.
    whole = sum(all(value[row] is not None for value in columns.values()) for row in range(6))
    whole -= sum(isinstance(row, list) and None in row for value in columns.values() for row in value)
    assert (len(table), len(data.split("predict"))) == (whole, 6 - whole)


def test_mini_batches_carry_the_labels_of_their_rows() -> None:
    data = data_of({"p": [T, F, T, F, T, T], "q": [F, F, T, T, F, T]}, ["p", "q"])
    module = GraphDataModule(data, NeighborSampler([2]), batch_size=4, num_threads=1)
    batches = list(module.train_dataloader())
    rows = torch.cat([batch.seed_columns["input_id"] for batch in batches])
    y = torch.cat([batch.y for batch in batches])
    assert y.dtype is torch.bool
    assert torch.equal(y, data.table("train").y[rows])


@pytest.mark.parametrize(
    ("columns", "y", "kind", "told"),
    [
        ({"p": [1, 2, 3] * 2, "q": [0, 1, 0] * 2}, ["p", "q"], "auto", "y 'p', 'q' are BIGINT.*Say kind: class"),
        ({"p": ["u", "v"] * 3, "q": [0, 1, 0] * 2}, ["p", "q"], "auto", "y 'p' is VARCHAR; several labels a row are"),
        ({"p": [0, 1, 2] * 2, "q": [0, 1, 0] * 2}, ["p", "q"], "class", "2 of 6 values of column 'p'.*'2' in row 2"),
        ({"v": [[1.0], [1.0, 2.0]] * 3}, "v", "auto", "lists of y 'v' have 1 to 2 entries"),
        ({"v": [[], []] * 3}, "v", "number", "y 'v' is"),
        ({"v": [[0.5, 1.0], [0.5, np.inf]] * 3}, "v", "auto", r"3 of 6 values of column 'v'.*row 1.*up to 3.4028e\+38"),
        ({"v": [[0.5, -1e300], [0.5, 1.0]] * 3}, "v", "number", "3 of 6 values of column 'v'.*in row 0"),
        ({"v": [["x", None], ["y"]] * 3}, "v", "auto", "y 'v' has None, which is no label; these are x, y"),
        ({"p": [0.5] * 6}, ["p", "p"], "auto", "a column of labels is needed, or a list of several, each once"),
    ],
)
def test_labels_that_are_none(columns: Any, y: Any, kind: str, told: str) -> None:
    with pytest.raises((TableError, GraphSpecError), match=told):
        data_of(columns, y, kind)


def test_names_of_an_earlier_build_keep_their_places(tmp_path: Path) -> None:
    data_of({"v": [["x", "z"], ["y"]] * 3}, "v", folder=tmp_path / "old")
    new = data_of({"v": [["z"], []] * 3}, "v", transforms=tmp_path / "old")
    assert new.label_names == ("x", "y", "z")
    assert np.array_equal(new.table("train").y[:2], [[F, F, T], [F, F, F]])
    with pytest.raises(TableError, match="y 'v' has 'w', which is no label; these are x, y, z"):
        data_of({"v": [["w"], []] * 3}, "v", transforms=tmp_path / "old")

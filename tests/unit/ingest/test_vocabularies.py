"""Vocabularies: columns of several tables share their values, their codes, and a model's embedding."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lightning_gnnload import SAGE, GraphData, load_graph_data, save_graph_data
from lightning_gnnload.errors import GraphSpecError

RNG = np.random.default_rng(5)
HOMES = RNG.choice(["de", "fr", "it"], 40).tolist()
ORIGINS = RNG.choice(["fr", "it", "pl", "se"], 60).tolist()
USERS, ITEMS = [f"u{n}" for n in range(40)], [f"i{n}" for n in range(60)]


def data_of(home: dict[str, Any] | None = None, **more: Any) -> GraphData:
    place = {"vocabulary": "country", "min_count": 8}
    users = pa.table({"id": USERS, "kind": ["x", "y"] * 20, "home": HOMES, "y": ["a", "b"] * 20})
    items = pa.table({"id": ITEMS, "origin": ORIGINS})
    kind = {"column": "kind", "min_count": 1}
    nodes = {
        "user": {"from": users, "id": "id", "x": [kind, {"column": "home", **place, **(home or {})}]},
        "item": {"from": items, "id": "id", "x": [{"column": "origin", **place}]},
    }
    buys = pa.table({"u": USERS, "i": ITEMS[:40]})
    edges = {"buys": {"from": buys, "src": "user.u", "dst": "item.i", "reverse": True}}
    tasks = {"t": {"seed": "user.id", "y": "y", "split": {"share": [1, 0, 0]}}}
    return GraphData.from_tables(nodes=nodes, edges=edges, tasks=tasks, show=False, threads=1, **more)


def codes(data: GraphData, node_type: str) -> np.ndarray:
    return data.tables_of(node_type)["codes"].store.rows.numpy()


def test_values_are_counted_over_all_columns_and_have_one_code() -> None:
    data, counts = data_of(), Counter(HOMES + ORIGINS)
    by_count = sorted((value for value in counts if counts[value] >= 8), key=lambda value: (-counts[value], value))
    code = {value: 2 + k for k, value in enumerate(by_count)}
    assert codes(data, "user")[:, 1].tolist() == [code.get(value, 0) for value in HOMES]
    assert codes(data, "item")[:, 0].tolist() == [code.get(value, 0) for value in ORIGINS]
    assert codes(data, "user")[:, 0].tolist() == [2, 3] * 20  # a column of its own is as it was
    assert data.vocabularies == {"codes.user": (None, "country"), "codes.item": ("country",)}


def test_folders_and_new_tables_keep_them(tmp_path: Path) -> None:
    old = data_of(folder=tmp_path / "old")
    assert load_graph_data(tmp_path / "old").vocabularies == old.vocabularies
    save_graph_data(load_graph_data(tmp_path / "old"), tmp_path / "copy")
    assert load_graph_data(tmp_path / "copy").vocabularies == old.vocabularies
    new = data_of(transforms=tmp_path / "old")
    assert np.array_equal(codes(new, "item"), codes(old, "item"))


def test_a_model_has_one_embedding_for_them() -> None:
    model = SAGE(hidden=8)
    sizes = model.sizes_of(data_of(), 2)
    assert sizes["num_codes"]["user"][1] == sizes["num_codes"]["item"][0]
    layers = model.layers_of(sizes | {"num_outputs": 2})
    user, item = (layers.embed[layers.module_names[name]] for name in ("user", "item"))
    assert user[1] is item[0]
    assert user[0] is not item[0]


def test_what_cannot_be_shared() -> None:
    with pytest.raises(
        GraphSpecError, match=r"items?.x: 'origin' has min_count and max_values \(8, 100000\), but nodes"
    ):
        data_of({"min_count": 2})

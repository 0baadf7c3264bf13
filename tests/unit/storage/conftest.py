"""A graph folder that tests damage, and how its manifest is changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from lightning_gnnload import Graph, GraphData, save_graph_data


def example() -> GraphData:
    graph = Graph.from_coo(
        [0, 1, 2, 0], [1, 2, 0, 2], edge_weight=[0.5, 1, 2, 3], edge_type=[0, 1, 0, 1], keep_order=True
    )
    x, y, tables = torch.arange(6.0).view(3, 2), torch.tensor([1, 0, 4]), {"year": torch.tensor([[7], [8], [9]])}
    return GraphData(graph, x, y, train=[2, 0], val=[1], num_classes=5, tables=tables)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_graph_data(example(), tmp_path / "graph")
    return tmp_path / "graph"


def edit(folder: Path, change) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    manifest.pop("checksum", None)  # as whoever writes a folder may do
    (folder / "manifest.json").write_text(json.dumps(manifest))

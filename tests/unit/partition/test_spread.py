"""Machines that share the work of a partition write the parts that one process writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, load_graph_data, partition_graph, save_graph_data
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.partition import spread
from tests.unit.here import Here
from tests.unit.typed import KINDS, typed_graph


def hubs() -> GraphData:
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 300, 4000), np.minimum(rng.zipf(1.4, 4000) - 1, 299)
    graph = Graph.from_coo(src, dst, 320, edge_weight=rng.random(4000).astype(np.float32), keep_order=True)
    return GraphData(graph, x=torch.rand(320, 5), y=torch.arange(320) % 3, train=np.arange(0, 300, 3))


def timed_types() -> GraphData:
    times = {kind: np.arange(n) for kind, n in zip(KINDS, (120, 150, 60, 90, 0, 40, 0), strict=True)}
    graph = typed_graph(edge_time=times)
    return GraphData(graph, x=torch.rand(graph.num_nodes, 4), train=np.arange(0, 57, 5))


def written(folder: Path) -> dict[str, Any]:
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    manifest = json.loads(files.pop("manifest.json"))
    del manifest["attributes"]["partition"]["report"]["stages"], manifest["checksum"]  # which have seconds
    return files | {"manifest.json": manifest}


@pytest.mark.parametrize("make", [hubs, timed_types])
@pytest.mark.parametrize(
    ("method", "num_parts", "hops", "features"),
    [("ldg", 3, 0, True), ("self-reliant", 2, 2, True), ("bgl", 4, 0, False), ("random", 1, 0, True)],
)
def test_parts_are_the_same(
    make: Any, method: str, num_parts: int, hops: int, features: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "Machines", Here)
    save_graph_data(make(), tmp_path / "graph")
    data = load_graph_data(tmp_path / "graph")
    for engine in ("local", "ray"):
        settings: dict[str, Any] = {"hops": hops, "features": features, "engine": engine, "progress": False}
        partition_graph(data, tmp_path / engine, num_parts, method, **settings)
    assert written(tmp_path / "ray") == written(tmp_path / "local")


def test_a_graph_in_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match="in this process's memory, where no other machine finds it"):
        partition_graph(hubs(), tmp_path / "parts", 2, hops=0, engine="ray", progress=False)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_changed_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "Machines", Here)
    save_graph_data(hubs(), tmp_path / "graph")
    data = load_graph_data(tmp_path / "graph")
    save_graph_data(timed_types(), tmp_path / "graph", overwrite=True)
    with pytest.raises(PartitionError, match=r"graph holds another graph on this machine"):
        partition_graph(data, tmp_path / "parts", 2, hops=0, engine="ray", progress=False)
    assert not (tmp_path / "parts").exists()

"""Graph folders (storage/graphs.py): damaged in their files and in their manifest, then mapped and used."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch

from lightning_gnnload import Graph, GraphData, NeighborSampler, NodeTable, load_graph_data, save_graph_data
from lightning_gnnload.datasets.stored import StoredDataset
from lightning_gnnload.errors import GraphDataError
from tests.fuzz.damage import damage_file, damage_json

SETTINGS = {"made": "for fuzzing"}


def load(random: Random, folder: Path) -> None:
    """What loads can be used, whether or not its bytes were verified."""
    made = random.choice([rich_data, typed_data])
    use(load_graph_data(damaged(random, folder, made), verify=random.random() < 0.5))


def prepare(random: Random, folder: Path) -> None:
    """A data set over a damaged folder finds it whole, or builds it anew; or the damage comes after that."""
    dataset = Prepared(damaged(random, folder, small_data))
    dataset.prepare()
    if random.random() < 0.2:
        damage_file(random, random.choice(sorted(dataset.folder.iterdir())), folder / "outside.bin")
    use(dataset.load())


@dataclass(frozen=True)
class Prepared(StoredDataset):
    place: Path

    @property
    def folder(self) -> Path:
        return self.place

    @property
    def settings(self) -> dict[str, Any]:
        return SETTINGS

    def build(self, scratch: Path) -> GraphData:
        return small_data()


def use(data: GraphData) -> None:
    """What training does with it: every node's neighbourhood, features and labels."""
    seeds = torch.arange(min(data.num_nodes, 100))
    NeighborSampler([3, -1], before=None).sample(data.graph, seeds)  # whatever times it has
    if data.graph.types is not None:
        data.graph.edge_types_of(torch.arange(min(data.graph.num_edges, 100)).numpy())
    for store in data.stores.values():
        ids = torch.arange(min(store.shape[0], 100))
        store.gather(ids, torch.empty(len(ids), store.shape[1], dtype=store.dtype))
    if data.y is not None:
        assert len(data.y[seeds]) == len(seeds)
    for name in ("train", "val", "test"):
        NeighborSampler([2], before=None).sample(data.graph, data.split(name))
    try:
        assert data.num_classes >= 0
    except GraphDataError:
        y = data.y  # whose damaged labels may also all be negative
        assert data.seed_tables or y is None or y.ndim != 1 or y.is_floating_point() or y.max() < 0


def small_data() -> GraphData:
    graph = Graph.from_coo(
        [0, 1, 2, 0, 3, 3], [1, 2, 0, 2, 4, 4], 6, edge_weight=[0.5, 1, 2, 3, 1, 1], edge_type=[0, 1, 0, 1, 1, 0]
    )
    return GraphData(graph, torch.arange(18.0).view(6, 3), torch.tensor([1, 0, 4, 2, 0, 0]), [2, 0], [1], [4, 5])


def rich_data() -> GraphData:
    graph = Graph.from_coo([0, 1, 2, 0], [1, 2, 0, 2], 6, keep_order=True)
    tables = {"age": torch.arange(6), "paper": NodeTable(torch.ones(2, 3), 4)}
    of_edges = {"edge_x": torch.ones(4, 2), "edge_tables": {"when": torch.arange(4)}}
    return GraphData(graph, torch.ones(6, 3), torch.arange(6), [2, 0], tables=tables, **of_edges)


def typed_data() -> GraphData:
    buys, sold = ("user", "buys", "item"), ("item", "sold by", "shop/s")
    graph = Graph.from_hetero(
        {"user": 3, "shop/s": 1, "item": 2, "tag": 0},
        {buys: ([0, 2, 2, 1], [1, 1, 0, 1]), sold: ([1, 0], [0, 0])},
        edge_time={buys: [3.5, 1.0, 2.0, 3.5]},
        node_time={"item": [0.5, 9.0]},
        keep_order=True,
    )
    return GraphData(
        graph,
        {"user": torch.ones(3, 2), "item": torch.ones(2, 3).half()},
        {"item": torch.tensor([1, -1])},
        {"item": [0]},
        tables={"tag": {"name": torch.zeros(0)}},
        edge_x={buys: torch.ones(4, 2)},
        edge_tables={sold: {"when": torch.arange(2)}},
    )


def damaged(random: Random, folder: Path, make: Callable[[], GraphData]) -> Path:
    """A graph folder with up to three things wrong."""
    place, outside = folder / "graph", folder / "outside.bin"
    place.mkdir()
    for name, content in _sound_files(make).items():
        (place / name).write_bytes(content)
    outside.write_bytes(_sound_files(make)["indices.bin"])
    for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
        manifest = place / "manifest.json"
        if manifest.is_file() and random.random() < 0.5:
            edit(random, manifest)
        else:
            damage_file(random, random.choice(sorted(place.iterdir())), outside)
    return place


def edit(random: Random, manifest: Path) -> None:
    """Damages what a manifest says."""
    try:
        value = json.loads(manifest.read_bytes())
    except (OSError, ValueError):  # broken before
        return
    if random.random() < 0.9 and isinstance(value, dict):
        value.pop("checksum", None)  # else it is what all damage is found by
    manifest.write_text(json.dumps(damage_json(random, value)))


@functools.cache
def _sound_files(make: Callable[[], GraphData]) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as parent:
        save_graph_data(make(), Path(parent) / "graph", attributes=SETTINGS)
        return {file.name: file.read_bytes() for file in (Path(parent) / "graph").iterdir()}

"""Folders of partitions: damaged in their files and manifests, then mapped and used."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from random import Random

import numpy as np
import torch

from lightning_gnnload import GraphData, NeighborSampler, Partition, load_partition, partition_graph
from lightning_gnnload.errors import PartReachError
from tests.fuzz.damage import damage_file
from tests.fuzz.targets.stored_graphs import edit, small_data


def load(random: Random, folder: Path) -> None:
    """What loads can be used, whether or not its bytes were verified."""
    place = damaged(random, folder, random.choice([0, 2]))
    use(load_partition(place, verify=random.random() < 0.3))


def use(partition: Partition) -> None:
    """What training does with it: owners, and every part's seeds, features and labels."""
    ids = np.arange(partition.num_nodes)
    assert (partition.part_of(ids) == partition.owner_of(partition.new_ids)).all()
    for store in (partition.x, *partition.tables.values()):
        if store is not None:
            store.gather(torch.from_numpy(ids), torch.empty(len(ids), store.shape[1], dtype=store.dtype))
    num_seeds = [len(seeds) for seeds in partition.seeds_of("train") or []]
    for part in partition.parts:
        assert 0 <= part.num_own <= part.graph.num_nodes
        assert len(part.seeds.get("train", [])) == (num_seeds[part.index] if num_seeds else 0)
        for seeds in part.seeds.values():
            try:
                NeighborSampler([2, -1], edge_ids=True).sample(part.graph, seeds)
            except PartReachError:  # disjoint parts reach one hop alone
                NeighborSampler([2]).sample(part.graph, seeds)
        if part.x is not None:
            rows = torch.arange(part.graph.num_nodes)
            part.x.gather(rows, torch.empty(len(rows), part.x.shape[1], dtype=part.x.dtype))
        assert part.y is None or len(part.y) == part.graph.num_nodes


def damaged(random: Random, folder: Path, hops: int) -> Path:
    """A partition's folder with up to three things wrong."""
    place, outside = folder / "parts", folder / "outside.bin"
    for name, content in _sound_files(hops).items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    outside.write_bytes(next(content for name, content in _sound_files(hops).items() if name.endswith("x.bin")))
    for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
        if random.random() < 0.4 and (place / "manifest.json").is_file():
            edit(random, place / "manifest.json")
        else:
            inside = random.choice([place, *sorted(path for path in place.iterdir() if path.is_dir())])
            files = sorted(path for path in inside.iterdir() if not path.is_dir())
            if files:
                damage_file(random, random.choice(files), outside)
    return place


@functools.cache
def _sound_files(hops: int) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as parent:
        data = small_data()
        data = GraphData(data.graph, data.x, data.y, data.train, data.val, data.test, tables={"age": torch.ones(6, 1)})
        partition_graph(data, Path(parent) / "parts", 2, "self-reliant", hops=hops, progress=False)
        folder = Path(parent) / "parts"
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}

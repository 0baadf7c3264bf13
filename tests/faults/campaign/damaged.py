"""Opens a folder that somebody has damaged, or damages while it is used, and samples from it.

Arguments: how, num_devices, kind of folder, sampler; then "save" to write it first; or "change" or "cut" and a seed, to
damage its topology in mid-course. Prints what came of it as JSON: mini-batches' digests, and an error of ours.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from lightning_gnnload import (
    DiskFeatureStore,
    Graph,
    GraphData,
    GraphDataModule,
    LaborSampler,
    LayerSampler,
    NeighborSampler,
    RandomWalkSampler,
    ShadowSampler,
    WeightedNeighborSampler,
    load_graph_data,
    load_partition,
    partition_graph,
    save_features,
    save_graph_data,
)
from lightning_gnnload.errors import GnnLoadError
from tests.integration.scripts.toy import batch_digest, digest, toy_data

FOLDER = Path("folder")
SAMPLERS: dict[str, Any] = {
    "uniform": NeighborSampler([4, 3]),
    "weighted": WeightedNeighborSampler([4, 3]),
    "labor": LaborSampler([4, 3]),
    "layerwise": LayerSampler([40, 40]),
    "walks": RandomWalkSampler(num_layers=2, num_neighbors=4),
    "shadow": ShadowSampler([4, 3], num_layers=2),
}


def save(kind: str) -> None:
    """Writes a sound folder."""
    data = toy_data()
    if kind == "graph":
        graph = data.graph
        weights = np.linspace(0.5, 1.5, graph.num_edges, dtype=np.float32)
        graph = Graph(graph.indptr, graph.indices, edge_weight=weights)
        save_graph_data(GraphData(graph, data.x, data.y, data.train, data.val, data.test), FOLDER)
    elif kind == "features":
        save_features(data.x, FOLDER, progress=False)
    else:
        partition_graph(data, FOLDER, 2, "random", hops=2, progress=False)


def use(kind: str, sampler: str, harm: Callable[[], None]) -> Iterator[str]:
    """Yields the digest of each mini-batch, or of some rows; calls ``harm`` amid a graph's."""
    if kind == "features":
        store = DiskFeatureStore(FOLDER)
        out = torch.empty(500, store.shape[1], dtype=store.dtype)
        for start in range(0, store.shape[0] - 499, 500):
            store.gather(torch.arange(start, start + len(out)), out)
            yield str(out.sum().item())
        return
    if kind == "partition":
        partition = load_partition(FOLDER)
        for part in partition.parts:
            batch = SAMPLERS[sampler].sample(part.graph, part.seeds["train"][:64], seed=5, epoch=0, step=0)
            assert part.x is not None
            out = torch.empty(len(batch.nodes), part.x.shape[1], dtype=part.x.dtype)
            part.x.gather(batch.nodes, out)
            yield f"{digest([batch.nodes])} {out.sum().item()}"
        return
    data = load_graph_data(FOLDER)
    module = GraphDataModule(data, SAMPLERS[sampler], batch_size=16, seed=5)
    module.setup("fit")
    for number, batch in enumerate(module.train_dataloader()):
        if number == 2:
            harm()
        yield batch_digest(batch)
        if number == 15:
            return


def change_topology(random: Random) -> None:
    """Writes over the files that are mapped: ids of no node, pointers to no edge."""
    name = random.choice(("indices", "indptr"))
    array = np.memmap(FOLDER / f"{name}.bin", np.int32 if name == "indices" else np.int64, "r+")
    wrong = [-1, np.iinfo(array.dtype).max, np.iinfo(array.dtype).min, len(array) * 1000, 1 << 24]
    chosen = np.random.default_rng(random.randrange(1 << 30)).random(len(array)) < random.choice((1.0, 0.1))
    array[chosen] = random.choice(wrong)
    array.flush()


def cut_topology(random: Random) -> None:
    file = FOLDER / f"{random.choice(('indices', 'indptr'))}.bin"
    os.truncate(file, random.choice((0, 4096, os.path.getsize(file) // 2)))


def main(kind: str, sampler: str, what: str = "", seed: str = "") -> None:
    if what == "save":
        save(kind)
    harm = {"change": change_topology, "cut": cut_topology}.get(what, lambda _: None)
    told: dict[str, Any] = {"digests": []}
    try:
        for digest in use(kind, sampler, lambda: harm(Random(seed))):
            told["digests"].append(digest)
    except GnnLoadError as error:
        told["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[3:])

"""Folders in versions: every array of one tells its version, so that a mixture is seen, and whoever is killed amid
writing can be told from who was not.

As a script, with arguments how, num_devices, what, kind and a number: writes a version, checks a folder, or does either
again and again for some seconds. Prints JSON in the end.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload import (
    DiskFeatureStore,
    Graph,
    GraphData,
    load_graph_data,
    load_partition,
    partition_graph,
    quantize,
    save_features,
    save_graph_data,
)
from lightning_gnnload.datasets.synthetic import Synthetic
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.plugin.commands import cache

NUM_NODES, WIDTH, MOST = 3000, 64, 50
"""Versions are numbers below MOST."""
FOLDER, BEGAN = Path("folder"), Path("began")
"""What is written, and a file that tells the version that is."""


def data_of(version: int) -> GraphData:
    """Every version has arrays of the same sizes: no manifest's sizes give a mixture away."""
    nodes = np.arange(NUM_NODES)
    degrees = np.full(NUM_NODES, 2)
    degrees[version] += 1
    degrees[version + 1] -= 1
    graph = Graph(np.concatenate([[0], np.cumsum(degrees)]), np.full(2 * NUM_NODES, version, np.int32))
    x = np.full((NUM_NODES, WIDTH), version, np.float32)
    train, val, test = (nodes[100 * part + version :][:100] for part in range(3))
    return GraphData(graph, x, np.full(NUM_NODES, version), train, val, test, num_classes=MOST)


def versions_in(data: GraphData) -> set[int]:
    """Reads every array."""
    assert data.x is not None
    assert data.y is not None
    found = {int(value) for array in (data.graph.indices, data.y.numpy()) for value in np.unique(array)}
    found |= set(np.flatnonzero(np.diff(data.graph.indptr) == 3).tolist())
    found |= {int(split[0]) - 100 * part for part, split in enumerate((data.train, data.val, data.test))}
    return found | rows_in(data.x)


def rows_in(store: Any) -> set[int]:
    out = torch.empty(store.shape, dtype=store.dtype)
    store.gather(torch.arange(len(out)), out)
    # Quantised rows are near what they stand for.
    return {round(value) for value in out.unique().tolist()}


def _save_quantized(folder: Path, version: int, overwrite: bool) -> None:
    # Of one width but another range, so that codes mean nothing without their own scale and offset.
    rows = torch.full((NUM_NODES, WIDTH), float(version))
    data = GraphData(data_of(version).graph, quantize(rows), num_classes=MOST)
    save_graph_data(data, folder, overwrite=overwrite)


def _quantized_in(folder: Path) -> set[int]:
    data = load_graph_data(folder)
    assert data.x is not None
    return rows_in(data.x) | set(np.unique(data.graph.indices).tolist())


def _partition_in(folder: Path) -> set[int]:
    partition = load_partition(folder)
    assert partition.x is not None
    found = rows_in(partition.x)
    for part in partition.parts:
        assert part.graph.origin is not None
        ids = part.graph.origin.node_ids
        assert part.y is not None
        found |= {int(value) for value in np.unique(ids[part.graph.indices])}  # the source of every edge
        found |= {int(value) for value in part.y.unique()}
    return found


def _cached(folder: Path, version: int, overwrite: bool) -> None:
    """Runs ``gnnload cache`` on a graph that is there, with a number of epochs for a version."""
    source = Path("cache-source")
    if not source.exists():
        save_graph_data(data_of(0), source)
    sizes = {"kind": "citation", "num_nodes": 500, "num_edges": 2000, "num_features": 4, "num_classes": 4}
    options = [f"--data.data.{name}={value}" for name, value in {**sizes, "root": Path.cwd() / "root"}.items()]
    options = ["--data.data=lightning_gnnload.Synthetic", *options]
    options += ["--data.sampler=lightning_gnnload.NeighborSampler", "--data.sampler.fanouts=[3,2]"]
    options += ["--data.batch_size=32", "--one-order", "--ratios", "0.1", "--epochs", str(1 + cached_as(version))]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = cache.main([*options, "--out", str(folder)])
    if status:
        raise RuntimeError(said.getvalue())


def cached_as(version: int) -> int:
    """Epochs take time, so only a few versions differ."""
    return version % 3 + 1


def _cached_in(folder: Path) -> set[int]:
    return {int(json.loads((folder / "cache.json").read_text())["epochs_measured"])}


def _synthetic(version: int) -> Synthetic:
    return Synthetic(
        kind="citation", num_nodes=20_000, num_edges=80_000, num_features=32, num_classes=4, seed=version, root=Path()
    )


def _prepared_in(_: Path) -> set[int]:
    """The versions that are prepared, each in a folder of its own. Raises StoreFormatError: one is broken."""
    found = {version for version in range(MOST) if _synthetic(version).folder.exists()}
    for version in found:
        load_graph_data(_synthetic(version).folder, verify=True)
    return found


@dataclass(frozen=True)
class Kind:
    """What lies in a folder: how a version is written, and which are in it."""

    write: Callable[[Path, int, bool], Any]
    versions: Callable[[Path], set[int]]


KINDS = {
    "save_graph_data": Kind(
        lambda folder, version, overwrite: save_graph_data(data_of(version), folder, overwrite=overwrite),
        lambda folder: versions_in(load_graph_data(folder)),
    ),
    "graph on disk": Kind(
        lambda folder, version, overwrite: save_graph_data(data_of(version), folder, overwrite=overwrite),
        lambda folder: versions_in(load_graph_data(folder, features="disk")),
    ),
    "quantize": Kind(_save_quantized, _quantized_in),
    "save_features": Kind(
        lambda folder, version, overwrite: save_features(
            np.full((NUM_NODES, WIDTH), version, np.float32), folder, overwrite=overwrite, progress=False
        ),
        lambda folder: rows_in(DiskFeatureStore(folder)),
    ),
    "partition_graph": Kind(
        lambda folder, version, overwrite: partition_graph(
            data_of(version), folder, 3, "random", hops=1, seed=version, overwrite=overwrite, progress=False
        ),
        _partition_in,
    ),
    "prepare": Kind(lambda _, version, __: _synthetic(version).prepare(), _prepared_in),
    "gnnload cache": Kind(_cached, _cached_in),
}


def write(kind: Kind, version: int) -> dict[str, Any]:
    try:
        kind.write(FOLDER, version, True)
    except GnnLoadError as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    return {}


def check(kind: Kind) -> dict[str, Any]:
    try:
        return {"versions": sorted(kind.versions(FOLDER))}
    except Exception:
        return {"broken": traceback.format_exc()}


def write_for(kind: Kind, seconds: float) -> dict[str, Any]:
    """Overwrites the folder again and again."""
    until, version = time.monotonic() + seconds, 1
    while time.monotonic() < until:
        version = version % (MOST - 2) + 1
        BEGAN.write_text(str(version))
        kind.write(FOLDER, version, True)
    return {}


def load_for(kind: Kind, seconds: float) -> dict[str, Any]:
    """Loads the folder again and again, and counts what came: one version, errors of ours, mixtures and the rest."""
    until, counts = time.monotonic() + seconds, Counter[str]()
    example: dict[str, str] = {}
    while time.monotonic() < until:
        try:
            found = kind.versions(FOLDER)
            what, seen = ("loads" if len(found) == 1 else "mixtures"), str(sorted(found))
        except GnnLoadError as error:
            what, seen = "refused", f"{type(error).__name__}: {error}"
        except Exception:
            what, seen = "foreign errors", traceback.format_exc()
        counts[what] += 1
        example[what] = seen
    return {"counts": counts, "examples": example}


if __name__ == "__main__":
    what, kind, *rest = sys.argv[3:]
    functions: dict[str, Callable[..., dict[str, Any]]] = {
        function.__name__: function for function in (write, check, write_for, load_for)
    }
    numbers = [int(text) if text.isdecimal() else float(text) for text in rest]
    print(json.dumps(functions[what](KINDS[kind], *numbers)))

"""Builds and partitions by the machines of a Ray cluster. Arguments: how, num_devices, names of cases.

Each case writes what it came to below the working directory, as NAME.json.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import parquet

from lightning_gnnload import load_partition
from lightning_gnnload.datasets.debian import Debian
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ingest.build import build_graph_folder
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.ingest.spread import passes
from lightning_gnnload.plugin.commands import build, partition
from tests.unit.ingest.spread.shop import shop, written

HERE = Path.cwd()


def debian(home: Path) -> None:
    """The packages of Debian as tables: names, sections and relations, in files of some row groups."""
    dataset = Debian(root=str(home / "data"))
    dataset.prepare()
    data, names = dataset.load(), np.array(dataset.names())
    degrees = np.diff(data.graph.indptr)
    dst = np.repeat(np.arange(len(names)), degrees)
    order = np.random.default_rng(0).permutation(len(dst))
    packages = {
        "name": names,
        "section": np.array(dataset.class_names)[data.y],
        "length": [float(len(n)) for n in names],
    }
    relations = {
        "package": names[dst[order]],
        "needs": names[data.graph.indices[order]],
        "kind": data.graph.edge_type[order],
    }
    parquet.write_table(pa.table(packages), home / "packages.parquet", row_group_size=10_000)
    parquet.write_table(pa.table(relations), home / "relations.parquet", row_group_size=50_000)
    needs: dict[str, Any] = {"from": "relations.parquet", "src": "package.needs", "dst": "package.package"}
    needs |= {"x": [{"column": "kind", "as": "category", "min_count": 1}], "reverse": True, "repeats": "drop"}
    spec = {
        "version": 1,
        "nodes": {"package": {"from": "packages.parquet", "id": "name", "x": ["length"]}},
        "edges": {"needs": needs},
        "tasks": {"section": {"seed": "package.name", "y": "section", "split": {"share": [0.6, 0.2, 0.2]}}},
    }
    (home / "graph.yaml").write_text(json.dumps(spec))


def digest(folder: Path) -> dict[str, str]:
    """Of each file; of a partition without its head's manifest, which has seconds."""
    files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}
    unlike = {"manifest.json", "quality.json", "quality.png"}
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items() if name not in unlike}


def compared(home: Path, during: Callable[[Path], Any] = lambda home: None) -> dict[str, Any]:
    """Builds home/graph.yaml both ways by the command; ``during`` runs beside the machines' build."""
    assert build.main([str(home / "graph.yaml"), str(home / "local")]) == 0
    with beside(lambda: during(home)), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        began = time.monotonic()
        code = build.main([str(home / "graph.yaml"), str(home / "ray"), "--engine", "ray"])
    return {
        "code": code,
        "seconds": time.monotonic() - began,
        "same": written(home / "local") == written(home / "ray"),
        "left": sorted(path.name for path in home.iterdir() if path.name.startswith(".")),
        "warnings": [str(each.message) for each in told if "lost" in str(each.message)],
    }


@contextmanager
def beside(action: Callable[[], Any]) -> Any:
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join()


def whole(home: Path) -> dict[str, Any]:
    debian(home)
    values = compared(home)
    for engine in ("local", "ray"):
        arguments = [str(home / "local"), "--parts", "3", "--method", "ldg", "--hops", "0", "--quick"]
        assert partition.main([*arguments, "--out", str(home / "parts" / engine), "--engine", engine]) == 0
    values["parts"] = digest(home / "parts" / "local") == digest(home / "parts" / "ray")
    values["fingerprints"] = [
        load_partition(home / "parts" / engine, verify=True).fingerprint for engine in ("local", "ray")
    ]
    return values


def typed(home: Path) -> dict[str, Any]:
    """With tables in memory, of SQL and of CSV among them, by the function."""
    spec = GraphSpec.of(shop(home, "wide"))
    for engine in ("local", "ray"):
        build_graph_folder(spec, home / engine, home=home, engine=engine, show_progress=False)
    return {"same": written(home / "local") == written(home / "ray")}


def bad(home: Path) -> dict[str, Any]:
    """Rows that stop a build, far behind the first stretch."""
    debian(home)
    table = parquet.read_table(home / "relations.parquet")
    names = table["needs"].to_pylist()
    names[400_000] = names[500_000] = "no such package"
    parquet.write_table(
        table.set_column(1, "needs", pa.array(names)), home / "relations.parquet", row_group_size=50_000
    )
    told = []
    for engine in ("local", "ray"):
        with redirect_stderr(StringIO()) as out:
            assert build.main([str(home / "graph.yaml"), str(home / "out"), "--engine", engine]) == 2
        told.append(out.getvalue())
    return {"told": told, "left": sorted(path.name for path in home.iterdir() if "out" in path.name)}


def killed(home: Path) -> dict[str, Any]:
    """One of the machines' processes is killed while it reads edges, and is started again."""
    debian(home)

    def kill(home: Path) -> None:
        wait_for_segments(home, 5)
        processes = [each for each in psutil.process_iter() if each.name().startswith("ray::MachineProcess")]
        assert len(processes) == 2, processes
        processes[0].kill()

    return compared(home, kill)


def lost(home: Path) -> dict[str, Any]:
    """Whoever waits for the file ``now`` kills a machine."""
    debian(home)

    def tell(home: Path) -> None:
        wait_for_segments(home, 5)
        (HERE / "now").touch()

    return compared(home, tell)


def wait_for_segments(home: Path, count: int) -> None:
    until = time.monotonic() + 60
    while len(list(home.glob(".ray-*/scratch/segment-*"))) < count:
        assert time.monotonic() < until, "no edges were read"
        time.sleep(0.002)


def alone(home: Path) -> dict[str, Any]:
    """No cluster is there."""
    try:
        build_graph_folder(GraphSpec.of(shop(home, "wide")), home / "out", home=home, engine="ray")
    except GnnLoadError as error:
        return {"error": f"{type(error).__name__}: {error}", "left": sorted(path.name for path in home.glob("*out*"))}
    return {}


if __name__ == "__main__":
    # Many stretches of small tables, so that there is time for what happens meanwhile.
    passes._LEAST_ROWS, passes._CALLS = 1000, 30
    for case in sys.argv[3:]:
        (HERE / case).mkdir()
        values = globals()[case](HERE / case)
        (HERE / f"{case}.json").write_text(json.dumps(values))
        print(case, values, flush=True)

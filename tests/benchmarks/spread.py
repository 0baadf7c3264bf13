"""Tables to a graph folder, and the graph to parts, by one process and by the machines of a Ray cluster, in turns.

    python -m tests.benchmarks.spread --edges 10e6 --folder /tmp/tables

Buyers and what they buy, as ``tests.benchmarks.tables`` makes them. The cluster's one or two nodes are addresses of
this machine, on which all share the processors: this shows what the engine costs, not what it gains. The last row has
Ray Data sort the same edges by their target and write them, which is a part of the work.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.tables import make_tables
from tests.cluster.ray_nodes import ray_nodes

_SORT = """
import sys, ray
ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
*files, out = sys.argv[1:]
ray.data.read_parquet(files).sort(["item_id"]).write_parquet(out)
"""
_LOOK_S = 0.1
_STORE_BYTES = 1 << 30  # of each node: Ray Data keeps its blocks there


def measure(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Runs a command; returns its seconds, and the most memory of its process and of Ray's workers together, GB."""
    began, peak = time.perf_counter(), 0
    with subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(_own_bytes, [psutil.Process(process.pid), *_workers()])))
            time.sleep(_LOOK_S)
    if process.returncode:
        raise BenchmarkError(f"{command} ended with {process.returncode}")
    return {"seconds": time.perf_counter() - began, "GB": peak / 1e9}


def _workers() -> list[psutil.Process]:
    return [each for each in psutil.process_iter(["name"]) if (each.info["name"] or "").startswith("ray::")]


def _own_bytes(process: psutil.Process) -> int:
    try:
        memory = process.memory_info()
    except psutil.Error:  # it has ended
        return 0
    return int(memory.rss - memory.shared)


def digest(folder: Path) -> str:
    """Of all arrays of a graph's folder, or of a partition's parts."""
    files = sorted(folder.rglob("*.bin"))
    return hashlib.sha256("".join(hashlib.sha256(file.read_bytes()).hexdigest() for file in files).encode()).hexdigest()


def turns(folder: Path, engine: str, environment: dict[str, str]) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Builds and partitions once; returns what it took, and what was written."""
    gnnload = [sys.executable, "-m", "lightning_gnnload.plugin.commands.cli"]
    build = [*gnnload, "build", str(folder / "graph.yaml"), str(folder / "graph"), "--overwrite", "--engine", engine]
    took = {"build": measure(build, environment)}
    written = [digest(folder / "graph")]
    seconds = json.loads((folder / "graph" / "report.json").read_text())["seconds"]
    took["build"] |= {stage: value["wall"] for stage, value in seconds.items()}
    script = (
        "import sys; import numpy as np; from lightning_gnnload import load_graph_data, partition_graph; "
        "data = load_graph_data(sys.argv[1]); data.train = np.arange(1000); "
        "partition_graph(data, sys.argv[2], 8, 'random', hops=0, engine=sys.argv[3], overwrite=True, progress=False)"
    )
    call = [sys.executable, "-c", script, str(folder / "graph"), str(folder / "parts"), engine]
    took["partition"] = measure(call, environment)
    stages = json.loads((folder / "parts" / "manifest.json").read_text())["attributes"]["partition"]["report"]["stages"]
    took["partition"] |= {stage["name"]: stage["seconds"] for stage in stages}
    return took, [*written, digest(folder / "parts")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=float, default=10e6)
    parser.add_argument("--folder", type=Path, help="for tables and graphs; default: one that is removed")
    parser.add_argument("--no-sort", action="store_true", help="leave Ray Data's sort out")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "graph.yaml").exists():
            make_tables(folder, int(options.edges), 2)
        took, written = {}, {}
        took["one process"], written["one process"] = turns(folder, "local", {})
        for name, resources in (("a node of Ray", [{}]), ("two nodes of Ray", [{}, {}])):
            with ray_nodes(*resources, store_bytes=_STORE_BYTES) as nodes:
                took[name], written[name] = turns(folder, "ray", nodes.environment)
                if not options.no_sort and name == "a node of Ray":
                    edges = map(str, sorted(folder.glob("edges-*.parquet")))
                    call = [sys.executable, "-c", _SORT, *edges, str(folder / "sorted")]
                    took["Ray Data's sort alone"] = {"build": measure(call, nodes.environment)}
                    shutil.rmtree(folder / "sorted")
        print(
            "| by | seconds | edges | sort | memory, GB | 8 parts, seconds | writing parts |\n| --- |" + " ---: |" * 6
        )
        for name, figures in took.items():
            build, parts = figures["build"], figures.get("partition", {})
            values = [build["seconds"], build.get("edges"), build.get("sort"), build["GB"]]
            values += [parts.get("seconds"), parts.get("Writing parts")]
            print(f"| {name} | {' | '.join('' if value is None else f'{value:.1f}' for value in values)} |")
        if len({tuple(each) for each in written.values()}) != 1:
            raise BenchmarkError(f"the folders differ: {written}")


if __name__ == "__main__":
    main()

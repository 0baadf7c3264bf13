"""Tables to a graph folder: seconds, processor seconds, peak memory and disk of ``gnnload build``.

    python -m tests.benchmarks.tables --edges 100e6 --folder /tmp/tables      (about 6 GB of input, 7 GB beside it)
    python -m tests.benchmarks.tables --edges 1e9 --memory 6GB                (about 15 GB, and 40 GB)

Buyers and what they buy, by text ids that follow Zipf's law, with times and reverse edges; 0.2 % of the rows name an
end that is in no table. The tables are made first, as Parquet files that stay with ``--keep``; the build runs in a
process of its own, whose peak is then that of the build alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lightning_gnnload.ingest.build import build_graph_folder
from lightning_gnnload.ingest.spec import GraphSpec

_CHUNK_ROWS = 1 << 20
_FILE_ROWS = 25_000_000
_DANGLING = 0.002
_FIRST, _SECONDS = 1_700_000_000, 180 * 86_400
_NOBODY = pa.array(["nobody"])
_SHORT_FROM = 500_000_000
"""Edges from which on ids are as short as numbers, so that the input fits on a disk."""


def user_ids(count: int, short: bool) -> pa.Array:
    """Texts of 12 to 20 characters, or ``u`` and a number; and one more, which is no user's."""
    chunks = []
    for begin in range(0, count, _CHUNK_ROWS):
        number = np.arange(begin, min(begin + _CHUNK_ROWS, count))
        if short:
            chunks.append(pa.array(np.char.add("u", number.astype(str))))
            continue
        mixed = (number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).tolist()
        chunks.append(pa.array([f"{k:09d}{m:016x}"[: 12 + m % 9] for k, m in zip(number.tolist(), mixed, strict=True)]))
    return pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in [*chunks, _NOBODY]])


def item_ids(count: int, short: bool) -> pa.Array:
    """UUIDs as texts, or ``i`` and a number; and one more, which is no item's."""
    rng, chunks = np.random.default_rng(1), []
    for begin in range(0, count, _CHUNK_ROWS):
        number = np.arange(begin, min(begin + _CHUNK_ROWS, count))
        if short:
            chunks.append(pa.array(np.char.add("i", number.astype(str))))
            continue
        digits = rng.bytes(16 * len(number)).hex()
        texts = [digits[k : k + 32] for k in range(0, len(digits), 32)]
        chunks.append(pa.array([f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts]))
    return pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in [*chunks, _NOBODY]])


def zipf(rng: np.random.Generator, count: int, most: int) -> np.ndarray:
    """Draws numbers below ``most`` in proportion to 1 / (rank + 1); ranks lie scattered among the numbers."""
    rank = np.minimum(np.exp(rng.random(count) * np.log(most)).astype(np.int64), most - 1)
    drawn = rank * 7919 % most if most % 7919 else rank
    drawn[rng.random(count) < _DANGLING / 2] = most  # the text behind the last is in no table
    return drawn


def write_edges(file: Path, rows: int, seed: int, users: pa.Array, items: pa.Array, compression: str) -> None:
    """Writes edges between ids, of which the last is in no table of nodes."""
    rng = np.random.default_rng(seed)
    schema = pa.schema({"user_id": pa.string(), "item_id": pa.string(), "at": pa.int64()})
    with pq.ParquetWriter(file, schema, compression=compression, use_dictionary=False) as writer:
        for begin in range(0, rows, _CHUNK_ROWS):
            count = min(_CHUNK_ROWS, rows - begin)
            ends = [ids.take(pa.array(zipf(rng, count, len(ids) - 1))).cast(pa.string()) for ids in (users, items)]
            at = pa.array(_FIRST + rng.integers(0, _SECONDS, count))
            writer.write_table(pa.table([*ends, at], schema=schema), row_group_size=_CHUNK_ROWS)


def make_tables(folder: Path, num_edges: int, num_threads: int) -> None:
    """Writes users (a tenth as many as edges), items (a fiftieth), and edges."""
    short = num_edges >= _SHORT_FROM
    compression = "zstd" if short else "snappy"
    ends = user_ids(max(num_edges // 10, 10), short), item_ids(max(num_edges // 50, 10), short)
    for name, ids in zip(("user", "item"), ends, strict=True):
        table = pa.table({f"{name}_id": ids.slice(0, len(ids) - 1)})
        pq.write_table(table, folder / f"{name}.parquet", compression=compression, row_group_size=_CHUNK_ROWS)
    with ThreadPoolExecutor(num_threads) as threads:
        begun = [
            threads.submit(
                write_edges,
                folder / f"edges-{number:03d}.parquet",
                min(_FILE_ROWS, num_edges - begin),
                number,
                *ends,
                compression,
            )
            for number, begin in enumerate(range(0, num_edges, _FILE_ROWS))
        ]
        for each in begun:
            each.result()
    described = f"""version: 1
nodes:
  user: {{from: {folder}/user.parquet, id: user_id}}
  item: {{from: {folder}/item.parquet, id: item_id}}
edges:
  buys: {{from: "{folder}/edges-*.parquet", src: user.user_id, dst: item.item_id, time: at, time_unit: s,
    reverse: true, on_missing: drop}}
"""
    (folder / "graph.yaml").write_text(described)


def build(folder: Path, memory: str, num_threads: int) -> None:
    """Builds the graph, in this process, and prints what it took."""
    spec = GraphSpec.read(folder / "graph.yaml")
    spec = replace(spec, build=replace(spec.build, memory=memory, threads=num_threads))
    print(json.dumps(build_graph_folder(spec, folder / "graph", show_progress=False)["seconds"]), file=sys.stderr)


def measure(folder: Path, memory: str, num_threads: int) -> dict[str, Any]:
    """Builds in a process of its own; returns its seconds, processor seconds, peak and what it wrote."""
    shutil.rmtree(folder / "graph", ignore_errors=True)
    call = [sys.executable, "-m", "tests.benchmarks.tables", "--folder", str(folder), "--memory", memory]
    begin = time.perf_counter()
    child = subprocess.Popen([*call, "--threads", str(num_threads), "--only-build"])
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"the build failed: {child.returncode}")
    return {
        "wall_s": round(time.perf_counter() - begin, 1),
        "processor_s": round(used.ru_utime + used.ru_stime, 1),
        "peak_GB": round(used.ru_maxrss / 1e6, 2),
        "input_GB": round(sum(file.stat().st_size for file in folder.glob("*.parquet")) / 1e9, 2),
        "graph_GB": round(sum(file.stat().st_size for file in (folder / "graph").iterdir()) / 1e9, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=float, default=10e6)
    parser.add_argument("--folder", type=Path, help="for the tables and the graph; a temporary one by default")
    parser.add_argument("--memory", default="4GB", help="build.memory")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", action="store_true", help="leave the tables, and use those that are there")
    parser.add_argument("--only-build", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only_build:
        build(given.folder, given.memory, given.threads)
        return
    with TemporaryDirectory(prefix="gnnload-tables-", dir=given.folder) as temporary:
        folder = given.folder if given.keep else Path(temporary)
        if not (folder / "graph.yaml").exists():
            begin = time.perf_counter()
            make_tables(folder, int(given.edges), given.threads)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            print(f"tables: {time.perf_counter() - begin:.0f} s, peak {peak:.1f} GB", file=sys.stderr)
        print(json.dumps({"edges": int(given.edges), **measure(folder, given.memory, given.threads)}))
        shutil.rmtree(folder / "graph")


if __name__ == "__main__":
    main()

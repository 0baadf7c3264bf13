"""Packed mini-batches beside other ways to a table on disk: in processes of less than half the table's size.

    python -m tests.benchmarks.packing

Prepares a table of 1.5 GB in a cache folder (which stays), and packs some 5 GB beside it (which does not). Limits each
process, all of it, to 45 % of the table by a control group, which needs root; but for the table in memory. Some two
minutes on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from lightning_gnnload.host.pages import drop_page_cache
from tests.benchmarks import machine
from tests.benchmarks.disk_graph import CitationsOnDisk
from tests.benchmarks.errors import BenchmarkError, Unavailable
from tests.benchmarks.memory_limit import MemoryLimit
from tests.benchmarks.packing_job import EPOCHS, FANOUTS

WAYS = {
    "table in memory": "memory",
    "disk alone, packed rows": "floor",
    "packed before": "packed",
    "packed beside": "beside",
    "groups scanned": "scanned",
    "presample cache, direct reads": "presample",
    "next-use cache, direct reads": "belady",
}
_BATCH_SIZE = 256
_LIMIT_SHARE = 0.45  # of the table: Python, torch, the graph and mini-batches take a fifth, and files what is left
_MEMORY_SHARE = 0.08  # of the table, for the cache or for packing: the process needs the rest for itself


def measure(way: str, graph: CitationsOnDisk, packed: Path, limit_s: float) -> dict[str, Any]:
    """Raises BenchmarkError: it failed, or had not memory enough; Unavailable: no limit can be set."""
    table_bytes = graph.num_nodes * graph.num_features * 4
    with nullcontext() if way == "memory" else MemoryLimit(int(table_bytes * _LIMIT_SHARE)) as limit:
        order = {
            "folder": str(graph.folder),
            "way": way,
            "packed": str(packed / ("ahead" if way in ("pack", "packed", "floor") else "beside")),
            "memory": int(table_bytes * _MEMORY_SHARE),
            "batch_size": _BATCH_SIZE,
            "limit_s": limit_s,
            "procs": "" if limit is None else str(limit.procs),
        }
        with open(graph.folder / "x.bin", "rb") as file:
            drop_page_cache(file.fileno())
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.packing_job", json.dumps(order)], capture_output=True, text=True
        )
        if done.returncode:
            raise BenchmarkError(f"{way}: ended with status {done.returncode}.\n{done.stderr[-2000:]}")
        return {**json.loads(done.stdout), "peak_bytes": 0 if limit is None else limit.peak_bytes()}


def table(results: dict[str, dict[str, Any]]) -> str:
    head = ("", "steps", "ms a step", "times the table in memory", "processor ms", "to open, s")
    head += ("ms a step, opening included", "MiB read a step")
    lines = [f"| {' | '.join((*head, 'peak of the process, GiB'))} |", "|---" + "|---:" * len(head) + "|"]
    base = results.get("table in memory", {}).get("ms")
    for name, result in results.items():
        on_disk = sum(num_bytes for tier, (_, num_bytes) in result["reads"].items() if tier in ("disk", "packed"))
        cells = (
            name,
            str(result["steps"]),
            f"{result['ms']:.1f}",
            f"{result['ms'] / base:.1f}" if base else "",
            f"{result['cpu_ms']:.1f}",
            f"{result['opened_s']:.1f}",
            f"{result['all_s'] / result['steps'] * 1e3:.1f}",
            f"{on_disk / result['steps'] / 2**20:.1f}",
            f"{result['peak_bytes'] / 2**30:.2f}" if result["peak_bytes"] else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Returns the exit status: 1 where some way failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.packing", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_500_000, help="rows of 1 KiB; default 1,500,000")
    parser.add_argument("--limit-s", type=float, default=20, help="slow ways are stopped after it")
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=tuple(WAYS), help="all by default")
    options = parser.parse_args(arguments)
    graph = CitationsOnDisk(options.nodes, 256)
    progress, neighbours = Console(stderr=True), machine.Neighbours()
    graph.prepare()
    packed = Path(tempfile.mkdtemp(prefix="packed-", dir=graph.folder.parent))
    results, failed = dict[str, dict[str, Any]](), 0
    try:
        with progress.status("packing"):
            ahead = measure("pack", graph, packed, options.limit_s)
        for name in options.ways:
            with progress.status(name):
                try:
                    results[name] = measure(WAYS[name], graph, packed, options.limit_s)
                except BenchmarkError as error:
                    progress.print(f"{name}: {error}")
                    failed += 1
    except Unavailable as reason:
        print(f"Not measured: {reason}.")
        return 0
    finally:
        shutil.rmtree(packed, ignore_errors=True)
    size = graph.num_nodes * graph.num_features * 4
    lines = [
        f"a table of {size / 1e9:.3g} GB; processes of {size * _LIMIT_SHARE / 1e9:.2g} GB, all they have, of which "
        f"the cache or packing gets {size * _MEMORY_SHARE / 1e9:.2g} GB; citations, {graph.num_nodes // 100:,} "
        f"training nodes, batches of {_BATCH_SIZE}, fanouts {FANOUTS}, one thread, {EPOCHS} epochs; no model",
        f"packing ahead: {ahead['windows']} windows, {ahead['bytes'] / 2**30:.2f} GiB in {ahead['seconds']:.1f} s "
        f"({ahead['cpu_s']:.1f} processor s), sampling included: {ahead['share_of_rate']:.0%} of what the disk's rates "
        f"allow ({ahead['rates']})",
        *machine.describe(),
        neighbours.describe(),
    ]
    print("\n".join([table(results), "", *(f"- {line}" for line in lines)]))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Features larger than memory: an epoch from disk in a process of limited memory, with and without a cache.

    python -m tests.benchmarks.disk

Prepares a table of 12 GB in a cache folder (which stays) and limits each process to 4 GB by a control group, which
needs root. About twenty minutes, most of them for the mapped file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from lightning_gnnload.host.pages import drop_page_cache
from tests.benchmarks import machine
from tests.benchmarks.disk_graph import CitationsOnDisk
from tests.benchmarks.disk_job import FANOUTS
from tests.benchmarks.errors import BenchmarkError, Unavailable
from tests.benchmarks.memory_limit import MemoryLimit

RATIO = 0.1
_ASKED = 0.25  # of the bytes, with the presample cache
WAYS: dict[str, dict[str, Any]] = {
    "direct reads": {"features": "disk", "cache": None},
    "direct reads, presample cache of 10 %": {"features": "disk", "cache": "presample"},
    "direct reads, next-use cache of 10 %": {"features": "disk", "cache": "belady"},
    "direct reads, presample cache of a quarter of free memory": {"features": "disk", "cache": "quarter"},
    "direct reads, cache='auto'": {"features": "disk", "cache": "auto"},
    "mapped file": {"features": "mapped", "cache": None},
    "mapped file, presample cache of 10 %": {"features": "mapped", "cache": "presample"},
}


@dataclass(frozen=True)
class Sizes:
    graph: CitationsOnDisk
    batch_size: int
    limit_bytes: int
    limit_s: float


FULL = Sizes(CitationsOnDisk(), batch_size=256, limit_bytes=4 << 30, limit_s=300)
QUICK = Sizes(CitationsOnDisk(60_000, 128), batch_size=64, limit_bytes=2 << 30, limit_s=20)
QUARTER = Sizes(CitationsOnDisk(1_500_000), batch_size=256, limit_bytes=5 << 29, limit_s=300)


def measure(way: dict[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Raises BenchmarkError: it failed, or had not memory enough; Unavailable: no limit can be set."""
    with MemoryLimit(sizes.limit_bytes) as limit:
        order = {
            **way,
            "folder": str(sizes.graph.folder),
            "ratio": RATIO,
            "batch_size": sizes.batch_size,
            "limit_s": sizes.limit_s,
            "procs": str(limit.procs),
        }
        with open(sizes.graph.folder / "x.bin", "rb") as file:
            drop_page_cache(file.fileno())
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.disk_job", json.dumps(order)], capture_output=True, text=True
        )
        if done.returncode:
            raise BenchmarkError(f"ended with status {done.returncode}.\n{done.stderr[-2000:]}")
        print(done.stderr, end="", file=sys.stderr)  # how large the cache is, and why
        return {**json.loads(done.stdout), "peak_bytes": limit.peak_bytes()}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Figures by mini-batch, since a way that is slow is stopped before the epoch's end."""
    head = (
        "",
        "steps done",
        "ms a step",
        "MiB read a step",
        "of the first way's",
        "MiB read a second",
        "rows from the cache",
        "private memory, GiB",
        "peak with page cache, GiB",
        "before the epoch: to fill the cache, s",
        "MiB read for it",
    )
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    most = _bytes_a_step(next(iter(results.values())))
    for way, found in results.items():
        steps, rows = found["steps"], found["rows"]
        cells = (
            way,
            f"{steps} of {found['of']}",
            f"{found['epoch_s'] / steps * 1e3:.0f}",
            f"{_bytes_a_step(found) / 2**20:.1f}",
            f"{_bytes_a_step(found) / most:.1%}",
            f"{found['epoch_bytes'] / found['epoch_s'] / 2**20:.0f}",
            f"{rows.get('cache', 0) / sum(rows.values()):.1%}",
            f"{found['resident_bytes'] / 2**30:.2f}",
            f"{found['peak_bytes'] / 2**30:.2f}",
            f"{found['fill_s']:.0f}" if rows.get("cache") else "",
            f"{found['fill_bytes'] / 2**20:.0f}" if rows.get("cache") else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _bytes_a_step(found: dict[str, Any]) -> float:
    return max(float(found["epoch_bytes"] / found["steps"]), 1.0)


def main(arguments: list[str]) -> int:
    """Returns the exit status: 1 where some way failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.disk", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: a table of 30 MB in 2 GB; a minute")
    parser.add_argument("--quarter", action="store_true", help="a table of 3 GB in 2.5 GB; three minutes")
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=tuple(WAYS), help="all by default")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else QUARTER if options.quarter else FULL
    progress, neighbours = Console(stderr=True), machine.Neighbours()
    results, failed = {}, 0
    try:
        with MemoryLimit(sizes.limit_bytes) as limit:
            limited = limit.describe()
    except Unavailable as reason:
        print(f"Not measured: {reason}.")
        return 0
    sizes.graph.prepare()
    for way in options.ways:
        with progress.status(way):
            try:
                results[way] = measure(WAYS[way], sizes)
            except BenchmarkError as error:
                progress.print(f"{way}: {error}")
                failed += 1
    graph = sizes.graph
    lines = [
        f"a table of {graph.num_nodes * graph.num_features * 4 / 1e9:.3g} GB ({graph.num_nodes:,} rows of "
        f"{graph.num_features} float32); {limited}; before each way, the page cache is cleared of it",
        f"citations, {graph.num_nodes // 100:,} training nodes, batches of {sizes.batch_size}, fanouts {FANOUTS}, "
        f"two threads; ways that are slow are stopped after {sizes.limit_s:.0f} s",
        *_goal(results),
        *machine.describe(),
        neighbours.describe(),
    ]
    print("\n".join([table(results), "", *(f"- {line}" for line in lines)]) if results else "Nothing was measured.")
    return int(failed > 0)


def _goal(results: dict[str, dict[str, Any]]) -> list[str]:
    plain, cached = (results.get(name) for name in list(WAYS)[:2])
    if plain is None or cached is None:
        return []
    share = _bytes_a_step(cached) / _bytes_a_step(plain)
    verdict = "reached" if share <= _ASKED else "missed"
    return [
        f"with the presample cache, {share:.1%} of the bytes are read that are read without one; at most {_ASKED:.0%} "
        f"of them was asked: {verdict}"
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

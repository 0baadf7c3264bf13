"""What features take of a machine's memory, by the number of trainers that read them.

    python -m tests.benchmarks.cache_memory [--quick]

Each trainer is a process that makes the whole table itself, as a script does that builds its GraphData; then either
keeps all to itself, or shares the table (``share_rows``) and a cache in front of it. Asked for: what two trainers share
takes less than 5 % more than what one of them takes. Counted is the proportional set size (PSS) of anonymous and shared
memory, beyond what a process had before: a page that k processes map counts 1/k in each.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload import Graph, MemoryFeatureStore, NeighborSampler
from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.cache.rules import Recorded
from lightning_gnnload.cache.shared import share_rows
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.sample.workload import Workload

MIB = 1 << 20
WIDTH = 128
RATIO = 0.2
ASKED = 1.05
_GATHERED = 10_000


@dataclass(frozen=True)
class Case:
    """Trainers of a machine, and what they do about each other."""

    title: str
    count: int
    shares_table: bool
    share: str

    def measure(self, num_rows: int) -> list[dict[str, float]]:
        """What each trainer says, in MiB."""
        name = uuid.uuid4().hex
        settings = [name, num_rows, self.count, int(self.shares_table), self.share]
        command = [sys.executable, "-m", "tests.benchmarks.cache_memory", "--trainer", *map(str, settings)]
        trainers = [
            subprocess.Popen([*command, str(index)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for index in range(self.count)
        ]
        try:
            # All have touched everything before anyone measures, and nobody ends before all have.
            for step in ("ready", "measured"):
                replies = [_reply(trainer, step) for trainer in trainers]
                for trainer in trainers:
                    _go_on(trainer)
            return replies
        finally:
            for trainer in trainers:
                trainer.kill()
                trainer.communicate()


CASES = (
    Case("1 trainer", 1, False, "auto"),
    Case("2 trainers, each for itself", 2, False, "replicated"),
    Case("2 trainers, shared table, replicated cache", 2, True, "replicated"),
    Case("2 trainers, shared table, partitioned cache", 2, True, "partitioned"),
    Case("4 trainers, shared table, partitioned cache", 4, True, "partitioned"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cache_memory")
    parser.add_argument("--quick", action="store_true", help="a table of 50 MiB instead of 500")
    parser.add_argument("--trainer", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trainer:
        name, num_rows, count, shares_table, share, index = arguments.trainer
        _be_trainer(Membership(name, int(index), int(count)), int(num_rows), shares_table == "1", share)
        return
    num_rows = 100_000 if arguments.quick else 1_000_000
    print(f"{num_rows:,} rows of {WIDTH} float32; {RATIO:.0%} cached; MiB of all trainers together\n")
    print("| | table | cache | both | of one trainer's |\n| --- | ---: | ---: | ---: | ---: |")
    one = None
    for case in CASES:
        replies = case.measure(num_rows)
        table, cache = (sum(reply[part] for reply in replies) for part in ("table", "cache"))
        one = one or table + cache
        growth = (table + cache) / one
        verdict = "" if "partitioned" not in case.title else " (met)" if growth < ASKED else f" (asked: < {ASKED})"
        print(f"| {case.title} | {table:.1f} | {cache:.1f} | {table + cache:.1f} | {growth:.3f}{verdict} |", flush=True)


def _be_trainer(membership: Membership, num_rows: int, shares_table: bool, share: Any) -> None:
    edges = np.arange(num_rows)
    graph = Graph.from_coo(edges, edges, num_nodes=num_rows)
    workload = Workload(graph, NeighborSampler([1]), edges, batch_size=1024, order=Sequential())
    cache = FeatureCache(Recorded(edges), ratio=RATIO, share=share)
    out = torch.zeros(_GATHERED, WIDTH)
    before = memory_mib()
    store = MemoryFeatureStore(torch.ones(num_rows, WIDTH).mul_(3))
    if shares_table:
        store = share_rows(store, Membership(f"{membership.name}-table", membership.index, membership.count))
    _gather_all(store, out)
    with membership.connect() as peers:
        peers.all_gather({})  # nobody has a table of its own any more
        with_table = memory_mib()
        peers.all_gather({})
    front = cache.open(store, workload, membership=membership, progress=False)
    _gather_all(front, out)
    _say("ready", {})
    _say("measured", {"table": with_table - before, "cache": memory_mib() - with_table})
    front.close()


def _gather_all(store: Any, out: torch.Tensor) -> None:
    for begin in range(0, store.shape[0], len(out)):
        store.gather(torch.arange(begin, begin + len(out)), out)


def memory_mib() -> float:
    """This process's share of memory, without mapped files: those of its libraries are shared as well."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(kib) for kib in re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", text, re.MULTILINE)) / 1024


def _say(step: str, values: dict[str, float]) -> None:
    print(json.dumps({"step": step, **values}), flush=True)
    sys.stdin.readline()


def _reply(trainer: subprocess.Popen[str], step: str) -> dict[str, float]:
    assert trainer.stdin is not None
    assert trainer.stdout is not None
    reply = json.loads(trainer.stdout.readline() or "{}")
    if reply.get("step") != step:
        raise RuntimeError(f"a trainer ended before it was {step}; its errors stand above.")
    return reply


def _go_on(trainer: subprocess.Popen[str]) -> None:
    assert trainer.stdin is not None
    trainer.stdin.write("\n")
    trainer.stdin.flush()


if __name__ == "__main__":
    main()

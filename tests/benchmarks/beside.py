"""Samplers beside the parts that they sample (BGL, 3.1; DSP, 3.2): what crosses between ranks, and which cached rows
trainers find with themselves.

    python -m tests.benchmarks.beside

Two tables. Of real jobs with FactoredStrategy over gloo, whose samplers hold a part each: mini-batches of one part,
made by who holds it, beside a shuffle over all parts, dealt out in turn. And of the rows that caches on the trainers'
devices serve: those that lie with the trainer that reads them, beside rows dealt out by hotness alone; counted, without
a device. Counts do not depend on the machine. Five minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from lightning_gnnload import NeighborSampler, Partition, load_partition, ops, partition_graph
from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.cache.rules import policy_named
from lightning_gnnload.cache.static import deal_to_shards
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.plugin.module.partition import ModulePartition
from lightning_gnnload.sample.workload import Workload
from tests.benchmarks.beside_job import FANOUTS, TIMEOUT_S
from tests.benchmarks.cross_parts import GRAPHS
from tests.benchmarks.errors import BenchmarkError

WAYS = {False: "shuffled over all parts", True: "of one part, beside it"}
RANKS = ((2, 1), (2, 2), (2, 3), (4, 2), (4, 4))
BATCH_SIZE, STEPS = 512, 12
CACHE_RATIO = 0.05


def job(graph: str, folder: Path, samplers: int, trainers: int, is_local: bool, steps: int) -> dict[str, float]:
    """What all samplers of a job did, summed."""
    for file in folder.glob("*.json"):
        if file.stem.isdigit():
            file.unlink()
    order = {"graph": graph, "folder": str(folder), "samplers": samplers, "trainers": trainers, "is_local": is_local}
    order |= {"steps": steps, "batch_size": BATCH_SIZE}
    command = [sys.executable, "-m", "tests.benchmarks.beside_job", json.dumps(order)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    found = [json.loads(file.read_text()) for file in folder.glob("*.json") if file.stem.isdigit()]
    if done.returncode or len(found) != samplers:
        raise BenchmarkError(f"{order} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return {name: sum(each[name] for each in found) for name in found[0]}


def table_of_jobs(graph: str, parts: dict[int, Path], ranks: Sequence[tuple[int, int]], steps: int) -> Iterator[str]:
    yield "| samplers, trainers | batches | foreign seeds | remote draws | KB a batch | rows a batch | ms a batch |"
    yield "| --- | --- | --: | --: | --: | --: | --: |"
    for samplers, trainers in ranks:
        for is_local, way in WAYS.items():
            did = job(graph, parts[samplers], samplers, trainers, is_local, steps)
            cells = [f"{samplers}, {trainers}", way, f"{did['foreign'] / did['seeds']:.1%}"]
            cells += [f"{did['num_remote'] / did['num_nodes']:.1%}", f"{did['num_bytes'] / did['batches'] / 1e3:.0f}"]
            cells += [f"{did['rows'] / did['batches']:,.0f}", f"{did['seconds'] / did['batches'] * 1e3:.0f}"]
            yield f"| {' | '.join(cells)} |"


def own_share(data: GraphData, partition: Partition, num_trainers: int, *, is_local: bool) -> tuple[float, float]:
    """Shares of the rows that trainers gather: those that some trainer's cache serves, and those that their own does.

    Trainers gather for themselves, each with room for ``CACHE_RATIO`` of all rows, each of which is cached once."""
    settings = {"batch_size": BATCH_SIZE, "num_ranks": num_trainers}
    workload = Workload(data.graph, NeighborSampler(FANOUTS), data.train, order=Shuffled(), **settings)
    owners = partition.part_of(data.train)
    parts = [data.train[owners == part] for part in range(partition.num_parts)]
    if is_local:
        workload = Workload(**{**workload.settings(), "order": LocalOrder(parts, num_ranks=num_trainers)})
    room = int(CACHE_RATIO * num_trainers * data.num_nodes)
    hot = hottest(policy_named("presample", progress=False).hotness(workload, 0), data.num_nodes, room)
    module_partition = ModulePartition(partition)
    module_partition.open(data.graph)
    sharer_of = module_partition.sharer_of(GatherGroup(count=num_trainers)) if is_local else None
    shard = np.full(data.num_nodes, -1)
    shard[hot] = deal_to_shards(room, num_trainers, None if sharer_of is None else sharer_of(hot)) >> ops.SLOT_BITS
    read = cached = own = 0
    for request in workload.requests(epoch=1):
        there = shard[workload.nodes_of(request)]
        read, cached, own = (
            read + len(there),
            cached + int((there >= 0).sum()),
            own + int((there == request.rank).sum()),
        )
    return cached / read, own / read


def table_of_caches(data: GraphData, parts: dict[int, Path], numbers: Sequence[tuple[int, int]]) -> Iterator[str]:
    yield "| parts, trainers | rows | served by caches | by the trainer's own |"
    yield "| --- | --- | --: | --: |"
    for num_parts, num_trainers in numbers:
        for is_local, way in ((False, "dealt out by hotness"), (True, "with their part's trainers")):
            shares = own_share(data, load_partition(parts[num_parts]), num_trainers, is_local=is_local)
            yield f"| {num_parts}, {num_trainers} | {way} | {' | '.join(f'{share:.1%}' for share in shares)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.beside", description=__doc__)
    parser.add_argument("--graph", nargs="+", choices=tuple(GRAPHS), default=("communities", "Debian", "web"))
    parser.add_argument("--method", default="metis", help="of cutting; metis by default")
    parser.add_argument(
        "--ranks", nargs="+", metavar="S,T", default=[f"{s},{t}" for s, t in RANKS], help="samplers,trainers"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of a job; {STEPS} by default")
    parser.add_argument("--only", choices=("jobs", "caches"), help="both tables by default")
    options = parser.parse_args()
    ranks = [(int(samplers), int(trainers)) for samplers, trainers in (each.split(",") for each in options.ranks)]
    for graph in options.graph:
        GRAPHS[graph].prepare()
        data = GRAPHS[graph].load()
        with tempfile.TemporaryDirectory() as scratch:
            parts = {number: Path(scratch) / str(number) for number in {samplers for samplers, _ in ranks}}
            for number, folder in parts.items():
                partition_graph(data, folder, number, options.method, hops=0, features=False, progress=False)
            print(f"{graph}, parts by {options.method}, batches of {BATCH_SIZE} seeds, fanouts {FANOUTS}:\n")
            if options.only != "caches":
                for line in table_of_jobs(graph, parts, ranks, options.steps):
                    print(line, flush=True)
                print()
            if options.only != "jobs":
                several = [each for each in ranks if each[1] > 1]
                for line in table_of_caches(data, parts, several):
                    print(line, flush=True)
                print()

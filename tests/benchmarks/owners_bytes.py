"""Bytes a mini-batch over the wire, by how a graph is cut, who makes mini-batches, and which rows the trainer keeps.

    python -m tests.benchmarks.owners_bytes

Four owners and a trainer, over TCP. Two counting links lead to each owner: one that the trainer takes, and one that
other owners take. Frames, heads of messages and ids are in the count; TCP's own headers are not. The same seeds and
draws give the same bytes, on any machine, busy or not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lightning_gnnload import Debian, FeatureCache, GraphData, NeighborSampler, Sampler, Synthetic, load_partition
from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.owners.batch_owner import BatchOwner
from lightning_gnnload.owners.batches import OwnedBatches, OwnedSampler
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.rows import RemoteFeatureStore
from lightning_gnnload.owners.tcp import TcpFront
from lightning_gnnload.partition.build import partition_graph
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.sample.workload import Workload
from lightning_gnnload.storage.partitions import StoredPartition
from tests.benchmarks.errors import BenchmarkError
from tests.cluster.delay import DelayProxy
from tests.unit.owners.serving import SECRET

NUM_PARTS = 4
SAMPLER, BATCH_SIZE = NeighborSampler([15, 10]), 1024
NUM_BATCHES = 2 * NUM_PARTS  # seeds beside their part come from each part in turn
_MEGA = 1e6


class Case(NamedTuple):
    """``method``: of the partition; ``beside``: a mini-batch's seeds are of one part; ``ratio``: of rows kept here."""

    method: str
    beside: bool
    made_by: str
    ratio: float = 0.0


CASES = (
    Case("random", False, "ranks"),
    Case("random", False, "owners"),
    Case("ldg", True, "owners"),
    Case("bgl", True, "owners"),
    Case("metis", True, "ranks"),
    Case("metis", True, "owners"),
    *(Case("metis", True, "owners", ratio) for ratio in (0.01, 0.05, 0.1, 0.2)),
)


@dataclass(frozen=True)
class Measured:
    """Means a mini-batch: bytes to and from the trainer, bytes between owners, input nodes; and the share of the rows
    that the trainer had."""

    trainer_mb: float
    between_mb: float
    num_nodes: float
    hits: float

    @property
    def total_mb(self) -> float:
        return self.trainer_mb + self.between_mb


class Links:
    """Owners of a part each, and the two links to each of them."""

    def __init__(self, partition: StoredPartition, stack: ExitStack) -> None:
        self.of_trainer: list[DelayProxy] = []
        self.of_owners: list[DelayProxy] = []
        for part in range(partition.num_parts):
            owner = BatchOwner(partition, [part], SECRET.encode())
            stack.callback(owner.close)
            front = stack.enter_context(TcpFront(owner, "127.0.0.1", 0, SECRET.encode()))
            for links in (self.of_trainer, self.of_owners):
                links.append(stack.enter_context(DelayProxy(front.address.port)))
        self.owners = Owners.connect(partition, _addresses(self.of_trainer), secret=SECRET)
        stack.callback(self.owners.close)

    def batches(self) -> OwnedBatches:
        return OwnedBatches(lambda: self.owners, lambda: _addresses(self.of_owners))

    def count(self) -> tuple[int, int]:
        """Bytes so far: of the trainer, and between owners."""
        trainer, between = (
            sum(passed.bytes_up + passed.bytes_down for passed in (link.count() for link in links))
            for links in (self.of_trainer, self.of_owners)
        )
        return trainer, between


def measure(data: GraphData, partition: StoredPartition, links: Links, case: Case) -> Measured:
    parts = [data.train[partition.part_of(data.train) == part] for part in range(partition.num_parts)]
    order = LocalOrder(parts, num_ranks=1) if case.beside else Shuffled()
    here = Workload(data.graph, SAMPLER, data.train, batch_size=BATCH_SIZE, order=order, labels=data.y)
    head, batches = copy(partition.graph_data), links.batches()
    rows = RemoteFeatureStore("x", partition.parted["x"], lambda: links.owners)
    if case.made_by == "ranks":
        sampler: Sampler = CollectiveSampler(SAMPLER, links.owners)
    else:
        sampler = OwnedSampler(SAMPLER, batches)
        rows = rows if case.ratio else batches.store("x", partition.parted["x"])
    head.put("x", rows)
    workload = Workload(**{**here.settings(), "graph": head.graph, "sampler": sampler})
    # Ranked by the graph here, which draws the same mini-batches as owners do, sooner.
    cache = FeatureCache("presample", ratio=case.ratio)
    features = {"x": cache.open(rows, here, progress=False)} if case.ratio else {}
    source, slot = BatchSource(head, workload, features), Slot(1 << 20)
    try:
        for step in range(NUM_PARTS):
            source.make(BatchRequest(1, step, 0, 1), slot)  # connects all
        before = links.count()
        made = [source.make(BatchRequest(0, step, 0, 1), slot) for step in range(NUM_BATCHES)]
        trainer, between = (now - then for now, then in zip(links.count(), before, strict=True))
    finally:
        slot.close()
    num_nodes = sum(payload.num_nodes for payload in made)
    hits = sum(read.rows for payload in made for read in payload.reads if read.tier == "cache")
    scale = _MEGA * NUM_BATCHES
    return Measured(trainer / scale, between / scale, num_nodes / NUM_BATCHES, hits / num_nodes)


def rows_of(title: str, data: GraphData, folder: Path) -> list[str]:
    """Rows of the table, in Markdown; the first case is what others are compared with."""
    plain: Measured | None = None
    lines = []
    for method in dict.fromkeys(case.method for case in CASES):
        partition_graph(data, folder / method, NUM_PARTS, method, hops=0, progress=False)
        partition = load_partition(folder / method)
        assert isinstance(partition, StoredPartition)
        with ExitStack() as stack:
            links = Links(partition, stack)
            for case in CASES:
                if case.method != method:
                    continue
                found = measure(data, partition, links, case)
                plain = plain or found
                cells = [
                    *(title, method, "beside their part" if case.beside else "shuffled", case.made_by),
                    f"{case.ratio:.0%}" if case.ratio else "none",
                    *(f"{found.num_nodes:,.0f}", f"{found.hits:.0%}"),
                    *(f"{mega:.2f}" for mega in (found.trainer_mb, found.between_mb, found.total_mb)),
                    f"{found.total_mb / plain.total_mb:.2f}",
                ]
                lines.append(f"| {' | '.join(cells)} |")
                print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _addresses(links: Sequence[DelayProxy]) -> list[str]:
    return [f"127.0.0.1:{link.port}" for link in links]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.owners_bytes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--graph", nargs="+", choices=("debian", "power-law"), default=("power-law", "debian"))
    parser.add_argument("--nodes", type=int, default=200_000, help="of the power-law graph, with ten times the edges")
    options = parser.parse_args(arguments)
    if options.nodes < 20_000:
        raise BenchmarkError(f"--nodes {options.nodes}: parts need seeds for their mini-batches; give 20000 or more.")
    lines: list[str] = []
    for name in options.graph:
        dataset = (
            Debian()
            if name == "debian"
            else Synthetic("chung-lu", options.nodes, 10 * options.nodes, 128, train_fraction=0.5)
        )
        dataset.prepare()
        with tempfile.TemporaryDirectory() as folder:
            lines += rows_of(name, dataset.load(), Path(folder))
    columns = ("graph", "parts", "seeds", "made by", "rows kept", "input nodes", "hits")
    print(f"| {' | '.join((*columns, 'trainer, MB', 'between owners, MB', 'all, MB', 'of plain'))} |")
    print("| --- | --- | --- | --- |" + " ---: |" * 7)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchmarkError as error:
        sys.exit(f"benchmark: {error}")

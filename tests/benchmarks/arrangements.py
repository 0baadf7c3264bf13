"""Bytes of a mini-batch that cross the network, by which machine draws, gathers and trains.

    python -m tests.benchmarks.arrangements

From owners they are counted as in ``owners_bytes``: four of them, parts at random. A sampler sends what lies in
its slot. The same seeds and draws give the same bytes, on any machine, busy or not.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from lightning_gnnload import Debian, GraphData, Synthetic, load_partition
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.partition.build import partition_graph
from lightning_gnnload.pipeline.queue.slot_copies import pieces_of
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.sample.workload import Workload
from lightning_gnnload.storage.partitions import StoredPartition
from tests.benchmarks.owners_bytes import BATCH_SIZE, NUM_BATCHES, NUM_PARTS, SAMPLER, Case, Links, measure

GRAPHS = {
    "power-law": Synthetic("chung-lu", 200_000, 2_000_000, 128, train_fraction=0.5),
    "debian": Debian(),
}


def sent_mb(source: BatchSource) -> float:
    """Mean of what a sampler sends for a mini-batch."""
    slot = Slot(1 << 20)
    try:
        made = [source.make(BatchRequest(0, step, 0, 1), slot) for step in range(NUM_BATCHES)]
    finally:
        slot.close()
    pieces = [pieces_of(payload.header) for payload in made]
    return sum(sum(each[1::2]) - sum(each[::2]) for each in pieces) / NUM_BATCHES / 1e6


def rows_of(title: str, data: GraphData, folder: Path) -> list[str]:
    """Rows of the table, in Markdown."""
    workload = Workload(data.graph, SAMPLER, data.train, batch_size=BATCH_SIZE, order=Shuffled(), labels=data.y)
    source = BatchSource(data, workload)
    whole_mb, bare_mb = sent_mb(source), sent_mb(source.without_features())
    partition_graph(data, folder, NUM_PARTS, "random", hops=0, progress=False)
    partition = load_partition(folder)
    assert isinstance(partition, StoredPartition)
    with ExitStack() as stack:
        asked_mb = measure(data, partition, Links(partition, stack), Case("random", False, "ranks")).trainer_mb
    rows_mb = whole_mb - bare_mb
    found = {
        "machines that sample": (0.0, whole_mb),
        "owners": (asked_mb, 0.0),
        "owners, and machines that sample": (asked_mb, whole_mb),
        'the same, `gathered_by="trainers"`': (asked_mb, bare_mb),
    }
    return [
        f"| {title} | {name} | {owners:.1f} | {samplers:.1f} | {owners + samplers:.1f} | "
        f"{(owners + samplers) / rows_mb:.2f} |"
        for name, (owners, samplers) in found.items()
    ]


def main() -> None:
    print("| graph | arrangement | from owners, MB | from samplers, MB | sum | of the rows |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name, dataset in GRAPHS.items():
        dataset.prepare()
        with tempfile.TemporaryDirectory() as folder:
            print("\n".join(rows_of(name, dataset.load(), Path(folder) / "parts")), flush=True)


if __name__ == "__main__":
    main()

"""What 2 MB pages give to tables and graphs that users allocate, and float16 rows to the loader.

    python -m tests.benchmarks.pages                # G1, three minutes; 8 GB of memory

The same work on 4 KB and 2 MB pages in turns, in one process; and the loader over a tensor, on one thread, in a process
for each setting. All by processor time.
"""

from __future__ import annotations

import mmap
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

import numpy as np
import torch

from lightning_gnnload import Graph, GraphData, GraphDataModule, NeighborSampler, ops, quantize
from lightning_gnnload.host.huge_pages import SWITCH
from tests.benchmarks import machine
from tests.benchmarks.graphs import GRAPHS
from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.seeds import BATCH_SIZE, seeds_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.workers import Workers

TURNS, TABLE_BYTES, NUM_ROWS = 9, 1 << 30, 200_000
SETTINGS: dict[str, tuple[str, dict[str, str]]] = {
    "float32, 4 KB pages": ("float32", {SWITCH: "off"}),
    "float32": ("float32", {}),
    "float16": ("float16", {}),
    "float16, then `.float()`": ("float16 to float32", {}),
    "int8, float32 on arrival": ("int8", {}),
}


def on_small_pages(array: np.ndarray) -> np.ndarray:
    """A copy, as torch's memory lies where the system does not give all memory 2 MB pages."""
    memory = mmap.mmap(-1, array.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    copy = np.frombuffer(memory, array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def took_ms(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1e3


def compare(name: str, work: Callable[[Any, int], object], small: Any, large: Any) -> None:
    """``work(what, turn)`` on either; the first turn warms up."""
    pairs = [tuple(took_ms(partial(work, what, turn)) for what in (small, large)) for turn in range(TURNS)][1:]
    before, after = (median(side) for side in zip(*pairs, strict=True))
    times = median(four_kb / two_mb for four_kb, two_mb in pairs)
    print(f"| {name} | {before:.1f} | {after:.1f} | {times:.2f} |", flush=True)


def sampling() -> None:
    data = GRAPHS["g1"].load()
    arrays = (np.asarray(data.graph.indptr), np.asarray(data.graph.indices))
    graphs = [Graph(*map(place, arrays)) for place in (on_small_pages, on_huge_pages)]
    seeds = seeds_of_turn(data.train, 0, TURNS)
    for fanouts in ([15, 10, 5], [10, 25]):
        sampler = NeighborSampler(fanouts)

        def sample(graph: Graph, turn: int, sampler: NeighborSampler = sampler) -> None:
            sampler.sample(graph, seeds[turn], step=turn)

        compare(f"G1, fanouts {', '.join(map(str, fanouts))}, sampling", sample, *graphs)


def gathering() -> None:
    table = np.ones(TABLE_BYTES, np.uint8)
    tables = on_small_pages(table), on_huge_pages(table)
    del table
    out, draw = on_huge_pages(np.zeros(NUM_ROWS * 1024, np.uint8)), np.random.default_rng(0)
    for row_bytes in (64, 128, 256, 512, 1024):
        ids = draw.integers(0, TABLE_BYTES // row_bytes, (TURNS, NUM_ROWS))
        rows = out[: NUM_ROWS * row_bytes].reshape(NUM_ROWS, row_bytes)

        def gather(table: np.ndarray, turn: int, ids: np.ndarray = ids, rows: np.ndarray = rows) -> None:
            ops.gather_rows(table.reshape(-1, rows.shape[1]), ids[turn], rows)

        compare(f"{NUM_ROWS:,} rows of {row_bytes} bytes, of 1 GiB", gather, *tables)


class TensorLoader:
    """The loader over a tensor.

    Args:
        rows: its dtype, or "int8" for what :func:`quantize` makes; "float16 to float32" converts what arrives.
    """

    def __init__(self, rows: str) -> None:
        data = GRAPHS["g1"].load()
        graph = Graph(np.array(data.graph.indptr), np.array(data.graph.indices))
        x: Any = torch.rand(graph.num_nodes, 128)
        if rows == "int8":
            x = quantize(x, dtype=torch.float32, progress=False)
        elif rows != "float32":
            x = x.half()
        self._converts = rows == "float16 to float32"
        module = GraphDataModule(
            GraphData(graph, x, train=data.train),
            NeighborSampler([15, 10, 5]),
            batch_size=BATCH_SIZE,
            num_threads=0,
            drop_last=True,
        )
        self._batches = iter(module.train_dataloader())

    def load(self, num_batches: int) -> dict[str, float]:
        """Processor milliseconds a batch."""
        began = time.process_time()
        for batch in islice(self._batches, num_batches):
            if self._converts:
                batch.x.float()
        return {"ms": (time.process_time() - began) * 1e3 / num_batches}


def main() -> None:
    print(*machine.describe(), sep="\n")
    print("\n| one thread | 4 KB pages, ms | 2 MB pages, ms | times as fast |\n| --- | ---: | ---: | ---: |")
    sampling()
    gathering()
    print("\n| loader on G1, 15, 10, 5, one thread | ms a batch | times as fast |\n| --- | ---: | ---: |")
    times: dict[str, list[float]] = {name: [] for name in SETTINGS}
    with Workers() as workers:
        for turn in range(TURNS):
            for name in list(SETTINGS)[:: 1 if turn % 2 else -1]:
                rows, environment = SETTINGS[name]
                times[name].append(workers.get("pages", environment, rows=rows).call("load", num_batches=5)["ms"])
    for name, values in times.items():
        ratio = median(first / one for first, one in zip(times["float32"][1:], values[1:], strict=True))
        print(f"| {name} | {median(values[1:]):.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        serve(TensorLoader)
    else:
        main()

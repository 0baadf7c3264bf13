"""Mini-batches of a table on disk, one way, in a process of limited memory: ``python -m tests.benchmarks.packing_job``
with settings as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

FANOUTS = [10, 10]
EPOCHS = 6


def run(folder: str, way: str, packed: str, memory: int, batch_size: int, limit_s: float) -> dict[str, Any]:
    """Makes the mini-batches of some epochs by one thread, without a model.

    Args:
        folder: of the graph.
        way: "memory", the table in memory; a policy of a cache; "pack", which packs ahead; "packed", what that has
            packed; "floor", which only reads that; "beside", packed while mini-batches are made; "scanned", without
            room on the disk.
        packed: folder for packed rows.
        memory: bytes of the cache, or of packing.
        batch_size: seeds a step.
        limit_s: no more steps after so many seconds.
    """
    import torch

    from lightning_gnnload import FeatureCache, MemoryFeatureStore, NeighborSampler, load_graph_data
    from lightning_gnnload.cache.packed.ahead import pack_ahead
    from lightning_gnnload.cache.packed.open import open_packed
    from lightning_gnnload.cache.packed.rates import measure_rates
    from lightning_gnnload.cache.packed.settings import Packing
    from lightning_gnnload.data.orders.seeds import Shuffled
    from lightning_gnnload.pipeline.loader import SampledLoader
    from lightning_gnnload.pipeline.source import BatchSource
    from lightning_gnnload.plugin.module.packing import run_of
    from lightning_gnnload.sample.workload import Workload
    from tests.benchmarks.disk_graph import MARKS

    data = load_graph_data(folder, features="disk")
    assert data.x is not None
    workload = Workload(
        data.graph, NeighborSampler(FANOUTS), data.train, batch_size=batch_size, order=Shuffled(), end_epoch=EPOCHS
    )
    began, cpu_began = time.monotonic(), time.process_time()
    packing = Packing(packed, memory=memory, room=1 if way == "scanned" else "40GB", always=True)
    described = replace(run_of(data, workload, None, 1), progress=False)
    if way == "pack":
        rates = measure_rates([data.x], Path(folder), 16 << 20)
        cpu = time.process_time()
        done = pack_ahead(packing, described, range(EPOCHS))
        table = data.x.shape[0] * data.x.row_bytes
        at_rate_s = done.num_new * table / rates.read + done.num_bytes / rates.write
        return {
            "seconds": done.seconds,
            "cpu_s": time.process_time() - cpu,
            "bytes": done.num_bytes,
            "windows": done.num_new,
            "share_of_rate": at_rate_s / done.seconds,
            "rates": str(rates),
        }
    if way == "floor":
        return _read_alone(Path(packed))
    if way == "memory":
        store = MemoryFeatureStore(torch.empty(data.x.shape))
        for first in range(0, len(store.rows), 1 << 16):
            rows = store.rows[first : first + (1 << 16)]
            data.x.gather(torch.arange(first, first + len(rows)), rows)
        store.open()  # moves it to 2 MB pages
        stores = {"x": store}
    elif way in ("packed", "beside", "scanned"):
        stores = open_packed(packing, described)  # type: ignore[assignment]
    else:
        cache = FeatureCache(way, capacity_bytes=memory)
        stores = {"x": cache.open(data.x, workload, progress=False)}  # type: ignore[dict-item]
    loader = SampledLoader(BatchSource(data, workload, stores), num_threads=1)  # type: ignore[arg-type]
    opened_s, steps, cpu, started = time.monotonic() - began, 0, time.process_time(), time.monotonic()
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        with closing(iter(loader)) as batches:  # type: ignore[type-var]
            for batch in batches:
                if (
                    not (batch.x[:, 0] == batch.nodes % MARKS).all()
                    or not (batch.x[:, -1] == batch.nodes % MARKS).all()
                ):
                    raise AssertionError("other rows than were asked for")
                steps += 1
                if time.monotonic() - started > limit_s:
                    break
    result = {
        "steps": steps,
        "ms": (time.monotonic() - started) / steps * 1e3,
        "cpu_ms": (time.process_time() - cpu) / steps * 1e3,
        "opened_s": opened_s,
        "all_s": time.monotonic() - began,
        "all_cpu_s": time.process_time() - cpu_began,
        "reads": {tier: [rows, num_bytes] for tier, rows, num_bytes in loader.stats.reads},
    }
    for opened in stores.values():
        opened.close()
    return result


def _read_alone(packed: Path) -> dict[str, Any]:
    """Reads packed rows in order, as fast as the disk gives them, and does nothing with them."""
    from lightning_gnnload.cache.packed.scan import NUM_READERS, PIECE_BYTES
    from lightning_gnnload.host.direct import DirectFile, page_buffer
    from lightning_gnnload.host.threads import Threads

    num_bytes = steps = 0
    began, cpu = time.monotonic(), time.process_time()
    with Threads(NUM_READERS, "floor") as threads:
        for path in sorted(packed.glob("windows/*/rows.bin")):
            steps += len(json.loads((path.parent / "window.json").read_text())["counts"])
            file = DirectFile(lambda flags, path=path: os.open(path, os.O_RDONLY | flags), str(path))  # type: ignore[misc]
            size = path.stat().st_size
            buffers = [page_buffer(PIECE_BYTES) for _ in range(NUM_READERS)]

            def read(first: int, file: Any = file, size: int = size, buffers: Any = buffers) -> None:
                for begin in range(first * PIECE_BYTES, size, NUM_READERS * PIECE_BYTES):
                    count = min(PIECE_BYTES, size - begin)
                    file.read(begin, buffers[first][:count], count)

            for future in [threads.submit(read, first) for first in range(NUM_READERS)]:
                threads.result(future)
            file.close()
            num_bytes += size
    taken, cpu = time.monotonic() - began, time.process_time() - cpu
    times = {"ms": taken / steps * 1e3, "cpu_ms": cpu / steps * 1e3, "all_s": taken, "all_cpu_s": cpu}
    return {"steps": steps, "opened_s": 0.0, "reads": {"packed": [0, num_bytes]}, **times}


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    if procs := order.pop("procs"):
        Path(procs).write_text(str(os.getpid()))  # before anything large is imported
    print(json.dumps(run(**order)))

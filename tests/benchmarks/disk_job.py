"""One epoch from a table on disk, in a process of limited memory: ``python -m tests.benchmarks.disk_job JSON``."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

FANOUTS = [15, 10, 5]


def run(folder: str, features: str, cache: str | None, ratio: float, batch_size: int, limit_s: float) -> dict[str, Any]:
    """Makes the mini-batches of an epoch by two threads, as a loader does.

    Args:
        folder: of the graph.
        features: "disk" or "mapped".
        cache: a policy's name; "auto" for what the first steps leave of the memory, "quarter" for a quarter of what was
            free before them; None for none.
        ratio: of the rows cached.
        batch_size: seeds a step.
        limit_s: no more steps are begun after so many seconds.
    """
    from lightning_gnnload import NeighborSampler, load_graph_data
    from lightning_gnnload.cache.belady import BeladyCache
    from lightning_gnnload.cache.cache import FeatureCache
    from lightning_gnnload.cache.device.memory_use import allowance
    from lightning_gnnload.data.orders.seeds import Shuffled
    from lightning_gnnload.pipeline.slots import Slot
    from lightning_gnnload.pipeline.source import BatchSource
    from lightning_gnnload.plugin.module.probe import WARM_UP_STEPS, MachineMemory
    from lightning_gnnload.sample.workload import Workload
    from tests.benchmarks.disk_graph import MARKS

    data = load_graph_data(folder, features=features)  # type: ignore[arg-type]
    assert data.x is not None
    workload = Workload(data.graph, NeighborSampler(FANOUTS), data.train, batch_size=batch_size, order=Shuffled())
    before, began = _read_bytes(), time.monotonic()
    store = data.x
    if cache == "belady":
        store = BeladyCache(store, round(ratio * store.shape[0]), workload)
    elif cache == "auto":  # as a fit does, but that there is no model
        warm_up, slot = BatchSource(data, workload), Slot(1 << 20)
        for request in islice(workload.requests(0), WARM_UP_STEPS):
            warm_up.make(request, slot)
        left = allowance([MachineMemory(data.graph).use()])
        store = FeatureCache().open(store, workload, progress=True, left=left)
    elif cache == "quarter":
        store = FeatureCache().open(store, workload, progress=True)
    elif cache is not None:
        store = FeatureCache(cache, ratio=ratio).open(store, workload, progress=False)
    filled, began_epoch = _read_bytes(), time.monotonic()
    source, here = BatchSource(data, workload, {"x": store}), threading.local()
    requests, rows, taking = iter(list(workload.requests(0))), Counter[str](), threading.Lock()

    def work(_thread: int) -> int:
        here.slot, done = Slot(1 << 20), 0
        for request in _next(requests, taking):
            if time.monotonic() - began_epoch > limit_s:
                break
            payload = source.make(request, here.slot)
            batch = payload.view(here.slot.array)
            if not (batch.x[:, 0] == batch.nodes % MARKS).all() or not (batch.x[:, -1] == batch.nodes % MARKS).all():
                raise AssertionError("other rows than were asked for")
            with taking:
                rows.update({read.tier: read.rows for read in payload.reads})
            done += 1
        return done

    with ThreadPoolExecutor(2) as threads:
        done = sum(threads.map(work, range(2)))
    return {
        "steps": done,
        "of": workload.plan(1).num_steps,
        "epoch_s": time.monotonic() - began_epoch,
        "epoch_bytes": _read_bytes() - filled,
        "fill_s": began_epoch - began,
        "fill_bytes": filled - before,
        "rows": dict(rows),
        "resident_bytes": _peak_of_private_memory(),
    }


def _next(requests: Iterator[Any], taking: threading.Lock) -> Iterator[Any]:
    while True:
        with taking:
            request = next(requests, None)
        if request is None:
            return
        yield request


def _read_bytes() -> int:
    """What this process had the disk read, as the system counts it."""
    return int(re.findall(r"^read_bytes: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)[0])


def _peak_of_private_memory() -> int:
    """At the end, when buffers and caches have reached their size; a mapped file's pages are the system's."""
    return 1024 * int(re.findall(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)[0])


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    Path(order.pop("procs")).write_text(str(os.getpid()))  # before anything large is imported
    print(json.dumps(run(**order)))

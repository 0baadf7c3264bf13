"""One of two ranks that sample together over gloo: what the benchmark of collective sampling starts.

Arguments: rank, folder with the partition, kind of the graph, 1 for a quick run, batches. Writes what it measured.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from torch import distributed

from lightning_gnnload.sample.group.exchange import DistributedExchange
from lightning_gnnload.sample.parts.collective import open_colleagues
from lightning_gnnload.storage.partitions import load_partition
from tests.benchmarks import collective_cases as cases


def main(rank: int, folder: Path, kind: str, quick: bool, num_batches: int) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    group = distributed.new_group([0, 1])
    made = load_partition(folder / "parts")
    graph = cases.load(kind, quick).graph
    seeds = cases.seeds_of(made, rank, num_batches)
    measured: dict[str, dict[str, object]] = {}
    with open_colleagues(made, DistributedExchange(group)) as colleagues:
        for name, sampler in cases.SAMPLERS.items():
            measured[name] = {}
            for paradigm in cases.PARADIGMS:
                distributed.barrier()  # both sample alike, at once
                measured[name][paradigm] = asdict(cases.measure(sampler, colleagues, paradigm, seeds))
            distributed.barrier()
            measured[name]["alone_ms"] = cases.alone_ms(sampler, graph, seeds)
    (folder / f"measured-{rank}.json").write_text(json.dumps(measured))
    distributed.destroy_process_group()


if __name__ == "__main__":
    rank, folder, kind, quick, num_batches = sys.argv[1:]
    main(int(rank), Path(folder), kind, quick == "1", int(num_batches))

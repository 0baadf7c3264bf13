"""DGL's DataLoader beside ours of the same name: ``python -m tests.benchmarks.dgl_names``.

Variants alternate within one process, and each round begins with another one; figures are the least of all rounds, per
mini-batch of 1,024 seeds with fanouts 15, 10, 5 and 100 float32 features, which each side gathers ahead. Without
workers this is processor time, of all threads, as others may use the machine meanwhile. With two of them it is wall
time, which only a quiet machine tells.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

NODES, EDGES, WIDTH, BATCH, STEPS = 200_000, 4_000_000, 100, 1024, 12


def main() -> None:
    """Prints a table."""
    import dgl

    import lightning_gnnload.dgl as ours

    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.dgl_names")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0, help="of each side; ours are threads")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    draw = torch.Generator().manual_seed(0)
    g = dgl.graph((torch.randint(NODES, (EDGES,), generator=draw), torch.randint(NODES, (EDGES,), generator=draw)))
    g.ndata["feat"] = torch.randn(g.num_nodes(), WIDTH, generator=draw)
    g.create_formats_()
    clock = time.perf_counter if options.workers else time.process_time
    cases: dict[str, Callable[[Any], Any]] = {
        "nodes": lambda loading: loading.NeighborSampler([5, 10, 15], prefetch_node_feats=["feat"]),
        "nodes, LABOR": lambda loading: loading.LaborSampler([5, 10, 15], prefetch_node_feats=["feat"]),
        "edges, a negative each": lambda loading: loading.as_edge_prediction_sampler(
            loading.NeighborSampler([10, 15], prefetch_node_feats=["feat"]),
            exclude="self",
            negative_sampler=loading.negative_sampler.Uniform(1),
        ),
    }
    print(f"ms a mini-batch, {options.workers} workers, least of {options.rounds} rounds of {STEPS} mini-batches")
    for name, make in cases.items():
        best = dict.fromkeys(("DGL", "ours"), float("inf"))
        for number in range(options.rounds + 1):
            sides = [("DGL", dgl.dataloading), ("ours", ours)]
            for side, loading in sides[:: 1 if number % 2 else -1]:
                rows = torch.randperm(g.num_nodes(), generator=draw)[: BATCH * STEPS]
                loader = loading.DataLoader(g, rows, make(loading), batch_size=BATCH, num_workers=options.workers)
                began = clock()
                count = sum(1 for _ in loader)
                if number:  # the first round makes what is kept
                    best[side] = min(best[side], (clock() - began) / count * 1e3)
        print(f"{name:24} DGL {best['DGL']:7.1f}  ours {best['ours']:7.1f}  ratio {best['DGL'] / best['ours']:.2f}")


if __name__ == "__main__":
    main()

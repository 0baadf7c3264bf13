"""Clusters, random nodes and GraphSAINT's subgraphs: our loaders beside PyG's, without threads or workers.

    python -m tests.benchmarks.pyg_subgraphs

Figures are processor seconds of one process, in which both take turns; the ratio is the median of the turns'. PyG's
GraphSAINT samplers need torch-sparse, and are not there; so does its ClusterData, so that PyG's ClusterLoader reads
ours.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch_geometric.loader as pyg
from torch_geometric.data import Data

from lightning_gnnload import pyg as ours

NUM_NODES, NUM_EDGES, NUM_FEATURES, TURNS = 200_000, 4_000_000, 64, 5


def graph() -> Data:
    """A random graph whose nodes have features and labels, and whose edges have weights."""
    draws = torch.Generator().manual_seed(0)
    ends = torch.randint(NUM_NODES, (2, NUM_EDGES // 2), generator=draws)
    return Data(
        x=torch.randn(NUM_NODES, NUM_FEATURES, generator=draws),
        y=torch.randint(10, (NUM_NODES,), generator=draws),
        edge_index=torch.cat([ends, ends.flip(0)], dim=1),
        edge_weight=torch.rand(NUM_EDGES, generator=draws),
    )


def spent(loader: Any) -> float:
    """Processor milliseconds a mini-batch, over an epoch."""
    begin = time.process_time()
    num_batches = sum(1 for _ in loader)
    return 1000 * (time.process_time() - begin) / num_batches


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    data = graph()
    clusters = ours.ClusterData(data, 400, log=False, method="ldg")
    saint = {"batch_size": 2000, "num_steps": 20, "seed": 0}
    rows: dict[str, tuple[Any, Any]] = {
        "ClusterLoader, 400 clusters, 20 a mini-batch": (
            ours.ClusterLoader(clusters, batch_size=20, shuffle=True),
            pyg.ClusterLoader(clusters, batch_size=20, shuffle=True),
        ),
        "RandomNodeLoader, 20 parts": (
            ours.RandomNodeLoader(data, 20, shuffle=True),
            pyg.RandomNodeLoader(data, 20, shuffle=True),
        ),
        "GraphSAINTNodeSampler, 2000 edges": (ours.GraphSAINTNodeSampler(data, **saint), None),
        "GraphSAINTEdgeSampler, 2000 edges": (ours.GraphSAINTEdgeSampler(data, **saint), None),
        "GraphSAINTRandomWalkSampler, 2000 roots, 2 steps": (
            ours.GraphSAINTRandomWalkSampler(data, walk_length=2, **saint),
            None,
        ),
    }
    print("| loader | ours, ms a mini-batch | PyG's | PyG's / ours |", "| --- | --- | --- | --- |", sep="\n")
    for name, (own, peer) in rows.items():
        spent(own)  # what is made once
        turns = [(spent(own), spent(peer) if peer is not None else float("nan")) for _ in range(TURNS)]
        mine, theirs = (statistics.median(column) for column in zip(*turns, strict=True))
        ratio = statistics.median(their / my for my, their in turns)
        beside = "| - | - |" if peer is None else f"| {theirs:.1f} | {ratio:.1f} |"
        print(f"| {name} | {mine:.1f} {beside}", flush=True)


if __name__ == "__main__":
    main()

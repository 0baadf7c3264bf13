"""Bytes and rounds of a mini-batch that ranks sample together, by types, times and links.

    python -m tests.benchmarks.collective_rows

Four ranks, as threads; 1,024 seed rows of a graph of 200,000 users and 100,000 items, 4 million purchases, each both
ways, with times. Bytes are those that one rank moves.
"""

from __future__ import annotations

import tempfile
import threading
from typing import Any

import numpy as np

from lightning_gnnload import (
    Graph,
    GraphData,
    HGTSampler,
    Negatives,
    NeighborSampler,
    Sampler,
    SeedTable,
    partition_graph,
)
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.sample.base import Paradigm, nodes_of
from lightning_gnnload.sample.group.exchange import Exchange, ThreadExchange
from lightning_gnnload.sample.parts.collective import CollectiveSampler, open_colleagues
from lightning_gnnload.sample.seeds.links import LinkSettings, seed_kind

NUM_USERS, NUM_ITEMS, NUM_EDGES, NUM_ROWS, NUM_RANKS = 200_000, 100_000, 4_000_000, 1024, 4
BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")


def purchases(*, timed: bool) -> Graph:
    rng = np.random.default_rng(0)
    ends = [(size * rng.random(NUM_EDGES) ** 2).astype(np.int64) for size in (NUM_USERS, NUM_ITEMS)]
    times = rng.integers(0, 1_000_000, NUM_EDGES)
    described: dict[str, Any] = {"edge_time": {BUYS: times, BACK: times}} if timed else {}
    edges = {BUYS: (ends[0], ends[1]), BACK: (ends[1], ends[0])}
    return Graph.from_hetero({"user": NUM_USERS, "item": NUM_ITEMS}, edges, **described)


def rows(graph: Graph, *, links: bool) -> SeedTable:
    rng = np.random.default_rng(1)
    time: dict[str, Any] = {} if graph.clock is None else {"time": rng.integers(500_000, 1_000_000, NUM_ROWS)}
    if links:
        ends = {"src": rng.integers(0, NUM_USERS, NUM_ROWS), "dst": rng.integers(0, NUM_ITEMS, NUM_ROWS)}
        return SeedTable(**ends, edge_type=BUYS, **time)
    return SeedTable(rng.permutation(NUM_USERS)[:NUM_ROWS], node_type="user", **time)


CASES: dict[str, tuple[Sampler, bool, bool]] = {  # the sampler; whether there are times; whether rows are links
    "types, [10, 5] of each": (NeighborSampler([10, 5]), False, False),
    "types, rows that share nothing": (NeighborSampler([10, 5], sharing="disjoint"), False, False),
    "HGT, [512, 512] of each type": (HGTSampler([512, 512]), False, False),
    "times, [10, 5] of each": (NeighborSampler([10, 5]), True, False),
    "times along paths": (NeighborSampler([10, 5], order="path"), True, False),
    "links with 4 negatives, reverse left out": (NeighborSampler([10, 5]), True, True),
}


def moved(partition: Partition, sampler: Sampler, draw: Draw, paradigm: Paradigm) -> tuple[int, int, int]:
    """Returns the bytes that one rank moved for its mini-batch, its tasks to others, and the nodes that it found."""
    found: list[tuple[int, int, int]] = []

    def work(exchange: Exchange) -> None:
        with open_colleagues(partition, exchange) as colleagues:
            if exchange.rank:
                return
            collective = CollectiveSampler(sampler, colleagues, paradigm)
            nodes_of(collective, partition.outline, draw)  # which finds its memory too small, and begins again
            colleagues.traffic.clear()
            num_nodes = len(nodes_of(collective, partition.outline, draw))
            traffic = colleagues.traffic.values()
            found.append((sum(each.num_bytes for each in traffic), sum(each.num_tasks for each in traffic), num_nodes))

    threads = [threading.Thread(target=work, args=(exchange,)) for exchange in ThreadExchange.connect(NUM_RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [one] = found
    return one


def main() -> None:
    print("| rows of | nodes | rounds | MB pushed | MB pulled |\n| --- | --: | --: | --: | --: |")
    with tempfile.TemporaryDirectory() as folder:
        for timed in (False, True):
            graph = purchases(timed=timed)
            data = GraphData(graph, train=np.arange(1000))
            place = f"{folder}/{timed}"
            partition = partition_graph(data, place, NUM_RANKS, "random", hops=0, progress=False)
            for name, (sampler, is_timed, links) in CASES.items():
                if is_timed != timed:
                    continue
                settings = LinkSettings(Negatives("triplet", num=4) if links else None, "reverse" if links else None)
                asked = seed_kind(graph, sampler, rows(graph, links=links), settings)
                draw = asked.ask(np.arange(NUM_ROWS), DrawKey(1, 2, 3)).draw
                pushed, num_tasks, num_nodes = moved(partition, sampler, draw, "push")
                pulled, *_ = moved(partition, sampler, draw, "pull")
                rounds = num_tasks // (NUM_RANKS - 1)
                print(f"| {name} | {num_nodes:,} | {rounds} | {pushed / 1e6:.2f} | {pulled / 1e6:.1f} |", flush=True)


if __name__ == "__main__":
    main()

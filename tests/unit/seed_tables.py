"""Data whose training seeds are rows of a table, of each kind, and the sampler that goes with each."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lightning_gnnload import Graph, GraphData, Negatives, NeighborSampler, SeedTable
from lightning_gnnload.sample.seeds.links import LinkSettings

NUM_USERS, NUM_ITEMS = 120, 180
BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")
NUM_EDGES = 1500


def edge_lists(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, NUM_USERS, NUM_EDGES), rng.integers(0, NUM_ITEMS, NUM_EDGES)
    return *ends, rng.integers(0, 1000, NUM_EDGES)


def timed_graph(seed: int = 0) -> Graph:
    """Users buy items at times 0 to 999; a bought item knows its buyers, and a user what they bought, since then."""
    users, items, times = edge_lists(seed)
    return Graph.from_hetero(
        {"user": NUM_USERS, "item": NUM_ITEMS},
        {BUYS: (users, items), BACK: (items, users)},
        edge_time={BUYS: times, BACK: times},
        keep_order=True,
    )


def plain_graph(seed: int = 0, num_nodes: int = NUM_USERS + NUM_ITEMS) -> Graph:
    rng = np.random.default_rng(seed)
    return Graph.from_coo(*rng.integers(0, num_nodes, (2, 2400)), num_nodes=num_nodes, keep_order=True)


def rows_of(num_rows: int, **columns) -> dict[str, object]:
    """Labels and columns from which a row can be told."""
    site = torch.arange(2 * num_rows, dtype=torch.float64).view(num_rows, 2) / 8
    return {"y": torch.arange(num_rows) % 9, "weight": torch.arange(num_rows) / 4, "columns": {"site": site}, **columns}


def node_table(num_rows: int = 100, seed: int = 1, **columns) -> SeedTable:
    """Users that come several times, at several times."""
    rng = np.random.default_rng(seed)
    nodes = rng.integers(0, NUM_USERS // 2, num_rows)
    return SeedTable(nodes, **rows_of(num_rows, time=rng.permutation(1000)[:num_rows], **columns))


def link_table(num_rows: int = 100, seed: int = 1, **columns) -> SeedTable:
    rng = np.random.default_rng(seed)
    ends = {"src": rng.integers(0, NUM_USERS, num_rows), "dst": rng.integers(0, NUM_ITEMS, num_rows)}
    return SeedTable(**ends, **rows_of(num_rows, time=rng.integers(0, 1000, num_rows), **columns))


def kind_of_seeds(kind: str) -> tuple[GraphData, dict[str, Any]]:
    """Data with training rows of one kind, with features by which nodes can be told; and how they are sampled."""
    graph, links = plain_graph() if kind.startswith("plain") else timed_graph(), LinkSettings()
    if kind == "plain nodes":
        nodes = np.random.default_rng(1).permutation(graph.num_nodes)[:100]
        table, sampler = SeedTable(nodes, **rows_of(100, time=np.arange(100))), NeighborSampler([3, 2])
    elif kind == "plain links":
        table, sampler = link_table(), NeighborSampler([3, 2])
    elif kind == "links among negatives":
        rng = np.random.default_rng(2)
        edges = rng.permutation(NUM_EDGES)[:100]
        users, items, times = edge_lists()
        ends = {"src": users[edges], "dst": items[edges], "time": times[edges], "edge_ids": edges}
        table = SeedTable(**rows_of(100, **ends, edge_type="buys"))
        sampler, links = NeighborSampler([3, 2]), LinkSettings(Negatives("triplet", num=2), "reverse")
    elif kind == "disjoint nodes":
        table, sampler = node_table(node_type="user"), NeighborSampler([3, 2], before=None, sharing="disjoint")
    elif kind == "timed nodes":
        table, sampler = node_table(node_type="user"), NeighborSampler([3, 2], edge_ids=True)
    elif kind == "timed links":
        table, sampler = link_table(edge_type="buys"), NeighborSampler({BUYS: [3, 2], BACK: [2, 2]}, window=400)
    else:
        assert kind == "nodes of one time"
        table, sampler = node_table(node_type="user"), NeighborSampler([3, 2], sharing="time", before="<")
    x = torch.arange(graph.num_nodes).unsqueeze(1) + torch.arange(5) / 8
    return GraphData(graph, x, train=table), {"sampler": sampler, "links": links}


PLAIN_KINDS = ["plain nodes", "plain links"]
KINDS = [*PLAIN_KINDS, "disjoint nodes", "timed nodes", "timed links", "links among negatives", "nodes of one time"]

"""Arguments of the public functions, of which some went wrong."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np

from lightning_gnnload import Graph, GraphData, NeighborSampler, SeedTable
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.seeds.links import seed_kind
from tests.fuzz.data_ops import DATA
from tests.fuzz.sampling_ops import SAMPLING
from tests.fuzz.sound import INDICES, INDPTR, TYPES, Arguments
from tests.fuzz.spoil import spoil
from tests.fuzz.targets.stored_graphs import use

OPS = SAMPLING | DATA


def call_ops(random: Random, folder: Path) -> None:
    """One op with one or two arguments gone wrong."""
    name = random.choice(list(OPS))
    call, make = OPS[name]
    arguments = make(random)
    spoil(random, arguments)
    call(**arguments)


def build_graphs(random: Random, folder: Path) -> None:
    """A graph, its data, and a mini-batch of them, one of which went wrong; what can be built can be used."""
    arrays: Arguments = {"indptr": INDPTR, "indices": INDICES, "edge_weight": np.ones(6), "edge_type": TYPES}
    edges: Arguments = {"src": [0, 1, 2], "dst": [1, 2, 4], "num_nodes": random.choice([None, 5, 2**20])}
    build, arguments = random.choice([(Graph.from_csc, arrays), (Graph.from_coo, edges)])
    settings: Arguments = {
        "fanouts": random.choice([[2, -1], [{1: 2, 0: -1}]]) if build is Graph.from_csc else [2, -1],
        "replace": True,
        "expand": "new",
        "edge_ids": True,
    }
    request: Arguments = {"seeds": [0], "seed": 1, "epoch": 2, "step": 3}
    wrong = random.randrange(4)
    if wrong == 0:
        spoil(random, arguments)
    graph = build(**arguments)
    num_nodes = graph.num_nodes
    data: Arguments = {"x": np.ones((num_nodes, 3)), "y": np.zeros(num_nodes, int), "train": np.arange(1), "val": None}
    if wrong == 1:
        spoil(random, data)
    elif wrong > 1:
        spoil(random, settings if wrong == 2 else request)
    use(GraphData(graph, **data))
    NeighborSampler(**settings).sample(graph, **request)


def build_typed_graphs(random: Random, folder: Path) -> None:
    """A graph with types and times, its data and rows that ask at times, one of which went wrong."""
    buys, of = ("user", "buys", "item"), ("item", "of", "user")
    times = random.choice([np.array([5, 1, 3]), np.array([0.5, 1, 3]), np.array(["2020", "2021", "2031"], "M8[s]")])
    graph: Arguments = {"num_nodes": {"user": 2, "item": 3}}
    graph["edges"] = {buys: [np.array([0, 1, 1]), np.array([2, 2, 0])], of: np.array([[2, 0], [1, 1]])}
    graph |= {"edge_weight": {of: np.ones(2)}, "edge_time": {buys: times}, "node_time": {"item": times}}
    data: Arguments = {
        "x": {"item": np.ones((3, 2))},
        "y": {"user": np.array([0, 1])},
        "edge_x": {buys: np.ones((3, 2))},
    }
    table: Arguments = {
        "y": np.array([1, 0]),
        "time": times[:2],
        "weight": np.ones(2),
        "columns": {"a": np.ones((2, 3))},
    }
    if random.random() < 0.5:
        table |= {"nodes": np.array([2, 0]), "node_type": "item"}
    else:
        table |= {"src": np.array([1, 0]), "dst": np.array([0, 2, 2]), "dst_ptr": np.array([0, 1, 3])}
        table |= {"edge_type": buys, "edge_ids": np.array([2, 0, 1])}
    settings: Arguments = {"fanouts": [2], "window": random.choice([None, 2, 0.5]), "order": "path", "before": "<"}
    by_type = [held for held in graph.values() if random.random() < 0.5]  # what went wrong may lie within
    spoil(random, random.choice([graph, *by_type, data, *data.values(), table, settings]))
    built = Graph.from_hetero(**graph, keep_order=True)
    rows = SeedTable(**table)
    use(GraphData(built, train=rows, **data))
    seed_kind(built, NeighborSampler(**settings), rows).ask(np.arange(len(rows)), DrawKey(1, 2, 3))

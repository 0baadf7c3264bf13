"""A run that resumes in mid-epoch over other seeds, another graph or other settings says so."""

import warnings

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, GraphDataModule, Negatives, NeighborSampler, ProximityOrder, SeedTable
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.errors import CheckpointError

NUM_NODES = 400
SEEDS = np.arange(100)
LABELS = np.arange(NUM_NODES) % 3


def edges(seed=0):
    return np.random.default_rng(seed).integers(0, NUM_NODES, (2, 4000))


def module(graph=None, train=SEEDS, sampler=None, y=LABELS, tables=None, **settings):
    graph = Graph.from_coo(*edges(), NUM_NODES) if graph is None else graph
    data = GraphData(graph, x=torch.zeros(NUM_NODES, 1), y=y, train=train, tables=tables)
    settings = {"batch_size": 10, "num_threads": 0, **settings}
    return GraphDataModule(data, NeighborSampler([3, 2]) if sampler is None else sampler, **settings)


def state_of(module, steps=4):
    loader = module.train_dataloader()
    batches = iter(loader)
    for _ in range(steps):
        next(batches)
    return loader.state_dict()


def resumed(module, state):
    loader = module.train_dataloader()
    loader.load_state_dict(state)
    return loader


CHANGES = {
    "graph": {"graph": Graph.from_coo(*edges(1), NUM_NODES)},
    "seeds": {"train": SEEDS + 200},
    "num_seeds": {"train": SEEDS[:90]},
    "sampler": {"sampler": NeighborSampler([3, 3])},
    "order": {"order": "sequential"},
    "seed": {"seed": 1},
    "global_batch_size": {"batch_size": 5},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_named(what):
    state = state_of(module())
    with pytest.raises(CheckpointError, match=rf"after 4 steps of epoch 0.*\b{what}=.* then and .* now"):
        next(iter(resumed(module(**CHANGES[what]), state)))


def test_an_orders_settings_are_its_name():
    state = state_of(module(order=ProximityOrder(sequences=2)))
    with pytest.raises(CheckpointError, match=r"sequences=2.*sequences=4"):
        next(iter(resumed(module(order=ProximityOrder(sequences=4)), state)))


def test_times_and_targets_are_of_the_seeds():
    table = {"src": SEEDS, "dst": SEEDS + 1}
    state = state_of(module(train=SeedTable(**table)))
    for changed in ({"dst": SEEDS + 2}, {"src": SEEDS + 2}):
        with pytest.raises(CheckpointError, match="seeds="):
            next(iter(resumed(module(train=SeedTable(**table | changed)), state)))
    with pytest.raises(CheckpointError, match=r"sampler=.*exclude="):
        next(iter(resumed(module(train=SeedTable(**table), exclude=None), state)))


HARD = np.arange(200).reshape(100, 2)
EDGE_IDS = np.arange(100)
TWICE = edges()
TWICE[:, 100:200] = TWICE[:, :100]  # parallel edges, which their weights tell apart


class Window(NeighborSampler):
    """A sampler as a user writes one, whose ``repr`` leaves out what else it was made with."""

    def __init__(self, fanouts, starts):
        super().__init__(fanouts)
        self.starts = starts


class Rolled(SeedOrder):
    def __init__(self, by):
        self.by = by

    def order(self, seeds, *, seed, epoch):
        return np.roll(seeds, self.by)


def links(**more):
    return SeedTable(src=SEEDS, dst=SEEDS + 1, **more)


def weighted(factor):
    """Links that are edges of a graph, told apart by their order in its list alone where they are parallel."""
    graph = Graph.from_coo(*TWICE, NUM_NODES, edge_weight=np.arange(1.0, 4001), keep_order=True)
    order = graph.edge_order
    if factor == 2:
        graph.edge_order = np.where(order < 100, order + 100, np.where(order < 200, order - 100, order))
    return {"graph": graph, "train": SeedTable(src=TWICE[0, :100], dst=TWICE[1, :100], edge_ids=EDGE_IDS)}


def typed(back):
    ends = edges()[:, :1000]
    types = {("a", "to", "a"): ends, ("a", "one", "a"): ends[::-1], ("a", "two", "a"): ends[::-1]}
    graph = Graph.from_hetero({"a": NUM_NODES}, types, keep_order=True)
    table = SeedTable(src=ends[0, :100], dst=ends[1, :100], edge_ids=EDGE_IDS, edge_type=("a", "to", "a"))
    return {"graph": graph, "train": table, "reverse_types": {"to": back}}


PAIRS = {
    "columns": [{"train": links(columns={"negatives": HARD + n}), "negatives": Negatives("hard")} for n in (0, 1)],
    "columns of labels": [{"train": SeedTable(SEEDS, y=(SEEDS + n) % 2)} for n in (0, 1)],
    "columns by name": [{"train": SeedTable(SEEDS, columns={name: SEEDS})} for name in ("price", "discount")],
    "weights": [
        {"train": links(), "negatives": Negatives(weight="popular"), "tables": {"popular": torch.arange(400.0) + n}}
        for n in (0, 1)
    ],
    "reverse_types": [typed(back) for back in ("one", "two")],
    "edge_order": [weighted(n) for n in (1, 2)],
    "drop_last": [{"train": SEEDS[:95], "drop_last": n} for n in (False, True)],
    "labels": [{"order": "proximity", "y": np.arange(NUM_NODES) % n} for n in (2, 3)],
    "sampler": [{"sampler": Window([3, 2], np.array([n]))} for n in (1, 2)],
    "order": [{"order": Rolled(n)} for n in (1, 2)],
}


@pytest.mark.parametrize("what", PAIRS)
def test_what_else_shapes_mini_batches_is_compared(what):
    before, after = PAIRS[what]
    state = state_of(module(**before))
    assert next(iter(resumed(module(**before), state)))
    with pytest.raises(CheckpointError, match=rf"\b{what.split()[0]}=.* then and .* now"):
        next(iter(resumed(module(**after), state)))
    del state["settings"]  # as an older release left it
    if what not in ("sampler", "order"):
        assert next(iter(resumed(module(**after), state)))


def test_types_of_reverse_edges_may_be_named_otherwise():
    state = state_of(module(**typed("one")))
    full_names = {("a", "to", "a"): ("a", "one", "a")}
    assert next(iter(resumed(module(**typed("one") | {"reverse_types": full_names}), state)))


@pytest.mark.parametrize("what", [what for what in CHANGES if what != "global_batch_size"])
def test_who_knows_of_the_change_goes_on(what):
    state = state_of(module())
    loader = resumed(module(**CHANGES[what], on_resume_change="warn"), state)
    with pytest.warns(UserWarning, match=f"{what}="):
        rest = [batch.nodes.tolist() for batch in loader]
    whole = [batch.nodes.tolist() for batch in module(**CHANGES[what]).train_dataloader()]
    assert rest == whole[4:]


def test_what_changes_no_mini_batch_may_change():
    # The same graph with ids and weights of another width, other threads, labels and evaluation.
    src, dst = edges()
    same = Graph.from_coo(src.astype(np.int64), dst, NUM_NODES)
    same.indices = same.indices.astype(np.int64)
    state = state_of(module())
    other = module(same, y=2 - LABELS, num_threads=2, eval_batch_size=3, eval_sampler=NeighborSampler([1, 1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(resumed(other, state))) == 6


def test_a_step_beyond_the_epoch_is_an_error():
    state = state_of(module(), steps=9)
    few = module(train=SEEDS[:50], on_resume_change="warn")
    with pytest.raises(CheckpointError, match="after 9 steps of epoch 0, but an epoch has 5 now"):
        next(iter(resumed(few, state)))

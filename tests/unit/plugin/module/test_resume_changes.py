"""A run that resumes in mid-epoch over other seeds, another graph or other settings says so."""

import warnings

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, GraphDataModule, NeighborSampler, ProximityOrder, SeedTable
from lightning_gnnload.errors import CheckpointError

NUM_NODES = 400
SEEDS = np.arange(100)


def edges(seed=0):
    return np.random.default_rng(seed).integers(0, NUM_NODES, (2, 4000))


def module(graph=None, train=SEEDS, sampler=None, **settings):
    graph = Graph.from_coo(*edges(), NUM_NODES) if graph is None else graph
    data = GraphData(graph, x=torch.zeros(NUM_NODES, 1), y=np.arange(NUM_NODES) % 3, train=train)
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
    other = module(same, num_threads=2, eval_batch_size=3, eval_sampler=NeighborSampler([1, 1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(resumed(other, state))) == 6


def test_a_step_beyond_the_epoch_is_an_error():
    state = state_of(module(), steps=9)
    few = module(train=SEEDS[:50], on_resume_change="warn")
    with pytest.raises(CheckpointError, match="after 9 steps of epoch 0, but an epoch has 5 now"):
        next(iter(resumed(few, state)))

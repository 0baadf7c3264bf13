"""The ceiling: it has to read what the sampler read, no less."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload import NeighborSampler, Synthetic
from tests.benchmarks import replay
from tests.benchmarks.errors import BenchmarkError, Unavailable

FANOUTS = [4, 3]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    made = Synthetic("chung-lu", 3000, 30_000, num_features=0, train_fraction=0.5, root=tmp_path_factory.mktemp("g"))
    made.prepare()
    return made


@pytest.fixture
def ceiling(dataset, monkeypatch) -> replay.Replay:
    monkeypatch.setitem(replay.GRAPHS, "small", dataset)
    try:
        return replay.Replay("small")
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("expand", ["all", "new"])
def test_every_access_is_recorded_once(dataset, expand):
    data = dataset.load()
    seeds = data.train[:50]
    recorded = replay.record(data.graph, seeds, FANOUTS, expand, epoch=1, step=2)
    batch = NeighborSampler(FANOUTS, expand=expand).sample(data.graph, seeds, epoch=1, step=2)
    first, second = batch.blocks[1], batch.blocks[0]
    if expand == "all":
        assert len(recorded.destinations) == first.num_dst + second.num_dst
        assert len(recorded.positions) == first.num_edges + second.num_edges
    else:  # the second block holds the first's edges, too
        assert len(recorded.destinations) == second.num_dst
        assert len(recorded.positions) == second.num_edges
    assert np.array_equal(data.graph.indices[recorded.positions], recorded.numbered[len(seeds) :])
    assert list(dict.fromkeys(recorded.numbered.tolist())) == batch.nodes.tolist()


def test_replay_numbers_nodes_as_the_sampler_does(ceiling):
    seeds = ceiling.train[:50]
    for step in range(replay._NUM_BATCH_NUMBERS + 3):  # past the place where batch numbers start again
        recorded = replay.record(ceiling.graph, seeds, FANOUTS, "all", epoch=0, step=step % 5)
        ceiling._make_room([recorded])
        assert len(ceiling._one(recorded)) == 3
    degrees, neighbors, listed, local_ids = ceiling._out
    first_seen = {node: place for place, node in enumerate(dict.fromkeys(recorded.numbered.tolist()))}
    assert listed[: len(first_seen)].tolist() == list(first_seen)
    assert local_ids[: len(recorded.numbered)].tolist() == [first_seen[node] for node in recorded.numbered.tolist()]
    assert np.array_equal(degrees[: len(recorded.destinations)], ceiling.graph.in_degrees[recorded.destinations])
    assert np.array_equal(neighbors[: len(recorded.positions)], recorded.numbered[len(seeds) :])


def test_replay_of_another_batch_is_an_error(ceiling):
    recorded = replay.record(ceiling.graph, ceiling.train[:50], FANOUTS, "all")
    wrong = replay.Recorded(recorded.destinations, recorded.positions, recorded.numbered, recorded.num_nodes + 1)
    ceiling._make_room([wrong])
    with pytest.raises(BenchmarkError, match="the replay found"):
        ceiling._one(wrong)


def test_no_compiler_is_a_reason_and_no_fault(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(Unavailable, match="no C\\+\\+ compiler"):
        replay._compiled()

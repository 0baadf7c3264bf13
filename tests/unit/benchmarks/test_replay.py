"""The ceiling: it has to read what the sampler read, no less."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lightning_gnnload import NeighborSampler, Synthetic, WeightedNeighborSampler
from tests.benchmarks import replay, replay_typed
from tests.benchmarks.errors import BenchmarkError, Unavailable
from tests.benchmarks.typed_graph import Market

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


def record(ceiling, sampler, expand="all", seeds=50, **key):
    graph = ceiling._weighted if isinstance(sampler, WeightedNeighborSampler) else ceiling.graph
    return ceiling._record(sampler, graph, expand, ceiling.train[:seeds], **key)


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("kind", [NeighborSampler, WeightedNeighborSampler])
def test_every_access_is_recorded_once(ceiling, expand, kind):
    sampler = kind(FANOUTS, expand=expand, edge_ids=True)
    recorded = record(ceiling, sampler, expand, epoch=1, step=2)
    graph = ceiling.graph if kind is NeighborSampler else ceiling._weighted
    batch = sampler.sample(graph, ceiling.train[:50], epoch=1, step=2)
    first, second = batch.blocks[1], batch.blocks[0]
    # With expand="new" the second block holds the first's edges, too.
    num_dst, num_edges = (
        (first.num_dst + second.num_dst, first.num_edges + second.num_edges)
        if expand == "all"
        else (second.num_dst, second.num_edges)
    )
    assert list(recorded.reads) == ["indptr", *(["alias"] if kind is WeightedNeighborSampler else []), "adjacency"]
    assert len(recorded.reads["indptr"][1]) == 2 * num_dst
    indices, positions = recorded.reads["adjacency"]
    assert len(positions) == recorded.num_edges == num_edges
    assert np.array_equal(indices[positions], recorded.numbered[50:])
    assert list(dict.fromkeys(recorded.numbered.tolist())) == batch.nodes.tolist()


def test_replay_reads_and_numbers_as_the_sampler_does(ceiling):
    accesses, sampler = ceiling._accesses, NeighborSampler(FANOUTS, edge_ids=True)
    for step in range(replay._NUM_BATCH_NUMBERS + 3):  # past the place where batch numbers start again
        recorded = record(ceiling, sampler, epoch=0, step=step % 5)
        accesses._make_room([recorded])
        assert len(accesses._one(recorded)) == 3
    ends, neighbors, listed, local_ids = accesses._out
    first_seen = {node: place for place, node in enumerate(dict.fromkeys(recorded.numbered.tolist()))}
    assert listed.view(np.uint32)[: len(first_seen)].tolist() == list(first_seen)
    assert local_ids.view(np.uint32)[: len(recorded.numbered)].tolist() == [
        first_seen[node] for node in recorded.numbered.tolist()
    ]
    for out, (table, at) in zip((ends, neighbors.view(np.int32)), recorded.reads.values(), strict=True):
        assert np.array_equal(out[: len(at)], table[at])


def test_replay_of_another_batch_is_an_error(ceiling):
    recorded = record(ceiling, NeighborSampler(FANOUTS, edge_ids=True))
    with pytest.raises(BenchmarkError, match="the replay found"):
        ceiling._accesses.replay([dataclasses.replace(recorded, num_nodes=recorded.num_nodes + 1)])


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Market:
    made = Market(0.001, root=tmp_path_factory.mktemp("m"))
    made.prepare()
    return made


def test_what_types_and_times_read_is_recorded(market, monkeypatch):
    monkeypatch.setitem(replay_typed.TYPED_GRAPHS, "small", market)
    monkeypatch.setattr(replay_typed, "seeds_of_turn", lambda *_: np.arange(40)[None])
    monkeypatch.setattr(replay_typed, "times_of_turn", lambda span, *_: np.full((1, 40), sum(span) // 2))
    replayed: list[replay.Recorded] = []
    monkeypatch.setattr(replay.Accesses, "replay", lambda self, batches: replayed.extend(batches) or {})
    try:
        ceiling = replay_typed.TypedReplay("small")
    except Unavailable as reason:
        pytest.skip(str(reason))
    ceiling.replay(0, 1, FANOUTS, expand="new")
    ceiling.replay_timed(0, 1, FANOUTS, pick="uniform")
    for recorded in replayed:
        run_ptr, runs = recorded.reads["runs"]
        begin, end = run_ptr[runs[::2]], run_ptr[runs[1::2]]
        for name in ("adjacency", "times"):
            if name in recorded.reads:  # within the lists of the nodes that are expanded, and of nobody else
                positions = recorded.reads[name][1]
                order = np.argsort(begin, kind="stable")
                of = order[np.searchsorted(begin[order], positions, side="right") - 1]
                assert (positions < np.maximum.accumulate(end[order])[np.argsort(order)][of]).all()
    plain, timed = replayed
    assert np.array_equal(ceiling.graph.indices[plain.reads["adjacency"][1]], plain.numbered[40:])
    assert len(set(plain.numbered.tolist())) == plain.num_nodes
    assert len(timed.reads["times"][1]) >= timed.num_edges / max(FANOUTS)  # a search at least for each run
    assert len(timed.numbered) == 0


def test_no_compiler_is_a_reason_and_no_fault(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(Unavailable, match="no C\\+\\+ compiler"):
        replay._compiled()

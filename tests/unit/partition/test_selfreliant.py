import numpy as np
import pytest

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.partition import selfreliant
from lightning_gnnload.partition.balance import share_sizes
from lightning_gnnload.partition.partitioner import OPEN
from lightning_gnnload.partition.selfreliant import SelfReliant
from tests import oracle


def communities(num_communities: int, size: int, seed: int = 0) -> Graph:
    """Nodes ``c``, ``c + C``, ``c + 2 C``, ... of C communities, each node with four in-neighbours in its own."""
    rng = np.random.default_rng(seed)
    dst = np.repeat(np.arange(num_communities * size), 4)
    return Graph.from_coo(dst % num_communities + num_communities * rng.integers(0, size, len(dst)), dst)


def assign(graph: Graph, seeds: dict[str, np.ndarray], num_parts: int = 3, hops: int = 2, **settings) -> np.ndarray:
    told: list[tuple[str, float]] = []

    def advance(task: str, share: float) -> None:
        told.append((task, share))

    part = SelfReliant(**settings).assign(graph, seeds, num_parts, hops=hops, seed=5, advance=advance)
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert [f"Dealing out {phase} seeds" for phase in seeds] == list(dict.fromkeys(task for task, _ in told))
    assert part.dtype == np.int32
    assert part.shape == (graph.num_nodes,)
    return part


@pytest.mark.parametrize("stream", ["given", "shuffled", "degree", "proximity"])
def test_shares_of_each_phase_differ_by_one_at_most(stream: str) -> None:
    graph = communities(4, 50)
    ids = np.random.default_rng(0).permutation(graph.num_nodes)
    seeds = {"train": ids[:61], "val": ids[61:80], "test": ids[50:100]}  # some in two phases
    part = assign(graph, seeds, stream=stream)
    for phase in ("train", "val"):
        assert np.bincount(part[seeds[phase]], minlength=3).tolist() == share_sizes(len(seeds[phase]), 3).tolist()
    assert (part[ids[100:]] == OPEN).all()
    assert (part[seeds["test"]] != OPEN).all()
    again = assign(graph, seeds, stream=stream)
    np.testing.assert_array_equal(part, again)


def test_it_is_the_stream_of_the_oracle_whatever_the_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = communities(4, 50)
    seeds = np.random.default_rng(0).permutation(graph.num_nodes)[:60]
    wanted = oracle.deal_seeds(
        graph.indptr, graph.indices, seeds, share_sizes(60, 3), [(set(), set()) for _ in range(3)], hops=2
    )
    for max_edges in (1, 100, 1 << 27):
        monkeypatch.setattr(selfreliant, "_SLICE_EDGES", max_edges)
        assert assign(graph, {"train": seeds})[seeds].tolist() == wanted
    # Three hops would be scored by two; one is another partition.
    assert assign(graph, {"train": seeds}, hops=3)[seeds].tolist() == wanted
    assert assign(graph, {"train": seeds}, hops=1)[seeds].tolist() != wanted
    assert assign(graph, {"train": seeds}, hops=1, score_hops=2)[seeds].tolist() == wanted
    assert assign(graph, {"train": seeds}, overlap="nodes")[seeds].tolist() != wanted


def stars(num_hubs: int, size: int) -> Graph:
    """Node ``c`` of the first C is the one in-neighbour of ``c + C``, ``c + 2 C``, ..."""
    dst = np.arange(num_hubs, num_hubs * size)
    return Graph.from_coo(dst % num_hubs, dst)


def test_what_has_an_in_neighbour_in_common_comes_together() -> None:
    part = assign(stars(3, 20), {"train": np.arange(60)})
    # The hubs come first, and to three parts, of smallest PV each; then each of the others has its hub in one of them.
    assert part.tolist() == [0, 1, 2] * 20


def test_orders_of_the_stream() -> None:
    graph = Graph.from_coo([1, 2, 3, 0, 2, 0], [0, 0, 0, 1, 1, 2])
    ids = np.array([3, 2, 0, 1])
    ordered = {stream: SelfReliant(stream=stream)._ordered(graph, ids, 0).tolist() for stream in ("given", "degree")}
    assert ordered == {"given": [3, 2, 0, 1], "degree": [0, 1, 2, 3]}
    for stream in ("shuffled", "proximity"):
        orders = [tuple(SelfReliant(stream=stream)._ordered(graph, ids, seed)) for seed in range(20)]
        assert {tuple(sorted(order)) for order in orders} == {(0, 1, 2, 3)}
        assert len(set(orders)) > 1
        assert SelfReliant(stream=stream)._ordered(graph, ids[:0], 0).size == 0


def test_an_interrupt_comes_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfreliant, "_SLICE_EDGES", 1)
    calls = []

    def advance(task: str, share: float) -> None:
        calls.append(share)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SelfReliant().assign(communities(2, 9), {"train": np.arange(9)}, 2, hops=1, seed=0, advance=advance)
    assert calls == [0, 1 / 9, 2 / 9]


def test_no_seeds_and_fewer_seeds_than_parts() -> None:
    graph = communities(2, 9)
    none = np.empty(0, np.int64)
    assert (assign(graph, {"train": none}) == OPEN).all()
    assert sorted(assign(graph, {"train": np.array([4, 7]), "val": none})[[4, 7]]) == [1, 2]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"score_hops": 0}, "score_hops is 0"),
        ({"score_hops": 1.5}, "must be an integer"),
        ({"overlap_weight": -1}, "overlap_weight is -1"),
        ({"smoothing": 65536}, "smoothing is 65536"),
        ({"overlap": "edges"}, "no overlap 'edges'"),
        ({"stream": "random"}, "no stream 'random'; give one of 'given', 'shuffled'"),
    ],
)
def test_settings_out_of_range(settings: dict, words: str) -> None:
    with pytest.raises(PartitionError, match=words):
        SelfReliant(**settings)

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, NeighborSampler, load_graph_data, save_graph_data
from lightning_gnnload.data.origin import Origin
from lightning_gnnload.datasets.random_edges import Pairs, chung_lu, citations, simple_graph
from lightning_gnnload.errors import DeviceMemoryError, SamplerConfigError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device, Mapped
from lightning_gnnload.ops.cuda.sampling.neighbors import sample_neighbors
from lightning_gnnload.ops.cuda.sampling.topology import OFFSET_BITS, Topology
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from lightning_gnnload.sample.device import graph_placement, hotness
from lightning_gnnload.sample.device.placement import budget_alone, budget_beside_model, place
from tests.unit.toy import toy_graph

from .small_device import SmallDevice

GRAPH = toy_graph()  # 300 nodes, 2,400 edges of 4 bytes
NODE_BYTES, BEGIN_BYTES, LIST_BYTES = 8 * 301, 8 * 300, 4 * 2400
SEEDS = [17, 3, 250, 99]
WHOLE, HOT, OFFSETS, HOST = "whole", "hot", "offsets", "host"
BUDGETS = {
    WHOLE: NODE_BYTES + LIST_BYTES,
    HOT: NODE_BYTES + BEGIN_BYTES + LIST_BYTES // 4,
    OFFSETS: NODE_BYTES + BEGIN_BYTES,
    HOST: NODE_BYTES - 1,
}


def held(values: torch.Tensor | Mapped) -> np.ndarray:
    """The array itself where it is the host's, else a copy."""
    return (values.tensor if isinstance(values, Mapped) else values.cpu()).numpy()


def lists(topology: Topology, of_edges: str = "indices") -> list[list[int]]:
    """Each node's list, read as kernels read it."""
    indptr, cold = held(topology.indptr), held(getattr(topology, of_edges))
    found = []
    for node in range(topology.num_nodes):
        degree = int(indptr[node + 1] - indptr[node])
        at = -1 if topology.location is None else int(topology.location[node])
        if at >= 0 and degree:
            shards = held(getattr(topology, "shards" if of_edges == "indices" else f"{of_edges}_shards"))
            begin = int(shards[at >> OFFSET_BITS]) + (at % 2**OFFSET_BITS) * cold.itemsize
            found.append(np.frombuffer(ctypes.string_at(begin, degree * cold.itemsize), cold.dtype).tolist())
        else:
            found.append(cold[indptr[node] :][:degree].tolist())
    return found


def in_shards(topology: Topology) -> np.ndarray:
    """Which lists lie in some shard, bool ``[N]``."""
    return held(topology.location) >= 0


def num_hot(topology: Topology) -> int:
    """Of edges in shards."""
    return int(np.diff(held(topology.indptr))[in_shards(topology)].sum())


def spoil(topology: Topology) -> None:
    """Overwrites the mapped lists of hot nodes: who reads those gets others."""
    assert isinstance(topology.indices, Mapped), "only the host's memory can be changed here"
    indptr, cold = held(topology.indptr), held(topology.indices)
    for node in np.flatnonzero(in_shards(topology)):
        cold[indptr[node] : indptr[node + 1]] = -1


def place_of(topology: Topology) -> str:
    if isinstance(topology.indptr, Mapped):
        return HOST
    if not isinstance(topology.indices, Mapped):
        return WHOLE
    return OFFSETS if topology.location is None else HOT


def graph_of(index: type = np.int32, **more: object) -> Graph:
    return Graph(GRAPH.indptr, GRAPH.indices.astype(index), **more)


def in_lists(of_edges: np.ndarray) -> list[list[int]]:
    return [each.tolist() for each in np.split(of_edges, GRAPH.indptr[1:-1])]


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("where", BUDGETS)
def test_wherever_lists_lie_they_are_the_graphs(where: str, index: type) -> None:
    graph, bytes_each = graph_of(index), np.dtype(index).itemsize
    budget = BUDGETS[where] + {WHOLE: 2400, HOT: 600}.get(where, 0) * (bytes_each - 4)
    device = SmallDevice(total_bytes=budget)
    topology = place(graph, device, budget_bytes=budget)
    assert place_of(topology) == where
    assert device.used_bytes <= budget
    assert (topology.num_nodes, topology.num_edges, topology.max_degree) == (300, 2400, graph.in_degrees.max())
    assert topology.index_type == np.dtype(index).name + "_t"
    assert topology.names is None
    assert topology.table is None
    if where == HOT:  # the room is used but for less than a list
        assert 600 - graph.in_degrees.max() < num_hot(topology) <= 600
        spoil(topology)
    assert lists(topology) == in_lists(GRAPH.indices)
    assert (device.num_synchronized, device.num_reads) == (1, 0)  # before another stream reads it


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize("where", BUDGETS)
def test_batches_are_the_same_wherever_lists_lie(where: str, is_file: bool, device: Device, tmp_path: Path) -> None:
    graph = graph_of()
    if is_file:
        save_graph_data(GraphData(graph, torch.zeros(300, 1)), tmp_path / "graph")
        graph = load_graph_data(tmp_path / "graph").graph
    topology = place(graph, device, budget_bytes=BUDGETS[where])
    assert place_of(topology) == where
    wanted = NeighborSampler([4, -1]).sample(GRAPH, SEEDS, 1, 2, 3)
    if where == HOT and not is_file:
        spoil(topology)
    num_reads = device.num_reads
    workspace = DeviceWorkspace(device, graph.num_nodes)
    sample = sample_neighbors(workspace, topology, np.array(SEEDS), [4, -1], DrawKey(1, 2, 3))
    assert device.num_reads == num_reads + 2  # one more for the hop that takes all
    assert sample.nodes.tolist() == wanted.nodes.tolist()
    for hop, block in zip(sample.hops, reversed(wanted.blocks), strict=True):
        assert hop.indptr.tolist() == block.indptr.tolist()
        assert hop.indices.tolist() == block.indices.tolist()


@pytest.mark.parametrize("where", BUDGETS)
def test_alias_tables_and_names_lie_with_the_lists(where: str) -> None:
    rng = np.random.default_rng(1)
    names = rng.permutation(1000)[:300].astype(np.int64)
    origin = Origin(names, np.ones(300, np.uint8), GRAPH.indptr[:-1].copy())
    graph = graph_of(edge_weight=rng.random(2400), origin=origin)
    more = names.nbytes + {WHOLE: 8 * 2400, HOT: 8 * 600}.get(where, 0)
    topology = place(graph, SmallDevice(), weighted=True, budget_bytes=BUDGETS[where] + more)
    assert place_of(topology) == where
    assert held(topology.names).tolist() == names.tolist()
    assert isinstance(topology.names, Mapped) == (where == HOST)
    if where == HOT:
        spoil(topology)
    assert lists(topology) == in_lists(GRAPH.indices)
    assert lists(topology, "table") == in_lists(graph.alias_table.entries.view(np.int64))


@pytest.mark.parametrize(
    ("pairs", "symmetric", "share"),
    [
        # Cited works are cited by far more than they cite; where edges go both ways, longer lists are read more.
        (citations(np.zeros(5000, int), 50_000, exponent=2.2, homophily=0.5, seed=1), False, 0.4),
        (chung_lu(5000, 50_000, exponent=2.2, max_degree=1500, seed=3), True, 0.15),
    ],
    ids=["citations", "symmetric"],
)
def test_hot_lists_serve_a_larger_share_of_reads_than_of_bytes(pairs: Pairs, symmetric: bool, share: float) -> None:
    graph = simple_graph(pairs, 5000, 50_000, symmetric=symmetric)
    visits, reads = visits_and_reads(graph, NeighborSampler([10, 5, 5]))
    tenth = graph.num_edges // 10
    budget = graph.indptr.nbytes + 8 * graph.num_nodes + 4 * tenth
    for known in (None, visits):
        topology = place(graph, SmallDevice(), budget_bytes=budget, hotness=known)
        assert num_hot(topology) <= tenth
        served = reads[in_shards(topology)].sum() / reads.sum()
        assert served > share
    by_degree = hotness.hottest_lists(graph, graph.in_degrees**2.0, tenth)
    assert reads[by_degree].sum() / reads.sum() < share / 3  # the longest lists are no substitute


def visits_and_reads(graph: Graph, sampler: NeighborSampler) -> tuple[np.ndarray, np.ndarray]:
    """Of each node's list, and how many of its entries were read, in ten mini-batches."""
    visits, reads = np.zeros(graph.num_nodes), np.zeros(graph.num_nodes)
    seeds = np.random.default_rng(5).permutation(graph.num_nodes)[:1000]
    for step, batch_seeds in enumerate(np.split(seeds, 10)):
        batch = sampler.sample(graph, batch_seeds, step=step)
        for block in batch.blocks:
            visits[batch.nodes[: block.num_dst].numpy()] += 1
            np.add.at(reads, batch.nodes[: block.num_dst].numpy(), block.in_degrees.numpy())
    return visits, reads


def test_expected_visits_by_hand() -> None:
    # Node 0 has neighbours 1, 2, 2; node 3 has neighbour 2; the others have none.
    graph = Graph.from_coo(src=[1, 2, 2, 2], dst=[0, 0, 0, 3])

    def twice(expected_draws: float) -> float:
        """As a seed, and as a destination of the second hop: a seed still, or drawn by seeds."""
        return 0.1 + 1 - 0.9 * np.exp(-0.1 * expected_draws)

    for fanout, draws in ((1, [0, 1 / 3, 5 / 3, 0]), (3, [0, 1, 3, 0])):
        visits = hotness.expected_visits(graph, fanout, num_hops=2, seed_share=0.1)
        assert visits.tolist() == pytest.approx([twice(each) for each in draws])
    assert hotness.expected_reads(graph, np.array([1, 9, 9, 2]), fanout=2).tolist() == [2, 0, 0, 2]


def test_edges_come_in_chunks_whatever_the_lists() -> None:
    indptr = np.array([0, 0, 7, 7, 8, 8, 12, 12])  # lists longer than a chunk, and none
    for size in (1, 2, 3, 5, 12, 100):
        chunks = list(hotness.chunked_edges(indptr, size))
        assert [each.begin for each in chunks] == list(range(0, 12, size))
        nodes = np.concatenate([each.spread(np.arange(7)) for each in chunks])
        assert nodes.tolist() == [1] * 7 + [3] + [5] * 4
    assert list(hotness.chunked_edges(np.zeros(4, np.int64))) == []


def test_lists_that_do_not_fit_leave_their_room_to_others() -> None:
    graph = Graph.from_csc(np.array([0, 10, 13, 15, 15, 19]), np.zeros(19, np.int64))
    reads = np.array([100.0, 9, 4, 5, 4])  # an edge: 10, 3, 2, no list, 1
    assert hotness.hottest_lists(graph, reads, 19).tolist() == [True, True, True, False, True]
    assert hotness.hottest_lists(graph, reads, 9).tolist() == [False, True, True, False, True]
    assert hotness.hottest_lists(graph, reads, 8).tolist() == [False, True, True, False, False]
    assert hotness.hottest_lists(graph, reads, 1).tolist() == [False] * 5


@pytest.mark.parametrize("budget", [0, 1 << 20])
@pytest.mark.parametrize("num_nodes", [0, 3])
def test_a_graph_without_edges(num_nodes: int, budget: int) -> None:
    graph = Graph.from_coo([], [], num_nodes=num_nodes)
    topology = place(graph, SmallDevice(), budget_bytes=budget)
    assert lists(topology) == [[]] * num_nodes
    assert topology.max_degree == 0


def test_large_arrays_are_copied_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_placement, "_CHUNK_BYTES", 1000)
    device = SmallDevice()
    assert lists(place(GRAPH, device)) == in_lists(GRAPH.indices)
    assert device.largest_put == 1000


def test_bars_tell_of_each_array() -> None:
    told: list[tuple[str, int, int]] = []

    @contextmanager
    def bar(title: str, total: int, *, show: bool) -> Iterator[Callable[[int], None]]:
        done: list[int] = []
        yield done.append
        if show:
            told.append((title, total, sum(done)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_placement, "progress_bar", bar)
        topology = place(GRAPH, SmallDevice(), budget_bytes=BUDGETS[HOT], progress=True)
        num_edges = num_hot(topology)
        assert told == [
            ("Ranking lists", 2400, 2400),
            ("Placing locations of lists", 300, 300),
            ("Placing lists in the shard", num_edges, num_edges),
            ("Placing offsets", 301, 301),
        ]
        place(GRAPH, SmallDevice())
        assert len(told) == 4  # silent unless it is asked for


def test_what_the_device_says_is_free_it_need_not_give() -> None:
    device = SmallDevice(total_bytes=BUDGETS[WHOLE] - 1, says_free=1 << 30)
    topology = place(graph_of(), device)
    assert lists(topology) == in_lists(GRAPH.indices)
    assert place_of(topology) == HOST
    assert "are left" in topology.about


def test_pages_of_a_file_are_copied_where_they_cannot_be_locked() -> None:
    graph = graph_of()
    topology = place(graph, SmallDevice(total_bytes=0, locks_read_only=False), budget_bytes=0)
    assert place_of(topology) == HOST
    assert topology.indices.address != graph.indices.ctypes.data
    assert lists(topology) == in_lists(GRAPH.indices)
    in_place = place(graph, SmallDevice(total_bytes=0), budget_bytes=0)
    assert in_place.indices.address == graph.indices.ctypes.data


def test_memory_that_cannot_be_locked_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DeviceMemoryError, match=r"takes 11\.7 KiB, of which cpu may hold 3 B.*ulimit -l.*'cpu'"):
        place(graph_of(), SmallDevice(lockable_bytes=100), budget_bytes=3)


@pytest.mark.parametrize("values", [np.ones(299), np.ones((300, 1)), np.full(300, -1), np.full(300, np.nan)])
def test_hotness_is_a_number_of_visits_a_node(values: np.ndarray) -> None:
    with pytest.raises(SamplerConfigError, match="hotness"):
        place(GRAPH, SmallDevice(), budget_bytes=BUDGETS[HOT], hotness=values)


def test_a_device_that_only_samples_gives_nearly_all() -> None:
    device = SmallDevice(total_bytes=80 << 30)
    assert budget_beside_model(device) == 40 << 30
    assert budget_alone(device) == 76 << 30
    assert budget_alone(SmallDevice(total_bytes=1 << 20)) == 0


def test_a_line_says_what_lies_where() -> None:
    about = [place(graph_of(), SmallDevice(), budget_bytes=budget).about for budget in BUDGETS.values()]
    assert about[0] == "Graph: all of it, 11.7 KiB, on cpu."
    assert "lists of" in about[1]
    assert "% of reads, on cpu; all lists, 9.4 KiB, in page-locked host memory, as 11.7 KiB are needed" in about[1]
    assert about[2].startswith("Graph: offsets, 2.4 KiB, on cpu; all lists, 9.4 KiB, in page-locked host memory")
    assert about[3].startswith("Graph: all of it, 11.7 KiB, in page-locked host memory, read by cpu")

"""Graphs whose lists several ranks hold for each other: mini-batches are the CPU's, and failures have names."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import Graph, LayerSampler, NeighborSampler, RandomWalkSampler, Sampler, WeightedNeighborSampler
from lightning_gnnload.cache.device.shared_lists import SharedLists, place_together
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.errors import CacheShareError, DeviceMemoryError, DeviceShareError
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.cuda.launch.device import Mapped
from lightning_gnnload.ops.cuda.sampling.topology import OFFSET_BITS, Topology
from lightning_gnnload.sample.base import draw_here
from lightning_gnnload.sample.device.graph_placement import GraphPlacement
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler
from lightning_gnnload.sample.seeds.rows import NodeSeeds
from tests.ops.graphs import read_batch

from .emulated import EmulatedDevice
from .fake_runtime import FakeRuntime
from .ranks import as_sharers, wait_until
from .sampled import assert_equal
from .small_device import SmallDevice
from .test_typed_batches import wide_graph


def hubs(num_nodes: int = 90, **more: Any) -> Graph:
    """Two hubs, many lists of a few entries, and nodes without any."""
    rng = np.random.default_rng(4)
    dst = np.concatenate([np.zeros(150, int), np.full(99, 7), rng.integers(10, 60, 1500)])
    src = rng.integers(0, num_nodes, len(dst))
    return Graph.from_coo(src, dst, num_nodes=num_nodes, **more)


WEIGHTS = np.exp(3 * np.random.default_rng(2).standard_normal(1749)) * (np.arange(1749) % 5 > 0)
GRAPHS = {
    "hubs": hubs(),
    "weighted": hubs(edge_weight=WEIGHTS),
    "typed": wide_graph(),
    "timed": wide_graph(timed=True),
    "typed, weighted": wide_graph(weighted=True),
    "two lists": Graph.from_coo(np.arange(400) % 40, np.arange(400) % 2),
    "no list": Graph.from_coo([], [], num_nodes=5),
}
SAMPLERS: dict[str, Sampler] = {
    "hubs": NeighborSampler([5, -1, 2], edge_ids=True),
    "walks": RandomWalkSampler(num_layers=2, num_neighbors=4),
    "layers": LayerSampler([20, 9], "ladies", edge_ids=True),
    "weighted": WeightedNeighborSampler([5, 3], edge_ids=True),
    "typed": NeighborSampler([{"buys": 4, "seen_by": -1}, 3], edge_ids=True),
    "timed": NeighborSampler([{"buys": 4, "seen_by": -1}, 3], edge_ids=True),
    "typed, weighted": WeightedNeighborSampler([3, {"buys": 5, "seen_by": -1}], edge_ids=True),
    "two lists": NeighborSampler([50, 3]),
    "no list": NeighborSampler([2, 2]),
}
KEY = DrawKey(1, 0, 5)


def gpu(membership: Membership, **settings: Any) -> FakeRuntime:
    """Each rank's own GPU, of which each numbers its own as 0."""
    names = [f"gpu-{(membership.index + other) % membership.count}" for other in range(membership.count)]
    return FakeRuntime(names, **settings)


def budget_of(graph: Graph, share: float, weighted: bool = False) -> int:
    """So much that a shard has room for this share of the edges."""
    placement = GraphPlacement.of(graph, SmallDevice(), 0, weighted=weighted)
    budget = int(share * graph.num_edges)
    while placement.room(budget) < share * graph.num_edges:
        budget += 1
    return budget


def asked(graph: Graph, sampler: Sampler) -> Draw:
    seeds = np.arange(min(graph.num_nodes, 20))
    return NodeSeeds(graph, sampler, seeds).ask(seeds, KEY).draw


def held(topology: Topology) -> dict[str, Any]:
    """How many lists, of those with edges, lie where."""
    own = topology.memory.shards.own_shard if isinstance(topology.memory, SharedLists) else 0
    location = np.full(topology.num_nodes, -1) if topology.location is None else topology.location.numpy()
    with_edges = np.diff(_array(topology.indptr)) > 0
    shard = np.where(location >= 0, location >> OFFSET_BITS, -1)[with_edges]
    return {
        "own": int((shard == own).sum()),
        "others": int((shard >= 0).sum() - (shard == own).sum()),
        "nowhere": int((shard < 0).sum()),
        "mapped": isinstance(topology.indices, Mapped),
        "about": topology.about,
    }


def _array(placed: Any) -> np.ndarray:
    return (placed.tensor if isinstance(placed, Mapped) else placed).numpy()


def drawn(
    membership: Membership, graph: Graph, sampler: Sampler, share: float, *, budget: int | None = None, **settings: Any
) -> dict[str, Any]:
    """What a rank has placed, after it drew what the CPU draws; nothing is held then."""
    weighted = sampler.weighting == "always"
    device = EmulatedDevice(seed=membership.index, num_processors=1 + membership.index)
    runtime = gpu(membership, **settings)
    wanted = read_batch(*draw_here(sampler, graph, asked(graph, sampler))[::-1])
    budget = budget_of(graph, share, weighted) if budget is None else budget
    fds = set(os.listdir("/proc/self/fd"))
    with membership.connect() as peers:
        topology = place_together(graph, device, peers, runtime, weighted=weighted, budget_bytes=budget)
        if topology.location is not None:  # whoever reads a list of a shard in the host's memory is found out
            for name in ("indices", "table", "edge_time"):
                if isinstance(mapped := getattr(topology, name), Mapped):
                    in_shards = np.repeat(topology.location.numpy() >= 0, graph.in_degrees)
                    mapped.tensor.numpy()[in_shards] = 0
        assert_equal(DeviceSampler(sampler, topology, device).sample(asked(graph, sampler)), wanted)
        peers.all_gather({})  # nobody closes what others read
    if topology.memory is not None:
        topology.memory.close()
        topology.memory.close()
    assert runtime.num_held == 0
    assert set(os.listdir("/proc/self/fd")) <= fds
    return held(topology)


def seen(count: int, kind: str, share: float, sampler: Sampler | None = None, **settings: Any) -> list[dict[str, Any]]:
    graph, sampler = GRAPHS[kind], sampler or SAMPLERS[kind]
    compiled(graph, sampler)
    ends = as_sharers(count, lambda membership: drawn(membership, graph, sampler, share, **settings))
    assert [end.status for end in ends] == [0] * count, ends
    return [end.value for end in ends]


def compiled(graph: Graph, sampler: Sampler) -> None:
    """Compiles the kernels, which the ranks then load."""
    device = EmulatedDevice()
    topology = place(graph, device, weighted=sampler.weighting == "always", budget_bytes=1 << 20)
    DeviceSampler(sampler, topology, device).sample(asked(graph, sampler))


@pytest.mark.parametrize("share", [0.8, 0.36, 0.2])
@pytest.mark.parametrize("kind", ["hubs", "weighted", "typed", "timed", "typed, weighted"])
def test_batches_are_the_cpus_wherever_lists_lie(kind: str, share: float) -> None:
    for each in seen(3, kind, share):
        assert each["own"] > 0
        assert each["others"] > 0
        # The host's memory is not needed where shards have all lists.
        assert each["mapped"] == (each["nowhere"] > 0)
        if share != 0.36:
            assert (each["nowhere"] > 0) == (share < 1 / 3)
        assert ("page-locked" in each["about"]) == each["mapped"]
        assert "on 2 linked devices" in each["about"]


@pytest.mark.parametrize("name", ["walks", "layers"])
def test_other_samplers_read_shards_of_others(name: str) -> None:
    for each in seen(2, "hubs", 0.3, SAMPLERS[name]):
        assert each["own"] > 0
        assert each["others"] > 0


def test_more_ranks_than_lists() -> None:
    for each in seen(3, "two lists", 0.4):  # no shard has room for one
        assert (each["own"], each["others"], each["nowhere"]) == (0, 0, 2)
    found = seen(3, "two lists", 0.6)
    assert sorted(each["own"] for each in found) == [0, 1, 1]
    assert {each["own"] + each["others"] for each in found} == {2}


def test_each_has_all_where_there_is_room_and_a_graph_without_edges_has_nothing_to_share() -> None:
    for kind in ("hubs", "no list"):
        for each in seen(2, kind, 2.0):
            assert (each["own"], each["others"], each["mapped"]) == (0, 0, False)
            assert "all of it" in each["about"]
            assert "Not shared" not in each["about"]


def test_a_rank_alone_places_for_itself() -> None:
    (each,) = seen(1, "hubs", 0.5)
    assert each["others"] == 0
    assert "Not shared, as no devices read each other's memory" in each["about"]


def apart(*pairs: tuple[int, int]) -> list[frozenset[str]]:
    return [frozenset((f"gpu-{a}", f"gpu-{b}")) for a, b in pairs]


def test_those_that_are_linked_share_and_the_others_place_for_themselves() -> None:
    first, second, third = seen(3, "hubs", 0.4, apart=apart((0, 2), (1, 2)))
    assert min(first["others"], second["others"]) > 0
    assert third["others"] == 0
    assert third["nowhere"] > 0


@pytest.mark.parametrize("settings", [{"apart": apart((0, 1))}, {"broken": ["gpu-0", "gpu-1"]}, {"astray": ["gpu-1"]}])
def test_devices_that_do_not_read_each_other_hold_what_they_can(settings: dict[str, Any]) -> None:
    for each in seen(2, "hubs", 0.4, **settings):
        assert each["others"] == 0
        assert "Not shared, as no devices read each other's memory (ranks 0 and 1: " in each["about"]


def test_a_device_without_room_shares_nothing() -> None:
    for each in seen(2, "hubs", 0.4, room_bytes=1):
        assert "Not shared, as a device refused the memory of its shard (" in each["about"]
        assert "FeatureCache" not in each["about"]
    for each in seen(2, "hubs", 0, budget=GRAPHS["hubs"].indptr.nbytes):
        assert "Not shared, as the device of rank 0 has no room for the offsets of all lists" in each["about"]


def test_ranks_of_one_device_share_its_room() -> None:
    graph = GRAPHS["hubs"]
    compiled(graph, SAMPLERS["hubs"])
    num_bytes = graph.indptr.nbytes + graph.indices.nbytes

    def work(membership: Membership) -> dict[str, Any]:
        device, runtime = SmallDevice(), FakeRuntime(["gpu-0"])
        with membership.connect() as peers:
            topology = place_together(graph, device, peers, runtime, budget_bytes=2 * num_bytes - 1)
            lists = held(topology)
            peers.all_gather({})
        topology.memory.close()
        return lists

    for end in as_sharers(2, work):
        assert end.status == 0, end
        assert end.value["others"] > 0  # each of its own would have room for all
        assert "and 7.5 KiB allowed there" in end.value["about"]
        assert not end.value["mapped"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int32])
def test_lists_are_ranked_by_numbers_of_any_type(dtype: type) -> None:
    graph = GRAPHS["hubs"]
    hotness = (np.arange(graph.num_nodes) == 7).astype(dtype)  # a hub, on which all reads fall

    def work(membership: Membership) -> str:
        with membership.connect() as peers:
            topology = place_together(
                graph, SmallDevice(), peers, gpu(membership), budget_bytes=budget_of(graph, 0.2), hotness=hotness
            )
            peers.all_gather({})
        topology.memory.close()
        return topology.about

    first, second = as_sharers(2, work)
    assert (first.status, second.status) == (0, 0), (first, second)
    assert sum("for an expected 100% of reads, on cpu" in end.value for end in (first, second)) == 1
    assert sum("those of 1 others, for 100%" in end.value for end in (first, second)) == 1


def test_ranks_of_one_device_that_share_nothing_take_half_of_its_room_each() -> None:
    graph = GRAPHS["hubs"]
    budget = 2 * (graph.indptr.nbytes + 8 * graph.num_nodes) - 4  # without room for offsets in each half

    def work(membership: Membership) -> int:
        device = SmallDevice()
        with membership.connect() as peers:
            topology = place_together(graph, device, peers, FakeRuntime(["gpu-0"]), budget_bytes=budget)
        assert "Not shared, as the device of rank 0 has no room" in topology.about
        return device.used_bytes

    first, second = as_sharers(2, work)
    assert (first.status, second.status) == (0, 0), (first, second)
    assert 0 < first.value + second.value <= budget


# What goes wrong.


def test_ranks_with_other_graphs_are_told() -> None:
    def work(membership: Membership) -> None:
        graph = hubs(90 + membership.index)
        with membership.connect() as peers:
            place_together(graph, SmallDevice(), peers, gpu(membership), budget_bytes=1000)

    for end in as_sharers(2, work):
        assert end.value.startswith("CacheDisagreementError")
        assert "nodes: 90 and 91" in end.value
        assert "must place the same graph" in end.value


def test_ranks_whose_graphs_differ_in_edges_alone_are_told() -> None:
    graph = GRAPHS["hubs"]

    def work(membership: Membership) -> None:
        same_offsets = Graph(graph.indptr, (graph.indices + membership.index) % 90)
        with membership.connect() as peers:
            place_together(same_offsets, SmallDevice(), peers, gpu(membership), budget_bytes=budget_of(graph, 0.4))

    for end in as_sharers(2, work):
        assert end.value.startswith("CacheDisagreementError")
        assert "differ (checksum of edges: " in end.value


def test_a_rank_that_cannot_page_lock_the_rest_ends_the_placing_for_all() -> None:
    graph = GRAPHS["hubs"]

    def work(membership: Membership) -> None:
        runtime = gpu(membership)
        device = SmallDevice(lockable_bytes=10 if membership.index else 1 << 40)
        expected = DeviceMemoryError if membership.index else CacheShareError
        with pytest.raises(expected, match="cannot be page-locked"), membership.connect() as peers:
            place_together(graph, device, peers, runtime, budget_bytes=budget_of(graph, 0.2))
        assert runtime.num_held == 0

    assert [end.status for end in as_sharers(2, work)] == [0, 0]


@pytest.mark.parametrize("dies", [True, False])
def test_a_rank_that_is_gone_or_done_is_named_at_the_next_batch(tmp_path: Path, dies: bool) -> None:
    graph, sampler = GRAPHS["hubs"], SAMPLERS["hubs"]
    compiled(graph, sampler)

    def work(membership: Membership) -> str:
        device, runtime = EmulatedDevice(), gpu(membership)
        with membership.connect() as peers:
            topology = place_together(graph, device, peers, runtime, budget_bytes=budget_of(graph, 0.8))
        draws = DeviceSampler(sampler, topology, device)
        draws.sample(asked(graph, sampler))
        (tmp_path / str(membership.index)).touch()
        wait_until((tmp_path / str(1 - membership.index)).exists)
        if membership.index == 1 and dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if membership.index == 1:
            topology.memory.shards.memory.close(0.0)  # which the other one still reads
            return ""

        def fails() -> bool:
            try:
                draws.sample(asked(graph, sampler))
            except DeviceShareError:
                return True
            return False

        wait_until(fails)
        with pytest.raises(DeviceShareError) as caught:
            draws.sample(asked(graph, sampler))
        topology.memory.close()
        assert runtime.num_held == 0
        return str(caught.value)

    first, second = as_sharers(2, work)
    assert (first.status, second.status) == (0, -signal.SIGKILL if dies else 0), (first, second)
    assert first.value.startswith("the graph's shard of rank 1 of ")
    assert "is gone: that rank has ended, or is done" in first.value


def test_a_batch_after_closing_is_an_error() -> None:
    graph, sampler = GRAPHS["hubs"], SAMPLERS["hubs"]
    compiled(graph, sampler)

    def work(membership: Membership) -> None:
        device = EmulatedDevice()
        with membership.connect() as peers:
            topology = place_together(graph, device, peers, gpu(membership), budget_bytes=budget_of(graph, 0.8))
        topology.memory.close()
        with pytest.raises(DeviceShareError, match="were closed"):
            DeviceSampler(sampler, topology, device).sample(asked(graph, sampler))

    assert [end.status for end in as_sharers(2, work)] == [0, 0]

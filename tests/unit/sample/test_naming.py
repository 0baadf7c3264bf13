"""A part of a graph gives the mini-batches of the whole, id for id, and refuses what it does not hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload import (
    Graph,
    LaborSampler,
    LayerSampler,
    MiniBatch,
    NeighborSampler,
    RandomWalkSampler,
    Sampler,
    ShadowSampler,
    WeightedNeighborSampler,
    random_walk,
)
from lightning_gnnload.conform.graphs import part_around
from lightning_gnnload.errors import PartReachError, SeedError
from lightning_gnnload.host.pages import buffer_memory
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.sample.base import thread_workspace
from lightning_gnnload.sample.build import draw_words
from lightning_gnnload.sample.naming import edge_names
from tests.unit.toy import content, toy_graph

FANOUTS = [3, -1, 2]
BUDGETS = [4, -1, 6]
TYPED = [{0: 2, 3: -1}, 1, {1: 2, 2: 1}]
SAMPLERS: dict[str, Callable[[int], Sampler]] = {  # by the number of layers
    "neighbor": lambda num: NeighborSampler(FANOUTS[:num], edge_ids=True),
    "neighbor, new": lambda num: NeighborSampler(FANOUTS[:num], expand="new", edge_ids=True),
    "neighbor, replaced": lambda num: NeighborSampler([3] * num, replace=True),
    "all neighbours": lambda num: NeighborSampler([-1] * num, expand="new", edge_ids=True),
    "typed": lambda num: NeighborSampler(TYPED[:num], edge_ids=True),
    "typed, new": lambda num: NeighborSampler(TYPED[:num], expand="new", edge_ids=True),
    "weighted": lambda num: WeightedNeighborSampler(FANOUTS[:num], edge_ids=True),
    "weighted, new": lambda num: WeightedNeighborSampler(FANOUTS[:num], expand="new", edge_ids=True),
    "weighted, replaced": lambda num: WeightedNeighborSampler([3] * num, replace=True),
    "labor": lambda num: LaborSampler(FANOUTS[:num], edge_ids=True),
    "labor, one draw for all hops": lambda num: LaborSampler([2] * num, layer_dependency=True, estimate="sum"),
    "labor, fixed count": lambda num: LaborSampler(FANOUTS[:num], fixed_count=True, expand="new", edge_ids=True),
    "labor-1": lambda num: LaborSampler(FANOUTS[:num], importance=1, edge_ids=True),
    "labor-*": lambda num: LaborSampler([2] * num, importance=-1, expand="new"),
    "ladies": lambda num: LayerSampler(BUDGETS[:num], edge_ids=True),
    "ladies, known": lambda num: LayerSampler(BUDGETS[:num], keep_known=True, replace=True, expand="new"),
    "dsp": lambda num: LayerSampler(BUDGETS[:num], method="dsp", edge_ids=True),
    "dsp, new": lambda num: LayerSampler([5] * num, method="dsp", replace=True, expand="new"),
    "shadow": lambda num: ShadowSampler([3, -1, 2][: num - 1], num_layers=num, edge_ids=True),
    "walks": lambda num: RandomWalkSampler(num, 3, num_walks=5, walk_length=2, termination_prob=0.2),
    "walks, new": lambda num: RandomWalkSampler(num, 2, 4, 3, 0.0, 0.3, False, True, expand="new"),
}
KEY = {"seed": 2**40 + 7, "epoch": 3, "step": 11}


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Edges repeat, some are loops, many nodes have none; weights, some zero; four types."""
    num_nodes, num_edges = draw(st.integers(1, 40)), draw(st.integers(1, 160))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    src, dst = rng.integers(0, num_nodes, num_edges), (num_nodes * rng.random(num_edges) ** 2).astype(np.int64)
    kind = np.append(rng.integers(0, 4, num_edges - 1), 3)
    return Graph.from_coo(src, dst, num_nodes, edge_weight=rng.integers(0, 4, num_edges) / 2, edge_type=kind)


@pytest.mark.parametrize("name", SAMPLERS)
@settings(max_examples=30)
@given(data=st.data())
def test_a_part_gives_the_batch_of_the_whole(name, data):
    # Draws or ties by local ids, edge ids of the part, and a reach that says too little fail here.
    graph, sampler = data.draw(graphs()), SAMPLERS[name](data.draw(st.integers(1, 3)))
    seeds = np.array(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True, max_size=12)), np.int64)
    wanted = content(sampler.sample(graph, seeds, **KEY))
    part = part_around(graph, seeds, sampler.reach)
    assert content(sampler.sample(part, seeds, **KEY)) == wanted
    # Others' seeds are there, too, as they are in a part that several ranks use.
    larger = part_around(graph, np.append(seeds, data.draw(st.integers(0, graph.num_nodes - 1))), sampler.reach + 1)
    assert content(sampler.sample(larger, seeds, **KEY)) == wanted


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_part_that_is_a_hop_too_shallow_is_refused(name):
    # A path, where node 0 is read by way of one list a hop.
    path = Graph.from_coo(np.arange(1, 20), np.arange(19), edge_weight=np.ones(19), edge_type=np.arange(19) % 4)
    sampler = SAMPLERS[name](3)
    wanted = content(sampler.sample(path, [0]))
    enough, shallow = (part_around(path, np.array([0]), sampler.reach - less) for less in (0, 1))
    assert content(sampler.sample(enough, [0])) == wanted
    with pytest.raises(PartReachError, match="of node 1 this part holds"):
        sampler.sample(enough, [0, 1])
    with pytest.raises(PartReachError, match=f"reads {sampler.reach} hops.* of node 0 this part holds"):
        sampler.sample(shallow, [0])
    if "shadow" not in name and "walks" not in name:  # these read more on other graphs, or by other draws
        shallow.origin = dataclasses.replace(shallow.origin, reach=shallow.origin.reach + np.uint8(1))
        assert content(sampler.sample(shallow, [0])) != wanted


GRAPH = toy_graph(2000, 8000)
PART = part_around(GRAPH, np.arange(50), hops=3)


def test_what_reads_the_whole_graph_is_refused():
    with pytest.raises(PartReachError, match=r"LayerSampler.*fastgcn.* any node"):
        LayerSampler([5], method="fastgcn").sample(PART, [3])


def test_seeds_of_other_parts_are_refused():
    elsewhere = np.setdiff1d(np.arange(2000), PART.origin.node_ids)
    with pytest.raises(PartReachError, match=f"lacks 2 of the 3 nodes asked for, first node {elsewhere[0]}"):
        NeighborSampler([2]).sample(PART, [7, *elsewhere[:2]])
    for no_node in (-1, 2000, 2**62):
        with pytest.raises(PartReachError, match=f"first node {no_node}"):
            NeighborSampler([2]).sample(PART, [no_node])
    with pytest.raises(SeedError, match="node 7 more than once"):
        NeighborSampler([2]).sample(PART, [7, 3, 7])


def test_a_part_without_nodes():
    nothing = part_around(GRAPH, np.empty(0, np.int64), hops=2)
    assert NeighborSampler([2, 2]).sample(nothing, []).num_nodes == 0
    with pytest.raises(PartReachError, match="0 nodes"):
        NeighborSampler([2, 2]).sample(nothing, [0])


def test_walks_of_a_part():
    starts = [3, 40, 11]
    wanted = random_walk(GRAPH, starts, 3, num_walks=4, termination_prob=0.2, **KEY)
    assert random_walk(PART, starts, 3, num_walks=4, termination_prob=0.2, **KEY).tolist() == wanted.tolist()
    with pytest.raises(PartReachError, match=r"random_walk.* reads 4 hops.*node 3 this part holds 3"):
        random_walk(PART, starts, 4)


def test_local_ids_and_names_are_each_others_reverse():
    ids = np.random.default_rng(0).permutation(PART.origin.node_ids)
    np.testing.assert_array_equal(PART.names_of(PART.local_ids(ids)), ids)
    assert GRAPH.names is None
    np.testing.assert_array_equal(GRAPH.local_ids(ids), ids)


def test_edges_by_their_place_in_the_whole_graph():
    edges = np.arange(PART.num_edges)
    destinations = np.repeat(np.arange(PART.num_nodes), PART.in_degrees)
    whole = edge_names(PART, destinations, edges)
    np.testing.assert_array_equal(GRAPH.indices[whole], PART.names_of(PART.indices[edges]))
    owner = np.searchsorted(GRAPH.indptr, whole, side="right") - 1
    np.testing.assert_array_equal(owner, PART.names_of(destinations))


def test_words_are_those_of_the_hop_that_a_key_begins_with():
    nodes = np.array([5, 2**40])
    later, first = DrawKey(1, 2, 3, hop=2), DrawKey(1, 2, 3)
    np.testing.assert_array_equal(draw_words(later, 1, nodes, 5), draw_words(first, 3, nodes, 5))


@pytest.mark.parametrize(
    "make",
    [
        lambda *fanouts: NeighborSampler(fanouts, edge_ids=True),
        lambda *fanouts: NeighborSampler([{0: fanout, 1: 1} for fanout in fanouts]),
        lambda *fanouts: WeightedNeighborSampler(fanouts, edge_ids=True),
        lambda *fanouts: LaborSampler(fanouts, estimate="sum"),
        lambda *fanouts: LaborSampler(fanouts, importance=2),
        lambda *fanouts: LaborSampler(fanouts, layer_dependency=True),
        lambda *budgets: LayerSampler(budgets),
        lambda *budgets: LayerSampler(budgets, method="dsp"),
        lambda *fanouts: RandomWalkSampler(len(fanouts)),
    ],
)
def test_a_hop_by_itself_is_that_hop_of_a_batch(make):
    # What ranks that sample together rely on: all nodes known are seeds, and the hop has its number.
    src, dst = np.random.default_rng(0).integers(0, 100, (2, 900))
    graph = Graph.from_coo(src, dst, edge_weight=src + 1.0, edge_type=dst % 2)
    whole = make(4, 3).sample(graph, [3, 40, 11, 7], **KEY)
    known = whole.nodes[: whole.blocks[0].num_dst]
    arena = np.frombuffer(buffer_memory(1 << 16), np.uint8)
    layout = make(3).draw(graph, Draw(known.numpy(), DrawKey(**KEY, hop=1)), arena)
    alone = MiniBatch.view(arena, layout, len(known), epoch=3, step=11)
    assert content(alone) == content(dataclasses.replace(whole, num_seeds=len(known), blocks=whole.blocks[:1]))


def test_a_thread_that_changes_between_graphs_keeps_its_memory():
    larger = thread_workspace(10_000)
    assert thread_workspace(50) is larger
    assert thread_workspace(larger.num_nodes + 1) is not larger


def test_a_part_refuses_walks_along_metapaths_which_go_by_the_numbers_of_the_whole_graph():
    ids = np.arange(20)
    graph = Graph.from_hetero({"a": 20, "b": 20}, {("a", "to", "b"): (ids, ids), ("b", "back", "a"): (ids, ids)})
    part = part_around(graph, np.array([5, 6]), hops=4)
    walks = RandomWalkSampler(1, walk_length=1, metapath=["back", "to"])
    assert walks.sample(graph, [5, 6]).num_seeds == 2
    with pytest.raises(PartReachError, match="its reach is None"):
        walks.sample(part, [5, 6])
    with pytest.raises(PartReachError, match="its reach is None"):
        random_walk(part, [5, 6], metapath=["back", "to"])


def test_a_seed_without_a_time_has_the_name_of_the_whole_graph():
    times = {"a": [1, 2, 3, 4], "b": [-(2**63), 5, 6, 7]}
    edges = {("a", "to", "b"): ([0, 1, 2, 3], [0, 1, 2, 3])}
    graph = Graph.from_hetero({"a": 4, "b": 4}, edges, node_time=times)
    part = part_around(graph, np.array([4, 6]), hops=1)
    for drawn_from in (graph, part):
        with pytest.raises(SeedError, match="node 0 of type 'b' is a seed without a time"):
            NeighborSampler([2]).sample(drawn_from, [4, 6])

import threading
import tracemalloc

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, LaborSampler, NeighborSampler, Sampler, WeightedNeighborSampler, ops
from lightning_gnnload.errors import GnnLoadError, GraphFormatError, SamplerConfigError, SeedError
from tests.unit.toy import content, toy_graph

GRAPH = toy_graph()
SEEDS = [17, 3, 250, 99]


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("replace", [False, True])
def test_blocks_are_parts_of_the_graph(expand, replace: bool) -> None:
    fanouts = [4, -1, 2] if not replace else [4, 3, 2]
    batch = NeighborSampler(fanouts, replace=replace, expand=expand, edge_ids=True).sample(GRAPH, SEEDS, 1, 2, 3)
    assert batch.seeds.tolist() == SEEDS
    assert (batch.epoch, batch.step) == (2, 3)
    nodes = batch.nodes
    assert len(nodes.unique()) == len(nodes)
    known, previous = len(SEEDS), 0
    for block, fanout in zip(reversed(batch.blocks), fanouts, strict=True):  # nearest hop first
        assert block.num_dst == known
        assert len(block.indptr) == block.num_dst + 1
        assert block.indptr[-1] == block.num_edges
        assert int(block.indices.max()) < block.num_src
        src, dst = nodes[block.indices.long()], nodes[block.edge_dst()]
        edges = block.edge_ids.numpy()
        assert src.tolist() == GRAPH.indices[edges].tolist()
        owner = np.searchsorted(GRAPH.indptr, edges, side="right") - 1
        assert dst.tolist() == owner.tolist()
        full = torch.from_numpy(GRAPH.in_degrees)[nodes[: block.num_dst]]
        wanted = full if fanout == -1 else full.clamp(max=fanout) if not replace else (full > 0) * fanout
        # With expand="new" the edges of one hop's destinations are drawn at that hop alone.
        begin = 0 if expand == "all" else previous
        assert block.in_degrees[begin:].tolist() == wanted[begin:].tolist()
        if not replace:
            assert len(np.unique(edges)) == len(edges)
        previous, known = block.num_dst, block.num_src
    assert known == batch.num_nodes


def test_new_blocks_are_prefixes_of_each_other() -> None:
    batch = NeighborSampler([3, 3, 3], expand="new").sample(GRAPH, SEEDS)
    for outer, inner in zip(batch.blocks, batch.blocks[1:], strict=False):
        assert outer.indptr[: inner.num_dst + 1].tolist() == inner.indptr.tolist()
        assert outer.indices[: inner.num_edges].tolist() == inner.indices.tolist()


def test_a_batch_is_a_pure_function() -> None:
    sampler, wanted = NeighborSampler([3, 2]), content(NeighborSampler([3, 2]).sample(GRAPH, SEEDS, 1, 2, 3))
    sampler.sample(GRAPH, [0, 1], 9, 9, 9)  # a generator with state would move here
    torch.manual_seed(5)
    np.random.seed(5)  # the global generators must not matter
    assert content(sampler.sample(GRAPH, torch.tensor(SEEDS), 1, 2, 3)) == wanted
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(content(sampler.sample(GRAPH, SEEDS, 1, 2, 3)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4


@pytest.mark.parametrize("key", [(2, 2, 3), (1, 3, 3), (1, 2, 4)])
def test_each_part_of_the_key_matters(key) -> None:
    sampler = NeighborSampler([2, 2])
    many = np.arange(100)
    # 100 nodes draw 2 of about 8: an equal batch by chance has a probability below 1e-50.
    assert not torch.equal(
        sampler.sample(GRAPH, many, *key).blocks[-1].indices, sampler.sample(GRAPH, many, 1, 2, 3).blocks[-1].indices
    ) or not torch.equal(sampler.sample(GRAPH, many, *key).nodes, sampler.sample(GRAPH, many, 1, 2, 3).nodes)


def test_a_node_draws_the_same_neighbours_in_any_company() -> None:
    def drawn(seeds) -> set[int]:
        block = NeighborSampler([2], edge_ids=True).sample(GRAPH, seeds, 1, 2, 3).blocks[0]
        at = seeds.index(99)
        return set(block.edge_ids[block.indptr[at] : block.indptr[at + 1]].tolist())

    assert drawn([99]) == drawn(SEEDS) == drawn([5, 99])


def test_no_hops_and_no_seeds() -> None:
    batch = NeighborSampler([]).sample(GRAPH, SEEDS)
    assert batch.blocks == []
    assert batch.nodes.tolist() == SEEDS
    empty = NeighborSampler([2, 2]).sample(GRAPH, [])
    assert [block.num_src for block in empty.blocks] == [0, 0]


def test_memory_grows_until_the_batch_fits() -> None:
    graph = toy_graph(2000, 100_000)  # all neighbours of all nodes twice: more than the first mebibyte
    batch = NeighborSampler([-1, -1], edge_ids=True).sample(graph, np.arange(2000))
    assert [block.num_edges for block in batch.blocks] == [100_000] * 2


def test_a_batch_keeps_no_more_memory_than_it_needs() -> None:
    tracemalloc.start()
    kept = [NeighborSampler([2]).sample(GRAPH, SEEDS) for _ in range(8)]
    held_bytes, _ = tracemalloc.get_traced_memory()  # NumPy's arrays, which batches are sampled into
    tracemalloc.stop()
    assert len(kept) == 8
    assert held_bytes < 1 << 20


@pytest.mark.parametrize(
    ("seeds", "error", "message"),
    [
        ([0, 300], SeedError, "300"),
        ([-1], SeedError, "-1"),
        ([4, 5, 4], SeedError, "4"),
        ([0.5], GnnLoadError, "integer"),
        ([True, False], GnnLoadError, r"flatnonzero"),
        ([[1]], GnnLoadError, "one-dimensional"),
    ],
)
def test_seeds_that_are_no_nodes(seeds, error, message: str) -> None:
    with pytest.raises(error, match=message):
        NeighborSampler([2]).sample(GRAPH, seeds)
    assert NeighborSampler([2]).sample(GRAPH, [0, 299]).num_seeds == 2  # the scratch memory is still sound


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fanouts": [10, 0]}, r"\[10, 0\].*positive, or -1"),
        ({"fanouts": [-2]}, r"\[-2\].*positive, or -1"),
        ({"fanouts": 10}, r"fanouts=10: a list"),
        ({"fanouts": None}, r"fanouts=None: a list"),
        ({"fanouts": [2.5]}, r"whole numbers"),
        ({"fanouts": "15"}, r"whole numbers"),
        ({"fanouts": {0: 15}}, r"\{0: 15\}: a list"),
        ({"fanouts": [{0: 0}]}, r"positive, or -1"),
        ({"fanouts": [{2.5: 3}]}, r"edge type: fanout"),
        ({"fanouts": {"rates": [3, 2], "writes": [3]}}, r"as many hops"),
        ({"fanouts": [2], "sharing": "some"}, r"sharing='some'.*'disjoint'"),
        ({"fanouts": [2], "before": "<", "window": -1}, r"window=-1"),
        ({"fanouts": [2], "before": None, "window": 3}, r"before=None ignores times"),
        ({"fanouts": [2], "replace": True, "pick": "last"}, r"each once"),
        ({"fanouts": [{0: True}]}, r"edge type: fanout"),
        ({"fanouts": [2], "expand": "some"}, r"expand='some'.*'all'.*'new'"),
        ({"fanouts": [2], "expand": np.array(["all", "new"])}, r"expand=.*is not known"),
        ({"fanouts": np.array(3)}, r"fanouts=array\(3\): a list"),
    ],
)
def test_settings_that_cannot_work(settings, message: str) -> None:
    with pytest.raises(SamplerConfigError, match=message):
        NeighborSampler(**settings)


def test_fanouts_of_any_iterable() -> None:
    # A generator is empty once it was checked; an unnoticed empty list would train without a graph.
    assert NeighborSampler(fanout for fanout in (3, 2)).fanouts == [3, 2]
    assert NeighborSampler(np.array([3, 2])).fanouts == [3, 2]
    assert repr(NeighborSampler([3], replace=True)) == "NeighborSampler([3], expand='all', replace=True)"


@pytest.mark.parametrize("key", [{"seed": -1}, {"epoch": 2**32}, {"step": -1}, {"seed": 2**64}])
def test_keys_out_of_range_are_named(key) -> None:
    with pytest.raises(SamplerConfigError, match=next(iter(key))):
        NeighborSampler([2]).sample(GRAPH, SEEDS, **key)


def test_fanouts_by_edge_type() -> None:
    edge_type = np.random.default_rng(0).integers(0, 3, GRAPH.num_edges).astype(np.uint8)
    typed = Graph.from_csc(GRAPH.indptr, GRAPH.indices, edge_type=edge_type)
    edge_type = typed.edge_type
    batch = NeighborSampler([{0: 2, 2: -1}, 3], edge_ids=True).sample(typed, SEEDS)
    for block, wanted in zip(reversed(batch.blocks), [{0: 2, 2: 10**9}, dict.fromkeys(range(3), 3)], strict=True):
        assert block.edge_type.tolist() == edge_type[block.edge_ids.numpy()].tolist()
        for dst, node in enumerate(batch.nodes[: block.num_dst].tolist()):
            there = np.bincount(edge_type[typed.indptr[node] : typed.indptr[node + 1]], minlength=3)
            drawn = np.bincount(block.edge_type[block.indptr[dst] : block.indptr[dst + 1]].numpy(), minlength=3)
            assert drawn.tolist() == [min(there[kind], wanted.get(kind, 0)) for kind in range(3)]
    assert typed.typed_lists is typed.typed_lists  # made once


def test_fanouts_by_edge_type_need_types() -> None:
    with pytest.raises(GraphFormatError, match="no edge types"):
        NeighborSampler([{0: 2}]).sample(GRAPH, SEEDS)


class ByNumberAndName:
    """The same random edges twice: with types by number, and by name between nodes of one type."""

    def __init__(self, num_types: int, timed: bool = False, num_nodes: int = 60, num_edges: int = 900) -> None:
        rng = np.random.default_rng(num_types)
        src, dst = rng.integers(0, num_nodes, (2, num_edges))
        kinds, time, weight = (
            rng.integers(0, num_types, num_edges),
            rng.integers(0, 40, num_edges),
            rng.random(num_edges),
        )
        self.edges = [np.flatnonzero(kinds == kind) for kind in range(num_types)]
        names = [("node", str(kind), "node") for kind in range(num_types)]
        by_type = [dict(zip(names, (values[edges] for edges in self.edges), strict=True)) for values in (time, weight)]
        times = ({"edge_time": time}, {"edge_time": by_type[0]}) if timed else ({}, {})
        kept = {"keep_order": True}
        self.numbered = Graph.from_coo(src, dst, num_nodes, weight, kinds, **times[0], **kept)
        ends = {name: (src[edges], dst[edges]) for name, edges in zip(names, self.edges, strict=True)}
        self.named = Graph.from_hetero({"node": num_nodes}, ends, edge_weight=by_type[1], **times[1], **kept)
        self.seeds, self.times = rng.permutation(num_nodes)[:12], rng.integers(10, 50, 12)

    def assert_alike(self, sampler: Sampler) -> None:
        times = None if self.named.clock is None else self.times
        one, other = (sampler.sample(graph, self.seeds, 1, 2, 3, times=times) for graph in (self.numbered, self.named))
        assert one.nodes.tolist() == other.nodes.tolist()
        assert any(block.num_edges for block in one.blocks)
        for mine, theirs in zip(one.blocks, other.blocks, strict=True):
            assert mine.indptr.tolist() == theirs.indptr.tolist()
            assert mine.indices.tolist() == theirs.indices.tolist()
            assert mine.edge_type.tolist() == theirs.edge_type.tolist()
            of_type = self.named.edge_order[theirs.edge_ids.numpy()]
            wanted = [self.edges[kind][edge] for kind, edge in zip(theirs.edge_type.tolist(), of_type, strict=True)]
            assert self.numbered.edge_order[mine.edge_ids.numpy()].tolist() == wanted


FEW, MANY = ByNumberAndName(3), ByNumberAndName(300)
FEW_IN_TIME, MANY_IN_TIME = ByNumberAndName(3, timed=True), ByNumberAndName(300, timed=True)


def test_few_types_have_dense_runs_and_many_sparse_ones() -> None:
    assert isinstance(FEW.numbered.typed_lists, ops.DenseLists)
    assert isinstance(MANY_IN_TIME.numbered.typed_lists, ops.SparseLists)


@pytest.mark.parametrize("both", [FEW, MANY], ids=["few types", "many"])
@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler([{0: 2, 1: -1, 2: 3}, {0: 1, 2: 2}], edge_ids=True),
        NeighborSampler([2, {0: 2, 1: -1}, 2], expand="new", edge_ids=True),
        NeighborSampler([{1: 4}, 3], replace=True, edge_ids=True),
        NeighborSampler([{0: 2}, 2], sharing="disjoint", edge_ids=True),
        WeightedNeighborSampler([{1: 2}, 2], edge_ids=True),
        WeightedNeighborSampler([{1: 2}, 2], replace=True, sharing="disjoint", edge_ids=True),
        LaborSampler([{1: 2}, 2], edge_ids=True),
    ],
    ids=repr,
)
def test_types_by_number_draw_as_those_by_name(both: ByNumberAndName, sampler: Sampler) -> None:
    both.assert_alike(sampler)


@pytest.mark.parametrize("both", [FEW_IN_TIME, MANY_IN_TIME], ids=["few types", "many"])
@pytest.mark.parametrize(
    "settings", [{}, {"order": "path", "before": "<"}, {"window": 20}, {"sharing": "time"}, {"pick": "last"}], ids=str
)
def test_types_by_number_heed_times(both: ByNumberAndName, settings) -> None:
    both.assert_alike(NeighborSampler([{0: 3, 1: -1, 2: 2}, 2], edge_ids=True, **settings))
    both.assert_alike(NeighborSampler([3, 2], edge_ids=True, **settings))  # as many of every type


@pytest.mark.parametrize("settings", [{}, {"sharing": "disjoint"}, {"sharing": "disjoint", "before": None}])
def test_plain_fanouts_draw_from_lists_of_all_types(settings) -> None:
    """Nothing of a batch tells that edges have types, but for the order of the lists."""
    typed = (FEW_IN_TIME if "before" in settings else MANY).numbered
    plain, sampler = Graph.from_csc(typed.indptr, typed.indices), NeighborSampler([4, 3], edge_ids=True, **settings)
    one, other = (sampler.sample(graph, FEW.seeds, 1, 2, 3) for graph in (typed, plain))
    assert content(one) == content(other)
    assert one.blocks[0].edge_type is None


@pytest.mark.parametrize("sharing", ["plain", "disjoint"])
def test_plain_fanouts_draw_edges_of_all_types_alike(sharing) -> None:
    # 4,000 nodes draw 2 of 5 in-neighbours, of three types: each is expected 1,600 times, with a standard deviation of
    # 31. A sound sampler is 5 of them away with a probability below 1e-5.
    hubs = np.arange(4_000)
    src, kinds = np.tile(np.arange(4_000, 4_005), 4_000), np.tile([2, 0, 0, 1, 0], 4_000)
    graph = Graph.from_coo(src, np.repeat(hubs, 5), edge_type=kinds)
    batch = NeighborSampler([2], sharing=sharing).sample(graph, hubs)
    [block] = batch.blocks
    drawn = np.bincount(batch.nodes[block.indices.long()] - 4_000)
    assert drawn.sum() == 8_000
    assert np.abs(drawn - 1_600).max() < 155

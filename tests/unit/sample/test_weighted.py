import copy
import threading
import warnings
from functools import partial
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, NeighborSampler, WeightedNeighborSampler
from lightning_gnnload.conform import Promise, check_draws, check_sampler
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GraphFormatError, SamplerConfigError
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.slots import Slot
from tests.unit.toy import content, toy_graph, toy_source

SEEDS = [17, 3, 250, 99]


def weighted_graph(**change) -> Graph:
    """The toy graph; a third of its edges have weight zero."""
    graph = toy_graph()
    rng = np.random.default_rng(1)
    weight = (rng.standard_exponential(graph.num_edges) * (rng.random(graph.num_edges) < 2 / 3)).astype(np.float32)
    return Graph(graph.indptr, graph.indices, change.get("edge_weight", weight))


GRAPH = weighted_graph()
ZERO_GRAPH = Graph.from_coo([1, 2, 3, 4], [0, 0, 5, 6], num_nodes=7, edge_weight=[0.0, 1.0, 0.0, 0.0])


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("replace", [False, True])
def test_blocks_are_parts_of_the_graph(expand, replace: bool) -> None:
    fanouts = [4, -1, 2] if not replace else [4, 3, 2]
    sampler = WeightedNeighborSampler(fanouts, replace=replace, expand=expand, edge_ids=True)
    batch = sampler.sample(GRAPH, SEEDS, 1, 2, 3)
    assert batch.seeds.tolist() == SEEDS
    num_positive = np.add.reduceat(np.append(GRAPH.edge_weight > 0, 0), GRAPH.indptr[:-1]) * (GRAPH.in_degrees > 0)
    previous = 0
    for block, fanout in zip(reversed(batch.blocks), fanouts, strict=True):  # nearest hop first
        edges = block.edge_ids.numpy()
        assert batch.nodes[block.indices.long()].tolist() == GRAPH.indices[edges].tolist()
        assert batch.nodes[block.edge_dst()].tolist() == (np.searchsorted(GRAPH.indptr, edges, "right") - 1).tolist()
        assert np.all(GRAPH.edge_weight[edges] > 0)
        assert block.edge_weight is None
        positive = torch.from_numpy(num_positive)[batch.nodes[: block.num_dst]]
        wanted = positive if fanout == -1 else positive.clamp(max=fanout) if not replace else (positive > 0) * fanout
        begin = 0 if expand == "all" else previous
        assert block.in_degrees[begin:].tolist() == wanted[begin:].tolist()
        if not replace:
            assert len(np.unique(edges)) == len(edges)
        previous = block.num_dst


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize(("replace", "law"), [(False, "weighted"), (True, "weighted, replaced")])
def test_keeps_the_contract_and_draws_by_weight(expand, replace: bool, law) -> None:
    settings = {"replace": replace, "expand": expand}
    promise = Promise(distinct_edges=not replace, max_in_degree=[3, 4], alone=True)
    check_sampler(WeightedNeighborSampler([3, 4], edge_ids=True, **settings), promise=promise)
    check_draws(partial(WeightedNeighborSampler, **settings), law)


def test_the_table_does_not_depend_on_how_floats_are_computed_with() -> None:
    # Subnormal weights are numbers like others, even where torch was told to take them for zero.
    weight = (np.arange(GRAPH.num_edges) % 5 * np.finfo(np.float32).smallest_subnormal).astype(np.float32)
    wanted = weighted_graph(edge_weight=weight).alias_table.entries
    assert torch.set_flush_denormal(True)
    try:
        found = weighted_graph(edge_weight=weight).alias_table.entries
    finally:
        torch.set_flush_denormal(False)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(found % 2**32 > 0, weight.view(np.int32) > 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_weights_of_any_width(dtype) -> None:
    # 1/4, 1/2 and so on are the same numbers in each.
    weight = (2.0 ** -(np.arange(GRAPH.num_edges) % 8)).astype(dtype)
    batch = WeightedNeighborSampler([3, 2]).sample(weighted_graph(edge_weight=weight), SEEDS)
    wide = WeightedNeighborSampler([3, 2]).sample(weighted_graph(edge_weight=weight.astype(np.float64)), SEEDS)
    assert content(batch) == content(wide)


def test_weights_that_are_too_wide() -> None:
    graph = weighted_graph(edge_weight=np.ones(GRAPH.num_edges, np.longdouble))
    with pytest.raises(GraphFormatError, match="must be float32 or float64"):
        WeightedNeighborSampler([2]).sample(graph, SEEDS)


def test_threads_share_one_table() -> None:
    graph, found = weighted_graph(), []
    threads = [threading.Thread(target=lambda: found.append(graph.alias_table)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(table is found[0] for table in found)


def test_tables_do_not_travel() -> None:
    # A spawned process makes its own: it costs less than sending 8 bytes an edge, and the arrays may be mapped.
    graph = weighted_graph()
    before = len(ForkingPickler.dumps(graph))
    wanted = content(WeightedNeighborSampler([3, 2]).sample(graph, SEEDS))
    assert len(ForkingPickler.dumps(graph)) == before
    for other in (copy.copy(graph), copy.deepcopy(graph), ForkingPickler.loads(ForkingPickler.dumps(graph))):
        assert repr(other) == repr(graph)
        assert content(WeightedNeighborSampler([3, 2]).sample(other, SEEDS)) == wanted


def test_a_memory_mapped_graph(tmp_path) -> None:
    parts = {}
    for name in ("indptr", "indices", "edge_weight"):
        array = getattr(GRAPH, name)
        array.tofile(tmp_path / name)
        parts[name] = np.memmap(tmp_path / name, array.dtype, "r")
    sampler = WeightedNeighborSampler([3, 2])
    assert content(sampler.sample(Graph.from_csc(**parts), SEEDS)) == content(sampler.sample(GRAPH, SEEDS))


def test_a_graph_without_weights() -> None:
    with pytest.raises(SamplerConfigError, match=r"no edge weights.*edge_weight=weights.*NeighborSampler"):
        WeightedNeighborSampler([2]).sample(toy_graph(), SEEDS)


def test_nodes_without_weight() -> None:
    # 5 and 6 have edges of weight zero alone; 0 has one of weight as well; the others have no edges.
    batch = WeightedNeighborSampler([3]).sample(ZERO_GRAPH, [0, 5, 1])
    assert batch.blocks[0].in_degrees.tolist() == [1, 0, 0]
    assert ZERO_GRAPH.alias_table.zero_nodes.tolist() == [5, 6]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WeightedNeighborSampler([3]).sample(ZERO_GRAPH, [5])
        WeightedNeighborSampler([3], on_zero="warn").sample(weighted_graph(edge_weight=np.ones(2400)), [5])
    with pytest.warns(UserWarning, match=r"2 nodes \(5, 6\) .*on_zero='ignore'"):
        WeightedNeighborSampler([3], on_zero="warn").sample(ZERO_GRAPH, [0])
    with pytest.raises(SamplerConfigError, match=r"2 nodes \(5, 6\) have in-neighbours"):
        WeightedNeighborSampler([3], on_zero="error").sample(ZERO_GRAPH, [0])


def test_many_nodes_without_weight_are_not_all_listed() -> None:
    graph = Graph.from_coo(range(9), range(9), edge_weight=np.zeros(9))
    with pytest.raises(SamplerConfigError, match=r"9 nodes \(0, 1, 2, 3, 4, \.\.\.\) have"):
        WeightedNeighborSampler([3], on_zero="error").sample(graph, [0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fanouts": [10, 0]}, r"\[10, 0\].*positive, or -1"),
        ({"fanouts": 10}, r"fanouts=10: a list"),
        ({"fanouts": [2], "expand": "some"}, r"expand='some'"),
        ({"fanouts": [2], "on_zero": "raise"}, r"on_zero='raise'.*'ignore', 'warn' or 'error'"),
    ],
)
def test_settings_that_cannot_work(settings, message: str) -> None:
    with pytest.raises(SamplerConfigError, match=message):
        WeightedNeighborSampler(**settings)


def test_repr() -> None:
    assert repr(WeightedNeighborSampler([3])) == "WeightedNeighborSampler([3], expand='all')"
    shown = repr(WeightedNeighborSampler([3], replace=True, on_zero="warn"))
    assert shown == "WeightedNeighborSampler([3], expand='all', replace=True, on_zero='warn')"


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("expand", ["all", "new"])
def test_any_number_of_threads_loads_the_same_stream(num_threads: int, expand) -> None:
    sampler = WeightedNeighborSampler([3, 2], expand=expand, edge_ids=True)

    def stream(num_threads: int) -> list:
        data = GraphData(weighted_graph(), torch.rand(300, 4).round(), train=range(100))
        loader = SampledLoader(toy_source(data, sampler=sampler, batch_size=8), num_threads=num_threads)
        return [content(batch)[:5] for batch in loader]

    assert stream(num_threads) == stream(0)


def test_a_batch_travels_through_the_queue() -> None:
    # Its description as JSON, as between ranks; uniform draws of the same seeds are others.
    data = GraphData(GRAPH, torch.rand(300, 4), train=range(100))
    source, slot = toy_source(data, sampler=WeightedNeighborSampler([2, 2], edge_ids=True)), Slot()
    payload = Payload.from_json(source.make(BatchRequest(0, 0, 0, 1), slot).to_json())
    batch = payload.view(slot.buffer())
    alone = source.workload.sampler.sample(GRAPH, batch.seeds, seed=3)
    assert content(batch)[:5] == content(alone)[:5]
    assert content(batch)[4] != content(NeighborSampler([2, 2], edge_ids=True).sample(GRAPH, batch.seeds, seed=3))[4]


@pytest.mark.parametrize("replace", [False, True])
def test_a_row_of_its_own_draws_the_same_in_any_mini_batch(replace: bool) -> None:
    sampler = WeightedNeighborSampler([4, 3], replace=replace, expand="new", edge_ids=True, sharing="disjoint")
    rows = np.arange(100, 140)
    seeds = np.array([17, 3, 250, 99] * 10)  # rows of one node draw each for itself
    whole = sampler.sample(GRAPH, seeds, 1, 2, 3, rows=rows)
    block, of_row = whole.blocks[0], whole.rows
    assert torch.equal(of_row[: len(seeds)].long(), torch.arange(len(seeds)))
    assert torch.equal(of_row[block.indices.long()], of_row[block.edge_dst()])
    assert bool((torch.from_numpy(GRAPH.edge_weight)[block.edge_ids] > 0).all())
    for row in (0, 1, 4, 39):
        alone = sampler.sample(GRAPH, seeds[[row]], 1, 2, 8, rows=rows[[row]])
        assert torch.equal(alone.nodes, whole.nodes[of_row == row])
        assert torch.equal(alone.blocks[0].edge_ids, block.edge_ids[(of_row == row)[block.edge_dst()]])
    drawn = [tuple(whole.nodes[of_row == row].tolist()) for row in range(0, 40, 4)]
    assert len(set(drawn)) > 1


def test_rows_of_their_own_draw_by_weight() -> None:
    weight = np.array([1.0, 2.0, 3.0, 4.0, 0.0])
    star = Graph.from_coo([1, 2, 3, 4, 5], [0] * 5, edge_weight=weight)
    num_rows, share = 20_000, weight / weight.sum()
    sampler = WeightedNeighborSampler([1], edge_ids=True, sharing="disjoint")
    [block] = sampler.sample(star, np.zeros(num_rows, int), 5, rows=np.arange(num_rows)).blocks
    drawn = torch.bincount(block.edge_ids, minlength=5).numpy()
    # Beyond five deviations each: a probability of 6e-7 a neighbour, and the seed is fixed.
    assert (np.abs(drawn - num_rows * share) <= 5 * np.sqrt(num_rows * share * (1 - share))).all()
    assert drawn[4] == 0


def test_typed_rows_of_their_own_draw_from_each_type_by_itself() -> None:
    buys, sees = ("user", "buys", "item"), ("user", "sees", "item")
    ends = np.arange(40), np.arange(40) % 4
    graph = Graph.from_hetero(None, {buys: ends, sees: ends}, edge_weight={buys: np.arange(40.0)})
    seeds = np.array(graph.types.range_of("item"))[[0, 1, 1, 3]]
    sampler = WeightedNeighborSampler([3], edge_ids=True, sharing="disjoint")
    whole = sampler.sample(graph, seeds, rows=[5, 6, 7, 8])
    alone = sampler.sample(graph, seeds[[2]], rows=[7])
    assert torch.equal(alone.nodes, whole.nodes[whole.rows == 2])
    assert whole.blocks[0].edge_type.bincount().tolist() == [12, 12]
    assert not torch.equal(whole.nodes[whole.rows == 1], whole.nodes[whole.rows == 2])

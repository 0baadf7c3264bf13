import threading

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, LayerSampler
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.pipeline.loader import SampledLoader
from tests.unit.pipeline.job import job
from tests.unit.toy import content, toy_graph, toy_source

GRAPH = toy_graph()
SEEDS = [17, 3, 250, 99]
METHODS = ["ladies", "fastgcn", "dsp"]


def mean_estimates(block, h: torch.Tensor) -> torch.Tensor:
    """What a layer computes: the weighted sum over each destination's edges."""
    weighted = block.edge_weight.double() * h[block.indices.long()]
    return torch.zeros(block.num_dst, dtype=torch.double).index_add_(0, block.edge_dst(), weighted)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("expand", ["all", "new"])
def test_blocks_are_parts_of_the_graph(method, expand) -> None:
    budgets = [30, -1, 12]
    batch = LayerSampler(budgets, method, expand=expand, edge_ids=True).sample(GRAPH, SEEDS, 1, 2, 3)
    assert batch.seeds.tolist() == SEEDS
    assert (batch.epoch, batch.step) == (2, 3)
    assert len(batch.nodes.unique()) == len(batch.nodes)
    known = len(SEEDS)
    for block, budget in zip(reversed(batch.blocks), budgets, strict=True):  # nearest hop first
        assert block.num_dst == known
        assert budget == -1 or block.num_src - known <= budget
        assert int(block.indices.max()) < block.num_src
        edges = block.edge_ids.numpy()
        assert batch.nodes[block.indices.long()].tolist() == GRAPH.indices[edges].tolist()
        owner = np.searchsorted(GRAPH.indptr, edges, side="right") - 1
        assert batch.nodes[block.edge_dst()].tolist() == owner.tolist()
        assert block.edge_weight.dtype is torch.float32
        known = block.num_src
    assert known == batch.num_nodes


@pytest.mark.parametrize("method", METHODS)
def test_all_of_a_layer_gives_exact_means(method) -> None:
    batch = LayerSampler([-1], method).sample(GRAPH, SEEDS)
    [block] = batch.blocks
    values = torch.randn(300, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    wanted = [values[GRAPH.in_neighbors(seed)].mean() for seed in SEEDS]
    torch.testing.assert_close(mean_estimates(block, values[batch.nodes]), torch.stack(wanted), rtol=1e-6, atol=1e-7)


def test_a_hub_does_not_eat_the_budget_of_nodes() -> None:
    # Of a star's many leaves and the one neighbour that two other seeds share, that one matters most.
    star = Graph.from_coo([*range(3, 203), 203, 203], [0] * 200 + [1, 2])
    drawn = [LayerSampler([2]).sample(star, [0, 1, 2], step=step).nodes.tolist() for step in range(50)]
    assert all(203 in nodes for nodes in drawn)  # of the importance 2 + 1/200 it has 2
    with_dsp = [LayerSampler([2], "dsp").sample(star, [0, 1, 2], step=step).nodes.tolist() for step in range(50)]
    assert sum(203 in nodes for nodes in with_dsp) < 10


@pytest.mark.parametrize("method", METHODS)
def test_an_edge_of_most_of_the_weight_is_drawn_most_often(method) -> None:
    # One of 20 edges has 98 % of the weight; nodes are drawn by the squares of these parts, edges by the parts. Draws
    # as if without weights take it in 5 %. Five sigma of 2,000 draws: by chance 6e-7.
    weight = np.full(20, 2 / 19)
    weight[7] = 98
    star = Graph.from_coo(np.arange(1, 21), np.zeros(20, int), edge_weight=weight)
    part = 0.98 if method == "dsp" else weight[7] ** 2 / (weight**2).sum()
    drawn = [LayerSampler([1], method).sample(star, [0], step=step).nodes[1].item() for step in range(2000)]
    assert abs(drawn.count(8) - 2000 * part) <= 5 * np.sqrt(2000 * part * (1 - part)) + 1e-6
    alike = [LayerSampler([1], method, weighted=False).sample(star, [0], step=step).nodes[1] for step in range(2000)]
    assert 50 < alike.count(8) < 150


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("replace", [False, True])
def test_weights_that_say_nothing_change_nothing(method, replace) -> None:
    ones = Graph.from_csc(GRAPH.indptr, GRAPH.indices, edge_weight=np.ones(GRAPH.num_edges, np.float16))
    other = Graph.from_csc(GRAPH.indptr, GRAPH.indices, edge_weight=np.random.default_rng(0).random(GRAPH.num_edges))
    wanted = content(LayerSampler([20, 30], method, replace).sample(GRAPH, SEEDS))
    assert content(LayerSampler([20, 30], method, replace).sample(ones, SEEDS)) == wanted
    assert content(LayerSampler([20, 30], method, replace, weighted=False).sample(other, SEEDS)) == wanted
    assert content(LayerSampler([20, 30], method, replace).sample(other, SEEDS)) != wanted


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [-1, 5])
def test_edges_of_weight_zero_are_as_good_as_none(method, budget) -> None:
    # Node 4 is a neighbour of node 1 by weight, and of node 0 only without; all of node 2's weigh nothing.
    graph = Graph.from_coo([3, 4, 4, 3, 4], [0, 0, 1, 2, 2], edge_weight=[2.0, 0.0, 1.0, 0.0, 0.0])
    batch = LayerSampler([budget], method, normalize=False).sample(graph, [0, 1, 2])
    assert batch.nodes.tolist() == [0, 1, 2, 3, 4]
    assert batch.blocks[0].in_degrees.tolist() == [1, 1, 0]
    assert batch.blocks[0].edge_weight.tolist() == [1.0, 1.0]
    nothing = Graph.from_csc(graph.indptr, graph.indices, edge_weight=np.zeros(5))
    for replace in (False, True):
        assert LayerSampler([budget], method, replace).sample(nothing, [0, 1, 2]).num_nodes == 3


def test_known_nodes_leave_the_budget_to_others() -> None:
    ring = Graph.from_coo(np.arange(40), (np.arange(40) + 1) % 40)
    batch = LayerSampler([1], keep_known=True).sample(ring, [5, 6, 7])
    assert batch.nodes.tolist() == [5, 6, 7, 4]  # 5 and 6 are known
    assert batch.blocks[0].edge_weight.tolist() == [1.0, 1.0, 1.0]
    assert LayerSampler([1]).sample(ring, [5, 6, 7]).blocks[0].num_edges == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_a_pure_function(method) -> None:
    sampler = LayerSampler([20, 30], method)
    wanted = content(LayerSampler([20, 30], method).sample(toy_graph(), SEEDS, 1, 2, 3))
    sampler.sample(GRAPH, [0, 1], 9, 9, 9)  # a generator with state would move here
    torch.manual_seed(5)
    np.random.seed(5)  # the global generators must not matter
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(content(sampler.sample(GRAPH, torch.tensor(SEEDS), 1, 2, 3))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4


@pytest.mark.parametrize("sampler", [LayerSampler([20, 30]), LayerSampler([40, -1], "fastgcn", expand="new")])
def test_batches_pass_loader_and_queue_as_they_are(sampler) -> None:
    # Weights too: content() reads them.
    source = toy_source(sampler=sampler, batch_size=8)
    wanted = [content(batch) for batch in SampledLoader(toy_source(sampler=sampler, batch_size=8), num_threads=0)]
    assert any(weights for batch in wanted for *_, weights, _, _ in batch[4])
    assert [content(batch) for batch in SampledLoader(source, num_threads=3)] == wanted
    with job(source, num_threads=2) as running:
        assert [content(batch) for batch in running.loader(running.queue())] == wanted


def test_no_hops_and_no_seeds() -> None:
    assert LayerSampler([]).sample(GRAPH, SEEDS).blocks == []
    for method in METHODS:
        empty = LayerSampler([2, 2], method).sample(GRAPH, [])
        assert [block.num_src for block in empty.blocks] == [0, 0]


@pytest.mark.parametrize(("seeds", "message"), [([0, 300], "300"), ([-1], "-1"), ([4, 5, 4], "4")])
def test_seeds_that_are_no_nodes(seeds, message: str) -> None:
    with pytest.raises(SeedError, match=message):
        LayerSampler([2]).sample(GRAPH, seeds)
    assert LayerSampler([2]).sample(GRAPH, [0, 299]).num_seeds == 2  # the scratch memory is still sound


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budgets": [10, 0]}, r"\[10, 0\].*positive, or -1"),
        ({"budgets": [-2]}, r"\[-2\].*positive, or -1"),
        ({"budgets": 512}, r"budgets=512: a list"),
        ({"budgets": [2.5]}, r"whole numbers"),
        ({"budgets": [True]}, r"whole numbers"),
        ({"budgets": "15"}, r"whole numbers"),
        ({"budgets": [2], "method": "labor"}, r"method='labor'.*'ladies', 'fastgcn', 'dsp'"),
        ({"budgets": [2], "expand": "some"}, r"expand='some'.*'all'.*'new'"),
        ({"budgets": [2], "method": "dsp", "keep_known": True}, r"keep_known=True.*method='dsp'.*method='ladies'"),
    ],
)
def test_settings_that_cannot_work(settings, message: str) -> None:
    with pytest.raises(SamplerConfigError, match=message):
        LayerSampler(**settings)


def test_weights_are_normalized_as_the_paper_has_it() -> None:
    assert LayerSampler([2]).normalize
    assert not LayerSampler([2], "fastgcn").normalize
    assert not LayerSampler([2], "dsp").normalize
    assert not LayerSampler([2], normalize=False).normalize
    assert LayerSampler([2], "dsp", normalize=True).normalize


def test_printed_settings() -> None:
    assert repr(LayerSampler([3])) == "LayerSampler([3], method='ladies', expand='all', normalize=True)"
    assert (
        repr(LayerSampler([3], "dsp", weighted=False))
        == "LayerSampler([3], method='dsp', expand='all', weighted=False)"
    )
    assert repr(LayerSampler(np.array([3]), "dsp", True, edge_ids=True, expand="new")) == (
        "LayerSampler([3], method='dsp', expand='new', replace=True, edge_ids=True)"
    )

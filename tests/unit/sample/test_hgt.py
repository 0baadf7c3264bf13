"""HGTSampler: its settings, its blocks, and the mini-batches of loaders and of PyG's form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, GraphDataModule, HGTSampler
from lightning_gnnload.adapters.pyg.write import to_pyg
from lightning_gnnload.conform.contract import check_sampler
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.errors import CudaUnavailableError, SamplerConfigError, SeedError
from lightning_gnnload.ops import Draw, DrawKey
from tests.runif import RunIf
from tests.unit.typed import KINDS, NODES, typed_edges, typed_graph

GRAPH = typed_graph()
BY_TYPE = {"paper": [4, 3], "author": [2, 6], "venue": [1, 1], "field": [0, 2]}


def induced(graph: Graph, nodes: torch.Tensor) -> list[int]:
    """Positions in ``graph.indices`` of the edges among nodes."""
    assert graph.types is not None
    owner = np.repeat(np.arange(graph.num_nodes), graph.in_degrees)
    return np.flatnonzero(np.isin(owner, nodes) & np.isin(graph.indices, nodes)).tolist()


@pytest.mark.parametrize("num_layers", [None, 1, 2, 5])
def test_blocks_are_parts_of_the_induced_subgraph(num_layers: int | None) -> None:
    sampler = HGTSampler(BY_TYPE, edge_ids=True, num_layers=num_layers)
    batch = sampler.sample(GRAPH, [3, 0, 29], 1, 2, 3)
    batch.expect_layers(num_layers or 2)
    nearest, every = batch.blocks[-1], batch.blocks[0]
    assert every.edge_ids is not None
    assert nearest.edge_ids is not None
    assert every.edge_type is not None
    edges = induced(GRAPH, batch.nodes)
    into_seeds = [edge for edge in edges if np.searchsorted(GRAPH.indptr, edge, side="right") - 1 in (3, 0, 29)]
    assert sorted(nearest.edge_ids.tolist()) == into_seeds
    assert sorted(every.edge_ids.tolist()) == (into_seeds if num_layers == 1 else edges)
    assert every.edge_type.tolist() == GRAPH.edge_types_of(every.edge_ids.numpy()).tolist()
    assert [block.num_dst for block in batch.blocks[:-1]] == [batch.num_nodes] * (len(batch.blocks) - 1)


def test_as_many_of_each_type_as_asked_for() -> None:
    # Papers have budgets enough; no edge leads to a venue or from one; none leads from a field.
    batch = TypedMiniBatch.of(HGTSampler(BY_TYPE).sample(GRAPH, [3, 0, 29]), GRAPH)
    counts = {name: len(nodes) for name, nodes in batch.nodes.items()}
    assert counts == {"paper": 10, "author": 8, "venue": 0, "field": 0}


def test_a_number_for_all_types_is_that_number_for_each() -> None:
    for_all, for_each = HGTSampler([3, 2]), HGTSampler({name: [3, 2] for name in reversed(NODES)})
    for step in range(5):
        one, other = (sampler.sample(GRAPH, [3, 0], step=step) for sampler in (for_all, for_each))
        assert one.nodes.equal(other.nodes)
        assert one.blocks[0].indices.equal(other.blocks[0].indices)


def test_large_numbers_take_the_whole_neighbourhood() -> None:
    edges, reached = typed_edges(), {("paper", 3)}
    for num_hops in range(1, 4):
        found = set(reached)
        for (src, _, dst), ends in zip(KINDS, edges.values(), strict=True):
            found |= {(src, int(u)) for u, v in ends.T if (dst, int(v)) in reached}
        reached = found
        batch = TypedMiniBatch.of(HGTSampler([99] * num_hops, max_neighbors=-1).sample(GRAPH, [3]), GRAPH)
        assert {(name, int(node)) for name, nodes in batch.nodes.items() for node in nodes} == reached


def test_a_hub_gives_budgets_to_so_many_alone() -> None:
    star = Graph.from_hetero({"hub": 1, "leaf": 600}, {("leaf", "of", "hub"): (np.arange(600), np.zeros(600, int))})
    assert HGTSampler([600]).sample(star, [0]).num_nodes == 51
    assert HGTSampler([600], max_neighbors=99).sample(star, [0]).num_nodes == 100
    assert HGTSampler([600], max_neighbors=-1).sample(star, [0]).num_nodes == 601


@pytest.mark.parametrize("num_threads", [0, 1, 3])
def test_threads_make_the_mini_batches_of_the_sampler(num_threads: int) -> None:
    sampler = HGTSampler(BY_TYPE, edge_ids=True)
    data = GraphData(GRAPH, {"paper": torch.arange(30.0)[:, None]}, train={"paper": range(30)})
    module = GraphDataModule(data, sampler, 7, num_threads=num_threads, seed=3)
    num_batches = 0
    for batch in module.train_dataloader():
        seeds = batch.nodes["paper"][: batch.num_seeds["paper"]]
        alone = TypedMiniBatch.of(sampler.sample(GRAPH, seeds, 3, 0, batch.step), GRAPH)
        assert all(batch.nodes[name].equal(alone.nodes[name]) for name in NODES)
        for blocks, wanted in zip(batch.blocks, alone.blocks, strict=True):
            assert all(block.edge_ids.equal(wanted[kind].edge_ids) for kind, block in blocks.items())
        assert batch.x["paper"].view(-1).equal(batch.nodes["paper"].float())
        num_batches += 1
    module.teardown()
    assert num_batches == 5


@RunIf(extras="pyg")
def test_pyg_gets_one_subgraph() -> None:
    batch = HGTSampler(BY_TYPE, edge_ids=True).sample(GRAPH, [3, 0, 29])
    data = to_pyg(batch, GRAPH)
    edges = typed_edges()
    total = 0
    for src, relation, dst in KINDS:
        store = data[src, relation, dst]
        given = torch.from_numpy(edges[src, relation, dst])[:, store.e_id]
        assert given[0].equal(data[src].n_id[store.edge_index[0]])
        assert given[1].equal(data[dst].n_id[store.edge_index[1]])
        total += len(store.e_id)
    assert total == len(induced(GRAPH, batch.nodes))


def test_it_keeps_its_contract() -> None:
    check_sampler(HGTSampler([4, 3]), {"papers": GRAPH})


# What it refuses


@pytest.mark.parametrize(
    ("num_samples", "message"),
    [
        (512, "num_samples=512: a list of whole numbers is needed"),
        ("512", "a list of whole numbers"),
        ([1.5], "a list of whole numbers"),
        ([True], "a list of whole numbers"),
        ([[1, 2]], "a list of whole numbers"),
        ({}, "a list of whole numbers"),
        ({"paper": 4}, "a list of whole numbers"),
        ({0: [4]}, "a list of whole numbers"),
        ([], "of at least one hop"),
        ({"paper": []}, "of at least one hop"),
        ([4, -1], r"num_samples=\[4, -1\].*must be 0 or more"),
        ({"paper": [4], "author": [-3]}, "must be 0 or more"),
        ({"paper": [4, 2], "author": [3]}, "differs by type: 'paper' 2, 'author' 1"),
    ],
)
def test_numbers_that_cannot_be(num_samples: Any, message: str) -> None:
    with pytest.raises(SamplerConfigError, match=message):
        HGTSampler(num_samples)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_layers": 0}, "num_layers is 0"),
        ({"num_layers": "two"}, "num_layers is 'two'"),
        ({"max_neighbors": 0}, "max_neighbors is 0"),
        ({"max_neighbors": None}, "max_neighbors is None"),
    ],
)
def test_settings_that_cannot_be(settings: Any, message: str) -> None:
    with pytest.raises(SamplerConfigError, match=message):
        HGTSampler([4], **settings)


def test_graphs_that_do_not_fit() -> None:
    flat = Graph.from_coo([0], [1])
    for call in (HGTSampler([4]).check_graph, lambda graph: HGTSampler([4]).sample(graph, [0])):
        with pytest.raises(SamplerConfigError, match=r"the graph has no types\. Build it with Graph\.from_hetero"):
            call(flat)
    with pytest.raises(SamplerConfigError, match=r"lacks 'venue', 'field'.*\{'venue': \[0, 0\]\} draws none"):
        HGTSampler({"paper": [1, 2], "author": [1, 1]}).sample(GRAPH, [0])
    with pytest.raises(SamplerConfigError, match="'book' is no node type"):
        HGTSampler({**BY_TYPE, "book": [1, 1]}).sample(GRAPH, [0])
    with pytest.raises(SamplerConfigError, match="17 hops, but at most 16"):
        HGTSampler([1] * 17).sample(GRAPH, [0])


def test_seeds_that_are_no_nodes() -> None:
    with pytest.raises(SeedError, match="seeds must lie in"):
        HGTSampler([2]).sample(GRAPH, [GRAPH.num_nodes])
    with pytest.raises(SeedError, match="the same node"):
        HGTSampler([2]).sample(GRAPH, [1, 1])
    assert HGTSampler([2]).sample(GRAPH, []).num_nodes == 0


def test_parts_and_devices_are_refused_by_name() -> None:
    sampler = HGTSampler([2])
    with pytest.raises(CudaUnavailableError, match="HGTSampler has no kernels for a device"):
        sampler.draw_on(None, None, Draw(np.array([0]), DrawKey(0, 0, 0)))  # type: ignore[arg-type]
    assert sampler.reach is None
    assert sampler.presence(GRAPH, np.ones(GRAPH.num_nodes)) is None


def test_repr() -> None:
    assert repr(HGTSampler((3, 2))) == "HGTSampler([3, 2])"
    assert repr(HGTSampler({"a": np.array([3])}, True)) == "HGTSampler({'a': [3]}, edge_ids=True)"
    assert repr(HGTSampler([3], num_layers=4, max_neighbors=60)) == "HGTSampler([3], num_layers=4, max_neighbors=60)"

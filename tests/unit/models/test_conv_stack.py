"""What all models of convolutions promise, on graphs with and without types, whichever the convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lightning_gnnload import SAGE, Graph, GraphData, GraphDataModule, NeighborSampler, SeedTable, infer
from lightning_gnnload.errors import GraphDataError, InferenceError, LoaderConfigError, SamplerConfigError
from lightning_gnnload.models import GAT, GCN, HGT, RGCN, PinSAGE, TemporalSAGE
from lightning_gnnload.models.conv_stack import ConvLearner
from lightning_gnnload.models.edge_rows import Ages
from tests.unit.typed import KINDS, NODES, SIZES, typed_graph

MODELS: dict[str, ConvLearner] = {
    "SAGE": SAGE(16, norm="layer"),
    "SAGE, sums": SAGE(16, aggr="sum", learned_rows="node"),
    "SAGE, edges": SAGE(16, aggr="max", edges=True),
    "GAT": GAT(hidden=16, norm="batch"),
    "GCN": GCN(hidden=16),
    "HGT": HGT(hidden=16, learned_rows="node"),
    "PinSAGE": PinSAGE(hidden=16),
    "RGCN": RGCN(hidden=16, num_bases=2),
}


def flat() -> GraphData:
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(rng.integers(60, size=300), rng.integers(55, size=300), 60, keep_order=True)
    x, edge_x = (rng.normal(size=(count, 5)).astype(np.float32) for count in (60, 300))
    return GraphData(graph, x, y=np.arange(60) % 3, train=range(30), edge_x=edge_x)


def typed() -> GraphData:
    """Authors have no features; citations have some."""
    rng = np.random.default_rng(1)
    x = {name: rng.normal(size=(count, 4)).astype(np.float32) for name, count in NODES.items() if name != "author"}
    edge_x = {KINDS[1]: rng.normal(size=(SIZES[1], 3)).astype(np.float32)}
    y = {"paper": np.arange(30) % 3}
    return GraphData(typed_graph(), x=x, y=y, train={"paper": range(20)}, edge_x=edge_x)


DATA = {"flat": flat, "typed": typed}


def layers_on(name: str, data: GraphData, num_hops: int = 2) -> nn.Module:
    torch.manual_seed(0)
    model = MODELS[name]
    return model.layers_of(model.sizes_of(data, num_hops) | {"num_outputs": 3})


def batches(data: GraphData, fanouts: list[int], **settings: Any) -> Any:
    return GraphDataModule(data, NeighborSampler(fanouts), num_threads=0, **settings)


@pytest.mark.parametrize("form", DATA)
@pytest.mark.parametrize("name", MODELS)
def test_layers_are_computed_one_after_another_for_all_nodes(name: str, form: str) -> None:
    """A convolution that reads more than the in-neighbours, or is taken for another module, fails here."""
    data = DATA[form]()
    layers = layers_on(name, data).eval()
    whole = batches(data, [-1, -1], predict="train", batch_size=60)
    with torch.no_grad():
        [wanted] = [layers(batch) for batch in whole.predict_dataloader()]
    if name == "GCN":
        with pytest.raises(InferenceError, match=r"degrees of sources|more than the in-neighbours"):
            infer(layers, whole, progress=False)
        return
    rows = infer(layers, whole, nodes="train", progress=False)
    rows = rows["paper"] if isinstance(rows, dict) else rows
    torch.testing.assert_close(rows, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", DATA)
@pytest.mark.parametrize("name", MODELS)
def test_each_weight_has_a_gradient_and_bfloat16_stays_near(name: str, form: str) -> None:
    """DDP waits for gradients of all weights; types without nodes, and batches of one seed, are there."""
    data = DATA[form]()
    layers = layers_on(name, data)
    one, many = (next(iter(batches(data, [3, 2], batch_size=size).train_dataloader())) for size in (1, 10))
    layers(one).sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in layers.parameters())
    layers.eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        rough = layers(many).float()
    with torch.no_grad():
        torch.testing.assert_close(rough, layers(many), rtol=0.1, atol=0.1)
        batch = many.clone()
        assert layers.bfloat16()(_halved(batch)).isfinite().all()


def _halved(batch: Any) -> Any:
    return batch._map(lambda rows: rows.bfloat16() if rows.is_floating_point() else rows)


def test_without_layers_a_model_never_looks_at_the_graph() -> None:
    data = typed()
    model = SAGE(16, num_layers=0, edges=True)
    layers = model.layers_of(model.sizes_of(data, 2) | {"num_outputs": 3}).eval()
    first, second = (next(iter(batches(data, fanouts, batch_size=9).train_dataloader())) for fanouts in ([3, 2], []))
    with torch.no_grad():
        assert torch.equal(layers(first), layers(second))


def timed(sharing: str | None = None, **settings: Any) -> GraphDataModule:
    """Two nodes at two times each, and edges before and between these."""
    graph = Graph.from_coo([2, 3, 2, 3], [0, 0, 1, 1], 4, edge_time=[10, 40, 20, 30], keep_order=True)
    rows = SeedTable([0, 0, 1], time=[50, 15, 25], y=[0, 1, 1])
    data = GraphData(graph, np.eye(4, dtype=np.float32), train=rows)
    sampler = NeighborSampler([-1], sharing=sharing)
    return GraphDataModule(data, sampler, batch_size=3, order="sequential", num_threads=0, **settings)


@pytest.mark.parametrize("sharing", [None, "time"])
def test_ages_are_told_at_the_time_of_the_seed(sharing: str | None) -> None:
    """Of node 0 at 50, edges of 10 and 40 are 40 and 10 old; at 15, the former is 5 old; of node 1 at 25, 20 is 5."""
    batch = next(iter(timed(sharing, edge_time=True).train_dataloader()))
    [block] = batch.blocks
    ages = Ages(batch, sharing or "disjoint").of_edges(block, "")
    by_seed = {
        int(row): sorted(part.tolist())
        for row, part in zip(batch.seed_columns["input_id"], ages.split(block.in_degrees[:3].tolist()), strict=True)
    }
    assert by_seed == {0: [10.0, 40.0], 1: [5.0], 2: [5.0]}


def test_what_layers_cannot_read_is_refused() -> None:
    with pytest.raises(LoaderConfigError, match=r"TemporalSAGE reads the age of edges, .* edge_time=True"):
        TemporalSAGE().sizes_of(timed().data, 1)
    with pytest.raises(GraphDataError, match=r"\(edges=\['age'\]\): the edges, or the seeds, have no times"):
        TemporalSAGE().sizes_of(flat(), 1)
    with pytest.raises(GraphDataError, match="the graph has no times of edges"):
        flat().with_edge_times()
    with pytest.raises(SamplerConfigError, match="the model has 3 layers, but the sampler drew 2 hops"):
        SAGE(num_layers=3).sizes_of(flat(), 2)
    for columns, words in (
        ({"tables": {"codes": np.zeros(60, np.int64)}}, r"table 'codes' has the shape \[60\], but models by name read"),
        ({"tables": {"codes": np.array([[0, -1]] * 60)}}, "table 'codes' has the code -1, but codes count from 0"),
        ({"x": np.zeros((60, 2, 3), np.float32)}, r"table 'x' has the shape \[60, 2, 3\]"),
        ({"edge_tables": {"codes": np.zeros(300, np.int64)}}, r"edge table 'codes' has the shape \[300\]"),
    ):
        with pytest.raises(GraphDataError, match=words):
            SAGE(edges=True).sizes_of(GraphData(flat().graph, **columns), 2)
    layers_timed = timed(edge_time=True)
    model = TemporalSAGE(hidden=8)
    layers = model.layers_of(model.sizes_of(layers_timed.data, 1) | {"num_outputs": 1})
    batch = next(iter(layers_timed.train_dataloader()))
    batch.rows = None
    with pytest.raises(SamplerConfigError, match="do not tell the seeds' times, or which seed"):
        layers(batch)
    for make, words in (
        (lambda: SAGE(first_layer="preaggregated", aggr="max"), "takes means of nodes' rows"),
        (lambda: SAGE(first_layer="sampled", num_layers=0), "need first_layer='encoded'"),
        (lambda: SAGE(edges=["weight"]), "a list of 'x', 'codes', 'type', 'age'"),
        (lambda: SAGE(norm="group"), "'group' is not known; give one of 'layer', 'batch'"),
        (lambda: GAT(hidden=10, heads=4), "heads=4 must divide hidden=10"),
        (lambda: RGCN(num_bases=0), "num_bases=0: a whole number of at least 1"),
    ):
        with pytest.raises(LoaderConfigError, match=words):
            make()

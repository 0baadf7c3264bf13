"""PyG's modules over all nodes, layer by layer: what the whole graph gives at once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lightning_gnnload import GraphData, infer
from lightning_gnnload.errors import InferenceError
from tests.runif import RunIf
from tests.unit.inference.models import HIDDEN, WIDTH, Deep, Plain, Weighted, edges, features, flat_data, weights

pytestmark = RunIf(extras="pyg")
CONVS = ("SAGEConv", "GATConv", "GINConv", "GCNConv", "TransformerConv", "GraphConv")


def conv(name: str, width: int = HIDDEN, out: int = HIDDEN) -> nn.Module:
    import torch_geometric.nn as pyg

    if name == "GINConv":
        return pyg.GINConv(nn.Sequential(nn.Linear(width, out), nn.ReLU(), nn.Linear(out, out)))
    if name == "GATConv":
        return pyg.GATConv(width, out // 4, heads=4)
    return getattr(pyg, name)(width, out)


@pytest.mark.parametrize("name", CONVS)
def test_skips_norms_and_jumping_knowledge_are_the_models_own(name: str) -> None:
    data, model = flat_data(), Deep(lambda: conv(name))
    found = infer(model, data, batch_format="pyg", max_edges=150, progress=False)
    assert model.training, "the model is left in the mode that it was in"
    with torch.no_grad():
        wanted = model.eval()(features(data), torch.from_numpy(edges()))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["GCNConv", "GraphConv"])
def test_weights_of_edges(name: str) -> None:
    data, model = flat_data(), Weighted(conv(name, WIDTH), conv(name, HIDDEN, 4)).eval()
    found = infer(model, data, batch_format="pyg", max_edges=150, progress=False)
    with torch.no_grad():
        wanted = model(features(data), torch.from_numpy(edges()), torch.from_numpy(weights()))
        without = model(features(data), torch.from_numpy(edges()), torch.ones(2001))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, without, atol=1e-2)


def test_features_of_edges() -> None:
    from torch_geometric.nn import GATConv

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (GATConv(size, 4, heads=2, edge_dim=3) for size in (WIDTH, 8))

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)

    plain, rows = flat_data(), torch.randn(2001, 3)
    data, model = GraphData(plain.graph, x=plain.x, edge_x=rows), Attention().eval()
    found = infer(model, data, batch_format="pyg", max_edges=150, progress=False)
    with torch.no_grad():
        wanted = model(features(data), torch.from_numpy(edges()), rows)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_whole_models_of_pyg_and_trimmed_ones() -> None:
    import torch_geometric

    data = flat_data()
    for jk in (None, "cat", "lstm"):
        model = torch_geometric.nn.GraphSAGE(
            WIDTH, HIDDEN, num_layers=3, out_channels=4, jk=jk, norm="batch_norm"
        ).eval()
        found = infer(model, data, batch_format="pyg", max_edges=150, progress=False)
        with torch.no_grad():
            wanted = model(features(data), torch.from_numpy(edges()))
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)

    class Trimmed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList([conv("SAGEConv", WIDTH), conv("SAGEConv"), conv("SAGEConv")])

        def predict_step(self, batch: torch_geometric.data.Data, batch_idx: int) -> torch.Tensor:
            x, edge_index = batch.x, batch.edge_index
            for layer, each in enumerate(self.convs):
                x, edge_index, _ = torch_geometric.utils.trim_to_layer(
                    layer, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index
                )
                x = each(x, edge_index).relu()
            return x[: batch.batch_size].argmax(dim=1)

    model = Trimmed().eval()
    found = infer(model, data, batch_format="pyg", max_edges=150, progress=False)
    x = features(data)
    with torch.no_grad():
        for each in model.convs:
            x = each(x, torch.from_numpy(edges())).relu()
    assert torch.equal(found, x.argmax(dim=1))


def test_a_convolution_that_is_called_twice() -> None:
    shared = conv("SAGEConv", WIDTH, WIDTH)
    data, model = flat_data(), Plain(shared, shared).eval()
    found = infer(model, data, batch_format="pyg", max_edges=150, progress=False)
    with torch.no_grad():
        wanted = model(features(data), torch.from_numpy(edges()))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", ["PairNorm", "GraphNorm", "MeanSubtractionNorm"])
def test_norms_over_all_nodes_are_refused(norm: str) -> None:
    import torch_geometric.nn as pyg

    made = getattr(pyg, norm)(*([HIDDEN] if norm == "GraphNorm" else []))
    model = Plain(conv("SAGEConv", WIDTH), nn.Module())
    model.second = pyg.Sequential("x, edge_index", [(made, "x -> x"), (conv("SAGEConv"), "x, edge_index -> x")])
    with pytest.raises(InferenceError, match="in-neighbours of a node"):
        infer(model, flat_data(), batch_format="pyg", progress=False)


def test_several_hops_in_one_convolution_are_refused() -> None:
    from torch_geometric.nn import TAGConv

    with pytest.raises(InferenceError, match="several hops in one convolution"):
        infer(Plain(TAGConv(WIDTH, HIDDEN), TAGConv(HIDDEN, 2)), flat_data(), batch_format="pyg", progress=False)


def test_a_sum_over_all_nodes_that_is_nan_elsewhere_is_refused() -> None:
    """max() of differences passes over not-a-number."""

    class Broken(Plain):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            rows = super().forward(x, edge_index)
            return rows / (rows - rows[:1])

    with pytest.raises(InferenceError, match="differ by inf"):
        infer(Broken(conv("SAGEConv", WIDTH), conv("SAGEConv")), flat_data(), batch_format="pyg", progress=False)


def test_modules_named_by_the_user_and_models_without_any() -> None:
    data, model = flat_data(), Plain(conv("SAGEConv", WIDTH), conv("SAGEConv")).eval()
    found = infer(model, data, batch_format="pyg", layers=["first", "second"], progress=False)
    with torch.no_grad():
        torch.testing.assert_close(found, model(features(data), torch.from_numpy(edges())), rtol=1e-5, atol=1e-5)
    with pytest.raises(InferenceError, match="no module 'third'"):
        infer(model, data, batch_format="pyg", layers=["third"], progress=False)

    class Perceptron(nn.Module):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return x

    with pytest.raises(InferenceError, match="no module that is given edges"):
        infer(Perceptron(), data, batch_format="pyg", progress=False)

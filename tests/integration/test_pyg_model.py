"""A LightningModule written for PyG's NeighborLoader runs on ours, and computes what PyG computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_lightning import LightningModule, seed_everything

from lightning_gnnload import GraphDataModule, NeighborSampler
from tests.integration.learnable import (
    NUM_CLASSES,
    NUM_FEATURES,
    STRATEGIES,
    accuracy_without_neighbours,
    learnable_graph,
    quiet_trainer,
)
from tests.runif import RunIf

pytestmark = [RunIf(extras="pyg"), pytest.mark.filterwarnings("ignore:.*torch.jit.script")]

FANOUTS = [10, 5]


class PyGSage(LightningModule):
    """As in PyG's examples, with and without trimming; nothing here knows of this package."""

    def __init__(self, trim: bool = True) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        self.trim = trim
        self.layers = torch.nn.ModuleList([SAGEConv(NUM_FEATURES, 16), SAGEConv(16, NUM_CLASSES)])

    def forward(self, batch: Any) -> torch.Tensor:
        from torch_geometric.utils import trim_to_layer

        x, edge_index = batch.x, batch.edge_index
        for number, layer in enumerate(self.layers):
            if self.trim:
                x, edge_index, _ = trim_to_layer(
                    number, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index
                )
            x = layer(x, edge_index)
            x = x.relu() if number == 0 else x
        return x

    def training_step(self, batch: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self(batch)[: batch.batch_size], batch.y[: batch.batch_size])

    def test_step(self, batch: Any) -> None:
        right = self(batch)[: batch.batch_size].argmax(1) == batch.y[: batch.batch_size]
        self.log("accuracy", right.float().mean(), batch_size=batch.batch_size)

    def predict_step(self, batch: Any) -> torch.Tensor:
        return self(batch)[: batch.batch_size]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.02)


def pyg_data() -> Any:
    from torch_geometric.data import Data

    graph = learnable_graph()
    data = Data(x=graph.x, edge_index=torch.stack([graph.src, graph.dst]), y=graph.y)
    data.train_mask, data.val_mask, data.test_mask = graph.train_mask, graph.val_mask, graph.test_mask
    return data


@pytest.mark.parametrize("trim", [True, False], ids=["trimmed", "whole"])
@pytest.mark.parametrize("strategy", ["auto", pytest.param("factored", marks=pytest.mark.matrix)])
def test_it_trains_with_only_the_data_changed(strategy: str, trim: bool) -> None:
    # Wrong edges, features of other nodes or labels of other seeds cannot pass what a node knows of itself.
    assert accuracy_without_neighbours(learnable_graph()) < 0.6
    seed_everything(0)
    model = PyGSage(trim)
    module = GraphDataModule.from_pyg(pyg_data(), sampler=NeighborSampler(FANOUTS, expand="new"), batch_size=64)
    trainer = quiet_trainer(max_epochs=6, **STRATEGIES[strategy]())
    trainer.fit(model, module)
    (metrics,) = trainer.test(model, module, verbose=False)
    assert metrics["accuracy"] > 0.85


@pytest.mark.parametrize("trim", [True, False], ids=["trimmed", "whole"])
def test_all_neighbours_give_full_graph_inference(trim: bool) -> None:
    data = pyg_data()
    torch.manual_seed(0)
    model = PyGSage(trim).eval()
    module = GraphDataModule.from_pyg(data, sampler=NeighborSampler([-1, -1], expand="new"), batch_size=100)
    predicted = quiet_trainer(**STRATEGIES["auto"]()).predict(model, module)
    model.trim = False
    with torch.no_grad():
        expected = model(data)
    torch.testing.assert_close(torch.cat(predicted), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("replace", [False, True])
def test_sampled_batches_give_what_the_sampled_edges_give(replace: bool) -> None:
    # PyG's own full computation over all nodes, each layer on exactly the edges of its block.
    data = pyg_data()
    torch.manual_seed(0)
    model = PyGSage().eval()
    settings = {"sampler": NeighborSampler(FANOUTS, expand="new", replace=replace), "batch_size": 50}
    as_pyg, as_blocks = (GraphDataModule.from_pyg(data, **settings, batch_format=name) for name in ("pyg", "blocks"))
    with torch.no_grad():
        for made, batch in zip(as_pyg.test_dataloader(), as_blocks.test_dataloader(), strict=True):
            x = data.x
            for number, (layer, block) in enumerate(zip(model.layers, batch.blocks, strict=True)):
                edges = torch.stack([batch.nodes[block.indices.long()], batch.nodes[block.edge_dst()]])
                x = layer(x, edges)
                x = x.relu() if number == 0 else x
            expected = x[batch.seeds]
            torch.testing.assert_close(model(made)[: made.batch_size], expected, rtol=1e-4, atol=1e-5)
            assert torch.equal(made.y, data.y[batch.seeds])

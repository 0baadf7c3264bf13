"""A LightningModule written for DGL's own DataLoader runs on ours, and computes what DGL computes."""

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

pytestmark = [RunIf(extras="dgl"), pytest.mark.filterwarnings("ignore:Dataloader CPU affinity")]

FANOUTS = [10, 5]  # nearest hop first; DGL takes them in the order of layers


class DGLSage(LightningModule):
    """As in DGL's mini-batch tutorials; nothing here knows of this package."""

    def __init__(self) -> None:
        super().__init__()
        from dgl.nn import SAGEConv

        self.layers = torch.nn.ModuleList([SAGEConv(NUM_FEATURES, 16, "mean"), SAGEConv(16, NUM_CLASSES, "mean")])

    def forward(self, graphs: list[Any], x: torch.Tensor) -> torch.Tensor:
        for layer, graph in enumerate(graphs):
            x = self.layers[layer](graph, x)
            x = x.relu() if layer == 0 else x
        return x

    def training_step(self, batch: Any) -> torch.Tensor:
        _input_nodes, _output_nodes, blocks = batch
        out = self(blocks, blocks[0].srcdata["feat"])
        return torch.nn.functional.cross_entropy(out, blocks[-1].dstdata["label"])

    def test_step(self, batch: Any) -> None:
        _input_nodes, output_nodes, blocks = batch
        right = self(blocks, blocks[0].srcdata["feat"]).argmax(1) == blocks[-1].dstdata["label"]
        self.log("accuracy", right.float().mean(), batch_size=len(output_nodes))

    def predict_step(self, batch: Any) -> torch.Tensor:
        return self(batch[2], batch[2][0].srcdata["feat"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.02)


def dgl_graph() -> Any:
    import dgl

    learnable = learnable_graph()
    graph = dgl.graph((learnable.src, learnable.dst), num_nodes=len(learnable.y))
    graph.ndata["feat"], graph.ndata["label"] = learnable.x, learnable.y
    for split in ("train_mask", "val_mask", "test_mask"):
        graph.ndata[split] = getattr(learnable, split)
    return graph


def dgls_own(graph: Any) -> dict[str, Any]:
    import dgl

    def loader(split: str, shuffle: bool) -> Any:
        sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1])
        return dgl.dataloading.DataLoader(
            graph, graph.ndata[split].nonzero().view(-1), sampler, batch_size=64, shuffle=shuffle
        )

    return {
        "fit": {"train_dataloaders": loader("train_mask", True)},
        "test": {"dataloaders": loader("test_mask", False)},
    }


def ours(graph: Any) -> dict[str, Any]:
    module = GraphDataModule.from_dgl(graph, sampler=NeighborSampler(FANOUTS), batch_size=64)
    return {"fit": {"datamodule": module}, "test": {"datamodule": module}}


@pytest.mark.parametrize(
    ("loaders", "strategy"),
    [(dgls_own, "auto"), (ours, "auto"), pytest.param(ours, "factored", marks=pytest.mark.matrix)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_it_trains_with_only_the_data_changed(loaders: Any, strategy: str) -> None:
    # Wrong edges, features of other nodes or labels of other seeds cannot pass what a node knows of itself.
    assert accuracy_without_neighbours(learnable_graph()) < 0.6
    seed_everything(0)
    model, data = DGLSage(), loaders(dgl_graph())
    trainer = quiet_trainer(max_epochs=6, **STRATEGIES[strategy]())
    trainer.fit(model, **data["fit"])
    (metrics,) = trainer.test(model, verbose=False, **data["test"])
    assert metrics["accuracy"] > 0.85


def test_all_neighbours_give_full_graph_inference() -> None:
    graph = dgl_graph()
    torch.manual_seed(0)
    model = DGLSage().eval()
    module = GraphDataModule.from_dgl(graph, sampler=NeighborSampler([-1, -1]), batch_size=100)
    predicted = quiet_trainer(**STRATEGIES["auto"]()).predict(model, module)
    with torch.no_grad():
        expected = model([graph, graph], graph.ndata["feat"])
    torch.testing.assert_close(torch.cat(predicted), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("replace", [False, True])
def test_sampled_blocks_give_what_the_sampled_edges_give(expand: Any, replace: bool) -> None:
    # DGL's own full computation, on graphs over all nodes that hold exactly the edges of one hop.
    import dgl

    graph = dgl_graph()
    torch.manual_seed(0)
    model = DGLSage().eval()
    settings = {"sampler": NeighborSampler(FANOUTS, expand=expand, replace=replace), "batch_size": 50}
    as_dgl, as_blocks = (GraphDataModule.from_dgl(graph, **settings, batch_format=name) for name in ("dgl", "blocks"))
    with torch.no_grad():
        for (_, seeds, blocks), batch in zip(as_dgl.test_dataloader(), as_blocks.test_dataloader(), strict=True):
            layers = [
                dgl.graph(
                    (batch.nodes[block.indices.long()], batch.nodes[block.edge_dst()]),
                    num_nodes=graph.num_nodes(),
                )
                for block in batch.blocks
            ]
            expected = model(layers, graph.ndata["feat"])[seeds]
            torch.testing.assert_close(model(blocks, blocks[0].srcdata["feat"]), expected, rtol=1e-4, atol=1e-5)
            assert torch.equal(blocks[-1].dstdata["label"], graph.ndata["label"][seeds])

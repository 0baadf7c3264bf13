"""A model that sums neighbours by ``Block.edge_weight`` learns from layer-wise batches."""

from __future__ import annotations

import pytest
import torch
from pytorch_lightning import LightningModule, seed_everything

from lightning_gnnload import Block, Graph, GraphData, GraphDataModule, LayerSampler, MiniBatch
from lightning_gnnload.adapters.dgl.write import ToDGL
from lightning_gnnload.adapters.pyg.write import to_pyg
from tests.integration.learnable import (
    NUM_CLASSES,
    NUM_FEATURES,
    STRATEGIES,
    accuracy_without_neighbours,
    learnable_graph,
    quiet_trainer,
)
from tests.runif import RunIf


class WeightedSums(LightningModule):
    """Two layers, each of a destination itself and the weighted sum over its edges."""

    def __init__(self) -> None:
        super().__init__()
        self.own = torch.nn.ModuleList([torch.nn.Linear(NUM_FEATURES, 16), torch.nn.Linear(16, NUM_CLASSES)])
        self.others = torch.nn.ModuleList([torch.nn.Linear(NUM_FEATURES, 16), torch.nn.Linear(16, NUM_CLASSES)])

    def forward(self, batch: MiniBatch) -> torch.Tensor:
        batch.expect_layers(len(self.own))
        h = batch.x
        for number, block in enumerate(batch.blocks):
            h = self.own[number](h[: block.num_dst]) + self.others[number](weighted_sums(block, h))
            h = h.relu() if number == 0 else h
        return h

    def training_step(self, batch: MiniBatch) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self(batch), batch.y)

    def test_step(self, batch: MiniBatch) -> None:
        right = self(batch).argmax(1) == batch.y
        self.log("accuracy", right.float().mean(), batch_size=batch.num_seeds)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.02)


def weighted_sums(block: Block, h: torch.Tensor) -> torch.Tensor:
    messages = h[block.indices.long()] * block.edge_weight.unsqueeze(1)
    return messages.new_zeros(block.num_dst, h.shape[1]).index_add_(0, block.edge_dst(), messages)


def learnable_data() -> GraphData:
    graph = learnable_graph()
    ids = {name: getattr(graph, f"{name}_mask").nonzero().squeeze(1) for name in ("train", "test")}
    return GraphData(Graph.from_coo(graph.src, graph.dst), graph.x, graph.y, **ids)


@pytest.mark.parametrize(
    "sampler",
    [
        LayerSampler([120, 200]),
        LayerSampler([120, 200], "fastgcn", keep_known=True),
        LayerSampler([400, 800], "dsp", replace=True),
    ],
    ids=repr,
)
def test_it_learns_from_neighbours(sampler: LayerSampler) -> None:
    # Edges of other nodes, or noise in their place, cannot pass what a node knows of itself.
    assert accuracy_without_neighbours(learnable_graph()) < 0.6
    seed_everything(0)
    model, module = WeightedSums(), GraphDataModule(learnable_data(), sampler, batch_size=64)
    trainer = quiet_trainer(max_epochs=8, **STRATEGIES["auto"]())
    trainer.fit(model, module)
    (metrics,) = trainer.test(model, module, verbose=False)
    assert metrics["accuracy"] > 0.75


# How the layers of other libraries take the weights.


def one_layer() -> tuple[MiniBatch, torch.Tensor, torch.Tensor]:
    """A batch, features of its nodes, and their weighted sums at the seeds."""
    data = learnable_data()
    batch = LayerSampler([50], expand="new").sample(data.graph, data.train[:64])
    h = data.x.rows[batch.nodes]
    return batch, h, weighted_sums(batch.blocks[0], h)


@RunIf(extras="pyg")
def test_pyg_sums_by_these_weights() -> None:
    from torch_geometric.nn import GCNConv

    batch, h, wanted = one_layer()
    data = to_pyg(batch)
    layer = GCNConv(NUM_FEATURES, 4, normalize=False, add_self_loops=False, bias=False)
    found = layer(h, data.edge_index, data.edge_weight)[: batch.num_seeds]
    torch.testing.assert_close(found, layer.lin(wanted))


@RunIf(extras="dgl")
def test_dgl_sums_by_these_weights() -> None:
    from dgl.nn import GraphConv

    batch, h, wanted = one_layer()
    _, _, [block] = ToDGL()(batch)
    layer = GraphConv(NUM_FEATURES, 4, norm="none", bias=False, allow_zero_in_degree=True)
    found = layer(block, (h, h[: batch.num_seeds]), edge_weight=block.edata["edge_weights"])
    torch.testing.assert_close(found, wanted @ layer.weight)

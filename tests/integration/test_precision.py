"""Lightning's precisions in every batch format: floats come as they do in batches of other loaders."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_lightning import LightningModule

from lightning_gnnload import FactoredStrategy, Graph, GraphData, GraphDataModule, NeighborSampler
from tests.integration.learnable import NUM_CLASSES, NUM_FEATURES, learnable_graph, quiet_trainer
from tests.runif import RunIf

DTYPES = {"64-true": torch.float64, "bf16-true": torch.bfloat16, "16-true": torch.float16, "bf16-mixed": torch.float32}


class Mean(LightningModule):
    """A layer over the nodes and the weighted mean of their neighbours; what it was given, by name."""

    def __init__(self, batch_format: str) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2 * NUM_FEATURES, NUM_CLASSES)
        self.batch_format = batch_format
        self.dtypes: dict[str, torch.dtype] = {}

    def training_step(self, batch: Any) -> torch.Tensor:
        if self.batch_format == "blocks":
            (block,), x, y = batch.blocks, batch.x, batch.y
            weight, src, dst = block.normalized_edge_weight(), block.indices, block.edge_dst()
        elif self.batch_format == "dgl":
            (block,) = batch[2]
            (src, dst), x, y = block.edges(), block.srcdata["feat"], block.dstdata["label"]
            weight = block.edata["edge_weight"]
        else:
            (src, dst), x, y, weight = batch.edge_index, batch.x, batch.y, batch.edge_weight
        self.dtypes = {"x": x.dtype, "y": y.dtype, "weight": weight.dtype, "src": src.dtype}
        mean = x.new_zeros(len(y), NUM_FEATURES).index_add_(0, dst.long(), weight[:, None] * x[src.long()])
        return torch.nn.functional.cross_entropy(self.layer(torch.cat([x[: len(y)], mean], 1)), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("strategy", ["auto", FactoredStrategy])
@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize(
    "batch_format",
    ["blocks", pytest.param("dgl", marks=RunIf(extras="dgl")), pytest.param("pyg", marks=RunIf(extras="pyg"))],
)
def test_floats_come_in_the_precision_of_the_model(batch_format: Any, precision: Any, strategy: Any) -> None:
    learnable = learnable_graph()
    weight = torch.rand(len(learnable.src))
    graph = Graph.from_coo(learnable.src, learnable.dst, edge_weight=weight)
    data = GraphDataModule(
        GraphData(graph, learnable.x.float(), learnable.y, train=range(100)),
        NeighborSampler([4], expand="new"),
        batch_size=50,
        batch_format=batch_format,
    )
    model = Mean(batch_format)
    strategy = strategy if isinstance(strategy, str) else strategy()
    quiet_trainer(max_epochs=1, precision=precision, strategy=strategy, devices=1).fit(model, data)
    floats = DTYPES[precision]
    assert (model.dtypes["x"], model.dtypes["weight"], model.dtypes["y"]) == (floats, floats, torch.int64)
    assert not model.dtypes["src"].is_floating_point

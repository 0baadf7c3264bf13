"""GraphSAGE as users write it: a plain LightningModule with sizes in its arguments, which knows nothing of this package
but blocks. What tests, benchmarks and scripts train where the loader matters, and not the model."""

from __future__ import annotations

from itertools import pairwise

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.classification import MulticlassAccuracy

from lightning_gnnload import Block, Dropout, MiniBatch, aggregate


class SAGEConv(nn.Module):
    """``W x_dst + V mean(x_src)``; the mean is weighted where the sampler says what each edge counts."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_features, out_features)
        self.neighbors = nn.Linear(in_features, out_features, bias=False)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        return self.own(x[: block.num_dst]) + self.neighbors(aggregate(block, x, "mean", block.edge_weight))


class GraphSAGE(pl.LightningModule):
    """Node classification by layers of :class:`SAGEConv`."""

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        hidden: int = 256,
        num_layers: int = 2,
        dropout: float = 0.5,
        lr: float = 0.003,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr = lr
        self.val_metric = MulticlassAccuracy(num_classes, average="micro")
        self.test_metric = self.val_metric.clone()
        widths = [in_features] + [hidden] * (num_layers - 1) + [num_classes]
        self.convs = nn.ModuleList(SAGEConv(*pair) for pair in pairwise(widths))
        self.dropout = Dropout(dropout, relu=True)

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds, ``[num_seeds, num_classes]``."""
        batch.expect_layers(len(self.convs))
        first, *further = zip(self.convs, batch.blocks, strict=True)
        x = first[0](first[1], batch.x)
        for conv, block in further:
            x = conv(block, self.dropout(x))
        return x

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        loss = F.cross_entropy(self(batch), batch.y)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(batch.y))
        return loss

    def validation_step(self, batch: MiniBatch, batch_idx: int) -> None:
        self.val_metric.update(self(batch), batch.y)
        self.log("val_accuracy", self.val_metric, prog_bar=True, batch_size=len(batch.y))

    def test_step(self, batch: MiniBatch, batch_idx: int) -> None:
        self.test_metric.update(self(batch), batch.y)
        self.log("test_accuracy", self.test_metric, prog_bar=True, batch_size=len(batch.y))

    def predict_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        return self(batch).softmax(dim=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)

"""GraphSAGE on mini-batches of blocks, as a plain LightningModule."""

from __future__ import annotations

from itertools import pairwise

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.classification import MulticlassAccuracy

from lightning_gnnload import Block, MiniBatch


class SAGEConv(nn.Module):
    """GraphSAGE with the mean aggregator: ``W x_dst + V mean(x_src)``.

    The mean is weighted where the sampler says what each edge counts. ``embedding_bag`` averages the neighbours' rows
    without writing them out edge by edge.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_features, out_features)
        self.neighbors = nn.Linear(in_features, out_features, bias=False)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """``[num_src, in_features]`` to ``[num_dst, out_features]``."""
        weights = None if block.edge_weight is None else block.normalized_edge_weight()
        mode = "mean" if weights is None else "sum"
        mean = F.embedding_bag(
            block.indices, x, block.indptr, mode=mode, include_last_offset=True, per_sample_weights=weights
        )
        return self.own(x[: block.num_dst]) + self.neighbors(mean)


class GraphSAGE(pl.LightningModule):
    """Node classification by ``num_layers`` SAGE layers.

    Args:
        in_features: feature width.
        num_classes: label classes.
        hidden: width of the hidden layers.
        num_layers: must equal the sampler's number of hops.
        dropout: between layers.
        lr: Adam's learning rate.
    """

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
        widths = [in_features] + [hidden] * (num_layers - 1) + [num_classes]
        self.convs = nn.ModuleList(SAGEConv(*pair) for pair in pairwise(widths))
        self.dropout = nn.Dropout(dropout)
        self.val_accuracy = MulticlassAccuracy(num_classes, average="micro")
        self.test_accuracy = MulticlassAccuracy(num_classes, average="micro")
        self.lr = lr

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds, ``[num_seeds, num_classes]``."""
        batch.expect_layers(len(self.convs))
        assert batch.x is not None
        first, *others = zip(self.convs, batch.blocks, strict=True)
        x = first[0](first[1], batch.x)
        for conv, block in others:
            x = conv(block, self.dropout(x.relu()))
        return x

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        assert batch.y is not None
        loss = F.cross_entropy(self(batch), batch.y)
        self.log("train_loss", loss, prog_bar=True, batch_size=batch.num_seeds)
        return loss

    def validation_step(self, batch: MiniBatch, batch_idx: int) -> None:
        self.val_accuracy(self(batch), batch.y)
        self.log("val_accuracy", self.val_accuracy, prog_bar=True, batch_size=batch.num_seeds)

    def test_step(self, batch: MiniBatch, batch_idx: int) -> None:
        self.test_accuracy(self(batch), batch.y)
        self.log("test_accuracy", self.test_accuracy, batch_size=batch.num_seeds)

    def predict_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        return self(batch).argmax(dim=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)

"""Learner: what all models of the examples have in common, steps and a metric."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric


def needed(value: Any, name: str, what: str) -> Any:
    """Returns what a batch has of ``what``. Raises ValueError: it has none."""
    if value is None:
        raise ValueError(f"batch.{name} is None: this model needs {what} of nodes. Give GraphData(..., {name}=...).")
    return value


class Learner(pl.LightningModule):
    """A model that trains on the labels of a batch's seeds; a subclass says what it predicts for them.

    Args:
        metric: counts predictions and labels, in validation and test.
        name: the metric's, in the log: ``val_<name>`` and ``test_<name>``.
        lr: Adam's learning rate.
    """

    def __init__(self, metric: Metric, name: str, lr: float) -> None:
        super().__init__()
        self.val_metric, self.test_metric = metric, metric.clone()
        self.name = name
        self.lr = lr

    def labels(self, batch: Any) -> Tensor:
        """Returns the labels of the seeds, ``[num_seeds]``."""
        return needed(batch.y, "y", "labels")

    def loss(self, predicted: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(predicted, labels)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        labels = self.labels(batch)
        loss = self.loss(self(batch), labels)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.count(batch, self.val_metric, f"val_{self.name}")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.count(batch, self.test_metric, f"test_{self.name}")

    def count(self, batch: Any, metric: Metric, name: str) -> None:
        labels = self.labels(batch)
        metric.update(self(batch), labels)
        self.log(name, metric, prog_bar=True, batch_size=len(labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)

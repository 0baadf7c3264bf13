"""NoGraphBaseline: what a model that never sees the graph reaches on the same features."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.module.datamodule import GraphDataModule


class NoGraphBaseline(pl.Callback):
    """After a test, trains a perceptron on the same features and splits, and prints both accuracies, and that of the
    most frequent class.

    If the two are close, the graph adds nothing, and neither does sampling it. Single-label classification only.

    Args:
        metric: name under which the model logged its test accuracy.
        hidden: width of the hidden layers.
        num_layers: linear layers.
        epochs: passes over the training nodes; the epoch with the best validation accuracy counts.
        batch_size: nodes a step.
        lr: Adam's learning rate.
        dropout: between layers.
        seed: of initial weights, order and dropout.

    Example:
        >>> import pytorch_lightning as pl
        >>> trainer = pl.Trainer(callbacks=[NoGraphBaseline(epochs=10)], logger=False, accelerator="cpu")
    """

    def __init__(
        self,
        metric: str = "test_accuracy",
        hidden: int = 256,
        num_layers: int = 3,
        epochs: int = 40,
        batch_size: int = 1024,
        lr: float = 0.003,
        dropout: float = 0.3,
        seed: int = 0,
    ) -> None:
        self.metric = metric
        self.hidden = hidden
        self.num_layers = num_layers
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.dropout = dropout
        self.seed = seed
        self.accuracy: float | None = None

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        module = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(module, GraphDataModule):
            raise LoaderConfigError("NoGraphBaseline needs a GraphDataModule, for its features and splits.")
        self.accuracy = self.train(module.graph_data)
        table = Table(title="Does the graph matter? Test accuracy")
        table.add_column("model")
        table.add_column("accuracy", justify="right")
        if self.metric in trainer.callback_metrics:
            table.add_row(type(pl_module).__name__, f"{float(trainer.callback_metrics[self.metric]):.4f}")
        table.add_row("perceptron, no graph", f"{self.accuracy:.4f}")
        table.add_row("the most frequent class", f"{_most_frequent(module.graph_data):.4f}")
        Console().print(table)

    def train(self, data: GraphData) -> float:
        """Trains the perceptron; returns its test accuracy at the epoch with the best validation accuracy.

        Raises:
            LoaderConfigError: no features, or no integer class labels; splits that are seed tables.
        """
        if data.x is None or data.y is None or data.y.ndim != 1 or data.y.is_floating_point():
            raise LoaderConfigError("NoGraphBaseline needs features and one integer class label a node.")
        if data.seed_tables:
            raise LoaderConfigError("NoGraphBaseline learns nodes by their labels, but the splits are seed tables.")
        splits = {name: self._rows(data, data.split(name)) for name in ("train", "val", "test")}
        # Lightning tests in inference mode, where nothing can be trained.
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.inference_mode(False):
            torch.manual_seed(self.seed)
            model = self._model(data.num_features, data.num_classes)
            optimizer = torch.optim.Adam(model.parameters(), lr=self.lr)
            best = tested = -1.0
            x, y = splits["train"]
            for _ in range(self.epochs):
                model.train()
                for ids in torch.randperm(len(y)).split(self.batch_size):
                    optimizer.zero_grad()
                    F.cross_entropy(model(x[ids]), y[ids]).backward()
                    optimizer.step()
                # On a tie the earlier epoch counts: the test split must not choose. Without validation, the last does.
                validated = _accuracy(model, *splits["val"])
                if validated > best or not len(splits["val"][1]):
                    best, tested = validated, _accuracy(model, *splits["test"])
        return tested

    def _model(self, in_features: int, num_classes: int) -> nn.Sequential:
        widths = [in_features] + [self.hidden] * (self.num_layers - 1)
        layers: list[nn.Module] = []
        for pair in pairwise(widths):
            layers += [nn.Linear(*pair), nn.ReLU(), nn.Dropout(self.dropout)]
        return nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))

    @staticmethod
    def _rows(data: GraphData, ids: np.ndarray) -> tuple[Tensor, Tensor]:
        assert data.x is not None
        assert data.y is not None
        nodes = torch.from_numpy(ids)
        x = torch.empty(len(ids), data.num_features, dtype=data.x.dtype)
        data.x.gather(nodes, x)
        return x.float(), data.y[nodes].long()


def _most_frequent(data: GraphData) -> float:
    """The share of the test split that is of the class that the train split has most of."""
    assert data.y is not None, "train() has refused data without"
    train, test = (data.y[torch.from_numpy(data.split(name))].long() for name in ("train", "test"))
    return float((test == train.bincount().argmax()).float().mean()) if len(train) and len(test) else 0.0


@torch.no_grad()
def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    return float((model(x).argmax(1) == y).float().mean()) if len(y) else 0.0

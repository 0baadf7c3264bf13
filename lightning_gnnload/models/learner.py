"""NodeLearner: what models of this package share: labels of nodes, losses, metrics, and layers made for the data."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.regression import MeanAbsoluteError

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.errors import GnnLoadError, GraphDataError
from lightning_gnnload.plugin.compat import own_hyperparameters, pl
from lightning_gnnload.sample.base import Sampler


class NodeLearner(pl.LightningModule):
    """Predicts the label of seeds that are nodes: a class where labels are integers, a number where they are floats.

    A subclass says in :meth:`sizes_of` and :meth:`layers_of` which layers it has, once the data are there. It logs
    ``train_loss``, and ``val_accuracy`` and ``test_accuracy``, or ``val_error`` and ``test_error``.
    """

    layers: nn.Module
    sizes: dict[str, Any]

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr

    def save_hyperparameters(self, *args: Any, frame: FrameType | None = None, **kwargs: Any) -> None:
        """Does what Lightning does, also for a model that is a setting of another one: a command line has the settings
        of the other at hand while it makes both."""
        caller = inspect.currentframe()
        assert caller is not None
        with own_hyperparameters(self):
            super().save_hyperparameters(*args, frame=frame or caller.f_back, **kwargs)

    def sizes_of(self, data: GraphData, num_hops: int) -> dict[str, Any]:
        """Returns what the layers' sizes follow from, in types that a checkpoint takes, for data and the number of hops
        that its sampler draws. ``num_outputs`` and ``is_class`` are there already."""
        raise NotImplementedError

    def layers_of(self, sizes: dict[str, Any]) -> nn.Module:
        """Returns the layers: a mini-batch's seeds to their predictions, ``[S, num_outputs]``."""
        raise NotImplementedError

    def configure_model(self) -> None:
        """Makes the layers, now that the data are there; a checkpoint that is loaded by itself makes them later."""
        if self._trainer is None:
            return
        module: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        if is_new := not hasattr(self, "layers"):
            data = module.data
            label = _label_of(data, type(self).__name__)
            is_class = not label.is_floating_point()
            outputs = {"num_outputs": data.num_classes if is_class else 1, "is_class": is_class}
            self._make(self.sizes_of(data, module.sampler.num_layers) | outputs)
        try:
            # Also of weights that were loaded before: these data may have tables of other names, or none.
            self.take_tables(module.data, [module.sampler, module.eval_sampler])
        except GnnLoadError:
            if is_new:  # else the next run, on other data, would find layers for these
                del self.layers, self.sizes
            raise

    def take_tables(self, data: GraphData, samplers: Sequence[Sampler] = ()) -> None:
        """Finds the data's tables of :func:`.preaggregate` that the layers take, for samplers that draw what else they
        need; a run begins by it, and so does :func:`.infer`.

        Raises:
            GraphDataError: there are none, or they sum otherwise than the layers or the samplers.
            StaleTableError: they are of another graph, or of other rows.
        """

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["sizes"] = self.sizes

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._make(checkpoint["sizes"])

    def _make(self, sizes: dict[str, Any]) -> None:
        if not hasattr(self, "layers") or self.sizes != sizes:
            self.sizes = sizes
            self.layers = self.layers_of(sizes).to(self.device)
            metric: Metric = MeanAbsoluteError()
            if sizes["is_class"]:
                metric = MulticlassAccuracy(sizes["num_outputs"], average="micro")
            self.val_metric, self.test_metric = metric.to(self.device), metric.clone().to(self.device)

    @property
    def _is_class(self) -> bool:
        return bool(self.sizes["is_class"])

    def forward(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        """Logits of the seeds, ``[S, num_classes]``, or their numbers, ``[S]``."""
        predicted: Tensor = self.layers(batch)
        return predicted if self._is_class else predicted.squeeze(1)

    def training_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> Tensor:
        predicted, labels = self(batch), self._labels(batch)
        loss = F.cross_entropy(predicted, labels) if self._is_class else F.mse_loss(predicted, labels)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> None:
        self._count(batch, self.val_metric, "val")

    def test_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> None:
        self._count(batch, self.test_metric, "test")

    def _count(self, batch: MiniBatch | TypedMiniBatch, metric: Metric, phase: str) -> None:
        labels = self._labels(batch)
        metric.update(self(batch), labels)
        name = f"{phase}_{'accuracy' if self._is_class else 'error'}"
        self.log(name, metric, prog_bar=True, batch_size=len(labels))

    def _labels(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        y = torch.cat(list(batch.y.values())) if isinstance(batch.y, dict) else batch.y
        assert y is not None, "the data have labels, as the layers were made for them"
        return y.long() if self._is_class else y.to(next(self.parameters()).dtype)

    def predict_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> Tensor:
        predicted = self(batch)
        return predicted.softmax(dim=1) if self._is_class else predicted

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def _label_of(data: GraphData, model: str) -> Tensor:
    label = next((table.y for table in data.seed_tables.values() if table.y is not None), data.y)
    if label is None or label.ndim != 1:
        problem = "there are none" if label is None else f"their shape is {list(label.shape)}"
        raise GraphDataError(
            f"{model} predicts one label a node, but {problem}. Give GraphData labels y, or a task with y."
        )
    if any(table.kind == "links" for table in data.seed_tables.values()):
        raise GraphDataError(f"{model} predicts labels of nodes, but the seeds are links. Take one that scores pairs.")
    return label

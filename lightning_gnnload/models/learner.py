"""NodeLearner: what models of this package share: labels of nodes, losses, metrics, and layers made for the data."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.models.metrics import check_names, metrics_of
from lightning_gnnload.models.targets import ClassWeights, Target, labels_of, target_of, target_sizes
from lightning_gnnload.plugin.compat import own_hyperparameters, pl
from lightning_gnnload.sample.base import Sampler


class NodeLearner(pl.LightningModule):
    """Predicts labels of seeds that are nodes: what they are says which loss and metrics fit.

    Integers ``[S]`` are one of C classes, bools ``[S, C]`` any of C labels, floats ``[S]`` or ``[S, C]`` numbers, which
    layers learn in units of their standard deviation in the train split. Logged under ``val_`` and ``test_``:

    - of classes ``accuracy`` and ``f1``, the mean of all classes; of two ``accuracy``, ``auroc``,
      ``average_precision``, the latter two of class 1;
    - of labels ``auroc`` and ``f1``, means of all labels;
    - of numbers ``error``, the mean absolute difference, and ``r2``.

    ``train_loss`` is logged, too; and in a test, beside each figure, that of a baseline, as
    ``test_accuracy_baseline``: the classes' or labels' shares in the train split, or the mean of its numbers, predicted
    for all rows. A figure that is not defined, as an AUROC of one class alone, is NaN, with a warning.

    A subclass says in :meth:`sizes_of` and :meth:`layers_of` which layers it has, once the data are there.

    Args:
        lr: Adam's learning rate.
        class_weights: of the loss. ``"balanced"``: rare classes count as much in sum as frequent ones, and of several
            labels, a label's presence as much as its absence. Or a positive number for each; None: all rows alike.
        metrics: names of the metrics; None: as above. Further ones are ``balanced_accuracy`` and, of two classes,
            ``f1``; of labels ``average_precision`` and ``accuracy``; of numbers ``rmse``.

    Raises:
        LoaderConfigError: a metric that is not known or does not fit, weights that do not; the latter as a run begins.
        GraphDataError: as a run begins: labels that cannot be learned.
    """

    layers: nn.Module
    sizes: dict[str, Any]
    target: Target
    test_metrics: Any

    def __init__(self, lr: float = 0.003, class_weights: ClassWeights = None, metrics: list[str] | None = None) -> None:
        super().__init__()
        check_names(metrics)
        self.lr, self._class_weights, self._metric_names = lr, class_weights, metrics

    def save_hyperparameters(self, *args: Any, frame: FrameType | None = None, **kwargs: Any) -> None:
        """Does what Lightning does, also for a model that is a setting of another one: a command line has the settings
        of the other at hand while it makes both."""
        caller = inspect.currentframe()
        assert caller is not None
        with own_hyperparameters(self):
            super().save_hyperparameters(*args, frame=frame or caller.f_back, **kwargs)

    def sizes_of(self, data: GraphData, num_hops: int) -> dict[str, Any]:
        """Returns what the layers' sizes follow from, in types that a checkpoint takes, for data and the number of hops
        that its sampler draws; not ``num_outputs``, which :meth:`layers_of` needs as well."""
        raise NotImplementedError

    def layers_of(self, sizes: dict[str, Any]) -> nn.Module:
        """Returns the layers: a mini-batch to the rows of its seeds, ``[S, num_outputs]``, type after type."""
        raise NotImplementedError

    def configure_model(self) -> None:
        """Makes the layers, now that the data are there; a checkpoint that is loaded by itself makes them later."""
        if self._trainer is None:
            return
        module: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        if is_new := not hasattr(self, "layers"):
            outputs = target_sizes(module.data, type(self).__name__)
            self._make(self.sizes_of(module.data, module.sampler.num_layers) | outputs)
        try:
            # Also of weights that were loaded before: these data may have tables of other names, or none.
            self.take_tables(module.data, [module.sampler, module.eval_sampler])
            self._learn_labels()
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
            target = target_of(sizes)
            metrics: Any = metrics_of(target.predicts, target.num_outputs, self._metric_names, target.mean)
            self.sizes, self.target = sizes, target
            self.layers = self.layers_of(sizes).to(self.device)
            for phase in ("val", "test", "baseline"):
                clones = {name: metric.clone() for name, metric in metrics.items()}
                setattr(self, f"{phase}_metrics", nn.ModuleDict(clones).to(self.device))
            self._learn_labels()

    def _learn_labels(self) -> None:
        """Takes from the labels of training what a checkpoint does not keep: weights of the loss, and the baseline."""
        module = None if self._trainer is None else getattr(self.trainer, "datamodule", None)
        if module is not None and (labels := labels_of(module.data, "train")) is not None:
            self.target.learn(labels, self._class_weights)

    def forward(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        """Logits of the seeds, ``[S, C]``, or their numbers in the units of the labels, ``[S]`` or ``[S, C]``."""
        return self.target.values(self.layers(batch))

    def training_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> Tensor:
        values, labels = self(batch), self._labels(batch)
        loss = self.target.loss(values, labels)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> None:
        self._count(self._predictions(batch), self._labels(batch), "val")

    def test_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> None:
        labels, constant = self._labels(batch), self.target.constant
        self._count(predictions := self._predictions(batch), labels, "test")
        if constant is not None:
            rows = constant.to(labels.device).expand(len(labels), -1)
            self._count(rows.reshape(predictions.shape).contiguous(), labels, "baseline", "test_{}_baseline")

    def on_test_end(self) -> None:
        if self.target.constant is None:
            return
        results = self.trainer.callback_metrics
        figures = [
            f"test_{name} {float(results[f'test_{name}']):.4g} ({float(results[f'test_{name}_baseline']):.4g})"
            for name in self.test_metrics
            if f"test_{name}_baseline" in results
        ]
        pl.utilities.rank_zero.rank_zero_info(f"{', '.join(figures)}; in brackets {self.target.rival}, for all rows.")

    def _count(self, predictions: Tensor, labels: Tensor, phase: str, form: str | None = None) -> None:
        metrics: Any = getattr(self, f"{phase}_metrics")
        counted = self.target.counted(labels)
        predictions, labels = predictions[counted], labels[counted]
        for number, (name, metric) in enumerate(metrics.items()):
            # Two classes are one question to metrics of rankings.
            is_binary = name in ("auroc", "average_precision", "f1") and self.target.predicts == "two classes"
            if len(labels) or hasattr(metric, "preds"):  # lists, which ranks join: each needs one
                metric.update(predictions[:, 1] if is_binary else predictions, labels)
            in_bar = number == 0 and form is None
            self.log((form or f"{phase}_{{}}").format(name), metric, prog_bar=in_bar, batch_size=len(labels))

    def _predictions(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        return self.target.predictions(self(batch).float())

    def _labels(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        y = torch.cat(list(batch.y.values())) if isinstance(batch.y, dict) else batch.y
        assert y is not None, "the data have labels, as the layers were made for them"
        return self.target.labels(y)

    def predict_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> Tensor:
        return self.target.predictions(self(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)

"""What a model is measured by: the metrics that fit what it predicts, by the names that a log shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAUROC,
    BinaryAveragePrecision,
    BinaryF1Score,
    MulticlassAccuracy,
    MulticlassF1Score,
    MultilabelAccuracy,
    MultilabelAUROC,
    MultilabelAveragePrecision,
    MultilabelF1Score,
)
from torchmetrics.regression import MeanAbsoluteError, MeanSquaredError, R2Score
from torchmetrics.utilities.data import dim_zero_cat

from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.plugin.compat import pl

_TOO_FEW_ROWS = 2  # of which a variance, and so R2, says nothing


def _undefined(metric: Metric, reason: str) -> Tensor:
    # Not 0, which would be the worst model, or, of a curve without positives, 1, which would be the best.
    pl.utilities.rank_zero.rank_zero_warn(f"{type(metric).__name__} is not defined, and logged as NaN: {reason}.")
    return torch.tensor(torch.nan, device=metric.device)


def _of_defined(metric: Any, values: Callable[[], Tensor], needs_negatives: bool) -> Tensor:
    """The mean over those labels of which the rows have both answers, where torchmetrics counts others as 0 or 1."""
    target = dim_zero_cat(metric.target)
    target = target.view(len(target), -1)
    is_defined = (target == 1).any(dim=0)
    if needs_negatives:
        is_defined &= (target == 0).any(dim=0)
    if not bool(is_defined.any()):
        lacking = "positive rows" if not bool((target == 1).any()) else "negative rows"
        return _undefined(metric, f"there are no {lacking} among {len(target)}")
    return values().view(-1)[is_defined].mean()


class AUROC(BinaryAUROC):
    """The area under the receiver operating characteristic, of two classes; NaN where rows are of one alone."""

    def compute(self) -> Tensor:  # type: ignore[override]
        return _of_defined(self, super().compute, needs_negatives=True)


class AveragePrecision(BinaryAveragePrecision):
    """The area under precision over recall, of two classes; NaN where no row is of class 1."""

    def compute(self) -> Tensor:  # type: ignore[override]
        return _of_defined(self, super().compute, needs_negatives=False)


class LabelsAUROC(MultilabelAUROC):
    """The mean of the labels' areas under the curve, of those labels that some rows have and some have not."""

    def compute(self) -> Tensor:  # type: ignore[override]
        return _of_defined(self, super().compute, needs_negatives=True)


class LabelsAveragePrecision(MultilabelAveragePrecision):
    """The mean of the labels' average precisions, of those labels that some rows have."""

    def compute(self) -> Tensor:  # type: ignore[override]
        return _of_defined(self, super().compute, needs_negatives=False)


class LabelsF1(MultilabelF1Score):
    """The mean of the labels' F1, of those labels that some rows have; a label is predicted from 0.5 on."""

    def compute(self) -> Tensor:
        is_defined = dim_zero_cat(self.tp) + dim_zero_cat(self.fn) > 0
        if not bool(is_defined.any()):
            return _undefined(self, "no row has any label")
        return super().compute()[is_defined].mean()


class R2(R2Score):
    """The share of the variance that is explained, the mean of all columns; NaN of fewer than two rows.

    Sums are of float64, and of numbers from which ``shift`` was subtracted, near their mean: the square of a number of
    seven digits leaves little of a float for its variance.
    """

    shift: Tensor | float = 0.0

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.set_dtype(torch.float64)

    def update(self, preds: Tensor, target: Tensor) -> None:
        shift = torch.as_tensor(self.shift, dtype=torch.float64, device=target.device)
        shift = shift if target.ndim == 2 else shift.sum()  # one number has one
        super().update(preds.double() - shift, target.double() - shift)

    def compute(self) -> Tensor:
        if self.total < _TOO_FEW_ROWS:
            return _undefined(self, f"there are {int(self.total)} rows, and a variance needs two")
        return super().compute()


_CURVE: dict[str, Any] = {"thresholds": None, "validate_args": False}
_TWO_CLASSES = {
    "auroc": lambda _: AUROC(**_CURVE),
    "average_precision": lambda _: AveragePrecision(**_CURVE),
    "f1": lambda _: BinaryF1Score(),
}
_CLASSES = {
    "accuracy": lambda count: MulticlassAccuracy(count, average="micro"),
    "f1": lambda count: MulticlassF1Score(count, average="macro"),
    "balanced_accuracy": lambda count: MulticlassAccuracy(count, average="macro"),
}
_LABELS = {
    "auroc": lambda count: LabelsAUROC(count, average=None, **_CURVE),
    "average_precision": lambda count: LabelsAveragePrecision(count, average=None, **_CURVE),
    "f1": lambda count: LabelsF1(count, average=None),
    "accuracy": lambda count: MultilabelAccuracy(count, average="micro"),
}
_NUMBERS = {
    "error": lambda _: MeanAbsoluteError(),
    "r2": lambda _: R2(),
    "rmse": lambda _: MeanSquaredError(squared=False),
}
METRICS: Mapping[str, Mapping[str, Callable[[int], Metric]]] = {
    "classes": _CLASSES,
    "two classes": {**_CLASSES, **_TWO_CLASSES},
    "labels": _LABELS,
    "numbers": _NUMBERS,
}
"""Metrics by what is predicted, and then by name; each is made for a number of outputs."""
DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "classes": ("accuracy", "f1"),
    "two classes": ("accuracy", "auroc", "average_precision"),
    "labels": ("auroc", "f1"),
    "numbers": ("error", "r2"),
}


def check_names(names: Sequence[str] | None) -> None:
    """Raises LoaderConfigError: no metric of anything has one of these names."""
    if names is None:
        return
    if isinstance(names, str) or not names:
        raise LoaderConfigError(f"metrics={names!r}: a list of names is needed, such as ['accuracy', 'f1'], or None.")
    every = list(dict.fromkeys(name for metrics in METRICS.values() for name in metrics))
    for name in names:
        if name not in every:
            raise LoaderConfigError(f"metrics: {name!r} is not known; give some of {', '.join(every)}.")


def metrics_of(
    predicts: str, num_outputs: int, names: Sequence[str] | None = None, shift: Tensor | float = 0.0
) -> nn.ModuleDict:
    """Returns metrics by name, with no rows yet.

    Args:
        predicts: one of :data:`METRICS`.
        num_outputs: of a row: classes, labels or numbers.
        names: which ones, the first for the progress bar; None: :data:`DEFAULTS`.
        shift: of :class:`R2`, ``[num_outputs]``.

    Raises:
        LoaderConfigError: one does not fit what is predicted.
    """
    fitting = METRICS[predicts]
    if predicts == "labels" and num_outputs == 1:  # which torchmetrics counts as two classes
        fitting = {**_TWO_CLASSES, "accuracy": lambda _: BinaryAccuracy()}
    for name in names or ():
        if name not in fitting:
            raise LoaderConfigError(
                f"metrics: {name!r} does not fit a model that predicts {predicts}; {', '.join(fitting)} do."
            )
    metrics = {name: fitting[name](num_outputs) for name in names or DEFAULTS[predicts]}
    for metric in metrics.values():
        if isinstance(metric, R2):
            metric.shift = shift
    return nn.ModuleDict(metrics)

"""What a model predicts for a seed: one of several classes, some of several labels, or numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.sanity import NO_CLASS, bad_labels
from lightning_gnnload.errors import GraphDataError, LoaderConfigError
from lightning_gnnload.plugin.compat import pl

ClassWeights = Literal["balanced"] | list[float] | None
"""Weights of the loss; ``"balanced"``: rare classes count as much in sum as frequent ones."""


class Target(ABC):
    """What is predicted, and how outputs of layers become it. It follows from sizes that a checkpoint keeps.

    Shapes: S seeds, C classes, labels or numbers.
    """

    predicts: str
    """A key of :data:`.METRICS`."""
    rival: ClassVar[str]
    """What the baseline predicts for all rows, in words."""

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        self.num_outputs: int = sizes["num_outputs"]
        self.mean: Tensor = torch.zeros(self.num_outputs)
        self.weights: Tensor | None = None
        """``[C]``, of the loss."""
        self.constant: Tensor | None = None
        """``[C]``, the baseline: what metrics get for each row; None where no labels of training are at hand."""

    @abstractmethod
    def learn(self, labels: Tensor, class_weights: ClassWeights) -> None:
        """Takes the baseline and the weights from labels of training, ``[R]`` or ``[R, C]``."""

    @abstractmethod
    def labels(self, y: Tensor) -> Tensor:
        """Returns a mini-batch's labels as loss and metrics take them."""

    def values(self, outputs: Tensor) -> Tensor:
        """Returns what ``forward`` gives, of the layers' outputs ``[S, C]``: logits, or numbers in the user's units."""
        return outputs

    def counted(self, labels: Tensor) -> Tensor | slice:
        """Returns which rows have a label, of labels as loss and metrics take them."""
        return slice(None)

    @abstractmethod
    def loss(self, values: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean loss of the seeds."""

    @abstractmethod
    def predictions(self, values: Tensor) -> Tensor:
        """Returns what users get: probabilities ``[S, C]``, or numbers."""

    def _check_weights(self, weights: ClassWeights) -> None:
        if weights is None or weights == "balanced":
            return
        is_sound = not isinstance(weights, str) and len(weights) == self.num_outputs
        if not is_sound or not all(isinstance(weight, int | float) and 0 < weight < float("inf") for weight in weights):
            raise LoaderConfigError(
                f"class_weights={weights!r}: 'balanced', None, or a positive number for each of {self.num_outputs} "
                f"{self.predicts.removeprefix('two ')} is needed."
            )


class Classes(Target):
    """One of C classes: labels are integers ``[S]``; rows of -100 have none, as in torch, and count for nothing."""

    rival = "the most frequent class of the train split"

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__(sizes)
        self.predicts = "two classes" if self.num_outputs == 2 else "classes"

    def learn(self, labels: Tensor, class_weights: ClassWeights) -> None:
        self._check_weights(class_weights)
        counts = torch.bincount(labels[(labels >= 0) & (labels < self.num_outputs)].long(), minlength=self.num_outputs)
        total, present = int(counts.sum()), counts > 0
        if not total:
            return
        self.constant = counts.float() / total
        if int(present.sum()) == 1:
            pl.utilities.rank_zero.rank_zero_warn(
                f"all {total} labels of the train split are of class {int(counts.argmax())}: a model learns nothing "
                "but this. Look at how the data were split."
            )
        if class_weights == "balanced":
            self.weights = torch.where(present, total / (int(present.sum()) * counts.clamp(min=1)), 1.0).float()
        elif class_weights is not None:
            self.weights = torch.tensor(class_weights, dtype=torch.float32)

    def labels(self, y: Tensor) -> Tensor:
        return y.long()

    def counted(self, labels: Tensor) -> Tensor:
        return labels != NO_CLASS

    def loss(self, values: Tensor, labels: Tensor) -> Tensor:
        weights = None if self.weights is None else self.weights.to(values)
        loss = F.cross_entropy(values, labels, weights, ignore_index=NO_CLASS)
        return torch.where(self.counted(labels).any(), loss, 0 * values.sum())  # of no label, the mean is NaN

    def predictions(self, values: Tensor) -> Tensor:
        return values.softmax(dim=1)


class LabelSets(Target):
    """Any of C labels: bools ``[S, C]``."""

    predicts = "labels"
    rival = "each label's share in the train split"

    def learn(self, labels: Tensor, class_weights: ClassWeights) -> None:
        self._check_weights(class_weights)
        if not len(labels):
            return
        count, positives = len(labels), labels.sum(dim=0, dtype=torch.float64)
        self.constant = (positives / count).float()
        if lacking := (positives == 0).nonzero().view(-1).tolist():
            pl.utilities.rank_zero.rank_zero_warn(
                f"no row of the train split has label {', '.join(map(str, lacking[:8]))}"
                f"{' and others' * (len(lacking) > 8)}: nothing is learned of it."
            )
        if class_weights == "balanced":
            weights = (count - positives) / positives.clamp(min=1)
            self.weights = torch.where((positives > 0) & (positives < count), weights, 1.0).float()
        elif class_weights is not None:
            self.weights = torch.tensor(class_weights, dtype=torch.float32)

    def labels(self, y: Tensor) -> Tensor:
        return y.long()

    def loss(self, values: Tensor, labels: Tensor) -> Tensor:
        weights = None if self.weights is None else self.weights.to(values)
        return F.binary_cross_entropy_with_logits(values, labels.to(values.dtype), pos_weight=weights)

    def predictions(self, values: Tensor) -> Tensor:
        return values.sigmoid()


class Numbers(Target):
    """One number, ``[S]``, or C of them, ``[S, C]``, floats. Layers learn them in units of their standard deviation."""

    predicts = "numbers"
    rival = "the mean of the train split"

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__(sizes)
        self.is_single: bool = sizes["predicts"] == "number"
        # Checkpoints of the first release have neither: their layers learned numbers as they were.
        self.mean = torch.tensor(sizes.get("mean") or [0.0] * self.num_outputs)
        self.scale = torch.tensor(sizes.get("scale") or [1.0] * self.num_outputs)

    def learn(self, labels: Tensor, class_weights: ClassWeights) -> None:
        if class_weights is not None:
            raise LoaderConfigError(
                f"class_weights={class_weights!r}, but labels are numbers, which have no classes. Leave it out; or "
                "give integers, which are classes."
            )
        if len(labels):
            self.constant = _columns(labels).double().mean(dim=0)

    def labels(self, y: Tensor) -> Tensor:
        return y.float() if y.dtype == torch.float64 or y.element_size() < 4 else y

    def values(self, outputs: Tensor) -> Tensor:
        numbers = outputs.float() * self.scale.to(outputs.device) + self.mean.to(outputs.device)
        return numbers.squeeze(1) if self.is_single else numbers

    def loss(self, values: Tensor, labels: Tensor) -> Tensor:
        difference = _columns(values - labels) / self.scale.to(values.device)
        return difference.square().mean()

    def predictions(self, values: Tensor) -> Tensor:
        return values


_TARGETS: dict[str, type[Target]] = {"classes": Classes, "labels": LabelSets, "number": Numbers, "numbers": Numbers}


def target_of(sizes: Mapping[str, Any]) -> Target:
    """Returns what a model of these sizes predicts."""
    # Checkpoints of the first release say is_class alone.
    predicts = sizes.get("predicts") or ("classes" if sizes["is_class"] else "number")
    return _TARGETS[predicts]({**sizes, "predicts": predicts})


def target_sizes(data: GraphData, model: str) -> dict[str, Any]:
    """Returns what of a model's sizes follows from the labels, in types that a checkpoint takes.

    Args:
        data: with labels of nodes, or of seeds that are nodes.
        model: the name of its class, for errors.

    Raises:
        GraphDataError: there are no labels, of links, of another form, or not finite; or they are all of one class.
    """
    label = next((table.y for table in data.seed_tables.values() if table.y is not None), data.y)
    if any(table.kind == "links" for table in data.seed_tables.values()):
        raise GraphDataError(f"{model} predicts labels of nodes, but the seeds are links. Take one that scores pairs.")
    if label is None:
        raise GraphDataError(
            f"{model} predicts labels of nodes, but there are none. Give GraphData labels y, or a task with y."
        )
    is_float, is_table = label.is_floating_point(), label.ndim == 2
    if label.ndim > 2 or (is_table and not is_float and label.dtype != torch.bool):
        raise GraphDataError(
            f"{model}: labels are {label.dtype} {list(label.shape)}. Integers [N] are classes, bools [N, C] several "
            "labels at once, floats numbers, [N] or [N, C]. Give y.bool() for labels, y.float() for numbers."
        )
    if not is_float:
        count = label.shape[1] if is_table else data.num_classes
        if count < (1 if is_table else 2):
            raise GraphDataError(
                f"{model}: labels are of {count} {'labels' if is_table else 'class'}, so there is nothing to tell "
                "apart. If others are possible, say so by GraphData(..., num_classes=...)."
            )
        for split in ("train", "val", "test") if not is_table else ():
            _check_classes(labels_of(data, split), count, f"{model}: {{}} of the {{}} labels of the {split} split")
        return {"num_outputs": count, "is_class": not is_table, "predicts": "labels" if is_table else "classes"}
    for split in ("train", "val", "test"):
        labels = labels_of(data, split)
        bad = 0 if labels is None else int((~_columns(labels).isfinite()).any(dim=1).sum())
        if labels is not None and bad:
            raise GraphDataError(
                f"{model}: {bad} of the {len(labels)} labels of the {split} split are NaN or infinite. Leave these "
                "rows out of the split."
            )
    sizes: dict[str, Any] = {"num_outputs": label.shape[1] if is_table else 1, "is_class": False}
    sizes["predicts"] = "numbers" if is_table else "number"
    labels = labels_of(data, "train")
    if labels is not None and len(labels):
        rows = _columns(labels).double()
        scale = rows.std(dim=0, correction=0)
        sizes["mean"] = rows.mean(dim=0).tolist()
        sizes["scale"] = torch.where(scale > 0, scale, 1.0).tolist()  # of equal labels
    return sizes


def _check_classes(labels: Tensor | None, count: int, form: str) -> None:
    if labels is None:
        return
    bad, needed = bad_labels(labels, count)
    if number := int(bad.sum()):
        raise GraphDataError(
            f"{form.format(number, len(labels))} are no class, as {int(labels[bad][0])}: {needed}. Leave these rows "
            f"out of the split; or give them {NO_CLASS}, which neither loss nor metrics count."
        )


def _columns(rows: Tensor) -> Tensor:
    return rows if rows.ndim == 2 else rows[:, None]


def labels_of(data: GraphData, split: str) -> Tensor | None:
    """Returns the labels of a split's rows, ``[R]`` or ``[R, C]``; None where it has none."""
    table = data.table(split)
    if table is not None and table.y is not None:
        return table.y
    if data.y is None:
        return None
    nodes = data.split(split) if table is None else table.nodes_in(data.graph)[:, 0]
    return data.y[torch.from_numpy(nodes)]

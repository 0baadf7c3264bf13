"""GraphSAGE, GCN, GAT and PinSAGE: nodes of one type, classified by one layer a hop."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from lightning_gnnload import Dropout, MiniBatch

from .layers import GATConv, GCNConv, PinSAGEConv, SAGEConv
from .learner import Learner, needed


class NodeClassifier(Learner):
    """Node classification on blocks by ``num_layers`` layers; a subclass says which.

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
        super().__init__(MulticlassAccuracy(num_classes, average="micro"), "accuracy", lr)
        self.save_hyperparameters()
        widths = [in_features] + [hidden] * (num_layers - 1) + [num_classes]
        self.convs = nn.ModuleList(self.conv(*pair) for pair in pairwise(widths))
        self.dropout = Dropout(dropout, relu=True)

    def conv(self, in_features: int, out_features: int) -> nn.Module:
        """Makes a layer."""
        raise NotImplementedError

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds, ``[num_seeds, num_classes]``."""
        batch.expect_layers(len(self.convs))
        first, *others = zip(self.convs, batch.blocks, strict=True)
        x = first[0](first[1], needed(batch.x, "x", "features"))
        for conv, block in others:
            x = conv(block, self.dropout(x))
        return x

    def predict_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        return self(batch).softmax(dim=1)


class GraphSAGE(NodeClassifier):
    """Node classification by layers of :class:`SAGEConv`."""

    def conv(self, in_features: int, out_features: int) -> nn.Module:
        return SAGEConv(in_features, out_features)


class GCN(NodeClassifier):
    """Node classification by layers of :class:`GCNConv`."""

    def conv(self, in_features: int, out_features: int) -> nn.Module:
        return GCNConv(in_features, out_features)


class PinSAGE(NodeClassifier):
    """Node classification by layers of :class:`PinSAGEConv`, on what a :class:`.RandomWalkSampler` draws."""

    def conv(self, in_features: int, out_features: int) -> nn.Module:
        return PinSAGEConv(in_features, out_features)


class GAT(NodeClassifier):
    """Node classification by layers of :class:`GATConv`.

    Args:
        in_features: feature width.
        num_classes: label classes.
        edge_features: width of the edges' features, or the number of edge types where they have none.
        heads: of the hidden layers, whose width they divide; the last layer has one.
        settings: those of :class:`NodeClassifier`.
    """

    def __init__(self, in_features: int, num_classes: int, edge_features: int, heads: int = 4, **settings: Any) -> None:
        super().__init__(in_features, num_classes, **settings)

    def conv(self, in_features: int, out_features: int) -> nn.Module:
        settings = self.hparams
        heads = 1 if out_features == settings["num_classes"] else settings["heads"]
        return GATConv(in_features, out_features, settings["edge_features"], heads)

"""SAGE: a first model, which takes whatever a graph folder contains and needs no sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.regression import MeanAbsoluteError

from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.nn.aggregate import aggregate
from lightning_gnnload.nn.dropout import Dropout
from lightning_gnnload.plugin.compat import pl

CODES = "codes"
"""The name of a node type's table of categories, integers ``[N_t, C]`` with 0 for unknown ones."""
_ROWS_AT_ONCE = 1 << 20
Rows = dict[str, Tensor]
"""``[V_t, F]`` by node type; a graph without types has one, ``""``."""


class _Sizes(NamedTuple):
    """What the layers' sizes follow from. A checkpoint keeps it, so that new data of the same columns fit."""

    num_features: dict[str, int]
    num_codes: dict[str, list[int]]
    edge_types: list[tuple[str, str, str]]
    num_outputs: int
    num_layers: int
    is_class: bool


class _Conv(nn.Module):
    """``W x_dst``, ``W`` by node type, plus ``V mean(x_src)`` for each edge type."""

    own: Any  # a name in checkpoints; nested modules, whose items are nn.Module to a type checker
    neighbors: Any

    def __init__(self, names: dict[str, str], edge_types: Sequence[tuple[str, str, str]], width: int) -> None:
        super().__init__()
        self.module_names, self.edge_types = names, edge_types
        self.own = nn.ModuleDict({name: nn.Linear(width, width) for name in names.values()})
        self.neighbors = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in edge_types)

    def forward(self, blocks: Mapping[Any, Block], num_dst: dict[str, int], x: Rows) -> Rows:
        rows = {name: self.own[self.module_names[name]](x[name][:count]) for name, count in num_dst.items()}
        for edge_type, linear in zip(self.edge_types, self.neighbors, strict=True):
            block = blocks[edge_type]
            if block.num_edges:  # most types have none at the innermost hop
                mean = aggregate(block, x[edge_type[0]], "mean", block.edge_weight)
                rows[edge_type[2]] = rows[edge_type[2]] + linear(mean)
        return rows


class _Layers(nn.Module):
    """The layers for data of these sizes: a mini-batch's seeds to their predictions."""

    project: Any
    embed: Any

    def __init__(self, sizes: _Sizes, width: int, dropout: float) -> None:
        super().__init__()
        self.sizes = sizes
        # By number: modules' names may contain no dots.
        self.module_names = names = {name: str(k) for k, name in enumerate(sizes.num_features)}
        with_x = {names[name]: size for name, size in sizes.num_features.items() if size}
        with_codes = {names[name]: counts for name, counts in sizes.num_codes.items()}
        self.project = nn.ModuleDict({key: nn.Linear(size, width) for key, size in with_x.items()})
        self.embed = nn.ModuleDict(
            {key: nn.ModuleList(nn.Embedding(n, width) for n in counts) for key, counts in with_codes.items()}
        )
        self.row = nn.ParameterDict({key: nn.Parameter(0.1 * torch.randn(width)) for key in names.values()})
        self.convs = nn.ModuleList(_Conv(names, sizes.edge_types, width) for _ in range(sizes.num_layers))
        self.dropout = Dropout(dropout, relu=True)
        self.head = nn.Linear(width, sizes.num_outputs)

    def forward(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        batch.expect_layers(self.sizes.num_layers)
        hops: list[tuple[dict[Any, Block], dict[str, int]]]
        if isinstance(batch, MiniBatch):
            rows = self._encode({"": batch.nodes}, {"": batch.x}, {"": batch.tables})
            hops = [({("", "", ""): block}, {"": block.num_dst}) for block in batch.blocks]
            num_seeds = {"": batch.num_seeds}
        else:
            rows = self._encode(batch.nodes, batch.x, batch.tables)
            hops, num_seeds = list(zip(batch.blocks, batch.num_dst, strict=True)), batch.num_seeds
        for (blocks, num_dst), conv in zip(hops, self.convs, strict=True):
            rows = {name: self.dropout(row) for name, row in conv(blocks, num_dst, rows).items()}
        predicted = self.head(torch.cat([rows[name][:count] for name, count in num_seeds.items() if count]))
        if self.training:
            # DDP waits for a gradient of every weight, also of a type that no edge of this mini-batch has.
            predicted = predicted + 0 * torch.stack([weight.sum() for weight in self.parameters()]).sum()
        return predicted

    def _encode(self, nodes: Rows, x: Mapping[str, Tensor | None], tables: Mapping[str, Rows]) -> Rows:
        """The first rows of nodes, from their features and categories."""
        rows = {}
        for name, ids in nodes.items():
            key = self.module_names[name]
            row = self.row[key].expand(len(ids), -1)
            if key in self.project:
                row = row + self.project[key](x[name])
            if key in self.embed:
                codes = tables[name][CODES].long()
                for code, embed in zip(codes.unbind(dim=1), self.embed[key], strict=True):
                    row = row + embed(torch.where(code < embed.num_embeddings, code, 0))
            rows[name] = self.dropout(row)
        return rows


class SAGE(pl.LightningModule):
    """GraphSAGE with the mean aggregator, for nodes of one or more types: a model to begin with, and to replace.

    It takes features, categories and the types of edges from the data when they are there, and predicts the label of
    seeds that are nodes: one of several classes where labels are integers, a number where they are floats. A node type
    without any columns has one learned row. Each layer gives ``W x_dst``, ``W`` by node type, plus ``V mean(x_src)``
    for each edge type, weighted where the graph has edge weights.

    It logs ``train_loss``, and ``val_accuracy`` and ``test_accuracy``, or ``val_error`` and ``test_error``, the mean
    absolute difference. ``predict_step`` gives the probability of each class, ``[S, num_classes]``, or numbers ``[S]``.

    Args:
        hidden: width of the layers.
        dropout: between layers.
        lr: Adam's learning rate.

    Raises:
        GraphDataError: at the beginning of a run: no labels, or seeds that are links.

    Source: Hamilton et al., Inductive representation learning on large graphs (NeurIPS'17).

    Example:
        >>> import pytorch_lightning as pl
        >>> model, trainer = SAGE(hidden=64), pl.Trainer(max_epochs=5, logger=False, accelerator="cpu")
        >>> # trainer.fit(model, GraphDataModule.from_ogb("ogbn-arxiv", sampler=NeighborSampler([10, 5])))
    """

    layers: _Layers

    def __init__(self, hidden: int = 128, dropout: float = 0.3, lr: float = 0.003) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr = lr

    def configure_model(self) -> None:
        """Makes the layers, now that the data are there."""
        if not hasattr(self, "layers"):
            module: Any = self.trainer.datamodule  # type: ignore[attr-defined]
            self._make(_sizes_of(module.data, module.sampler.num_layers))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["sizes"] = self.layers.sizes._asdict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._make(_Sizes(**checkpoint["sizes"]))

    def _make(self, sizes: _Sizes) -> None:
        if not hasattr(self, "layers") or self.layers.sizes != sizes:
            self.layers = _Layers(sizes, self.hparams["hidden"], self.hparams["dropout"]).to(self.device)
            metric: Metric = MeanAbsoluteError()
            if sizes.is_class:
                metric = MulticlassAccuracy(sizes.num_outputs, average="micro")
            self.val_metric, self.test_metric = metric.to(self.device), metric.clone().to(self.device)

    def forward(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        """Logits of the seeds, ``[S, num_classes]``, or their numbers, ``[S]``."""
        predicted = self.layers(batch)
        return predicted if self.layers.sizes.is_class else predicted.squeeze(1)

    def training_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> Tensor:
        predicted, labels = self(batch), self._labels(batch)
        loss = F.cross_entropy(predicted, labels) if self.layers.sizes.is_class else F.mse_loss(predicted, labels)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> None:
        self._count(batch, self.val_metric, "val")

    def test_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> None:
        self._count(batch, self.test_metric, "test")

    def _count(self, batch: MiniBatch | TypedMiniBatch, metric: Metric, phase: str) -> None:
        labels = self._labels(batch)
        metric.update(self(batch), labels)
        name = f"{phase}_{'accuracy' if self.layers.sizes.is_class else 'error'}"
        self.log(name, metric, prog_bar=True, batch_size=len(labels))

    def _labels(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        y = torch.cat(list(batch.y.values())) if isinstance(batch.y, dict) else batch.y
        assert y is not None, "the data have labels, as the layers were made for them"
        return y.long() if self.layers.sizes.is_class else y.to(self.layers.head.weight.dtype)

    def predict_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> Tensor:
        predicted = self(batch)
        return predicted.softmax(dim=1) if self.layers.sizes.is_class else predicted

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def _sizes_of(data: GraphData, num_layers: int) -> _Sizes:
    label, types, stores = _label_of(data), data.graph.types, _stores_by_type(data)
    features = {name: columns["x"].shape[1] if "x" in columns else 0 for name, columns in stores.items()}
    codes = {name: _num_codes(columns[CODES]) for name, columns in stores.items() if CODES in columns}
    edge_types = [("", "", "")] if types is None else list(types.edge_types)
    is_class = not label.is_floating_point()
    return _Sizes(features, codes, edge_types, data.num_classes if is_class else 1, num_layers, is_class)


def _label_of(data: GraphData) -> Tensor:
    label = next((table.y for table in data.seed_tables.values() if table.y is not None), data.y)
    if label is None or label.ndim != 1:
        problem = "there are none" if label is None else f"their shape is {list(label.shape)}"
        raise GraphDataError(
            f"SAGE predicts one label a node, but {problem}. Give GraphData labels y, or a task with y."
        )
    if any(table.kind == "links" for table in data.seed_tables.values()):
        raise GraphDataError("SAGE predicts labels of nodes, but the seeds are links. Take a model that scores pairs.")
    return label


def _stores_by_type(data: GraphData) -> dict[str, dict[str, Any]]:
    if data.graph.types is None:
        return {"": {**data.stores}}
    names = data.graph.types.node_types
    return {name: {key: table.store for key, table in data.tables_of(name).items()} for name in names}


def _num_codes(store: Any) -> list[int]:
    """The number of codes of each column, ``[C]``."""
    highest = torch.zeros(store.shape[1], dtype=torch.int64)
    for first in range(0, store.shape[0], _ROWS_AT_ONCE):
        ids = torch.arange(first, min(first + _ROWS_AT_ONCE, store.shape[0]))
        rows = torch.empty((len(ids), *store.row_shape), dtype=store.dtype)
        store.gather(ids, rows)
        highest = torch.maximum(highest, rows.view(len(ids), -1).long().amax(dim=0))
    return (highest + 1).tolist()

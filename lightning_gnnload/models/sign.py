"""SIGN: a model without a graph, over features and the sums of their neighbourhoods, which are made beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lightning_gnnload.data.aggregates import Aggr
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.models.learner import NodeLearner
from lightning_gnnload.models.tables import HopSums, sum_of
from lightning_gnnload.nn.dropout import Dropout
from lightning_gnnload.sample.base import Sampler


class _HopLayers(nn.Module):
    """A linear layer for each table of a node type, over the rows of its seeds, and two for all of them together."""

    def __init__(self, sizes: dict[str, Any], hidden: int, dropout: float) -> None:
        super().__init__()
        self.tables: dict[str, list[str]] = sizes["tables"]
        self.has_x: dict[str, bool] = sizes["has_x"]
        widths: dict[str, list[int]] = sizes["widths"]
        # By number: modules' names may contain no dots.
        self.hops = nn.ModuleList(nn.ModuleList(nn.Linear(size, hidden) for size in widths[name]) for name in widths)
        self.join = nn.ModuleList(nn.Linear(len(widths[name]) * hidden, hidden) for name in widths)
        self.head = nn.Linear(hidden, sizes["num_outputs"])
        self.dropout = Dropout(dropout, relu=True)

    def forward(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        batch.expect_layers(0)
        num_seeds: dict[str, int]
        x: Any
        if isinstance(batch, MiniBatch):
            num_seeds, x, tables = {"": batch.num_seeds}, {"": batch.x}, {"": batch.tables}
        else:
            num_seeds, x, tables = batch.num_seeds, batch.x, batch.tables
        predicted = []
        for name, count in num_seeds.items():
            if count and name not in self.tables:
                raise GraphDataError(
                    f"SIGN was trained on seeds of the types {', '.join(self.tables)}, but there are some of {name!r}. "
                    "Give predict= of the former."
                )
            if count:
                rows = [x[name]] if self.has_x[name] else []
                rows += [tables[name][table.removesuffix(f".{name}")] for table in self.tables[name]]
                predicted.append(self._of_type([*self.tables].index(name), rows))
        joined = torch.cat(predicted)
        if self.training and len(self.tables) > 1:
            # DDP waits for a gradient of every weight, also of a type that no seed of this mini-batch has.
            joined = joined + 0 * torch.stack([weight.sum() for weight in self.parameters()]).sum()
        return joined

    def _of_type(self, number: int, tables: list[Tensor]) -> Tensor:
        dtype = self.head.weight.dtype
        layers: Any = self.hops[number]
        hops = [layer(rows.to(dtype)) for layer, rows in zip(layers, tables, strict=True)]
        rows = self.join[number](self.dropout(torch.cat(hops, dim=1)))
        predicted: Tensor = self.head(self.dropout(rows))
        return predicted


class SIGN(NodeLearner):
    """Scalable inception graph network: a multilayer perceptron over a node's features and those of its neighbourhoods
    of 1 to K hops, which :func:`.preaggregate` makes once. No neighbour is sampled: ``NeighborSampler([])``.

    It predicts the label of seeds that are nodes, as :class:`.SAGE` does, and logs the same. In a graph with types, a
    node has a table for each metapath that leads to its type, as in SeHGNN; these are joined as SIGN joins hops.

    Args:
        hops: K; None: as many as there are tables.
        aggr: of which tables, where there are several of a hop: ``"mean"``, ``"sum"``, ``"gcn"`` or ``"both"``.
        hidden: width of the layers.
        dropout: before the second and the last layer.
        lr: Adam's learning rate.
        settings: ``class_weights`` and ``metrics`` of :class:`.NodeLearner`.

    Raises:
        GraphDataError: at the beginning of a run: no labels, seeds that are links, no tables of 1 to K hops and all
            metapaths, or other sums than those that a checkpoint was trained on.
        StaleTableError: at the beginning of a run: a table is of another graph, or of other features.

    Sources: Frasca et al., SIGN: Scalable inception graph neural networks (2020); Yang et al., Simple and efficient
    heterogeneous graph neural network (AAAI'23), section 4.1.

    Example:
        >>> import pytorch_lightning as pl
        >>> model, trainer = SIGN(hops=2), pl.Trainer(max_epochs=5, logger=False, accelerator="cpu")
        >>> # trainer.fit(model, GraphDataModule(preaggregate(data, hops=2), NeighborSampler([])))
    """

    layers: _HopLayers

    def __init__(
        self,
        hops: int | None = None,
        aggr: Aggr | None = None,
        hidden: int = 128,
        dropout: float = 0.3,
        lr: float = 0.003,
        **settings: Any,
    ) -> None:
        super().__init__(lr, **settings)
        self.save_hyperparameters()

    def take_tables(self, data: GraphData, samplers: Sequence[Sampler] = ()) -> None:
        tables = self.sizes["tables"]
        for name in tables:
            tables[name] = HopSums(data, name, self.hparams["aggr"]).same_as(self.sizes["sums"][name])
        self.layers.tables = tables

    def sizes_of(self, data: GraphData, num_hops: int) -> dict[str, Any]:
        types, hops, aggr = data.graph.types, self.hparams["hops"], self.hparams["aggr"]
        names = [""]
        if types is not None:
            seeds = np.concatenate([data.split(split) for split in SPLITS])
            names = [types.node_types[number] for number in np.unique(types.number_of(seeds))]
        tables = {name: HopSums(data, name, aggr).names(hops) for name in names}
        stores = data.stores
        features = {name: "x" if types is None else f"x.{name}" for name in names}
        return {
            "tables": tables,
            "sums": {name: [sum_of(data.aggregates[table]) for table in tables[name]] for name in names},
            "has_x": {name: features[name] in stores for name in names},
            "widths": {
                name: [stores[table].shape[1] for table in [features[name], *tables[name]] if table in stores]
                for name in names
            },
        }

    def layers_of(self, sizes: dict[str, Any]) -> _HopLayers:
        return _HopLayers(sizes, self.hparams["hidden"], self.hparams["dropout"])

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        sizes = checkpoint["sizes"]
        if hasattr(self, "layers"):
            # The data's tables may have other names than those of training, but have to be the same sums.
            if sizes["sums"] != self.sizes["sums"]:
                data: GraphData = self.trainer.datamodule.data  # type: ignore[attr-defined]
                sizes["tables"] = {
                    name: HopSums(data, name, None).same_as(sums) for name, sums in sizes["sums"].items()
                }
            else:
                sizes["tables"] = self.sizes["tables"]
        self._make(sizes)

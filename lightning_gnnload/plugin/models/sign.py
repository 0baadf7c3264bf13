"""SIGN: a model without a graph, over features and the sums of their neighbourhoods, which are made beforehand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lightning_gnnload.data.aggregates import Aggr
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.nn.dropout import Dropout
from lightning_gnnload.plugin.models.learner import NodeLearner
from lightning_gnnload.storage.aggregates import check_fresh


class _HopLayers(nn.Module):
    """A linear layer for each table, over the rows of seeds, and two for all of them together."""

    def __init__(self, sizes: dict[str, Any], hidden: int, dropout: float) -> None:
        super().__init__()
        self.tables: list[str] = sizes["tables"]
        self.hops = nn.ModuleList(nn.Linear(sizes["num_features"], hidden) for _ in range(len(self.tables) + 1))
        self.join = nn.Linear(len(self.hops) * hidden, hidden)
        self.head = nn.Linear(hidden, sizes["num_outputs"])
        self.dropout = Dropout(dropout, relu=True)

    def forward(self, batch: MiniBatch) -> Tensor:
        batch.expect_layers(0)
        assert batch.x is not None, "the data have features, as the layers were made for them"
        tables = [batch.x, *(batch.tables[name] for name in self.tables)]
        dtype = self.head.weight.dtype
        hops = [layer(rows.to(dtype)) for layer, rows in zip(self.hops, tables, strict=True)]
        rows = self.join(self.dropout(torch.cat(hops, dim=1)))
        predicted: Tensor = self.head(self.dropout(rows))
        return predicted


class SIGN(NodeLearner):
    """Scalable inception graph network: a multilayer perceptron over a node's features and those of its neighbourhoods
    of 1 to K hops, which :func:`.preaggregate` makes once. No neighbour is sampled: ``NeighborSampler([])``.

    It predicts the label of seeds that are nodes, as :class:`.SAGE` does, and logs the same, of a graph without types.

    Args:
        hops: K; None: as many as there are tables.
        aggr: of which tables, where there are several of a hop: ``"mean"``, ``"sum"``, ``"gcn"`` or ``"both"``.
        hidden: width of the layers.
        dropout: before the second and the last layer.
        lr: Adam's learning rate.

    Raises:
        GraphDataError: at the beginning of a run: no labels, seeds that are links, a graph with types, or no tables of
            1 to K hops.
        StaleTableError: at the beginning of a run: a table is of another graph, or of other features.

    Source: Frasca et al., SIGN: Scalable inception graph neural networks (2020).

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
    ) -> None:
        super().__init__(lr)
        self.save_hyperparameters()

    def configure_model(self) -> None:
        super().configure_model()
        if self._trainer is not None:
            # Also of weights that were loaded before: these data may have tables of other names, or none.
            self.layers.tables = self.sizes["tables"] = self._tables(self.trainer.datamodule.data)  # type: ignore[attr-defined]

    def sizes_of(self, data: GraphData, num_hops: int) -> dict[str, Any]:
        tables = self._tables(data)
        assert data.x is not None, "tables were made of it"
        return {"num_features": data.x.shape[1], "tables": tables}

    def layers_of(self, sizes: dict[str, Any]) -> _HopLayers:
        return _HopLayers(sizes, self.hparams["hidden"], self.hparams["dropout"])

    def _tables(self, data: GraphData) -> list[str]:
        """The names of the tables of hop 1 to K."""
        if data.graph.types is not None:
            raise GraphDataError("SIGN is for graphs without types. Take SAGE(first_layer='preaggregated').")
        by_hop = data.aggregates_of("x", self.hparams["aggr"])
        count = self.hparams["hops"] or max(by_hop, default=0)
        if not count or not by_hop.keys() >= {*range(1, count + 1)}:
            have = ", ".join(f"{name!r} ({data.aggregates[name]})" for name in by_hop.values()) or "none"
            raise GraphDataError(
                f"SIGN needs sums of x over 1 to {count or 'K'} hops; of tables that are such, the data have {have}. "
                f"Make them: preaggregate(data, hops={count or 2}), or gnnload preaggregate FOLDER --hops {count or 2}."
            )
        names = [by_hop[hop] for hop in range(1, count + 1)]
        for name in names:
            check_fresh(data, name)
        return names

"""SAGE: a first model, which takes whatever a graph folder contains and needs no sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.errors import GraphDataError, LoaderConfigError
from lightning_gnnload.models.learner import NodeLearner
from lightning_gnnload.models.tables import Means, check_form, draws_by_weight
from lightning_gnnload.nn.aggregate import aggregate
from lightning_gnnload.nn.dropout import Dropout
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.settings import check_one_of

CODES = "codes"
"""The name of a node type's table of categories, integers ``[N_t, C]`` with 0 for unknown ones."""
_ROWS_AT_ONCE = 1 << 20
Rows = dict[str, Tensor]
"""``[V_t, F]`` by node type; a graph without types has one, ``""``."""


class _Conv(nn.Module):
    """``W x_dst``, ``W`` by node type, plus ``V mean(x_src)`` for each edge type."""

    own: Any  # a name in checkpoints; nested modules, whose items are nn.Module to a type checker
    neighbors: Any

    def __init__(
        self,
        names: dict[str, str],
        edge_types: Sequence[tuple[str, str, str]],
        num_inputs: Mapping[str, int],
        width: int,
    ) -> None:
        super().__init__()
        self.module_names, self.edge_types = names, edge_types
        self.own = nn.ModuleDict({key: nn.Linear(num_inputs[name], width) for name, key in names.items()})
        self.neighbors = nn.ModuleList(nn.Linear(num_inputs[src], width, bias=False) for src, _, _ in edge_types)

    def forward(self, blocks: Mapping[Any, Block], num_dst: dict[str, int], x: Rows) -> Rows:
        rows = self._own_rows(num_dst, x)
        for edge_type, linear in zip(self.edge_types, self.neighbors, strict=True):
            block = blocks[edge_type]
            if block.num_edges:  # most types have none at the innermost hop
                mean = aggregate(block, x[edge_type[0]], "mean", block.edge_weight)
                rows[edge_type[2]] = rows[edge_type[2]] + linear(mean)
        return rows

    def of_means(self, x: Rows, means: Sequence[Tensor]) -> Rows:
        """Does what :meth:`forward` does with means that are there already, one for each edge type."""
        rows = self._own_rows({name: len(type_rows) for name, type_rows in x.items()}, x)
        for (_, _, dst), linear, mean in zip(self.edge_types, self.neighbors, means, strict=True):
            rows[dst] = rows[dst] + linear(mean)
        return rows

    def _own_rows(self, num_dst: Mapping[str, int], x: Rows) -> Rows:
        return {name: self.own[self.module_names[name]](x[name][:count]) for name, count in num_dst.items()}


class _SageLayers(nn.Module):
    """The layers for data of these sizes: a mini-batch's seeds to their predictions. ``means`` are the tables that the
    first layer takes instead of blocks, one for each edge type; None where it takes blocks."""

    project: Any
    embed: Any

    def __init__(self, sizes: Mapping[str, Any], width: int, dropout: float) -> None:
        super().__init__()
        self.num_layers: int = sizes["num_layers"]
        self.means: list[str] | None = sizes.get("means")
        self.encodes: bool = sizes.get("encodes", True)  # as all did of the first releases
        num_features: dict[str, int] = sizes["num_features"]
        # By number: modules' names may contain no dots.
        self.module_names = names = {name: str(k) for k, name in enumerate(num_features)}
        widths = dict.fromkeys(names, width)
        if self.encodes:
            self._make_encoder(num_features, sizes["num_codes"], width, sizes.get("vocabularies", {}))
        num_inputs = [widths if number or self.encodes else num_features for number in range(self.num_layers)]
        edge_types = sizes["edge_types"]
        self.convs = nn.ModuleList(_Conv(names, edge_types, inputs, width) for inputs in num_inputs)
        self.dropout = Dropout(dropout, relu=True)
        self.head = nn.Linear(width, sizes["num_outputs"])

    def _make_encoder(
        self,
        num_features: dict[str, int],
        num_codes: dict[str, list[int]],
        width: int,
        vocabularies: Mapping[str, Sequence[str | None]],
    ) -> None:
        names = self.module_names
        with_x = {names[name]: size for name, size in num_features.items() if size}
        self.project = nn.ModuleDict({key: nn.Linear(size, width) for key, size in with_x.items()})
        shared: dict[str, nn.Embedding] = {}  # columns of one vocabulary have one table
        self.embed = nn.ModuleDict()
        for name, counts in num_codes.items():
            embeds = nn.ModuleList()
            for k, count in enumerate(counts):
                embed = nn.Embedding(count, width)
                vocabulary = vocabularies[name][k] if name in vocabularies else None
                embeds.append(embed if vocabulary is None else shared.setdefault(vocabulary, embed))
            self.embed[names[name]] = embeds
        self.row = nn.ParameterDict({key: nn.Parameter(0.1 * torch.randn(width)) for key in names.values()})

    def forward(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        batch.expect_layers(self.num_layers - (self.means is not None))
        hops: list[tuple[dict[Any, Block], dict[str, int]]]
        if isinstance(batch, MiniBatch):
            columns: Any = {"": batch.nodes}, {"": batch.x}, {"": batch.tables}
            hops = [({("", "", ""): block}, {"": block.num_dst}) for block in batch.blocks]
            num_seeds = {"": batch.num_seeds}
        else:
            columns = batch.nodes, batch.x, batch.tables
            hops, num_seeds = list(zip(batch.blocks, batch.num_dst, strict=True)), batch.num_seeds
        convs: list[Any] = list(self.convs)
        rows = self._encode(*columns) if self.encodes else {name: x.to(self._dtype) for name, x in columns[1].items()}
        if self.means is not None:
            rows = self._after(convs.pop(0).of_means(rows, self._means_of(columns[2])))
        for (blocks, num_dst), conv in zip(hops, convs, strict=True):
            rows = self._after(conv(blocks, num_dst, rows))
        predicted: Tensor = self.head(torch.cat([rows[name][:count] for name, count in num_seeds.items() if count]))
        if self.training:
            # DDP waits for a gradient of every weight, also of a type that no edge of this mini-batch has.
            predicted = predicted + 0 * torch.stack([weight.sum() for weight in self.parameters()]).sum()
        return predicted

    @property
    def _dtype(self) -> torch.dtype:
        return self.head.weight.dtype

    def _after(self, rows: Rows) -> Rows:
        return {name: self.dropout(row) for name, row in rows.items()}

    def _means_of(self, tables: Mapping[str, Rows]) -> list[Tensor]:
        """The rows of :attr:`means`, of a mini-batch's tables by node type."""
        assert self.means is not None
        convolution = self.convs[0]
        dst_types = [dst for _, _, dst in convolution.edge_types]  # type: ignore[union-attr]
        # A table of one node type is named "<column>.<type>", and in the mini-batch by its column.
        columns = [name.removesuffix(f".{dst}") for name, dst in zip(self.means, dst_types, strict=True)]
        return [tables[dst][name].to(self._dtype) for name, dst in zip(columns, dst_types, strict=True)]

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


class SAGE(NodeLearner):
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
        first_layer: ``"encoded"``: features and categories become rows of ``hidden`` numbers, which all layers
            take. ``"sampled"``: the first layer takes the features as they are, which every node type then needs, and
            categories are left out. ``"preaggregated"``: likewise, and it takes the means of its in-neighbours from
            the tables of :func:`.preaggregate`, so that the sampler draws a hop less: of all in-neighbours, where
            ``"sampled"`` has those that were drawn. Weights of these two fit each other.

    Raises:
        GraphDataError: at the beginning of a run: no labels, or seeds that are links; for ``first_layer``, a node type
            without features, or no table of means.
        StaleTableError: at the beginning of a run: the means are of another graph, or of other features.

    Sources: Hamilton et al., Inductive representation learning on large graphs (NeurIPS'17); PaGraph (TPDS'21),
    section 5.1, for the pre-aggregated layer.

    Example:
        >>> import pytorch_lightning as pl
        >>> model, trainer = SAGE(hidden=64), pl.Trainer(max_epochs=5, logger=False, accelerator="cpu")
        >>> # trainer.fit(model, GraphDataModule.from_ogb("ogbn-arxiv", sampler=NeighborSampler([10, 5])))
    """

    layers: _SageLayers

    def __init__(
        self,
        hidden: int = 128,
        dropout: float = 0.3,
        lr: float = 0.003,
        first_layer: Literal["encoded", "sampled", "preaggregated"] = "encoded",
    ) -> None:
        check_one_of("first_layer", first_layer, ("encoded", "sampled", "preaggregated"), LoaderConfigError)
        super().__init__(lr)
        self.save_hyperparameters()
        self.first_layer = first_layer

    def take_tables(self, data: GraphData, samplers: Sequence[Sampler] = ()) -> None:
        if self.first_layer == "encoded":
            return
        by_weight = {draws_by_weight(sampler, data.graph): repr(sampler) for sampler in samplers}
        trained = self.sizes.get("weighted")
        if self.first_layer == "sampled":
            if trained is None and len(by_weight) == 1:
                [self.sizes["weighted"]] = by_weight
            return
        means = Means(data)
        if trained is not None:
            means.expect(trained, "this model was trained on such")
        for weighted, sampler in by_weight.items():
            means.expect(weighted, f"{sampler} draws so")
        self.layers.means = self.sizes["means"] = means.names(self.sizes["edge_types"])
        self.sizes["weighted"] = means.weighted

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        sizes = {"means": None, "weighted": None, **checkpoint["sizes"]}
        if self.first_layer != "preaggregated":
            sizes["means"] = None
        elif hasattr(self, "layers"):
            # In the order of the weights' edge types, which may be another than that of the data's.
            mean_by_type = dict(zip(map(tuple, self.sizes["edge_types"]), self.sizes["means"], strict=True))
            if lacking := [
                tuple(edge_type) for edge_type in sizes["edge_types"] if tuple(edge_type) not in mean_by_type
            ]:
                raise GraphDataError(
                    f"the checkpoint has weights for edges {lacking[0]}, which these data do not have."
                )
            sizes["means"] = [mean_by_type[tuple(edge_type)] for edge_type in sizes["edge_types"]]
            if (present := self.sizes.get("weighted")) is not None:
                check_form(sizes["weighted"], present, sizes["means"])
        if hasattr(self, "layers"):  # which do not depend on it
            sizes["weighted"] = self.sizes["weighted"] = (
                self.sizes.get("weighted") if sizes["weighted"] is None else sizes["weighted"]
            )
        self._make({"encodes": True, **sizes})

    def sizes_of(self, data: GraphData, num_hops: int) -> dict[str, Any]:
        types, stores = data.graph.types, _stores_by_type(data)
        features = {name: columns["x"].shape[1] if "x" in columns else 0 for name, columns in stores.items()}
        encodes, is_dense = self.first_layer == "encoded", self.first_layer == "preaggregated"
        if not encodes and (lacking := [name for name, size in features.items() if not size]):
            where = f"nodes of type {lacking[0]!r} have none" if lacking[0] else "there are none"
            raise GraphDataError(
                f"SAGE(first_layer={self.first_layer!r}) takes features x as they are, but {where}. Give them some, or "
                "take first_layer='encoded'."
            )
        codes = {name: _num_codes(columns[CODES]) for name, columns in stores.items() if encodes and CODES in columns}
        # By the names of their tables, "codes" or "codes.TYPE"; columns of one vocabulary have as many codes.
        tables = {name: f"{CODES}.{name}" if name else CODES for name in codes}
        vocabularies = {name: data.vocabularies[table] for name, table in tables.items() if table in data.vocabularies}
        largest: dict[str | None, int] = {}
        for name, shared in vocabularies.items():
            for vocabulary, count in zip(shared, codes[name], strict=True):
                largest[vocabulary] = max(largest.get(vocabulary, 0), count)
        for name, shared in vocabularies.items():
            codes[name] = [
                count if vocabulary is None else largest[vocabulary]
                for vocabulary, count in zip(shared, codes[name], strict=True)
            ]
        return {
            "num_features": features,
            "num_codes": codes,
            "vocabularies": vocabularies,
            "edge_types": [("", "", "")] if types is None else list(types.edge_types),
            "num_layers": num_hops + is_dense,
            "encodes": encodes,
            "means": [] if is_dense else None,  # take_tables() names them
            "weighted": None,
        }

    def layers_of(self, sizes: dict[str, Any]) -> _SageLayers:
        return _SageLayers(sizes, self.hparams["hidden"], self.hparams["dropout"])


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

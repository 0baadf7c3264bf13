"""SAGE: a first model, which takes whatever a graph folder contains and needs no sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightning_gnnload.data.block import Block
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import GraphDataError, LoaderConfigError
from lightning_gnnload.models.conv_stack import ConvLearner, ConvStack, EdgeAges, Hop
from lightning_gnnload.models.edge_rows import EdgeRows, check_edge_columns
from lightning_gnnload.models.first_rows import Rows, module_names
from lightning_gnnload.models.tables import Means, check_form, draws_by_weight
from lightning_gnnload.nn.aggregate import aggregate
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.settings import check_one_of

Aggr = Literal["mean", "sum", "max"]


class SageConv(nn.Module):
    """``W x_dst``, ``W`` by node type, plus ``V aggr(x_src)`` for each edge type.

    Args:
        sizes: of :meth:`.ConvLearner.sizes_of`.
        names: keys of node types, for modules.
        num_inputs: widths of rows by node type.
        width: of what it gives.
        aggr: of in-neighbours; means and sums are weighted where blocks have weights.
    """

    own: Any  # a name in checkpoints; nested modules, whose items are nn.Module to a type checker
    neighbors: Any

    def __init__(
        self, sizes: Mapping[str, Any], names: dict[str, str], num_inputs: Mapping[str, int], width: int, aggr: Aggr
    ) -> None:
        super().__init__()
        self.module_names, self.edge_types, self.aggr = names, sizes["edge_types"], aggr
        self.own = nn.ModuleDict({key: nn.Linear(num_inputs[name], width) for name, key in names.items()})
        self.neighbors = nn.ModuleList(nn.Linear(num_inputs[src], width, bias=False) for src, _, _ in self.edge_types)

    def forward(self, blocks: Mapping[Any, Block], num_dst: dict[str, int], x: Rows, ages: EdgeAges) -> Rows:
        rows = self._own_rows(num_dst, x)
        for edge_type, linear in zip(self.edge_types, self.neighbors, strict=True):
            block = blocks[edge_type]
            if block.num_edges:  # most types have none at the innermost hop
                weights = None if self.aggr == "max" else block.edge_weight
                neighbors = aggregate(block, x[edge_type[0]], self.aggr, weights)
                rows[edge_type[2]] = rows[edge_type[2]] + linear(neighbors)
        return rows

    def of_means(self, x: Rows, means: Sequence[Tensor]) -> Rows:
        """Does what :meth:`forward` does with means that are there already, one for each edge type."""
        rows = self._own_rows({name: len(type_rows) for name, type_rows in x.items()}, x)
        for (_, _, dst), linear, mean in zip(self.edge_types, self.neighbors, means, strict=True):
            rows[dst] = rows[dst] + linear(mean)
        return rows

    def _own_rows(self, num_dst: Mapping[str, int], x: Rows) -> Rows:
        return {name: self.own[self.module_names[name]](x[name][:count]) for name, count in num_dst.items()}


class MessageConv(nn.Module):
    """``W x_dst + V aggr(m)`` over each edge type's messages ``m = relu(Q x_src + e)``, ``e`` being what edges tell.

    Unlike :class:`SageConv`, it writes a row for each edge, as what a node tells depends on the edge. The maximum over
    messages lets a single edge speak for itself, unlike a mean, and a sum tells how many there were.

    Args:
        aggrs: side by side.
        sizes, names, num_inputs, width: as of :class:`SageConv`.
    """

    def __init__(
        self,
        sizes: Mapping[str, Any],
        names: dict[str, str],
        num_inputs: Mapping[str, int],
        width: int,
        aggrs: Sequence[Aggr],
    ) -> None:
        super().__init__()
        self.module_names, self.edge_types, self.aggrs = names, [tuple(key) for key in sizes["edge_types"]], aggrs
        edges = sizes.get("edges") or {"by_type": [{}] * len(self.edge_types), "spans": []}
        self.own: Any = nn.ModuleDict({key: nn.Linear(num_inputs[name], width) for name, key in names.items()})
        self.src: Any = nn.ModuleList(nn.Linear(num_inputs[src], width) for src, _, _ in self.edge_types)
        self.edges: Any = nn.ModuleList(EdgeRows(columns, edges["spans"], width) for columns in edges["by_type"])
        self.neighbors: Any = nn.ModuleList(nn.Linear(len(aggrs) * width, width, bias=False) for _ in self.edge_types)

    def forward(self, blocks: Mapping[Any, Block], num_dst: dict[str, int], x: Rows, ages: EdgeAges) -> Rows:
        rows = {name: self.own[self.module_names[name]](x[name][:count]) for name, count in num_dst.items()}
        for number, edge_type in enumerate(self.edge_types):
            block = blocks[edge_type]
            if not block.num_edges:
                continue
            message = self.src[number](x[edge_type[0]])[block.indices]
            if (edges := self.edges[number].rows(block, ages.get(edge_type))) is not None:
                message = message + edges
            positions = torch.arange(block.num_edges, dtype=block.indices.dtype, device=message.device)
            by_edge = Block(block.indptr, positions, block.num_dst, block.num_edges)
            parts = [
                aggregate(by_edge, message.relu(), aggr, None if aggr == "max" else block.edge_weight)
                for aggr in self.aggrs
            ]
            rows[edge_type[2]] = rows[edge_type[2]] + self.neighbors[number](torch.cat(parts, dim=1))
        return rows


class _SageStack(ConvStack):
    """``means`` are the tables that the first layer takes instead of blocks, one for each edge type; None where it
    takes blocks."""

    means: list[str] | None = None

    def pass_hops(self, batch: Any, hops: Sequence[Hop], columns: Any) -> Rows:
        if self.means is None:
            return super().pass_hops(batch, hops, columns)
        batch.expect_layers(self.num_layers - 1)
        first: Any = self.convs[0]
        rows = self.after(0, first.of_means(self.first_rows(*columns), self._means_of(columns[2])))
        return self.convolve(batch, hops, rows)

    def _means_of(self, tables: Mapping[str, Rows]) -> list[Tensor]:
        """The rows of :attr:`means`, of a mini-batch's tables by node type."""
        assert self.means is not None
        convolution: Any = self.convs[0]
        dst_types = [dst for _, _, dst in convolution.edge_types]
        # A table of one node type is named "<column>.<type>", and in the mini-batch by its column.
        columns = [name.removesuffix(f".{dst}") for name, dst in zip(self.means, dst_types, strict=True)]
        return [tables[dst][name].to(self.head.weight.dtype) for name, dst in zip(columns, dst_types, strict=True)]


class SAGE(ConvLearner):
    """GraphSAGE, for nodes of one or more types: a model to begin with, and to replace.

    It takes features, categories and the types of edges from the data when they are there, and predicts labels of
    seeds that are nodes, as :class:`.NodeLearner` says. Each layer gives ``W x_dst``, ``W`` by node type, plus
    ``V mean(x_src)`` for each edge type, weighted where the graph has edge weights. With ``edges``, what a neighbour
    tells depends on the edge: ``V mean(relu(Q x_src + e))``.

    ``predict_step`` gives the probability of each class, ``[S, num_classes]``, or numbers ``[S]``.

    Args:
        hidden: width of the layers.
        dropout: between layers.
        lr: Adam's learning rate.
        first_layer: ``"encoded"``: features and categories become rows of ``hidden`` numbers, which all layers
            take. ``"sampled"``: the first layer takes the features as they are, which every node type then needs, and
            categories are left out. ``"preaggregated"``: likewise, and it takes the means of its in-neighbours from
            the tables of :func:`.preaggregate`, so that the sampler draws a hop less: of all in-neighbours, where
            ``"sampled"`` has those that were drawn. Weights of these two fit each other.
        aggr: of in-neighbours: ``"mean"``, ``"sum"`` or ``"max"``.
        edges: what layers read of edges. True: their features, categories (an edge table ``"codes"``), types where the
            sampler draws by type in a graph without types of nodes, and ages at the seed's time, where edges and seeds
            have times and mini-batches carry those of edges (``GraphDataModule(edge_time=True)``). Or a list of
            ``"x"``, ``"codes"``, ``"type"`` and ``"age"``, which the data then must have.
        settings: further ones of :class:`.ConvLearner`: ``num_layers``, ``norm``, ``learned_rows``, ``class_weights``,
            ``metrics``.

    Raises:
        LoaderConfigError: settings that are not known, or do not go together.
        GraphDataError: at the beginning of a run: no labels, or seeds that are links; for ``first_layer``, a node type
            without features, or no table of means; for ``edges``, no such columns.
        StaleTableError: at the beginning of a run: the means are of another graph, or of other features.

    Sources: Hamilton et al., Inductive representation learning on large graphs (NeurIPS'17); PaGraph (TPDS'21),
    section 5.1, for the pre-aggregated layer; Hu et al., Strategies for pre-training graph neural networks (ICLR'20),
    for messages that have edges in them.

    Example:
        >>> import pytorch_lightning as pl
        >>> model, trainer = SAGE(hidden=64), pl.Trainer(max_epochs=5, logger=False, accelerator="cpu")
        >>> # trainer.fit(model, GraphDataModule.from_ogb("ogbn-arxiv", sampler=NeighborSampler([10, 5])))
    """

    layers: _SageStack

    def __init__(
        self,
        hidden: int = 128,
        dropout: float = 0.3,
        lr: float = 0.003,
        first_layer: Literal["encoded", "sampled", "preaggregated"] = "encoded",
        *,
        aggr: Aggr = "mean",
        edges: bool | list[str] = False,
        **settings: Any,
    ) -> None:
        check_one_of("first_layer", first_layer, ("encoded", "sampled", "preaggregated"), LoaderConfigError)
        check_one_of("aggr", aggr, ("mean", "sum", "max"), LoaderConfigError)
        check_edge_columns(edges)
        if first_layer == "preaggregated" and (aggr != "mean" or edges):
            raise LoaderConfigError(
                "first_layer='preaggregated' takes means of nodes' rows that were made beforehand, but "
                f"aggr={aggr!r} and edges={edges!r} ask for others. Give aggr='mean' and edges=False, or another "
                "first_layer."
            )
        super().__init__(hidden, dropout, lr, **settings)
        if first_layer != "encoded" and (self.hparams["num_layers"] == 0 or self.hparams["learned_rows"] == "node"):
            raise LoaderConfigError(
                f"first_layer={first_layer!r} takes features as they are: num_layers=0 and learned_rows='node' need "
                "first_layer='encoded'."
            )
        self.first_layer = first_layer

    def take_tables(self, data: GraphData, samplers: Sequence[Sampler] = ()) -> None:
        super().take_tables(data, samplers)
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
        encodes, is_dense = self.first_layer == "encoded", self.first_layer == "preaggregated"
        sizes = super().sizes_of(data, num_hops + is_dense)
        if encodes:
            return sizes | {"encodes": True, "means": None, "weighted": None}
        if lacking := [name for name, size in sizes["num_features"].items() if not size]:
            where = f"nodes of type {lacking[0]!r} have none" if lacking[0] else "there are none"
            raise GraphDataError(
                f"SAGE(first_layer={self.first_layer!r}) takes features x as they are, but {where}. Give them some, or "
                "take first_layer='encoded'."
            )
        # take_tables() names the means.
        return sizes | {"num_codes": {}, "encodes": False, "means": [] if is_dense else None, "weighted": None}

    def layers_of(self, sizes: dict[str, Any]) -> _SageStack:
        settings = self.hparams
        stack = _SageStack(
            sizes, settings["hidden"], settings["dropout"], settings["norm"], partial(self.conv_of, sizes)
        )
        stack.means = sizes.get("means")
        return stack

    def conv_of(self, sizes: Mapping[str, Any], widths: Mapping[str, int]) -> nn.Module:
        names, settings = module_names(sizes), self.hparams
        if sizes.get("edges"):
            return MessageConv(sizes, names, widths, settings["hidden"], [settings["aggr"]])
        return SageConv(sizes, names, widths, settings["hidden"], settings["aggr"])

"""ConvLearner and ConvStack: models of one convolution a hop, for nodes of one or more types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightning_gnnload.data.block import Block, MiniBatch, check_layers
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.models.edge_rows import Ages, edge_sizes
from lightning_gnnload.models.first_rows import FirstRows, Rows, first_sizes
from lightning_gnnload.models.learner import NodeLearner
from lightning_gnnload.models.targets import ClassWeights
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.settings import check_one_of, check_whole_number

Norm = Literal["layer", "batch"] | None
UNTYPED = ("", "", "")
"""The edge type of a graph without types."""
Hop = tuple[Mapping[Any, Block], dict[str, int]]
"""Blocks by edge type, and how many destinations they have by node type."""
EdgeAges = Mapping[Any, Tensor]
"""``[num_edges]`` by edge type; empty for models that read none."""


class _BatchNorm(nn.BatchNorm1d):
    """As torch's, which refuses to train on one row: of such, the statistics so far are taken."""

    def forward(self, rows: Tensor) -> Tensor:
        if self.training and len(rows) <= 1:
            return nn.functional.batch_norm(rows, self.running_mean, self.running_var, self.weight, self.bias)
        return super().forward(rows)


_NORMS: dict[str, Callable[[int], nn.Module]] = {"layer": nn.LayerNorm, "batch": _BatchNorm}


class ConvStack(FirstRows):
    """The layers for data of these sizes: a mini-batch to the rows of its seeds, ``[S, num_outputs]``.

    Args:
        sizes: those of :meth:`ConvLearner.sizes_of`, and ``num_outputs``.
        width: of all rows between.
        dropout: after first rows and each convolution, with a relu.
        norm: before these, after each convolution, by node type.
        make_conv: makes a convolution of the widths of its rows by node type. Called with a hop's blocks by edge type,
            its numbers of destinations and the rows of its sources by node type, and its edges' :data:`EdgeAges`, it
            gives the rows of the destinations.
    """

    norms: Any

    def __init__(
        self,
        sizes: Mapping[str, Any],
        width: int,
        dropout: float,
        norm: Norm,
        make_conv: Callable[[Mapping[str, int]], nn.Module],
    ) -> None:
        super().__init__(sizes, width, dropout)
        self.num_layers: int = sizes["num_layers"]
        self.encodes: bool = sizes.get("encodes", True)  # as all did of the first releases
        edges = sizes.get("edges") or {"by_type": []}
        timed = zip(sizes["edge_types"], edges["by_type"], strict=False)
        self.timed = [tuple(edge_type) for edge_type, columns in timed if "age" in columns]
        self.sharing: str | None = sizes.get("sharing")
        widths = dict.fromkeys(self.module_names, width)
        inputs = [widths if number or self.encodes else sizes["num_features"] for number in range(self.num_layers)]
        self.convs = nn.ModuleList(make_conv(hop_widths) for hop_widths in inputs)
        self.norms = nn.ModuleList(
            nn.ModuleDict({key: _NORMS[norm](width) for key in self.module_names.values()} if norm else {})
            for _ in range(self.num_layers if norm else 0)
        )
        self.head = nn.Linear(width, sizes["num_outputs"])

    def forward(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        hops: list[Hop]
        if isinstance(batch, MiniBatch):
            columns: Any = {"": batch.nodes}, {"": batch.x}, {"": batch.tables}
            hops = [({UNTYPED: block}, {"": block.num_dst}) for block in batch.blocks]
            num_seeds = {"": batch.num_seeds}
        else:
            columns = batch.nodes, batch.x, batch.tables
            hops, num_seeds = list(zip(batch.blocks, batch.num_dst, strict=True)), batch.num_seeds
        if self.num_layers:
            rows = self.pass_hops(batch, hops, columns)
        else:  # whatever was drawn
            rows = self.encode(*(_rows_of_seeds(part, num_seeds) for part in columns))
        predicted: Tensor = self.head(torch.cat([rows[name][:count] for name, count in num_seeds.items() if count]))
        if self.training:
            # DDP waits for a gradient of every weight, also of a type that no edge of this mini-batch has.
            predicted = predicted + 0 * torch.stack([weight.sum() for weight in self.parameters()]).sum()
        return predicted

    def pass_hops(self, batch: Any, hops: Sequence[Hop], columns: Any) -> Rows:
        """Returns the rows of the last hop's destinations, of a mini-batch's hops, and its nodes, features, tables."""
        batch.expect_layers(self.num_layers)
        return self.convolve(batch, hops, self.first_rows(*columns))

    def first_rows(self, nodes: Rows, x: Mapping[str, Tensor], tables: Mapping[str, Rows]) -> Rows:
        """Returns the rows that the first convolution takes."""
        if self.encodes:
            return self.encode(nodes, x, tables)
        return {name: rows.to(self.head.weight.dtype) for name, rows in x.items()}

    def convolve(self, batch: Any, hops: Sequence[Hop], rows: Rows) -> Rows:
        """Returns what the last convolutions, one for each of these hops, make of rows."""
        ages = Ages(batch, self.sharing) if self.timed else None
        for number, (blocks, num_dst) in enumerate(hops, start=self.num_layers - len(hops)):
            hop_ages = {key: ages.of_edges(blocks[key], key[2]) for key in self.timed} if ages is not None else {}
            rows = self.after(number, self.convs[number](blocks, num_dst, rows, hop_ages))
        return rows

    def after(self, number: int, rows: Rows) -> Rows:
        """Returns rows that come from the convolution of this number, with norm, relu and dropout."""
        if len(self.norms):
            rows = {name: self.norms[number][self.module_names[name]](row) for name, row in rows.items()}
        return {name: self.dropout(row) for name, row in rows.items()}


def _rows_of_seeds(columns: Mapping[str, Any], num_seeds: Mapping[str, int]) -> dict[str, Any]:
    """The first rows of each node type, of tensors, of dicts of them by name, or of None."""
    return {
        name: _rows_of_seeds(rows, dict.fromkeys(rows, num_seeds[name]))
        if isinstance(rows, Mapping)
        else (None if rows is None else rows[: num_seeds[name]])
        for name, rows in columns.items()
    }


class ConvLearner(NodeLearner):
    """Predicts labels of nodes by one convolution a hop; a subclass says which.

    Features, categories and types are taken from the data where they are there: see :class:`.NodeLearner` for labels.

    Args:
        hidden: width of the layers.
        dropout: after first rows and each convolution.
        lr: Adam's learning rate.
        num_layers: convolutions, as many as the sampler draws hops; None takes them from it, 0 a perceptron on the
            seeds' own rows, whatever was drawn: what the model is without the graph.
        norm: after each convolution: ``"layer"``, ``"batch"`` or None.
        learned_rows: of node types without features and categories: ``"type"``, one row that all nodes of the type
            share; ``"node"``, one for each node that was there in training. These take a row of ``hidden`` numbers a
            node, thrice in training, and tell nothing of nodes that come later.
        class_weights: as of :class:`.NodeLearner`.
        metrics: likewise.

    Raises:
        LoaderConfigError: settings out of range, or that do not go together.
        SamplerConfigError: as a run begins: another number of layers than the sampler draws hops.
        GraphDataError: as a run begins: labels that cannot be learned, or columns that are not there.
    """

    layers: ConvStack

    def __init__(
        self,
        hidden: int = 128,
        dropout: float = 0.3,
        lr: float = 0.003,
        *,
        num_layers: int | None = None,
        norm: Norm = None,
        learned_rows: Literal["type", "node"] = "type",
        class_weights: ClassWeights = None,
        metrics: list[str] | None = None,
    ) -> None:
        if norm is not None:
            check_one_of("norm", norm, _NORMS, LoaderConfigError)
        check_one_of("learned_rows", learned_rows, ("type", "node"), LoaderConfigError)
        check_whole_number("hidden", hidden, LoaderConfigError)
        if num_layers is not None:
            check_whole_number("num_layers", num_layers, LoaderConfigError, least=0)
        super().__init__(lr, class_weights, metrics)
        self.save_hyperparameters()

    def sizes_of(self, data: GraphData, num_hops: int) -> dict[str, Any]:
        types, num_layers = data.graph.types, self.hparams["num_layers"]
        if num_layers:
            check_layers(num_hops, num_layers)
        sizes = {
            **first_sizes(data, with_node_rows=self.hparams["learned_rows"] == "node"),
            "edge_types": [UNTYPED] if types is None else list(types.edge_types),
            "num_layers": num_hops if num_layers is None else num_layers,
        }
        # Of no convolution, nobody reads edges.
        read = self.hparams.get("edges", False) if sizes["num_layers"] else False
        if (edges := edge_sizes(data, read, type(self).__name__)) is not None:
            sizes["edges"] = edges
        return sizes

    def take_tables(self, data: GraphData, samplers: Sequence[Sampler] = ()) -> None:
        if not self.layers.timed or not samplers:
            return
        # Where times bound what is drawn, seeds share nothing unless a sampler says so.
        sharing, *further = {getattr(sampler, "sharing", None) or "disjoint" for sampler in samplers}
        if further:
            raise LoaderConfigError(
                f"the samplers of training and evaluation have sharing={sharing!r} and {further[0]!r}, but a model "
                "that reads the age of edges takes one of them."
            )
        self.sizes["sharing"] = self.layers.sharing = sharing

    def layers_of(self, sizes: dict[str, Any]) -> ConvStack:
        settings = self.hparams
        return ConvStack(
            sizes, settings["hidden"], settings["dropout"], settings["norm"], lambda widths: self.conv_of(sizes, widths)
        )

    def conv_of(self, sizes: Mapping[str, Any], widths: Mapping[str, int]) -> nn.Module:
        """Returns a convolution of :class:`ConvStack`, from rows of these widths by node type to ``hidden``."""
        raise NotImplementedError


def check_heads(hidden: int, heads: int) -> None:
    """Raises LoaderConfigError: as many heads do not divide the width."""
    check_whole_number("heads", heads, LoaderConfigError)
    if hidden % heads:
        raise LoaderConfigError(f"heads={heads} must divide hidden={hidden}, as each head has a part of the width.")

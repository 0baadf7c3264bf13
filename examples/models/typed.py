"""R-GCN: nodes of several types, one layer of weights for each type of edge and hop."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from lightning_gnnload import Block, Dropout

from .layers import mean_of_neighbors
from .learner import Learner

if TYPE_CHECKING:
    from lightning_gnnload.data.typed_batch import TypedMiniBatch
    from lightning_gnnload.data.types import EdgeType, GraphTypes

Rows = dict[str, Tensor]
"""``[V_t, F]`` by node type."""


class NodeEncoder(nn.Module):
    """The first rows of nodes: features projected to one width, an embedding of each node for types without features.

    Args:
        types: of the graph.
        in_features: feature width by node type.
        width: of all rows.
    """

    def __init__(self, types: GraphTypes, in_features: dict[str, int], width: int) -> None:
        super().__init__()
        without = {
            name: n for name, n in zip(types.node_types, types.num_nodes, strict=True) if name not in in_features
        }
        self.project = nn.ModuleDict({name: nn.Linear(size, width) for name, size in in_features.items()})
        self.embed = nn.ModuleDict({name: nn.Embedding(n, width) for name, n in without.items()})

    def forward(self, nodes: Rows, x: Rows) -> Rows:
        """Of ids within the types, and features."""
        rows = {name: project(x[name]) for name, project in self.project.items()}
        return rows | {name: embed(nodes[name]) for name, embed in self.embed.items()}


class RGCNConv(nn.Module):
    """``W x_dst``, ``W`` by node type, plus ``V mean(x_src)`` for each edge type that leads to it, ``V`` by edge type.

    Source: Schlichtkrull et al., Modeling relational data with graph convolutional networks (ESWC'18), equation 2.
    """

    def __init__(self, types: GraphTypes, in_features: int, out_features: int) -> None:
        super().__init__()
        self.own = nn.ModuleDict({name: nn.Linear(in_features, out_features) for name in types.node_types})
        self.neighbors = nn.ModuleDict(
            {"__".join(kind): nn.Linear(in_features, out_features, bias=False) for kind in types.edge_types}
        )

    def forward(self, blocks: dict[EdgeType, Block], num_dst: dict[str, int], x: Rows) -> Rows:
        rows = {name: self.own[name](x[name][:count]) for name, count in num_dst.items()}
        for kind, block in blocks.items():
            src, _, dst = kind
            if block.num_edges:  # most types have none at the innermost hop
                rows[dst] = rows[dst] + self.neighbors["__".join(kind)](mean_of_neighbors(block, x[src]))
        return rows


class TypedClassifier(Learner):
    """Classification of the nodes of one type in a graph with several; a subclass says by which layers.

    Args:
        node_type: of the seeds.
        in_features: feature width by node type; nodes of other types have an embedding each, which is learned.
        num_classes: label classes.
        hidden: width of the hidden layers and of the embeddings.
        num_layers: must equal the sampler's number of hops.
        dropout: between layers.
        lr: Adam's learning rate.
    """

    def __init__(
        self,
        node_type: str,
        in_features: dict[str, int],
        num_classes: int,
        hidden: int = 128,
        num_layers: int = 2,
        dropout: float = 0.5,
        lr: float = 0.003,
    ) -> None:
        super().__init__(MulticlassAccuracy(num_classes, average="micro"), "accuracy", lr)
        self.save_hyperparameters()
        self.node_type = node_type
        self.dropout = Dropout(dropout, relu=True)
        self.convs = nn.ModuleList()

    def configure_model(self) -> None:
        """Makes the layers, now that the data are there and say which types they have."""
        if not len(self.convs):
            types = self.trainer.datamodule.data.graph.types  # type: ignore[attr-defined]
            self.encoder = NodeEncoder(types, self.hparams["in_features"], self.hparams["hidden"])
            self.convs.extend(self.make_convs(types))

    def make_convs(self, types: GraphTypes) -> list[nn.Module]:
        """Makes the layers, outermost first."""
        raise NotImplementedError

    def forward(self, batch: TypedMiniBatch) -> Tensor:
        """What the last layer gives for the seeds, ``[num_seeds, F]``: logits, if no head comes after it."""
        batch.expect_layers(len(self.convs))
        x = self.encoder(batch.nodes, batch.x)
        for conv, blocks, num_dst in zip(self.convs, batch.blocks, batch.num_dst, strict=True):
            x = conv(blocks, num_dst, {name: self.dropout(rows) for name, rows in x.items()})
        return x[self.node_type]

    def labels(self, batch: TypedMiniBatch) -> Tensor:
        return batch.y[self.node_type]


class RGCN(TypedClassifier):
    """Node classification by layers of :class:`RGCNConv`, on typed mini-batches."""

    def make_convs(self, types: GraphTypes) -> list[nn.Module]:
        settings = self.hparams
        widths = [settings["hidden"]] * settings["num_layers"] + [settings["num_classes"]]
        return [RGCNConv(types, *pair) for pair in pairwise(widths)]

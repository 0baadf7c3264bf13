"""HGT: PyG's heterogeneous graph transformer, on what PyG's own loader yields."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HGTConv
from torch_geometric.utils import trim_to_layer

from lightning_gnnload.data.types import GraphTypes

from .typed import TypedClassifier


class HGT(TypedClassifier):
    """Node classification by layers of PyG's ``HGTConv``, on ``HeteroData``.

    Args:
        node_type: of the seeds.
        in_features: feature width by node type; nodes of other types have an embedding each, which is learned.
        num_classes: label classes.
        heads: attentions side by side, which divide the hidden width.
        settings: those of :class:`TypedClassifier`.

    Source: Hu et al., Heterogeneous graph transformer (WWW'20).
    """

    def __init__(
        self, node_type: str, in_features: dict[str, int], num_classes: int, heads: int = 2, **settings: Any
    ) -> None:
        super().__init__(node_type, in_features, num_classes, **settings)
        self.head = nn.Linear(self.hparams["hidden"], num_classes)

    def make_convs(self, types: GraphTypes) -> list[nn.Module]:
        settings, width = self.hparams, self.hparams["hidden"]
        metadata = list(types.node_types), list(types.edge_types)
        return [HGTConv(width, width, metadata, settings["heads"]) for _ in range(settings["num_layers"])]

    def forward(self, batch: HeteroData) -> Tensor:
        """Logits of the seeds, ``[num_seeds, num_classes]``."""
        x, edge_index = self.encoder(batch.n_id_dict, batch.x_dict), batch.edge_index_dict
        sampled = batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict
        for layer, conv in enumerate(self.convs):
            x, edge_index, _ = trim_to_layer(layer, *sampled, x, edge_index)  # what no later layer needs
            x = conv({name: self.dropout(rows.relu()) for name, rows in x.items()}, edge_index)
        return self.head(x[self.node_type][: batch[self.node_type].batch_size])

    def labels(self, batch: HeteroData) -> Tensor:
        store = batch[self.node_type]
        return store.y[: store.batch_size]

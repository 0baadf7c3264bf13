"""TemporalSAGE: a seed is a node at a time, and what an edge tells it depends on how long ago that was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.classification import BinaryAUROC

from lightning_gnnload import Block

from .learner import Learner
from .typed import NodeEncoder, Rows

if TYPE_CHECKING:
    from lightning_gnnload.data.typed_batch import TypedMiniBatch
    from lightning_gnnload.data.types import EdgeType, GraphTypes

DAY = 86_400
SPANS = (1.0, 3.0, 10.0, 30.0, 90.0, 270.0)  # days


def age_rows(age: Tensor) -> Tensor:
    """Returns what is told of ages ``[E]`` in days, ``[E, 7]``: near 1 within each span, else near 0; then its sign."""
    near = torch.exp(-age.abs()[:, None] / age.new_tensor(SPANS))
    return torch.cat([near, (age < 0).to(near)[:, None]], dim=1)


class TemporalConv(nn.Module):
    """``W x_dst + V [sum(m), max(m)]`` over each edge type's messages ``m = relu(Q x_src + A age)``.

    Unlike a mean, the sum tells how many there were; the maximum lets the newest edge speak for itself.
    """

    def __init__(self, types: GraphTypes, width: int) -> None:
        super().__init__()
        self.own = nn.ModuleDict({name: nn.Linear(width, width) for name in types.node_types})
        names = ["__".join(kind) for kind in types.edge_types]
        self.src = nn.ModuleDict({name: nn.Linear(width, width) for name in names})
        self.age = nn.ModuleDict({name: nn.Linear(len(SPANS) + 1, width, bias=False) for name in names})
        self.told = nn.ModuleDict({name: nn.Linear(2 * width, width, bias=False) for name in names})

    def forward(
        self, blocks: dict[EdgeType, Block], num_dst: dict[str, int], x: Rows, ages: dict[EdgeType, Tensor]
    ) -> Rows:
        rows = {name: self.own[name](x[name][:count]) for name, count in num_dst.items()}
        for kind, block in blocks.items():
            src, _, dst = kind
            name = "__".join(kind)
            message = (self.src[name](x[src])[block.indices] + self.age[name](age_rows(ages[kind]))).relu()
            told = [torch.segment_reduce(message, by, offsets=block.indptr, initial=0) for by in ("sum", "max")]
            rows[dst] = rows[dst] + self.told[name](torch.cat(told, dim=1))
        return rows


class TemporalSAGE(Learner):
    """Tells by one logit whether a seed's label is 1, from what it did until its time; each seed has nodes of its own.

    Args:
        node_type: of the seeds.
        in_features: feature width by node type; nodes of other types have an embedding each, which is learned.
        hidden: width of all rows.
        num_layers: must equal the sampler's number of hops; 0 takes any, and never looks at the graph.
        lr: Adam's learning rate.
    """

    def __init__(
        self, node_type: str, in_features: dict[str, int], hidden: int = 64, num_layers: int = 2, lr: float = 0.003
    ) -> None:
        super().__init__(BinaryAUROC(), "auroc", lr)
        self.save_hyperparameters()
        self.node_type = node_type
        self.convs = nn.ModuleList()
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def configure_model(self) -> None:
        """Makes the layers, now that the data are there and say which types they have."""
        if not hasattr(self, "encoder"):
            types, settings = self.trainer.datamodule.data.graph.types, self.hparams  # type: ignore[attr-defined]
            self.encoder = NodeEncoder(types, settings["in_features"], settings["hidden"])
            self.convs.extend(TemporalConv(types, settings["hidden"]) for _ in range(settings["num_layers"]))

    def forward(self, batch: TypedMiniBatch) -> Tensor:
        """Logits of the seeds, ``[num_seeds]``."""
        x = self.encoder(batch.nodes, batch.x)
        if len(self.convs):
            batch.expect_layers(len(self.convs))
            for conv, blocks, num_dst in zip(self.convs, batch.blocks, batch.num_dst, strict=True):
                ages = {kind: self.ages(batch, kind, block) for kind, block in blocks.items()}
                x = conv(blocks, num_dst, {name: rows.relu() for name, rows in x.items()}, ages)
        return self.head(x[self.node_type][: batch.num_seeds[self.node_type]].relu()).squeeze(1)

    def ages(self, batch: TypedMiniBatch, kind: EdgeType, block: Block) -> Tensor:
        """Returns how many days before its seed's time each edge was, ``[num_edges]``."""
        row = batch.rows[kind[2]][block.edge_dst()]
        seconds = batch.seed_columns["time"][row] - block.tables["time"]
        return seconds.to(torch.get_default_dtype()) / DAY

    def loss(self, predicted: Tensor, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(predicted, labels.to(predicted.dtype))

    def labels(self, batch: TypedMiniBatch) -> Tensor:
        return batch.y[self.node_type]

"""A layer on one block of a mini-batch: ``[num_src, in_features]`` to ``[num_dst, out_features]``."""

from __future__ import annotations

from torch import Tensor, nn

from lightning_gnnload import Block, aggregate


class SAGEConv(nn.Module):
    """GraphSAGE with the mean aggregator: ``W x_dst + V mean(x_src)``."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_features, out_features)
        self.neighbors = nn.Linear(in_features, out_features, bias=False)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        return self.own(x[: block.num_dst]) + self.neighbors(aggregate(block, x, "mean", block.edge_weight))

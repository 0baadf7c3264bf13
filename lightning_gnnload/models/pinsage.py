"""PinSAGE: convolutions over the nodes that random walks visit most often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from lightning_gnnload.data.block import Block
from lightning_gnnload.models.conv_stack import ConvLearner, EdgeAges
from lightning_gnnload.models.first_rows import Rows, module_names
from lightning_gnnload.nn.aggregate import aggregate


class PinSAGEConv(nn.Module):
    """``W [x_dst, mean(relu(Q x_src))]``, weighted by how often random walks visited ``src``; ``W`` by node type, ``Q``
    by edge type, over which the means are added up.

    Without the scaling to unit length, which is for finding the nearest neighbours.

    Args:
        sizes: of :meth:`.ConvLearner.sizes_of`.
        num_inputs: widths of rows by node type.
        width: of what it gives.
    """

    def __init__(self, sizes: Mapping[str, Any], num_inputs: Mapping[str, int], width: int) -> None:
        super().__init__()
        self.module_names = names = module_names(sizes)
        self.edge_types = [tuple(edge_type) for edge_type in sizes["edge_types"]]
        self.neighbors = nn.ModuleList(nn.Linear(num_inputs[src], width) for src, _, _ in self.edge_types)
        self.both = nn.ModuleDict({key: nn.Linear(num_inputs[name] + width, width) for name, key in names.items()})
        self.width = width

    def forward(self, blocks: Mapping[Any, Block], num_dst: dict[str, int], x: Rows, ages: EdgeAges) -> Rows:
        means = {name: x[name].new_zeros(count, self.width) for name, count in num_dst.items()}
        for edge_type, linear in zip(self.edge_types, self.neighbors, strict=True):
            src, _, dst = edge_type
            if (block := blocks[edge_type]).num_edges:
                means[dst] = means[dst] + aggregate(block, linear(x[src]).relu(), "mean", block.edge_weight)
        return {
            name: self.both[self.module_names[name]](torch.cat([x[name][: len(mean)], mean], dim=1))
            for name, mean in means.items()
        }


class PinSAGE(ConvLearner):
    """PinSAGE, on what a :class:`.RandomWalkSampler` draws; other samplers' neighbours count alike.

    Args:
        settings: those of :class:`.ConvLearner`.

    Source: Ying et al., Graph convolutional neural networks for web-scale recommender systems (KDD'18), algorithm 1.

    Example:
        >>> PinSAGE(hidden=64).hparams["hidden"]
        64
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def conv_of(self, sizes: Mapping[str, Any], widths: Mapping[str, int]) -> nn.Module:
        return PinSAGEConv(sizes, widths, self.hparams["hidden"])

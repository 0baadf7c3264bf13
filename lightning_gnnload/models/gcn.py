"""GCN: graph convolution, which divides by the degrees of both ends of an edge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from lightning_gnnload.data.block import Block
from lightning_gnnload.models.conv_stack import ConvLearner, EdgeAges
from lightning_gnnload.models.first_rows import Rows, module_names
from lightning_gnnload.nn.aggregate import aggregate


class GCNConv(nn.Module):
    """Graph convolution: ``sum(W x_src / sqrt(d_src d_dst))`` over the edges and a loop at each destination.

    Degrees are those of the block, loops and edges of all types counted, as in DGL and PyG on sampled neighbourhoods.
    ``W`` and the bias are by node type.

    Args:
        sizes: of :meth:`.ConvLearner.sizes_of`.
        num_inputs: widths of rows by node type.
        width: of what it gives.
    """

    def __init__(self, sizes: Mapping[str, Any], num_inputs: Mapping[str, int], width: int) -> None:
        super().__init__()
        self.module_names = names = module_names(sizes)
        self.edge_types = [tuple(edge_type) for edge_type in sizes["edge_types"]]
        self.linear = nn.ModuleDict(
            {key: nn.Linear(num_inputs[name], width, bias=False) for name, key in names.items()}
        )
        self.bias = nn.ParameterDict({key: nn.Parameter(torch.zeros(width)) for key in names.values()})

    def forward(self, blocks: Mapping[Any, Block], num_dst: dict[str, int], x: Rows, ages: EdgeAges) -> Rows:
        out_degrees = {name: rows.new_ones(len(rows)) for name, rows in x.items()}
        in_degrees = {name: x[name].new_ones(count) for name, count in num_dst.items()}
        for src, relation, dst in self.edge_types:
            block = blocks[src, relation, dst]
            out_degrees[src] = out_degrees[src] + torch.bincount(block.indices, minlength=len(x[src]))
            in_degrees[dst] = in_degrees[dst] + block.in_degrees
        scaled = {
            name: self.linear[self.module_names[name]](rows) * out_degrees[name].rsqrt()[:, None]
            for name, rows in x.items()
        }
        sums = {name: scaled[name][:count] for name, count in num_dst.items()}
        for src, relation, dst in self.edge_types:
            block = blocks[src, relation, dst]
            if block.num_edges:
                sums[dst] = sums[dst] + aggregate(block, scaled[src], "sum")
        return {
            name: rows * in_degrees[name].rsqrt()[:, None] + self.bias[self.module_names[name]]
            for name, rows in sums.items()
        }


class GCN(ConvLearner):
    """Graph convolutional network. In a graph with types, each node type has weights of its own, and edges of all types
    count alike; :class:`.RGCN` tells them apart.

    Args:
        settings: those of :class:`.ConvLearner`.

    Source: Kipf and Welling, Semi-supervised classification with graph convolutional networks (ICLR'17), equation 2.

    Example:
        >>> GCN(hidden=64, norm="layer").hparams["num_layers"] is None
        True
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def conv_of(self, sizes: Mapping[str, Any], widths: Mapping[str, int]) -> nn.Module:
        return GCNConv(sizes, widths, self.hparams["hidden"])

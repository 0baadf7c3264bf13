"""Layers on one block of a mini-batch: ``[num_src, in_features]`` to ``[num_dst, out_features]``.

``aggregate`` adds up the neighbours' rows without writing them out edge by edge.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_gnnload import Block, aggregate


class SAGEConv(nn.Module):
    """GraphSAGE with the mean aggregator: ``W x_dst + V mean(x_src)``.

    The mean is weighted where the sampler says what each edge counts.

    Source: Hamilton et al., Inductive representation learning on large graphs (NeurIPS'17).
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_features, out_features)
        self.neighbors = nn.Linear(in_features, out_features, bias=False)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        return self.own(x[: block.num_dst]) + self.neighbors(mean_of_neighbors(block, x))


def mean_of_neighbors(block: Block, x: Tensor) -> Tensor:
    """Returns each destination's mean over its edges, ``[num_dst, F]``; zeros where it has none."""
    return aggregate(block, x, "mean", block.edge_weight)


class GCNConv(nn.Module):
    """Graph convolution: ``sum(W x_src / sqrt(d_src d_dst))`` over the edges and a loop at each destination.

    Degrees are those of the block, as in DGL and PyG on sampled neighbourhoods.

    Source: Kipf and Welling, Semi-supervised classification with graph convolutional networks (ICLR'17), equation 2.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, block: Block, x: Tensor) -> Tensor:
        out_degrees = torch.bincount(block.indices, minlength=block.num_src)
        x = self.linear(x) * (out_degrees + 1).rsqrt()[:, None]
        total = aggregate(block, x, "sum") + x[: block.num_dst]
        return total * (block.in_degrees + 1).rsqrt()[:, None] + self.bias


class GATConv(nn.Module):
    """Graph attention with features of edges: ``W x_src`` weighted by ``softmax(leaky_relu(a x_src + b x_dst + c e))``.

    Edges without features of their own have their type, as a one-hot vector. Beside the attention a destination keeps
    ``V x_dst``, as it has no edge to itself.

    Args:
        in_features: width of the nodes' rows.
        out_features: width of a destination's row, over all heads.
        edge_features: width of the edges' rows, or the number of edge types.
        heads: attentions side by side, each ``out_features / heads`` wide.

    Source: Velickovic et al., Graph attention networks (ICLR'18), section 2.1; the edges' term is that of PyG.
    """

    def __init__(self, in_features: int, out_features: int, edge_features: int, heads: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_features, out_features)
        self.neighbors = nn.Linear(in_features, out_features, bias=False)
        self.src, self.dst = (nn.Linear(in_features, heads, bias=False) for _ in range(2))
        self.edge = nn.Linear(edge_features, heads, bias=False)
        self.heads = heads

    def forward(self, block: Block, x: Tensor) -> Tensor:
        share = self.attention(block, x)
        parts = self.neighbors(x).chunk(self.heads, dim=1)
        told = [aggregate(block, part, "sum", share[:, head].contiguous()) for head, part in enumerate(parts)]
        return self.own(x[: block.num_dst]) + torch.cat(told, dim=1)

    def attention(self, block: Block, x: Tensor) -> Tensor:
        """Returns ``[num_edges, heads]``; those of a destination sum to one."""
        dst = block.edge_dst()
        score = self.src(x)[block.indices] + self.dst(x[: block.num_dst])[dst] + self.edge(self.edge_rows(block))
        score = F.leaky_relu(score, 0.2)
        highest = torch.segment_reduce(score.detach(), "max", offsets=block.indptr)
        power = (score - highest[dst]).exp()
        return power / torch.segment_reduce(power, "sum", offsets=block.indptr)[dst]

    def edge_rows(self, block: Block) -> Tensor:
        """Returns ``[num_edges, edge_features]``."""
        if block.x is not None:
            return block.x
        assert block.edge_type is not None, "the sampler draws by edge type, or the graph has features of edges"
        return F.one_hot(block.edge_type.long(), self.edge.in_features).to(self.edge.weight.dtype)


class PinSAGEConv(nn.Module):
    """PinSAGE's convolution: ``W [x_dst, mean(relu(Q x_src))]``, weighted by how often random walks visited ``src``.

    Without the scaling to unit length, which is for finding the nearest neighbours.

    Source: Ying et al., Graph convolutional neural networks for web-scale recommender systems (KDD'18), algorithm 1.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.told = nn.Linear(in_features, out_features)
        self.both = nn.Linear(in_features + out_features, out_features)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        told = mean_of_neighbors(block, self.told(x).relu())
        return self.both(torch.cat([x[: block.num_dst], told], dim=1))

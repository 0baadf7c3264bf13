"""Models and data of the tests of layer-wise inference, and what a model gives on a whole graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_gnnload import Graph, GraphData

NUM_NODES, WIDTH, HIDDEN = 300, 8, 16
Conv = Callable[[], nn.Module]


def edges(seed: int = 0) -> np.ndarray:
    """``[2, 2001]``, with a hub, repeated edges, loops, and nodes without in-neighbours."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(NUM_NODES, size=2000), rng.integers(NUM_NODES - 20, size=2000)
    dst[:400] = 7
    return np.stack([np.append(src, 3), np.append(dst, 3)])


def weights(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(2001).astype(np.float32) + np.float32(0.1)


def flat_data(**settings: object) -> GraphData:
    torch.manual_seed(1)
    graph = Graph.from_coo(*edges(), NUM_NODES, edge_weight=weights(), keep_order=True)
    return GraphData(graph, x=torch.randn(NUM_NODES, WIDTH), y=torch.arange(NUM_NODES) % 3, **settings)


def features(data: GraphData) -> Tensor:
    return data.x.rows


class Deep(nn.Module):
    """Three convolutions with all that stands between them: an encoder, norms, dropout, skips, jumping knowledge."""

    def __init__(self, conv: Conv) -> None:
        super().__init__()
        self.encoder = nn.Linear(WIDTH, HIDDEN)
        self.convs = nn.ModuleList(conv() for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in range(3))
        self.head = nn.Linear(3 * HIDDEN, 5)
        for norm in self.norms:
            norm.running_mean.uniform_(-1, 1)  # else evaluation would not differ from no norm at all

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x, found = self.encoder(x), []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.dropout(norm(conv(x, edge_index)).relu(), training=self.training) + x
            found.append(x)
        return self.head(torch.cat(found, dim=1))


class Plain(nn.Module):
    """Two convolutions, whose arguments beside rows and edges are those of ``forward``."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Weighted(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

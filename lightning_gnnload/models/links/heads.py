"""Heads of links: scores of pairs, from the rows of both ends.

Shapes: P pairs or sources, I destinations, D numbers in a row, K edge types.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HeadName = Literal["dot", "distmult", "bilinear", "mlp"]
HEADS = get_args(HeadName)


class LinkHead(nn.Module):
    """Scores pairs of rows, by the number of their edge type."""

    is_product = False
    """Whether a score is an inner product of what :meth:`query` makes of the source, and the destination's row."""

    def query(self, src: Tensor, number: int) -> Tensor:
        """What is made of sources' rows ``[P, D]``, before destinations are looked at."""
        raise NotImplementedError

    def item(self, dst: Tensor, number: int) -> Tensor:
        """What is made of destinations' rows ``[..., D]``, before sources are looked at."""
        raise NotImplementedError

    def forward(self, src: Tensor, dst: Tensor, number: int = 0) -> Tensor:
        """Scores of pairs ``[P]``, or of ``dst`` ``[P, M, D]`` beside each source, ``[P, M]``."""
        query, item = self.query(src, number), self.item(dst, number)
        return self.joined(query if dst.ndim == src.ndim else query[:, None], item)

    def joined(self, query: Tensor, item: Tensor) -> Tensor:
        """Scores of pairs whose ends lie beside each other."""
        raise NotImplementedError

    def table(self, query: Tensor, item: Tensor) -> Tensor:
        """Scores of all sources and destinations, ``[P, I]``, of what :meth:`query` and :meth:`item` made of them."""
        raise NotImplementedError

    def exact(self, query: Tensor, item: Tensor) -> Tensor:
        """As :meth:`table`, float32 rounded from float64 sums: equal rows have equal scores, in whichever block."""
        raise NotImplementedError


class ProductHead(LinkHead):
    """``r W_k s``: an inner product, with a matrix of each edge type: none, a diagonal one (DistMult), or a whole one.

    Args:
        name: ``"dot"``, ``"distmult"`` or ``"bilinear"``.
        width: D.
        num_types: K.
        temperature: rows are given the length 1, and scores divided by it; None: rows as they are.

    Sources: Yang et al., Embedding entities and relations (ICLR'15), for DistMult; Nickel et al., RESCAL (ICML'11),
    for the whole matrix.
    """

    is_product = True

    def __init__(self, name: HeadName, width: int, num_types: int, temperature: float | None) -> None:
        super().__init__()
        self.temperature = temperature
        self.relation: nn.Parameter | None = None
        if name == "distmult":
            self.relation = nn.Parameter(torch.ones(num_types, width))
        elif name == "bilinear":
            self.relation = nn.Parameter(torch.empty(num_types, width, width).uniform_(-1, 1) / width**0.5)

    def query(self, src: Tensor, number: int) -> Tensor:
        rows = src if self.temperature is None else F.normalize(src, dim=-1) / self.temperature
        if self.relation is None:
            return rows
        relation = self.relation[number]
        return rows * relation if relation.ndim == 1 else rows @ relation

    def item(self, dst: Tensor, number: int) -> Tensor:
        return dst if self.temperature is None else F.normalize(dst, dim=-1)

    def joined(self, query: Tensor, item: Tensor) -> Tensor:
        return (query * item).sum(-1)

    def table(self, query: Tensor, item: Tensor) -> Tensor:
        return query @ item.t()

    def exact(self, query: Tensor, item: Tensor) -> Tensor:
        return (query.double() @ item.double().t()).float()


class MLPHead(LinkHead):
    """A perceptron of one hidden layer over both rows side by side, and over the edge type.

    Source: He et al., Neural collaborative filtering (WWW'17), section 3.3.
    """

    _PAIRS = 1 << 15  # whose hidden layers are in memory at once

    def __init__(self, width: int, num_types: int) -> None:
        super().__init__()
        # The first layer of both rows side by side, cut in two: it is computed once a row instead of once a pair.
        self.src, self.dst = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.relation = nn.Parameter(torch.zeros(num_types, width))
        self.out = nn.Linear(width, 1)

    def query(self, src: Tensor, number: int) -> Tensor:
        rows: Tensor = self.src(src) + self.relation[number]
        return rows

    def item(self, dst: Tensor, number: int) -> Tensor:
        rows: Tensor = self.dst(dst)
        return rows

    def joined(self, query: Tensor, item: Tensor) -> Tensor:
        scores: Tensor = self.out((query + item).relu())
        return scores.squeeze(-1)

    def table(self, query: Tensor, item: Tensor) -> Tensor:
        return self.joined(query[:, None], item)

    def exact(self, query: Tensor, item: Tensor) -> Tensor:
        weight, bias = self.out.weight[0].double(), self.out.bias.double()
        parts = [
            ((query[:, None] + part).relu().double() @ weight + bias).float()
            for part in item.split(max(self._PAIRS // max(len(query), 1), 1))
        ]
        return torch.cat(parts, dim=1)


def head_of(name: HeadName, width: int, num_types: int, temperature: float | None) -> LinkHead:
    """Makes a head by its name."""
    return MLPHead(width, num_types) if name == "mlp" else ProductHead(name, width, num_types, temperature)

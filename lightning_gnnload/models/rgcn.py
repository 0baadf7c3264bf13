"""RGCN: a weight for each type of edge, by which it sums over means of in-neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_gnnload.data.block import Block
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import LoaderConfigError, SamplerConfigError
from lightning_gnnload.models.conv_stack import UNTYPED, ConvLearner, EdgeAges
from lightning_gnnload.models.edge_rows import edge_types_in
from lightning_gnnload.models.first_rows import Rows, module_names
from lightning_gnnload.nn.aggregate import aggregate
from lightning_gnnload.settings import check_whole_number


class RGCNConv(nn.Module):
    """``W x_dst``, ``W`` by node type, plus ``V mean(x_src)`` for each relation that leads to it, ``V`` by relation.

    Relations are the edge types of a graph with types of nodes, else the numbers that edges have as types.

    Args:
        sizes: of :meth:`.ConvLearner.sizes_of`, and ``num_relations`` of a graph without types of nodes.
        width: of rows, in and out.
        num_bases: matrices that each ``V`` is a sum of, by weights of its own; None: ``V`` is one by itself.
    """

    def __init__(self, sizes: Mapping[str, Any], width: int, num_bases: int | None) -> None:
        super().__init__()
        self.module_names = names = module_names(sizes)
        self.edge_types = [tuple(edge_type) for edge_type in sizes["edge_types"]]
        self.num_relations: int | None = sizes.get("num_relations")
        count = self.num_relations or len(self.edge_types)
        self.self_rows = nn.ModuleDict({key: nn.Linear(width, width) for key in names.values()})
        self.neighbors = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(num_bases or count))
        self.shares = None if num_bases is None else nn.Parameter(torch.randn(count, num_bases) / num_bases**0.5)

    def forward(self, blocks: Mapping[Any, Block], num_dst: dict[str, int], x: Rows, ages: EdgeAges) -> Rows:
        rows = {name: self.self_rows[self.module_names[name]](x[name][:count]) for name, count in num_dst.items()}
        means: dict[str, list[tuple[int, Tensor]]] = {name: [] for name in num_dst}
        for number, (src, dst, block) in enumerate(self._relations(blocks)):
            if block.num_edges:  # most types have none at the innermost hop
                means[dst].append((number, aggregate(block, x[src], "mean", block.edge_weight)))
        for dst, parts in means.items():
            for number, mean in self._shared(parts):
                rows[dst] = rows[dst] + self.neighbors[number](mean)
        return rows

    def _shared(self, means: list[tuple[int, Tensor]]) -> list[tuple[int, Tensor]]:
        """The means of relations by the number of the matrix that they are multiplied with."""
        if self.shares is None or not means:
            return means
        numbers = [number for number, _ in means]
        shared = torch.einsum("rb,rnd->bnd", self.shares[numbers], torch.stack([mean for _, mean in means]))
        return list(enumerate(shared))

    def _relations(self, blocks: Mapping[Any, Block]) -> list[tuple[str, str, Block]]:
        if self.num_relations is None:
            return [(key[0], key[2], blocks[key]) for key in self.edge_types]
        types = edge_types_in(block := blocks[UNTYPED])
        if types is None:
            raise SamplerConfigError(
                "RGCN has weights by the type of edges, which mini-batches do not carry. Draw by type: "
                "NeighborSampler([{0: 5, 1: 3}, ...]); or give GraphData(..., edge_tables={'edge_type': types})."
            )
        return [("", "", _of_relation(block, types.view(-1) == number)) for number in range(self.num_relations)]


def _of_relation(block: Block, is_of: Tensor) -> Block:
    """The block of some of the edges."""
    indptr = F.pad(is_of.cumsum(0), (1, 0))[block.indptr].to(block.indptr.dtype)
    weight = None if block.edge_weight is None else block.edge_weight[is_of]
    return Block(indptr, block.indices[is_of], block.num_dst, block.num_src, edge_weight=weight)


class RGCN(ConvLearner):
    """Relational graph convolutional network, for graphs with types of nodes, or of edges alone.

    Args:
        num_bases: matrices that the weights of all edge types are made of, for graphs with many types; None: each type
            has one by itself.
        settings: those of :class:`.ConvLearner`.

    Raises:
        LoaderConfigError: ``num_bases`` below 1.
        SamplerConfigError: in a step, edges have types, and mini-batches do not carry them.

    Source: Schlichtkrull et al., Modeling relational data with graph convolutional networks (ESWC'18), equations 2
    and 3.

    Example:
        >>> RGCN(num_bases=4, learned_rows="node").hparams["num_bases"]
        4
    """

    def __init__(self, num_bases: int | None = None, **settings: Any) -> None:
        if num_bases is not None:
            check_whole_number("num_bases", num_bases, LoaderConfigError)
        super().__init__(**settings)

    def sizes_of(self, data: GraphData, num_hops: int) -> dict[str, Any]:
        sizes, graph = super().sizes_of(data, num_hops), data.graph
        if graph.types is None and graph.edge_type is not None:
            sizes["num_relations"] = int(graph.edge_type.max(initial=0)) + 1
        return sizes

    def conv_of(self, sizes: Mapping[str, Any], widths: Mapping[str, int]) -> nn.Module:
        return RGCNConv(sizes, self.hparams["hidden"], self.hparams["num_bases"])

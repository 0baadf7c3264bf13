"""HGT: attention of a node to all its in-neighbours, by weights of their types and of the edges' type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_gnnload.data.block import Block
from lightning_gnnload.models.attention import softmax_over_edges, sum_by_heads
from lightning_gnnload.models.conv_stack import ConvLearner, EdgeAges, check_heads
from lightning_gnnload.models.first_rows import Rows, module_names


class HGTConv(nn.Module):
    """Attention over all edges into a node, ``softmax(q_dst A k_src)``, which weighs what they tell, ``v_src M``.

    Query, key, value and the gate beside the node's own row are by node type; ``A``, ``M`` and the prior of the
    attention by edge type. As ``A`` and ``M`` are linear, both are applied to destinations, which are few: to their
    queries, and to what an edge type told them in sum.

    Args:
        sizes: of :meth:`.ConvLearner.sizes_of`.
        width: of rows, in and out.
        heads: attentions side by side, which divide the width.
    """

    def __init__(self, sizes: Mapping[str, Any], width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.module_names = names = module_names(sizes)
        self.edge_types = [tuple(edge_type) for edge_type in sizes["edge_types"]]
        self.query, self.key, self.value, self.out = (
            nn.ModuleDict({key: nn.Linear(width, width) for key in names.values()}) for _ in range(4)
        )
        self.gate = nn.ParameterDict({key: torch.ones(1) for key in names.values()})
        self.prior = nn.ParameterList([torch.ones(heads) for _ in self.edge_types])
        self.match, self.tell = (
            nn.ParameterList(
                [nn.init.xavier_uniform_(torch.empty(heads, self.size, self.size)) for _ in self.edge_types]
            )
            for _ in range(2)
        )

    def forward(self, blocks: Mapping[Any, Block], num_dst: dict[str, int], x: Rows, ages: EdgeAges) -> Rows:
        # Most types have no edges at the innermost hop.
        numbers = {key: number for number, key in enumerate(self.edge_types) if blocks[key].num_edges}
        sources = {src for src, _, _ in numbers}
        keys, values = (
            {name: linears[self.module_names[name]](x[name]) for name in sources} for linears in (self.key, self.value)
        )
        rows = {}
        for name, count in num_dst.items():
            module_name, before = self.module_names[name], x[name][:count]
            gate, sums = self.gate[module_name].sigmoid(), torch.zeros_like(before)
            if into := [key for key in numbers if key[2] == name]:
                query = self.query[module_name](before)
                scores = {key: self.scores(numbers[key], blocks[key], query, keys[key[0]]) for key in into}
                for key, share in softmax_over_edges(scores, blocks).items():
                    sums = sums + self.sums(numbers[key], blocks[key], share, values[key[0]])
            rows[name] = gate * self.out[module_name](F.gelu(sums)) + (1 - gate) * before
        return rows

    def scores(self, number: int, block: Block, query: Tensor, key: Tensor) -> Tensor:
        """Returns how well the source of each edge of one type answers its destination, ``[num_edges, heads]``."""
        queries = torch.einsum("nhd,hed->nhe", self._by_head(query), self.match[number])
        products = (queries[block.edge_dst()] * self._by_head(key)[block.indices]).sum(-1)
        return products * self.prior[number] * self.size**-0.5

    def sums(self, number: int, block: Block, share: Tensor, value: Tensor) -> Tensor:
        """Returns what the edges of one type tell their destinations, ``[num_dst, width]``."""
        sums = self._by_head(sum_by_heads(block, value, share))
        return torch.einsum("nhd,hde->nhe", sums, self.tell[number]).flatten(1)

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows.unflatten(1, (self.heads, self.size))


class HGT(ConvLearner):
    """Heterogeneous graph transformer.

    Args:
        heads: attentions side by side, which divide ``hidden``.
        settings: those of :class:`.ConvLearner`.

    Raises:
        LoaderConfigError: heads that do not divide ``hidden``.

    Source: Hu et al., Heterogeneous graph transformer (WWW'20), equations 3 to 5, without relative times.

    Example:
        >>> HGT(learned_rows="node").hparams["heads"]
        4
    """

    def __init__(self, heads: int = 4, **settings: Any) -> None:
        super().__init__(**settings)
        check_heads(self.hparams["hidden"], heads)

    def conv_of(self, sizes: Mapping[str, Any], widths: Mapping[str, int]) -> nn.Module:
        return HGTConv(sizes, self.hparams["hidden"], self.hparams["heads"])

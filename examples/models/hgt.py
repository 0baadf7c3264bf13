"""HGT: attention of a node to all its in-neighbours, by weights of their types and of the edges' type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_gnnload import Block, aggregate

from .typed import Rows, TypedClassifier

if TYPE_CHECKING:
    from lightning_gnnload.data.typed_batch import TypedMiniBatch
    from lightning_gnnload.data.types import EdgeType, GraphTypes


class HGTConv(nn.Module):
    """Attention over all edges into a node, ``softmax(q_dst A k_src)``, which weighs what they tell, ``v_src M``.

    Query, key, value and the gate beside the node's own row are by node type; ``A``, ``M`` and the prior of the
    attention by edge type. As ``A`` and ``M`` are linear, both are applied to destinations, which are few: to their
    queries, and to what an edge type told them in sum.

    Args:
        types: of the graph.
        width: of rows, in and out.
        heads: attentions side by side, which divide the width.

    Source: Hu et al., Heterogeneous graph transformer (WWW'20), equations 3 to 5, without relative times.
    """

    def __init__(self, types: GraphTypes, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value, self.out = (
            nn.ModuleDict({name: nn.Linear(width, width) for name in types.node_types}) for _ in range(4)
        )
        self.gate = nn.ParameterDict({name: torch.ones(1) for name in types.node_types})
        names = ["__".join(kind) for kind in types.edge_types]
        self.prior = nn.ParameterDict({name: torch.ones(heads) for name in names})
        self.match, self.tell = (
            nn.ParameterDict(
                {name: nn.init.xavier_uniform_(torch.empty(heads, self.size, self.size)) for name in names}
            )
            for _ in range(2)
        )

    def forward(self, blocks: dict[EdgeType, Block], num_dst: dict[str, int], x: Rows) -> Rows:
        blocks = {kind: block for kind, block in blocks.items() if block.num_edges}  # most are empty at the inmost hop
        sources = {kind[0] for kind in blocks}
        keys, values = ({name: of_type[name](x[name]) for name in sources} for of_type in (self.key, self.value))
        rows = {}
        for name, count in num_dst.items():
            own, gate = x[name][:count], self.gate[name].sigmoid()
            told = torch.zeros_like(own)
            if into := {kind: block for kind, block in blocks.items() if kind[2] == name}:
                query = self.query[name](own)
                scores = {kind: self.scores(kind, block, query, keys[kind[0]]) for kind, block in into.items()}
                for kind, share in softmax(scores, into).items():
                    told = told + self.told(kind, into[kind], share, values[kind[0]])
            rows[name] = gate * self.out[name](F.gelu(told)) + (1 - gate) * own
        return rows

    def scores(self, kind: EdgeType, block: Block, query: Tensor, key: Tensor) -> Tensor:
        """Returns how well each edge's source answers its destination, ``[num_edges, heads]``."""
        name = "__".join(kind)
        asked = torch.einsum("nhd,hed->nhe", self._by_head(query), self.match[name])
        return (
            (asked[block.edge_dst()] * self._by_head(key)[block.indices]).sum(-1) * self.prior[name] * self.size**-0.5
        )

    def told(self, kind: EdgeType, block: Block, share: Tensor, value: Tensor) -> Tensor:
        """Returns what the edges of one type tell their destinations, ``[num_dst, width]``."""
        sums = [
            aggregate(block, part, "sum", share[:, head].contiguous())
            for head, part in enumerate(value.chunk(self.heads, dim=1))
        ]
        return torch.einsum("nhd,hde->nhe", torch.stack(sums, dim=1), self.tell["__".join(kind)]).flatten(1)

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows.unflatten(1, (self.heads, self.size))


def softmax(scores: dict[EdgeType, Tensor], blocks: dict[EdgeType, Block]) -> dict[EdgeType, Tensor]:
    """Returns shares of the shapes of ``scores``, ``[num_edges, heads]`` by edge type; those of all edges into a
    destination sum to one, whatever their types."""

    def at_dst(rows: dict[EdgeType, Tensor], reduce: str) -> Tensor:
        parts = [torch.segment_reduce(each, reduce, offsets=blocks[kind].indptr) for kind, each in rows.items()]
        return torch.stack(parts)

    dst = {kind: block.edge_dst() for kind, block in blocks.items()}
    highest = at_dst({kind: each.detach() for kind, each in scores.items()}, "max").amax(0)
    power = {kind: (each - highest[dst[kind]]).exp() for kind, each in scores.items()}
    total = at_dst(power, "sum").sum(0)
    return {kind: each / total[dst[kind]] for kind, each in power.items()}


class HGT(TypedClassifier):
    """Node classification by layers of :class:`HGTConv`, on typed mini-batches.

    Args:
        node_type: of the seeds.
        in_features: feature width by node type; nodes of other types have an embedding each, which is learned.
        num_classes: label classes.
        heads: attentions side by side, which divide the hidden width.
        settings: those of :class:`.TypedClassifier`.
    """

    def __init__(
        self, node_type: str, in_features: dict[str, int], num_classes: int, heads: int = 4, **settings: Any
    ) -> None:
        super().__init__(node_type, in_features, num_classes, **settings)
        self.head = nn.Linear(self.hparams["hidden"], num_classes)

    def make_convs(self, types: GraphTypes) -> list[nn.Module]:
        settings = self.hparams
        return [HGTConv(types, settings["hidden"], settings["heads"]) for _ in range(settings["num_layers"])]

    def forward(self, batch: TypedMiniBatch) -> Tensor:
        """Logits of the seeds, ``[num_seeds, num_classes]``."""
        return self.head(super().forward(batch))

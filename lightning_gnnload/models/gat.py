"""GAT: attention of a node to its in-neighbours, by both ends of an edge and by what the edge tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from lightning_gnnload.data.block import Block
from lightning_gnnload.models.attention import softmax_over_edges, sum_by_heads
from lightning_gnnload.models.conv_stack import ConvLearner, EdgeAges, check_heads
from lightning_gnnload.models.edge_rows import EdgeRows, check_edge_columns
from lightning_gnnload.models.first_rows import Rows, module_names

_SLOPE = 0.2


class GATConv(nn.Module):
    """Graph attention: ``W x_src`` weighted by ``softmax(leaky_relu(a x_src + b x_dst + c e))``, ``e`` being what edges
    tell, over all edges into a node.

    ``W``, ``a``, ``b`` and ``c`` are by edge type. Beside the attention a destination keeps ``V x_dst``, as it has no
    edge to itself; ``V`` is by node type.

    Args:
        sizes: of :meth:`.ConvLearner.sizes_of`.
        num_inputs: widths of rows by node type.
        width: of a destination's row, over all heads.
        heads: attentions side by side, each ``width / heads`` wide.
    """

    def __init__(self, sizes: Mapping[str, Any], num_inputs: Mapping[str, int], width: int, heads: int) -> None:
        super().__init__()
        self.module_names = names = module_names(sizes)
        self.edge_types = [tuple(edge_type) for edge_type in sizes["edge_types"]]
        edges = sizes.get("edges") or {"by_type": [{}] * len(self.edge_types), "spans": []}
        end_widths = [(num_inputs[src], num_inputs[dst]) for src, _, dst in self.edge_types]
        self.self_rows = nn.ModuleDict({key: nn.Linear(num_inputs[name], width) for name, key in names.items()})
        self.neighbors = nn.ModuleList(nn.Linear(src, width, bias=False) for src, _ in end_widths)
        self.src = nn.ModuleList(nn.Linear(src, heads, bias=False) for src, _ in end_widths)
        self.dst = nn.ModuleList(nn.Linear(dst, heads, bias=False) for _, dst in end_widths)
        self.edges: Any = nn.ModuleList(EdgeRows(columns, edges["spans"], heads) for columns in edges["by_type"])

    def forward(self, blocks: Mapping[Any, Block], num_dst: dict[str, int], x: Rows, ages: EdgeAges) -> Rows:
        rows = {name: self.self_rows[self.module_names[name]](x[name][:count]) for name, count in num_dst.items()}
        # Most types have no edges at the innermost hop.
        numbers = {key: number for number, key in enumerate(self.edge_types) if blocks[key].num_edges}
        for name in num_dst:
            scores = {
                key: self.scores(number, blocks[key], x, ages.get(key))
                for key, number in numbers.items()
                if key[2] == name
            }
            for key, share in softmax_over_edges(scores, blocks).items() if scores else ():
                neighbors = self.neighbors[numbers[key]](x[key[0]])
                rows[name] = rows[name] + sum_by_heads(blocks[key], neighbors, share)
        return rows

    def scores(self, number: int, block: Block, x: Rows, age: Tensor | None) -> Tensor:
        """Returns how much the edges of one type count before the softmax, ``[num_edges, heads]``."""
        src, _, dst = self.edge_types[number]
        score = self.src[number](x[src])[block.indices] + self.dst[number](x[dst][: block.num_dst])[block.edge_dst()]
        edges = self.edges[number].rows(block, age)
        return F.leaky_relu(score if edges is None else score + edges, _SLOPE)


class GAT(ConvLearner):
    """Graph attention network, which attends to what edges tell, too, where they tell anything.

    Args:
        heads: attentions side by side, which divide ``hidden``.
        edges: what it reads of edges, as of :class:`.SAGE`; all by default.
        settings: those of :class:`.ConvLearner`.

    Raises:
        LoaderConfigError: heads that do not divide ``hidden``.

    Source: Velickovic et al., Graph attention networks (ICLR'18), section 2.1; the edges' term is that of PyG.

    Example:
        >>> GAT(hidden=64, heads=8).hparams["heads"]
        8
    """

    def __init__(self, heads: int = 4, edges: bool | list[str] = True, **settings: Any) -> None:
        check_edge_columns(edges)
        super().__init__(**settings)
        check_heads(self.hparams["hidden"], heads)

    def conv_of(self, sizes: Mapping[str, Any], widths: Mapping[str, int]) -> nn.Module:
        return GATConv(sizes, widths, self.hparams["hidden"], self.hparams["heads"])

"""The convolutions of models against their formulas on dense matrices, on a graph without types."""

from __future__ import annotations

import itertools

import pytest
import torch

from lightning_gnnload import Block
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.models.conv_stack import UNTYPED
from lightning_gnnload.models.gat import GATConv
from lightning_gnnload.models.gcn import GCNConv
from lightning_gnnload.models.pinsage import PinSAGEConv
from lightning_gnnload.models.rgcn import RGCNConv
from lightning_gnnload.models.sage import MessageConv, SageConv

NUM_DST, NUM_SRC, WIDTH = 4, 6, 5
# Of destination 0 three edges, of 1 none, of 2 one that starts there as well, of 3 two to the same source.
INDPTR, INDICES = [0, 3, 3, 4, 6], [1, 4, 5, 2, 0, 0]
SIZES = {"num_features": {"": WIDTH}, "edge_types": [UNTYPED]}
WIDTHS = {"": WIDTH}


@pytest.fixture
def block() -> Block:
    weight, kind = torch.tensor([1.0, 2.0, 5.0, 1.0, 0.0, 3.0]), torch.tensor([0, 1, 1, 0, 1, 0])
    ptr, indices = torch.tensor(INDPTR).int(), torch.tensor(INDICES).int()
    return Block(ptr, indices, NUM_DST, NUM_SRC, edge_weight=weight, edge_type=kind.int())


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(NUM_SRC, WIDTH, generator=torch.Generator().manual_seed(0))


def dense(values: torch.Tensor) -> torch.Tensor:
    """``[NUM_DST, NUM_SRC]``, with the edges' values added up."""
    matrix = torch.zeros(NUM_DST, NUM_SRC)
    dst = torch.repeat_interleave(torch.arange(NUM_DST), torch.tensor(INDPTR).diff())
    return matrix.index_put((dst, torch.tensor(INDICES)), values, accumulate=True)


def rows_of(conv: torch.nn.Module, block: Block, x: torch.Tensor) -> torch.Tensor:
    return conv({UNTYPED: block}, {"": NUM_DST}, {"": x}, {})[""]


def with_edges(**columns: object) -> dict:
    return SIZES | {"edges": {"by_type": [columns], "spans": [1.0]}}


def means(block: Block) -> torch.Tensor:
    weights = dense(block.edge_weight)
    return weights / weights.sum(1, True).clamp(min=1e-9)


def maxima(block: Block, rows: torch.Tensor) -> torch.Tensor:
    """Of rows by edge, ``[E, F]``."""
    parts = [rows[begin:end] for begin, end in itertools.pairwise(INDPTR)]
    return torch.stack([part.amax(0) if len(part) else torch.zeros(rows.shape[1]) for part in parts])


def test_sage_aggregates_as_it_is_told(block: Block, x: torch.Tensor) -> None:
    """A sum in place of a mean, weights that are left out, or those of another destination fail here."""
    torch.manual_seed(0)
    of_aggr = {"mean": means(block) @ x, "sum": dense(block.edge_weight) @ x, "max": maxima(block, x[INDICES])}
    for aggr, expected in of_aggr.items():
        conv = SageConv(SIZES, {"": "0"}, WIDTHS, 3, aggr)
        wanted = conv.own["0"](x[:NUM_DST]) + conv.neighbors[0](expected)
        torch.testing.assert_close(rows_of(conv, block, x), wanted)


def test_messages_have_edges_in_them_before_the_relu(block: Block, x: torch.Tensor) -> None:
    torch.manual_seed(0)
    block.x, block.tables = torch.randn(6, 2), {"codes": torch.tensor([[0], [1], [1], [0], [9], [2]])}
    conv = MessageConv(with_edges(x=2, codes=[3], type=2), {"": "0"}, WIDTHS, 4, ["mean", "max"])
    [edges] = conv.edges
    # Code 9 came after training, and counts as unknown.
    known = edges.x(block.x) + edges.codes[0].weight[[0, 1, 1, 0, 0, 2]] + edges.relation.weight[block.edge_type]
    message = (conv.src[0](x)[INDICES] + known).relu()
    shares = block.normalized(block.edge_weight)
    of_dst = torch.zeros(NUM_DST, 4).index_add_(0, block.edge_dst(), message * shares[:, None])
    wanted = conv.own["0"](x[:NUM_DST]) + conv.neighbors[0](torch.cat([of_dst, maxima(block, message)], 1))
    torch.testing.assert_close(rows_of(conv, block, x), wanted)


def test_gcn_scales_by_both_degrees(block: Block, x: torch.Tensor) -> None:
    """A loop that is forgotten, or one degree in place of the other, fails here."""
    conv = GCNConv(SIZES, WIDTHS, 3)
    loops = dense(torch.ones(6)) + torch.eye(NUM_DST, NUM_SRC)
    in_degrees, out_degrees = loops.sum(1), dense(torch.ones(6)).sum(0) + 1
    scaled = loops / (in_degrees[:, None] * out_degrees[None]).sqrt()
    torch.testing.assert_close(rows_of(conv, block, x), scaled @ conv.linear["0"](x) + conv.bias["0"])


def test_gat_attends_by_node_and_by_edge(block: Block, x: torch.Tensor) -> None:
    conv = GATConv(with_edges(type=2), WIDTHS, 4, heads=2)
    dst, src = block.edge_dst(), block.indices
    assert block.edge_type is not None
    for head in range(2):
        of_types = conv.edges[0].relation.weight[block.edge_type, head]
        score = conv.src[0](x)[src, head] + conv.dst[0](x)[dst, head] + of_types
        power = dense(torch.nn.functional.leaky_relu(score, 0.2).exp())
        shares, columns = power / power.sum(1, True).clamp(min=1e-9), slice(2 * head, 2 * head + 2)
        wanted = shares @ conv.neighbors[0](x)[:, columns] + conv.self_rows["0"](x)[:NUM_DST, columns]
        torch.testing.assert_close(rows_of(conv, block, x)[:, columns], wanted)


def test_gat_learns_and_stays_finite_where_scores_are_large(block: Block, x: torch.Tensor) -> None:
    conv = GATConv(with_edges(type=2), WIDTHS, 4, heads=2)
    rows = rows_of(conv, block, x * 1e4)
    rows.sum().backward()
    assert rows.isfinite().all()
    grad = conv.edges[0].relation.weight.grad
    assert grad is not None
    assert grad.isfinite().all()


def test_pinsage_counts_visits(block: Block, x: torch.Tensor) -> None:
    conv = PinSAGEConv(SIZES, WIDTHS, 3)
    mean = means(block) @ conv.neighbors[0](x).relu()
    torch.testing.assert_close(rows_of(conv, block, x), conv.both["0"](torch.cat([x[:NUM_DST], mean], dim=1)))


@pytest.mark.parametrize("num_bases", [None, 2])
def test_rgcn_has_weights_by_the_type_of_edges(block: Block, x: torch.Tensor, num_bases: int | None) -> None:
    """Edges of one type that count among those of another, or bases that are not mixed, fail here."""
    torch.manual_seed(0)
    sizes = SIZES | {"num_relations": 3}
    conv = RGCNConv(sizes, WIDTH, num_bases)
    wanted = conv.self_rows["0"](x[:NUM_DST])
    for relation in range(3):
        weights = dense(block.edge_weight * (block.edge_type == relation))
        if num_bases is None:
            matrix = conv.neighbors[relation].weight
        else:
            matrix = sum(share * base.weight for share, base in zip(conv.shares[relation], conv.neighbors, strict=True))
        wanted = wanted + weights / weights.sum(1, True).clamp(min=1e-9) @ x @ matrix.t()
    torch.testing.assert_close(rows_of(conv, block, x), wanted)
    block.edge_type = None
    with pytest.raises(SamplerConfigError, match="mini-batches do not carry"):
        rows_of(conv, block, x)

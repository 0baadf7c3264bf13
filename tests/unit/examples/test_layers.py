"""The layers of the examples against their formulas on dense matrices, where a formula is what the example shows."""

from __future__ import annotations

import pytest
import torch

from examples.models.layers import GATConv, GCNConv, PinSAGEConv, mean_of_neighbors
from lightning_gnnload import Block

NUM_DST, NUM_SRC, WIDTH = 4, 6, 5
# Of destination 0 three edges, of 1 none, of 2 one that starts there as well, of 3 two to the same source.
INDPTR, INDICES = [0, 3, 3, 4, 6], [1, 4, 5, 2, 0, 0]


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


def test_the_mean_is_weighted_where_weights_are_there(block: Block, x: torch.Tensor) -> None:
    assert block.edge_weight is not None
    weights = dense(block.edge_weight)
    torch.testing.assert_close(mean_of_neighbors(block, x), weights / weights.sum(1, True).clamp(min=1e-9) @ x)
    block.edge_weight = None
    counts = dense(torch.ones(6))
    torch.testing.assert_close(mean_of_neighbors(block, x), counts / counts.sum(1, True).clamp(min=1) @ x)


def test_gcn_scales_by_both_degrees(block: Block, x: torch.Tensor) -> None:
    """A loop that is forgotten, or one degree in place of the other, fails here."""
    conv = GCNConv(WIDTH, 3)
    loops = dense(torch.ones(6)) + torch.eye(NUM_DST, NUM_SRC)
    in_degrees, out_degrees = loops.sum(1), dense(torch.ones(6)).sum(0) + 1
    scaled = loops / (in_degrees[:, None] * out_degrees[None]).sqrt()
    torch.testing.assert_close(conv(block, x), scaled @ conv.linear(x) + conv.bias)


def test_gat_attends_by_node_and_by_edge(block: Block, x: torch.Tensor) -> None:
    conv = GATConv(WIDTH, 4, edge_features=2, heads=2)
    dst, src = block.edge_dst(), block.indices
    assert block.edge_type is not None
    for head in range(2):
        told = conv.edge.weight[head, block.edge_type]
        score = torch.nn.functional.leaky_relu(conv.src(x)[src, head] + conv.dst(x)[dst, head] + told, 0.2).exp()
        shares = dense(score) / dense(score).sum(1, True).clamp(min=1e-9)
        wanted = shares @ conv.neighbors(x)[:, 2 * head : 2 * head + 2] + conv.own(x)[:NUM_DST, 2 * head : 2 * head + 2]
        torch.testing.assert_close(conv(block, x)[:, 2 * head : 2 * head + 2], wanted)


def test_gat_takes_features_of_edges_before_their_types(block: Block, x: torch.Tensor) -> None:
    conv = GATConv(WIDTH, 4, edge_features=2, heads=2)
    by_type = conv(block, x)
    block.x = torch.eye(2)[block.edge_type]
    torch.testing.assert_close(conv(block, x), by_type)
    block.x = block.x.flip(1)
    assert not torch.allclose(conv(block, x), by_type)


def test_gat_learns_and_stays_finite_where_scores_are_large(block: Block, x: torch.Tensor) -> None:
    conv = GATConv(WIDTH, 4, edge_features=2, heads=2)
    rows = conv(block, x * 1e4)
    rows.sum().backward()
    assert rows.isfinite().all()
    assert conv.edge.weight.grad is not None
    assert conv.edge.weight.grad.isfinite().all()


def test_pinsage_counts_visits(block: Block, x: torch.Tensor) -> None:
    conv = PinSAGEConv(WIDTH, 3)
    assert block.edge_weight is not None
    weights = dense(block.edge_weight)
    told = weights / weights.sum(1, True).clamp(min=1e-9) @ conv.told(x).relu()
    torch.testing.assert_close(conv(block, x), conv.both(torch.cat([x[:NUM_DST], told], dim=1)))

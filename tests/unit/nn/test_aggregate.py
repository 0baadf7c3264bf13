"""aggregate beside embedding_bag and dense arithmetic, with its gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from lightning_gnnload import Block, aggregate
from lightning_gnnload.errors import AggregationError

NUM_DST, NUM_SRC, WIDTH = 20, 50, 9


@pytest.fixture
def block() -> Block:
    random = torch.Generator().manual_seed(0)
    degrees = torch.randint(0, 5, (NUM_DST,), generator=random)
    degrees[3] = 0
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)]).int()
    # Without repetition: which of two equal edges is the largest, no dense arithmetic tells.
    rows = [torch.randperm(NUM_SRC, generator=random)[:degree] for degree in degrees.tolist()]
    return Block(indptr, torch.cat(rows).int(), NUM_DST, NUM_SRC)


def rows(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(NUM_SRC, WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()


def edges(block: Block, weights: torch.Tensor | None = None) -> torch.Tensor:
    """``[num_dst, num_src]``."""
    dense = torch.zeros(NUM_DST, NUM_SRC, dtype=torch.float64)
    return dense.index_put(
        (block.edge_dst(), block.indices.long()), torch.ones(1).double() if weights is None else weights
    )


def test_each_way_is_what_dense_arithmetic_says(block: Block) -> None:
    x, weights = rows(), torch.rand(block.num_edges, dtype=torch.float64) + 0.1
    count = edges(block).sum(1, keepdim=True).clamp(min=1)
    largest = torch.where(edges(block)[:, :, None] > 0, x[None], -torch.inf).amax(1)
    dense: list[tuple[Any, torch.Tensor]] = [
        (aggregate(block, x, "sum"), edges(block) @ x),
        (aggregate(block, x), edges(block) @ x / count),
        (aggregate(block, x, "max"), torch.where(largest == -torch.inf, 0, largest)),
        (aggregate(block, x, "sum", weights), edges(block, weights) @ x),
        (
            aggregate(block, x, "mean", weights),
            edges(block, weights) @ x / edges(block, weights).sum(1, keepdim=True).clamp(min=1e-9),
        ),
    ]
    for number, (ours, wanted) in enumerate(dense):
        torch.testing.assert_close(ours, wanted, msg=lambda text, number=number: f"way {number}: {text}")
        assert not ours[3].any()
        gradients = [torch.autograd.grad(result.sin().sum(), x, retain_graph=True)[0] for result in (ours, wanted)]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_maximum_is_embedding_bags(dtype: torch.dtype, block: Block) -> None:
    x = rows(dtype)
    ours = aggregate(block, x, "max")
    theirs = functional.embedding_bag(block.indices, x, block.indptr, mode="max", include_last_offset=True)
    assert ours.dtype == dtype
    assert torch.equal(ours, theirs)
    factors = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    of_ours, of_theirs = (torch.autograd.grad(result, x, factors)[0] for result in (ours, theirs))
    # Theirs adds in bfloat16, ours in float32.
    torch.testing.assert_close(of_ours, of_theirs, rtol=2e-2 if dtype == torch.bfloat16 else 1e-6, atol=1e-2)


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
def test_gradients_and_their_gradients(how: Any, block: Block) -> None:
    assert torch.autograd.gradcheck(lambda x: aggregate(block, x, how), rows(), raise_exception=True)
    assert torch.autograd.gradgradcheck(lambda x: aggregate(block, x, how) ** 2, rows(), raise_exception=True)
    nothing = Block(torch.zeros(3, dtype=torch.int32), torch.zeros(0, dtype=torch.int32), num_dst=2, num_src=0)
    x = torch.zeros(0, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad((aggregate(nothing, x, how) ** 2).sum(), x, create_graph=True)
    gradient.sum().backward()


@pytest.mark.parametrize("how", ["mean", "sum"])
def test_bfloat16_is_rounded_once(how: Any, block: Block) -> None:
    x = rows(torch.bfloat16)
    ours, wide = aggregate(block, x, how), aggregate(block, x.double(), how)
    factors = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2)).bfloat16()
    of_ours, of_wide = (torch.autograd.grad(out, x, factors.to(out.dtype))[0] for out in (ours, wide))
    for result, exact in ((ours, wide), (of_ours, of_wide)):
        assert result.dtype == torch.bfloat16
        # Half of the last of 8 bits, where the sum of both signs is none of them small beside its parts.
        torch.testing.assert_close(result.double(), exact.double(), rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize("how", ["mean", "max"])
def test_it_trains_under_autocast_and_with_rows_that_are_a_view(how: Any, block: Block) -> None:
    x = torch.randn(WIDTH, NUM_SRC, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = aggregate(block, torch.nn.Linear(WIDTH, 4)(x.t()), how).float().sum()
    loss.backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert torch.equal(aggregate(block, x.t(), how), aggregate(block, x.t().contiguous(), how))
    further = torch.cat([x.t(), x.t()])
    assert torch.equal(aggregate(block, further, how), aggregate(block, x.t(), how))
    out = aggregate(block, further, how)
    (gradient,) = torch.autograd.grad(out, further, torch.ones(WIDTH).expand_as(out))  # which is a view, too
    assert gradient[:NUM_SRC].any()
    assert not gradient[NUM_SRC:].any()


def test_compiled_models_are_one_graph(block: Block) -> None:
    def layer(x: torch.Tensor) -> torch.Tensor:
        return aggregate(block, x.relu(), "max").sin()

    x = rows(torch.float32)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), layer(x))


def test_other_floats_are_torchs(block: Block) -> None:
    x = rows(torch.float16)
    assert torch.equal(aggregate(block, x, "sum"), aggregate(block, x.float(), "sum").half())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("how", ["mean", "sum", "max"])
def test_the_gradient_of_a_row_that_many_have_is_whole(how: Any, dtype: torch.dtype) -> None:
    """Above 2048 and 256, one more is nothing to these dtypes."""
    num_dst = 8192
    hub = torch.zeros(num_dst, dtype=torch.int32)
    x = torch.ones(1, 2, dtype=dtype, requires_grad=True)
    for weights in [None] if how == "max" else [None, torch.ones(num_dst)]:
        ours = aggregate(Block(torch.arange(num_dst + 1, dtype=torch.int32), hub, num_dst, 1), x, how, weights)
        assert ours.dtype == dtype
        (gradient,) = torch.autograd.grad(ours, x, torch.ones_like(ours))
        assert gradient.tolist() == [[num_dst, num_dst]]


@pytest.mark.parametrize(
    ("x", "how", "weights", "message"),
    [
        ({"paper": torch.zeros(NUM_SRC, 2)}, "mean", None, r"has types.*aggregate\(block\[edge_type\], x\["),
        (torch.zeros(NUM_SRC), "mean", None, r"x has shape \[50\]"),
        (torch.zeros(NUM_SRC - 1, 2), "max", None, r"x has shape \[49, 2\], but Block.* needs"),
        (torch.zeros(NUM_SRC, 2), "median", None, "how='median' is not known; give one of 'mean', 'sum', 'max'"),
        (torch.zeros(NUM_SRC, 2), "max", torch.zeros(1), "how='max' takes no weights"),
        (torch.zeros(NUM_SRC, 2), "sum", torch.zeros(3), r"weights have shape \[3\], but one for each edge"),
        (torch.zeros(NUM_SRC, 2).long(), "max", None, r"x is of torch.int64, but floats are needed: give x.float\(\)"),
        (torch.zeros(NUM_SRC, 2).bool(), "sum", None, r"x is of torch.bool"),
        (torch.zeros(NUM_SRC, 2), "mean", torch.ones(3).int(), r"weights is of torch.int32"),
        (None, "mean", None, "x is None, as batch.x of a graph without features is"),
        ([[1.0]], "mean", None, "x is a list, but a tensor is needed"),
        (torch.zeros(NUM_SRC, 2), "sum", [1.0], "weights is a list, but a tensor is needed"),
    ],
)
def test_what_does_not_fit_is_told(x: Any, how: Any, weights: Any, message: str, block: Block) -> None:
    with pytest.raises(AggregationError, match=message):
        aggregate(block, x, how, weights)


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
@pytest.mark.parametrize("source", [NUM_SRC, -1])
def test_sources_that_the_block_does_not_have_are_not_read(source: int, how: Any, block: Block) -> None:
    block.indices[4] = source
    further = torch.ones(2 * NUM_SRC, 3)
    with pytest.raises(AggregationError, match=rf"indices\[4\] is {source}, but Block.* has sources 0 to 49"):
        aggregate(block, further, how)


def test_weights_that_sum_to_nothing_have_no_shares() -> None:
    indptr, indices = torch.tensor([0, 2, 4, 5], dtype=torch.int32), torch.tensor([0, 1, 2, 3, 0], dtype=torch.int32)
    block, x = Block(indptr, indices, 3, 4), torch.arange(4.0)[:, None] + 1
    weights = torch.tensor([1.0, -1.0, -1.0, -3.0, 0.0], requires_grad=True)
    mean = aggregate(block, x, "mean", weights)
    assert mean.view(-1).tolist() == [0.0, 3.75, 0.0]
    (gradient,) = torch.autograd.grad(mean.sum(), weights)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_weighted_means_of_hubs_are_means(dtype: torch.dtype) -> None:
    num_edges = 5000  # sums of bfloat16 stop at 256, of float16 at 2048
    ids = torch.arange(num_edges, dtype=torch.int32)
    hub = Block(torch.tensor([0, num_edges], dtype=torch.int32), ids, num_dst=1, num_src=num_edges)
    ones = torch.ones(num_edges, 1, dtype=dtype, requires_grad=True)
    for weights in (ones.detach().view(-1), torch.ones(num_edges)):
        mean = aggregate(hub, ones, "mean", weights)
        assert mean.item() == pytest.approx(1, abs=0.01)
        (gradient,) = torch.autograd.grad(mean, ones)
        assert gradient.float().sum().item() == pytest.approx(1, abs=0.01)
    hub.edge_weight = ones.detach().view(-1)
    assert hub.normalized_edge_weight().float().sum().item() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
def test_blocks_of_64_bits_rows_of_float16_and_rows_without_columns_are_taken_likewise(how: Any, block: Block) -> None:
    x = rows(torch.float32).detach()
    x[1, 0] = torch.nan
    kept = aggregate(block, x, how)
    for indptr, indices in ((block.indptr.long(), block.indices.long()), (block.indptr.long(), block.indices)):
        wide = Block(indptr, indices, num_dst=block.num_dst, num_src=block.num_src)
        assert torch.equal(aggregate(wide, x, how).nan_to_num(9), kept.nan_to_num(9))
    halves = aggregate(block, x.half(), how)
    assert torch.equal(halves.isnan(), kept.isnan())
    for dtype in (torch.float32, torch.float16):
        empty = torch.zeros(block.num_src, 0, dtype=dtype, requires_grad=True)
        out = aggregate(block, empty, how)
        out.sum().backward()  # type: ignore[no-untyped-call]
        assert out.shape == (block.num_dst, 0)
    far = Block(block.indptr.long(), block.indices.long() + 2**32, num_dst=block.num_dst, num_src=block.num_src)
    with pytest.raises(AggregationError, match="has sources 0 to"):
        aggregate(far, x, how)


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
def test_tracers_and_transforms_of_torch_see_what_is_computed(how: Any, block: Block) -> None:
    x = rows(torch.float32).detach()
    traced = make_fx(lambda x: aggregate(block, x, how))(x)
    torch.testing.assert_close(traced(x + 1), aggregate(block, x + 1, how))
    script = torch.jit.trace(lambda x: aggregate(block, x, how), x)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(script(x + 1), aggregate(block, x + 1, how))
    (gradient,) = torch.autograd.grad(aggregate(block, needs := x.clone().requires_grad_(), how).sum(), needs)
    torch.testing.assert_close(torch.func.grad(lambda x: aggregate(block, x, how).sum())(x), gradient)

"""aggregate: what a layer makes of each destination's in-neighbours: their sum, mean or maximum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import _get_current_dispatch_mode

from lightning_gnnload.data.block import Block
from lightning_gnnload.errors import AggregationError, GraphFormatError
from lightning_gnnload.ops.aggregate import add_to_sources, max_neighbors, sum_destinations, sum_neighbors
from lightning_gnnload.settings import check_one_of

_OURS = (torch.float32, torch.float64, torch.bfloat16)
_HALVES = (torch.float16, torch.bfloat16)


def aggregate(
    block: Block, x: Tensor, how: Literal["mean", "sum", "max"] = "mean", weights: Tensor | None = None
) -> Tensor:
    """Returns the sum, mean or maximum of the rows of each destination's in-neighbours; zeros where it has none.

    On a CPU, kernels of this package take float32, float64 and bfloat16: in bfloat16, a training step takes five sixths
    of its time with ``embedding_bag``, with ``"max"`` half of it. What they give, gradients included, is equal for any
    number of threads; sums of bfloat16 are float32's, rounded once. Of equal neighbours, the first gets the gradient of
    the maximum; a NaN is larger than any number. All else is torch's ``embedding_bag``: rows with weights, other
    devices, sums of float16, on a CPU in float32, as it adds the gradients of a row in the dtype of the rows; and what
    torch compiles, traces or transforms. Its maximum leaves NaN out. No way writes a row per edge.

    Args:
        block: of a mini-batch, on the device of ``x``.
        x: floats ``[num_src, F]``; further rows are left out.
        how: ``"mean"``, ``"sum"`` or ``"max"``, column by column.
        weights: floats ``[num_edges]`` by which rows are multiplied; of a mean, shares of their sum. Not of ``"max"``.

    Returns:
        ``[num_dst, F]``, in the dtype of ``x``.

    Raises:
        AggregationError: rows that are not those of the block's sources, dicts by type, no floats; an unknown ``how``;
            weights that do not belong to it; on a CPU, an edge from a source that the block does not have.

    Example:
        >>> indptr, indices = torch.tensor([[0, 2, 2], [1, 2, 0]], dtype=torch.int32)[:, :3]
        >>> block = Block(indptr, indices[:2], num_dst=2, num_src=3)
        >>> x = torch.tensor([[0.0, 0.0], [4.0, 1.0], [2.0, 3.0]])
        >>> aggregate(block, x).tolist(), aggregate(block, x, "max").tolist()
        ([[3.0, 2.0], [0.0, 0.0]], [[4.0, 3.0], [0.0, 0.0]])
        >>> aggregate(block, x, "sum", weights=torch.tensor([1.0, 0.5])).tolist()
        [[5.0, 2.5], [0.0, 0.0]]

    Source: Hamilton et al., Inductive representation learning on large graphs (NeurIPS'17), section 3.3.
    """
    check_one_of("how", how, ("mean", "sum", "max"), AggregationError)
    if isinstance(x, dict) or isinstance(block, dict):
        raise AggregationError(
            "the graph has types, so x and block are dicts: take aggregate(block[edge_type], x[edge_type[0]]) for each "
            "edge type. Reverse edges of tables are a type, too. SAGE and other models by name take both as they are."
        )
    if x.ndim != 2 or len(x) < block.num_src:
        raise AggregationError(f"x has shape {list(x.shape)}, but {block} needs [num_src, F]: a row for each source.")
    for name, values in (("x", x), ("weights", weights)):
        if values is not None and not values.is_floating_point():
            raise AggregationError(f"{name} is of {values.dtype}, but floats are needed: give {name}.float().")
    if len(x) > block.num_src:
        x = x[: block.num_src]
    if weights is not None:
        if how == "max":
            raise AggregationError("how='max' takes no weights: multiply what has them before, or leave them out.")
        if weights.shape != (block.num_edges,):
            raise AggregationError(
                f"weights have shape {list(weights.shape)}, but one for each edge is needed: [{block.num_edges}]."
            )
        # In the dtype that sums are made in, so that nothing of the shares is lost before.
        weights = weights.to(_wide(x).dtype)
        if how == "mean":
            weights, how = block.normalized(weights), "sum"
    if not x.shape[1]:
        return x.new_zeros(block.num_dst, 0) + x.sum(0)
    if _is_traced():
        return _bags(block, x, how, weights)
    try:
        if weights is None and x.device.type == "cpu" and (x.dtype in _OURS or how == "max"):
            return _by_kernels(block, x, how)
        return _bags(block, x, how, weights)
    except (RuntimeError, IndexError, GraphFormatError):
        # Looked for where it has failed alone, as it takes a pass over all edges.
        _check_sources(block)
        raise


def _wide(x: Tensor) -> Tensor:
    # In bfloat16, a row that 300 destinations have gets no more than 256 times the gradient of one.
    return x.float() if x.device.type == "cpu" and x.dtype in _HALVES else x


def _is_traced() -> bool:
    """Whether torch compiles, traces or transforms what runs, and so does not see what kernels write."""
    return (
        torch.compiler.is_compiling()
        or _get_current_dispatch_mode() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def _by_kernels(block: Block, x: Tensor, how: str) -> Tensor:
    indptr, indices = block.indptr, block.indices
    if {indptr.dtype, indices.dtype} != {torch.int32}:
        _check_sources(block)  # which may not fit into 32 bits
        indptr, indices = indptr.int(), indices.int()
    if how == "max":
        rows = x if x.dtype in _OURS else x.float()
        largest: Tensor = _Max.apply(indptr, indices, rows)
        return largest.to(x.dtype)
    total: Tensor = _Sum.apply(indptr, indices, x, how == "mean")
    return total


def _bags(block: Block, x: Tensor, how: str, weights: Tensor | None) -> Tensor:
    return functional.embedding_bag(
        block.indices, _wide(x), block.indptr, mode=how, include_last_offset=True, per_sample_weights=weights
    ).to(x.dtype)


def _check_sources(block: Block) -> None:
    bad = torch.nonzero((block.indices < 0) | (block.indices >= block.num_src)).view(-1)
    if len(bad):
        raise AggregationError(
            f"indices[{int(bad[0])}] is {int(block.indices[bad[0]])}, but {block} has sources 0 to "
            f"{block.num_src - 1}, and so has x rows."
        )


class _Sum(torch.autograd.Function):
    """The sum or the mean, which are linear."""

    @staticmethod
    def forward(ctx: Any, indptr: Tensor, indices: Tensor, x: Tensor, is_mean: bool) -> Tensor:
        ctx.save_for_backward(indptr, indices)
        ctx.num_src, ctx.is_mean = len(x), is_mean
        return _summed(sum_neighbors, indptr, indices, x, len(indptr) - 1, is_mean)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor, None]:
        return None, None, _SumOfDestinations.apply(*ctx.saved_tensors, grad, ctx.num_src, ctx.is_mean), None


class _SumOfDestinations(torch.autograd.Function):
    """Its gradient, which is linear, too."""

    @staticmethod
    def forward(ctx: Any, indptr: Tensor, indices: Tensor, grad: Tensor, num_src: int, is_mean: bool) -> Tensor:
        ctx.save_for_backward(indptr, indices)
        ctx.is_mean = is_mean
        return _summed(sum_destinations, indptr, indices, grad, num_src, is_mean)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor, None, None]:
        return None, None, _Sum.apply(*ctx.saved_tensors, grad, ctx.is_mean), None, None


def _summed(
    kernel: Callable[..., None], indptr: Tensor, indices: Tensor, x: Tensor, num_rows: int, is_mean: bool
) -> Tensor:
    out = x.new_empty(num_rows, x.shape[1])
    arrays = indptr.contiguous().numpy(), indices.contiguous().numpy(), _bits(x.contiguous()), _bits(out)
    kernel(*arrays, is_mean, torch.get_num_threads())
    return out


class _Max(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, indptr: Tensor, indices: Tensor, x: Tensor) -> Tensor:
        out = x.new_empty(len(indptr) - 1, x.shape[1])
        source = indices.new_empty(out.shape)
        arrays = indptr.contiguous().numpy(), indices.contiguous().numpy(), _bits(x.contiguous())
        max_neighbors(*arrays, _bits(out), source.numpy(), torch.get_num_threads())
        ctx.save_for_backward(source)
        ctx.num_src = len(x)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        (source,) = ctx.saved_tensors
        return None, None, _AddToSources.apply(source, grad, ctx.num_src)


class _AddToSources(torch.autograd.Function):
    """The gradient of the maximum, which is linear: its own takes from where it has put."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, grad: Tensor, num_src: int) -> Tensor:
        ctx.save_for_backward(source)
        wide = torch.float64 if grad.dtype == torch.float64 else torch.float32
        into = grad.new_zeros(num_src, grad.shape[1], dtype=wide)
        add_to_sources(source.numpy(), _bits(grad.contiguous()), into.numpy(), torch.get_num_threads())
        return into.to(grad.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        (source,) = ctx.saved_tensors
        if not len(grad):  # there are no sources, and no edges
            return None, grad.new_zeros(source.shape), None
        return None, grad.gather(0, source.clamp(min=0).long()).masked_fill(source < 0, 0), None


def _bits(x: Tensor) -> np.ndarray:
    """The tensor's memory; of bfloat16, which NumPy does not have, as uint16."""
    x = x.detach()
    return x.view(torch.int16).numpy().view(np.uint16) if x.dtype == torch.bfloat16 else x.numpy()

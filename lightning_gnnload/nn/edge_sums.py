"""What kernels sum over the edges of a block, as torch differentiates it.

Sums of neighbours, sums of destinations and products of ends are the three gradients of one form, the sum over all
edges of ``weight * <row of the destination, row of the source>``: each one's gradients are the two others. Edges are
saved with what gradients need, so that torch tells of a block that has changed since.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

from lightning_gnnload.ops.cuda.aggregate import DeviceEdges
from lightning_gnnload.ops.host_edges import HostEdges

Edges: TypeAlias = HostEdges | DeviceEdges


def neighbor_sums(edges: Edges, x: Tensor, weights: Tensor | None = None, is_mean: bool = False) -> Tensor:
    """Returns the sum of the rows of each destination's sources, each times its edge's weight, or their mean.

    ``x`` is ``[num_src, F]``; ``weights`` are ``[num_edges]``, of the dtype that sums are made in, with DeviceEdges
    alone, and not of a mean.
    """
    total: Tensor = _SumOfNeighbors.apply(edges, x, weights, is_mean)
    return total


def neighbor_maxima(edges: Edges, x: Tensor) -> Tensor:
    """Returns the largest numbers of each destination's sources, column by column."""
    largest: Tensor = _MaxOfNeighbors.apply(edges, x)
    return largest


def shares(edges: DeviceEdges, weights: Tensor) -> Tensor:
    """Returns weights as shares of their destination's sum, as :meth:`.Block.normalized` does; the gradients, too, are
    sums in the order of edges."""
    apart = edges.apart()
    total = neighbor_sums(apart, weights[:, None])
    spread: Tensor = _SumOfDestinations.apply(apart, total.masked_fill(total == 0, torch.inf), None, False)
    return weights / spread.view(-1)


class _SumOfNeighbors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edges: Edges, x: Tensor, weights: Tensor | None, is_mean: bool) -> Tensor:
        ctx.edges, ctx.is_mean = edges, is_mean
        ctx.save_for_backward(x if ctx.needs_input_grad[2] else None, weights, *edges.tensors)
        return edges.sum_neighbors(x, weights, is_mean)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None, None]:
        x, weights, *_ = ctx.saved_tensors
        _, needs_x, needs_weights, _ = ctx.needs_input_grad
        rows_grad = _SumOfDestinations.apply(ctx.edges, grad, weights, ctx.is_mean) if needs_x else None
        return None, rows_grad, _ProductOfEnds.apply(ctx.edges, grad, x) if needs_weights else None, None


class _SumOfDestinations(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edges: Edges, grad: Tensor, weights: Tensor | None, is_mean: bool) -> Tensor:
        ctx.edges, ctx.is_mean = edges, is_mean
        ctx.save_for_backward(grad if ctx.needs_input_grad[2] else None, weights, *edges.tensors)
        return edges.sum_destinations(grad, weights, is_mean)

    @staticmethod
    def backward(ctx: Any, x: Tensor) -> tuple[None, Tensor | None, Tensor | None, None]:
        grad, weights, *_ = ctx.saved_tensors
        _, needs_grad, needs_weights, _ = ctx.needs_input_grad
        rows_grad = _SumOfNeighbors.apply(ctx.edges, x, weights, ctx.is_mean) if needs_grad else None
        return None, rows_grad, _ProductOfEnds.apply(ctx.edges, grad, x) if needs_weights else None, None


class _ProductOfEnds(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edges: DeviceEdges, grad: Tensor, x: Tensor) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(grad, x, *edges.tensors)
        return edges.dot_ends(grad, x)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        grad, x, *_ = ctx.saved_tensors
        _, needs_grad, needs_x = ctx.needs_input_grad
        rows_grad = _SumOfNeighbors.apply(ctx.edges, x, weights, False) if needs_grad else None
        return None, rows_grad, _SumOfDestinations.apply(ctx.edges, grad, weights, False) if needs_x else None


class _MaxOfNeighbors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edges: Edges, x: Tensor) -> Tensor:
        out, source = edges.max_neighbors(x)
        ctx.edges = edges
        ctx.save_for_backward(source, *edges.tensors)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        source, *_ = ctx.saved_tensors
        return None, _AddToSources.apply(ctx.edges, source, grad)


class _AddToSources(torch.autograd.Function):
    """The gradient of the maximum, which is linear: its own takes from where it has put."""

    @staticmethod
    def forward(ctx: Any, edges: Edges, source: Tensor, grad: Tensor) -> Tensor:
        ctx.save_for_backward(source)
        return edges.add_to_sources(source, grad)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        (source,) = ctx.saved_tensors
        if not len(grad):  # there are no sources, and no edges
            return None, None, grad.new_zeros(source.shape)
        return None, None, grad.gather(0, source.clamp(min=0).long()).masked_fill(source < 0, 0)

"""How one convolution is called for few destinations: as its model does, or faster where that gives the same rows.

Shapes: S destinations, V sources, of which the destinations are the first, E edges.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of a convolution, by position and by name."""


def as_called(arguments: Arguments, num_dst: int) -> Arguments:
    """Returns the arguments as they are: rows of all V nodes are computed, and S of them are right."""
    return arguments


def as_bipartite(arguments: Arguments, num_dst: int) -> Arguments:
    """Returns the arguments with a pair of rows, of sources and of destinations, instead of rows of all nodes."""
    (x, *rest), named = arguments
    src_rows, dst_rows = x if isinstance(x, tuple) else (x, x)
    return ((src_rows, dst_rows[:num_dst]), *rest), named


def by_matrix(arguments: Arguments, num_dst: int) -> Arguments:
    """Returns the arguments with a sparse matrix ``[S, V]`` instead of ``edge_index``, by which PyG's convolutions add
    up rows without writing them out edge by edge; those of :func:`as_bipartite` where edges do not come by destination.
    """
    ((src_rows, dst_rows), edge_index, *rest), named = as_bipartite(arguments, num_dst)
    src, dst = edge_index
    if rest or named or not len(dst) or dst[-1] >= num_dst or not (dst.diff() >= 0).all():
        return ((src_rows, dst_rows), edge_index, *rest), named
    indptr = torch.searchsorted(dst.contiguous(), torch.arange(num_dst + 1, device=dst.device))
    # torch warns, once in a process, that its sparse CSR tensors are new.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        ones = torch.ones(len(src), dtype=src_rows.dtype, device=src.device)
        size = (num_dst, len(src_rows))
        matrix = torch.sparse_csr_tensor(indptr, src.contiguous(), ones, size=size, check_invariants=False)
    return ((src_rows, dst_rows), matrix), {}


FORMS: tuple[Callable[[Arguments, int], Arguments], ...] = (by_matrix, as_bipartite, as_called)
"""The fastest first."""


def normalizes(module: nn.Module) -> bool:
    """Whether it is PyG's GCNConv, which divides by the degrees of sources."""
    names = [f"{base.__module__}.{base.__qualname__}" for base in type(module).__mro__]
    return "torch_geometric.nn.conv.gcn_conv.GCNConv" in names and bool(getattr(module, "normalize", False))


def gcn_degrees(module: Any, arguments: Arguments, num_dst: int) -> torch.Tensor:
    """Returns the sums of weights into the first nodes, ``[S]``, by which PyG's GCNConv divides."""
    from torch_geometric.utils import add_remaining_self_loops, scatter

    x, edge_index, weight = _gcn_arguments(arguments)
    if module.add_self_loops:
        fill = 2.0 if module.improved else 1.0
        edge_index, weight = add_remaining_self_loops(edge_index, weight, fill, len(x))
    return scatter(weight, edge_index[1], 0, len(x), "sum")[:num_dst]


def with_degrees(arguments: Arguments, degrees: torch.Tensor, num_dst: int) -> Arguments:
    """Returns the arguments of a GCNConv with a loop at each source that is no destination. Its weight is the source's
    degree, of ``degrees`` ``[V]``: so the convolution counts there what it would count with all edges."""
    x, edge_index, weight = _gcn_arguments(arguments)
    outer = torch.arange(num_dst, len(x), device=edge_index.device)
    edge_index = torch.cat([edge_index, torch.stack([outer, outer])], dim=1)
    return (x, edge_index, torch.cat([weight, degrees[num_dst:].to(weight)])), {}


def _gcn_arguments(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    args, named = arguments
    by_name = dict(zip(("x", "edge_index", "edge_weight"), args, strict=False)) | named
    x, edge_index, weight = by_name["x"], by_name["edge_index"], by_name.get("edge_weight")
    return x, edge_index, edge_index.new_ones(edge_index.shape[1], dtype=x.dtype) if weight is None else weight.view(-1)


def edge_source(arguments: Arguments) -> tuple[int, ...]:
    """Returns what is equal for two calls of GCNConvs with the same edges and weights."""
    args, named = arguments
    tensors = [tensor for tensor in (*args[1:], *named.values()) if isinstance(tensor, torch.Tensor)]
    # Of all tensors but the rows, which may be there by name as well.
    return tuple(tensor.data_ptr() for tensor in tensors if not any(tensor is one for one in args[:1]))


def positional(arguments: Arguments, names: list[str]) -> Arguments:
    """Returns the arguments with as many as can be by position, where the functions above find the first ones."""
    args, named = arguments
    rest = dict(named)
    moved = list(args)
    for name in names[len(args) :]:
        if name not in rest:
            break
        moved.append(rest.pop(name))
    return tuple(moved), rest

"""How one convolution is called for few destinations: as its model does, or faster where that gives the same rows.

Shapes: S destinations, V sources, of which the destinations are the first, E edges.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Given = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of a convolution."""


def as_called(given: Given, num_dst: int) -> Given:
    """Returns the arguments as the model gave them: rows of all V nodes are computed, and S of them are right."""
    return given


def of_destinations(given: Given, num_dst: int) -> Given:
    """Returns the arguments with a pair of rows, of sources and of destinations, in place of rows of all nodes."""
    (x, *rest), named = given
    of_src, of_dst = x if isinstance(x, tuple) else (x, x)
    return ((of_src, of_dst[:num_dst]), *rest), named


def by_matrix(given: Given, num_dst: int) -> Given:
    """Returns the arguments with a sparse matrix ``[S, V]`` in place of ``edge_index``, by which PyG's convolutions
    add up rows without writing them out edge by edge; those with the pair, where edges do not come by destination."""
    ((of_src, of_dst), edge_index, *rest), named = of_destinations(given, num_dst)
    src, dst = edge_index
    if rest or named or not len(dst) or dst[-1] >= num_dst or not (dst.diff() >= 0).all():
        return ((of_src, of_dst), edge_index, *rest), named
    indptr = torch.searchsorted(dst.contiguous(), torch.arange(num_dst + 1, device=dst.device))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        ones = torch.ones(len(src), dtype=of_src.dtype, device=src.device)
        size = (num_dst, len(of_src))
        matrix = torch.sparse_csr_tensor(indptr, src.contiguous(), ones, size=size, check_invariants=False)
    return ((of_src, of_dst), matrix), {}


FORMS: tuple[Callable[[Given, int], Given], ...] = (by_matrix, of_destinations, as_called)
"""The fastest first."""


def normalizes(module: nn.Module) -> bool:
    """Whether it is PyG's GCNConv, which divides by the degrees of sources."""
    names = [f"{each.__module__}.{each.__qualname__}" for each in type(module).__mro__]
    return "torch_geometric.nn.conv.gcn_conv.GCNConv" in names and bool(getattr(module, "normalize", False))


def degrees(module: Any, given: Given, num_dst: int) -> torch.Tensor:
    """Returns the sums of weights into the first nodes, ``[S]``, by which PyG's GCNConv divides."""
    from torch_geometric.utils import add_remaining_self_loops, scatter

    x, edge_index, weight = _of_gcn(given)
    if module.add_self_loops:
        fill = 2.0 if module.improved else 1.0
        edge_index, weight = add_remaining_self_loops(edge_index, weight, fill, len(x))
    return scatter(weight, edge_index[1], 0, len(x), "sum")[:num_dst]


def with_degrees(given: Given, of_nodes: torch.Tensor, num_dst: int) -> Given:
    """Returns the arguments of a GCNConv with a loop at each source that is no destination: its weight is the source's
    degree, ``of_nodes`` ``[V]``, which is then the one that the convolution counts there."""
    x, edge_index, weight = _of_gcn(given)
    others = torch.arange(num_dst, len(x), device=edge_index.device)
    edge_index = torch.cat([edge_index, torch.stack([others, others])], dim=1)
    return (x, edge_index, torch.cat([weight, of_nodes[num_dst:].to(weight)])), {}


def _of_gcn(given: Given) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    args, named = given
    found = dict(zip(("x", "edge_index", "edge_weight"), args, strict=False)) | named
    x, edge_index, weight = found["x"], found["edge_index"], found.get("edge_weight")
    return x, edge_index, edge_index.new_ones(edge_index.shape[1], dtype=x.dtype) if weight is None else weight.view(-1)


def edge_source(given: Given) -> tuple[int, ...]:
    """Returns what tells whether two calls of GCNConvs have the same edges and weights."""
    args, named = given
    tensors = [each for each in (*args[1:], *named.values()) if isinstance(each, torch.Tensor)]
    return tuple(each.data_ptr() for each in tensors if not any(each is one for one in args[:1]))


def positional(given: Given, names: list[str]) -> Given:
    """Returns the arguments with as many as can be by position, so that the first ones are found there."""
    args, named = given
    rest = dict(named)
    moved = list(args)
    for name in names[len(args) :]:
        if name not in rest:
            break
        moved.append(rest.pop(name))
    return tuple(moved), rest

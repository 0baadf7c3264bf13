"""aggregate: what a layer makes of each destination's in-neighbours: their sum, mean or maximum."""

from __future__ import annotations

from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import _get_current_dispatch_mode

from lightning_gnnload.data.block import Block
from lightning_gnnload.errors import AggregationError, GraphFormatError
from lightning_gnnload.nn.edge_sums import Edges, neighbor_maxima, neighbor_sums, shares
from lightning_gnnload.ops.cuda import aggregate as on_device
from lightning_gnnload.ops.cuda.aggregate import DeviceEdges
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.device_of import device_of
from lightning_gnnload.ops.host_edges import HostEdges
from lightning_gnnload.settings import check_one_of

_OURS = (torch.float32, torch.float64, torch.bfloat16)
_HALVES = (torch.float16, torch.bfloat16)

_edges: WeakKeyDictionary[Block, tuple[DeviceEdges, Tensor, Tensor, tuple[int, ...]]] = WeakKeyDictionary()
"""Of blocks on devices, sorted by source once, however often they are summed over; and what they were made of."""


def aggregate(
    block: Block, x: Tensor, how: Literal["mean", "sum", "max"] = "mean", weights: Tensor | None = None
) -> Tensor:
    """Returns the sum, mean or maximum of the rows of each destination's in-neighbours; zeros where it has none.

    What kernels of this package give, gradients included, are sums in the order of edges: equal for any number of
    threads, on a CPU and a GPU; those of 16 bits are float32's, rounded once. Of equal neighbours, the first gets the
    gradient of the maximum; a NaN is larger than any number.

    On a CPU, kernels take float32, float64 and bfloat16 without weights, and every maximum; on a GPU where CuPy is,
    float16 and weights, too. All else is torch's ``embedding_bag``: weights and sums of float16 on a CPU, in float32,
    as it adds the gradients of a row in the dtype of the rows; other devices; and what torch compiles, traces or
    transforms. Its maximum leaves NaN out, and its weighted sums equal a GPU's up to rounding. No way writes a row per
    edge. Gradients of gradients are there but for weights on a CPU, of which torch has none.

    In bfloat16, a training step on a CPU takes five sixths of its time with ``embedding_bag``, with ``"max"`` half of
    it. On a GPU a block's edges are sorted by source once, for the first gradient.

    Args:
        block: of a mini-batch, on the device of ``x``.
        x: floats ``[num_src, F]``; further rows are left out.
        how: ``"mean"``, ``"sum"`` or ``"max"``, column by column.
        weights: floats ``[num_edges]`` by which rows are multiplied; of a mean, shares of their sum. Not of ``"max"``.

    Returns:
        ``[num_dst, F]``, in the dtype of ``x``.

    Raises:
        AggregationError: rows that are not those of the block's sources, None, dicts by type, no floats; an unknown
            ``how``; weights that do not belong to it; on a CPU, an edge from a source that the block does not have. On
            a GPU, for which nobody waits, its destination gets NaN.

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
    if x is None:
        raise AggregationError(
            "x is None, as batch.x of a graph without features is: give rows of an embedding of batch.nodes."
        )
    for name, values in (("x", x), ("weights", weights)):
        if values is not None and not isinstance(values, Tensor):
            raise AggregationError(f"{name} is a {type(values).__name__}, but a tensor is needed.")
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
    if not x.shape[1]:
        return x.new_zeros(block.num_dst, 0) + x.sum(0)
    try:
        edges = None if _is_traced() else _edges_for(block, x, how, weights)
        if edges is None:
            return _by_bags(block, x, how, weights)
        return _by_kernels(edges, x, how, weights)
    except (RuntimeError, IndexError, GraphFormatError):
        # Looked for where it has failed alone, as it takes a pass over all edges, and a device is waited for.
        if block.indices.device.type == "cpu":
            _check_sources(block)
        raise


def _edges_for(block: Block, x: Tensor, how: str, weights: Tensor | None) -> Edges | None:
    """The block's edges where kernels take such rows and weights, else None."""
    device = device_of(x.device)
    if device is not None:
        return _device_edges(device, block, x) if on_device.takes(x) else None
    if x.device.type != "cpu" or weights is not None or (x.dtype not in _OURS and how != "max"):
        return None
    if {block.indptr.dtype, block.indices.dtype} != {torch.int32}:
        _check_sources(block)  # which may not fit into 32 bits
    return HostEdges(block.indptr.int(), block.indices.int(), len(x))


def _device_edges(device: Device, block: Block, x: Tensor) -> DeviceEdges:
    indptr, indices = block.indptr, block.indices
    if not torch.is_grad_enabled() or indptr.is_inference() or indices.is_inference():
        return _narrowed(device, indptr, indices, len(x))
    versions = indptr._version, indices._version, len(x)
    cached = _edges.get(block)
    if cached is None or cached[1] is not indptr or cached[2] is not indices or cached[3] != versions:
        cached = _edges[block] = _narrowed(device, indptr, indices, len(x)), indptr, indices, versions
    return cached[0]


def _narrowed(device: Device, indptr: Tensor, indices: Tensor, num_src: int) -> DeviceEdges:
    # What does not fit into 32 bits stays none of the sources.
    if {indptr.dtype, indices.dtype} != {torch.int32}:
        indptr, indices = (tensor.clamp(-1, 2**31 - 1).int() for tensor in (indptr, indices))
    return DeviceEdges(device, indptr.contiguous(), indices.contiguous(), num_src)


def _is_traced() -> bool:
    """Whether torch compiles, traces or transforms what runs, and so does not see what kernels write."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or _get_current_dispatch_mode() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


# Weights are of the dtype that sums are made in, so that nothing of the shares is lost before.


def _by_kernels(edges: Edges, x: Tensor, how: str, weights: Tensor | None) -> Tensor:
    if how == "max":
        rows = x.float() if isinstance(edges, HostEdges) and x.dtype not in _OURS else x
        return neighbor_maxima(edges, rows).to(x.dtype)
    if weights is None:
        return neighbor_sums(edges, x, is_mean=how == "mean")
    assert isinstance(edges, DeviceEdges), "the CPU's kernels take no weights"
    weights = weights.to(on_device.wide(x.dtype))
    return neighbor_sums(edges, x, shares(edges, weights) if how == "mean" else weights)


def _by_bags(block: Block, x: Tensor, how: str, weights: Tensor | None) -> Tensor:
    # In bfloat16, a row that 300 destinations have gets no more than 256 times the gradient of one.
    rows = x.float() if x.device.type == "cpu" and x.dtype in _HALVES else x
    if weights is not None:
        weights = weights.to(rows.dtype)
        if how == "mean":
            weights, how = block.normalized(weights), "sum"
    return functional.embedding_bag(
        block.indices, rows, block.indptr, mode=how, include_last_offset=True, per_sample_weights=weights
    ).to(x.dtype)


def _check_sources(block: Block) -> None:
    bad = torch.nonzero((block.indices < 0) | (block.indices >= block.num_src)).view(-1)
    if len(bad):
        raise AggregationError(
            f"indices[{int(bad[0])}] is {int(block.indices[bad[0]])}, but {block} has sources 0 to "
            f"{block.num_src - 1}, and so has x rows."
        )

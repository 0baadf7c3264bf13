"""HostEdges: a block's edges, over which the kernels of the CPU sum and take maxima of torch's rows.

Shapes: D destinations, E edges and S sources of a block; F columns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..errors import AggregationError
from .aggregate import add_to_sources, max_neighbors, sum_destinations, sum_neighbors


class HostEdges:
    """The edges of a block on the CPU: ``indptr`` int32 ``[D + 1]``, ``indices`` int32 ``[E]``.

    Rows are of float32, float64 or bfloat16, whose sums are float32's, rounded once. There are no weights.
    """

    def __init__(self, indptr: Tensor, indices: Tensor, num_src: int) -> None:
        self.tensors = indptr, indices
        self._arrays = indptr.contiguous().numpy(), indices.contiguous().numpy()
        self.num_dst, self.num_src = len(indptr) - 1, num_src

    def sum_neighbors(self, x: Tensor, weights: Tensor | None, is_mean: bool) -> Tensor:
        """Returns the sums of rows ``x [S, F]`` by destination, or their means, ``[D, F]``."""
        _check_none(weights)
        return self._summed(sum_neighbors, x, self.num_dst, is_mean)

    def sum_destinations(self, grad: Tensor, weights: Tensor | None, is_mean: bool) -> Tensor:
        """Returns the gradient of :meth:`sum_neighbors`: sums of rows ``grad [D, F]`` by source, ``[S, F]``."""
        _check_none(weights)
        return self._summed(sum_destinations, grad, self.num_src, is_mean)

    def _summed(self, kernel: Callable[..., None], x: Tensor, num_rows: int, is_mean: bool) -> Tensor:
        out = x.new_empty(num_rows, x.shape[1])
        kernel(*self._arrays, _bits(x.contiguous()), _bits(out), is_mean, torch.get_num_threads())
        return out

    def max_neighbors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the largest numbers of ``x [S, F]`` by destination, and their sources, int32: ``[D, F]``."""
        out = x.new_empty(self.num_dst, x.shape[1])
        source = x.new_empty(out.shape, dtype=torch.int32)
        max_neighbors(*self._arrays, _bits(x.contiguous()), _bits(out), source.numpy(), torch.get_num_threads())
        return out, source

    def add_to_sources(self, source: Tensor, grad: Tensor) -> Tensor:
        """Returns the gradient of :meth:`max_neighbors`, ``[S, F]``: ``grad [D, F]`` summed where ``source`` says."""
        wide = torch.float64 if grad.dtype == torch.float64 else torch.float32
        into = grad.new_zeros(self.num_src, grad.shape[1], dtype=wide)
        add_to_sources(source.numpy(), _bits(grad.contiguous()), into.numpy(), torch.get_num_threads())
        return into.to(grad.dtype)


def _check_none(weights: Tensor | None) -> None:
    if weights is not None:
        raise AggregationError("the kernels of the CPU take no weights: sum weighted rows by embedding_bag.")


def _bits(x: Tensor) -> np.ndarray:
    """The tensor's memory; of bfloat16, which NumPy does not have, as uint16."""
    x = x.detach()
    return x.view(torch.int16).numpy().view(np.uint16) if x.dtype == torch.bfloat16 else x.numpy()

"""Buckets: where DDP puts each parameter's gradient in the flat buffers that it reduces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter


class Place(NamedTuple):
    """Where a parameter's gradient lies in its bucket, and how it is laid out there."""

    parameter: Parameter
    begin: int
    size: torch.Size
    stride: tuple[int, ...]

    def flat(self, bucket: Tensor) -> Tensor:
        """Its part of ``bucket``, a view."""
        return bucket[self.begin : self.begin + self.size.numel()]

    def shaped(self, bucket: Tensor) -> Tensor:
        """The same, shaped as the parameter is."""
        return bucket.as_strided(self.size, self.stride, bucket.storage_offset() + self.begin)


def parameters_of(bucket: dist.GradBucket) -> list[Parameter]:
    return cast(list[Parameter], bucket.parameters())


def places_in(bucket: dist.GradBucket) -> Iterator[Place]:
    """Of all parameters in ``bucket``, in order."""
    begin = 0
    for parameter in parameters_of(bucket):
        # DDP keeps a parameter's strides where they leave no gap, and falls back to contiguous ones.
        dense = torch.empty_like(parameter, device="meta")
        if dense.stride() != parameter.stride():
            dense = torch.empty(parameter.size(), device="meta")
        yield Place(parameter, begin, dense.size(), dense.stride())
        begin += dense.numel()

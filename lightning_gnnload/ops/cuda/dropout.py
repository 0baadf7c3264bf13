"""Launches dropout on a device; the CPU's masks, in :func:`.ops.dropout.drop`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import DropoutError
from .device import Device

_THREADS = 256
_BLOCKS_A_PROCESSOR = 8
_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "lg::Float16",
    torch.bfloat16: "lg::BFloat16",
}


def drop(
    device: Device, x: Tensor, out: Tensor, threshold: int, scale: float, key: Any, relu: bool, bits: Tensor | None
) -> None:
    """``key`` is a :class:`.DropoutKey`; ``bits`` are uint8, a byte for each Philox block of whole chunks. Raises
    DropoutError while a CUDA graph is captured, which would replay one mask for ever."""
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        raise DropoutError(
            "dropout cannot be captured in a CUDA graph: each replay would drop the same elements. Use "
            "torch.nn.Dropout there, or leave the layer out of the graph."
        )
    if not x.numel():
        return
    device.launch(
        "dropout",
        "drop_by_key",
        (_TYPES[x.dtype],),
        blocks=_num_launched(device, x),
        threads=_THREADS,
        input=x,
        out=out,
        count=x.numel(),
        num_blocks=_num_blocks(x),
        key=key,
        threshold=threshold,
        scale=scale,
        relu=int(relu),
        bits=bits,
    )


def drop_by_bits(device: Device, x: Tensor, out: Tensor, scale: float, bits: Tensor) -> None:
    """Passes what the bits of a :func:`drop` say, times the scale."""
    if not x.numel():
        return
    device.launch(
        "dropout",
        "drop_by_bits",
        (_TYPES[x.dtype],),
        blocks=_num_launched(device, x),
        threads=_THREADS,
        input=x,
        out=out,
        count=x.numel(),
        num_blocks=_num_blocks(x),
        scale=scale,
        bits=bits,
    )


def _num_blocks(x: Tensor) -> int:
    """The number of Philox blocks, in whole chunks."""
    return -(-x.numel() // 128) * 16


def _num_launched(device: Device, x: Tensor) -> int:
    return min(-(-_num_blocks(x) // _THREADS), device.num_processors * _BLOCKS_A_PROCESSOR)

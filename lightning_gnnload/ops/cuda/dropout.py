"""Launches dropout on a device; the CPU's masks, in :func:`.ops.dropout.drop`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .launch.device import Device

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
    """``key`` is a :class:`.DropoutKey`; ``bits`` are uint8, a byte for each Philox block of whole chunks."""
    if x.numel():
        device.launch(
            "dropout",
            "drop_by_key",
            (_TYPES[x.dtype],),
            key=key,
            threshold=threshold,
            scale=scale,
            relu=int(relu),
            bits=bits,
            **_elements(device, x, out),
        )


def drop_by_bits(device: Device, x: Tensor, out: Tensor, scale: float, bits: Tensor) -> None:
    """Passes what the bits of a :func:`drop` say, times the scale."""
    if x.numel():
        types = (_TYPES[x.dtype],)
        device.launch("dropout", "drop_by_bits", types, scale=scale, bits=bits, **_elements(device, x, out))


def _elements(device: Device, x: Tensor, out: Tensor) -> dict[str, Any]:
    num_blocks = -(-x.numel() // 128) * 16  # of Philox, in whole chunks
    launched = min(-(-num_blocks // _THREADS), device.num_processors * _BLOCKS_A_PROCESSOR)
    shape = {"blocks": launched, "threads": _THREADS}
    return {**shape, "input": x, "out": out, "count": x.numel(), "num_blocks": num_blocks}

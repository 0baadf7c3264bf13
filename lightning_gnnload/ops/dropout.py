"""Dropout whose mask is a pure function of a key, on any device alike.

The kernels take CPU and CUDA tensors; :func:`keep_mask` is the same in torch's own operations, for devices that they
do not run on. Bits that are passed around say which elements were kept: what they look like is each device's affair.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..errors import DropoutError
from .cuda import dropout as on_device
from .cuda.launch.device import Device
from .cuda.launch.device_of import device_of
from .dispatch import kernels
from .philox import MULTIPLIERS, ROUNDS, WEYL

LEVELS = 1 << 16
"""A probability is a multiple of 1 / LEVELS."""
CHUNK, BLOCKS = 128, 16  # elements of a chunk, and the Philox blocks that decide them (kernels/dropout/dropout.h)

# DropoutFormat of kernels/dropout/dropout.h
_FORMATS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3}
_WORD = 0xFFFFFFFF


class DropoutKey(NamedTuple):
    """The key of one call's mask: 128 bits, which no other call of the same seed has."""

    low: int
    high: int

    @classmethod
    def of(cls, seed: int, epoch: int, step: int, rank: int, layer: int, call: int) -> DropoutKey:
        """Derives it from numbers of 64, 32, 32, 16, 16 and 32 unsigned bits.

        Example:
            >>> DropoutKey.of(0, 0, 0, 0, 0, 0) == DropoutKey.of(0, 0, 1, 0, 0, 0)
            False
        """
        return cls(*kernels.dropout_key(seed, epoch, step, rank, layer, call))


def threshold_of(p: float) -> int:
    """Returns how many of LEVELS elements are dropped: the nearest number, but all of them for 1 alone. Raises
    DropoutError: it is none."""
    if not 0 <= p <= 1:
        raise DropoutError(f"Dropout: p is {p!r}, but a probability in [0, 1] is needed.")
    return LEVELS if p == 1 else min(round(p * LEVELS), LEVELS - 1)


def scale_of(threshold: int) -> float:
    """Returns the factor of what is kept, where levels below ``threshold`` are dropped."""
    return LEVELS / (LEVELS - threshold)


def num_bit_bytes(x: Tensor) -> int:
    """Returns the bytes of a tensor's bits, in whole chunks."""
    return -(-x.numel() // CHUNK) * (CHUNK // 8)


def drop(
    x: Tensor, out: Tensor, threshold: int, key: DropoutKey, relu: bool = False, with_bits: bool = False
) -> Tensor | None:
    """Writes ``x * scale`` to ``out`` where an element is kept, else 0; of ``relu(x)`` with ``relu``.

    Both are contiguous, of one shape, device and floating dtype, and may be the same. Elements count in the order of
    rows, so the first rows' mask does not depend on how many more there are. What is dropped is 0, even a NaN.

    Returns the bits for :func:`drop_by_bits` with ``with_bits``. Raises DropoutError for tensors that are not taken,
    a threshold of LEVELS, or while a CUDA graph is captured, which would replay one mask.

    Example:
        >>> x, out = torch.ones(2, 4), torch.empty(2, 4)
        >>> drop(x, out, threshold_of(0.5), DropoutKey.of(seed=0, epoch=0, step=0, rank=0, layer=0, call=0))
        >>> out.tolist()
        [[2.0, 2.0, 2.0, 0.0], [0.0, 2.0, 0.0, 0.0]]
    """
    _check(x, out, threshold)
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        raise DropoutError(
            "dropout cannot be captured in a CUDA graph: each replay would drop the same elements. Use "
            "torch.nn.Dropout there, or leave the layer out of the graph."
        )
    device = _runs_on(x.device)
    if device == "cpu":
        bits = x.new_empty(num_bit_bytes(x), dtype=torch.uint8) if with_bits else None
        kernels.dropout(*_request(x, out, threshold), *key, relu, 0 if bits is None else bits.data_ptr())
        return bits
    if device is not None:
        bits = device.empty(num_bit_bytes(x), torch.uint8) if with_bits else None
        on_device.drop(device, x, out, threshold, scale_of(threshold), key, relu, bits)
        return bits
    keep = keep_mask(x.numel(), threshold, key, x.device).view_as(x)
    keep = keep & ~(x <= 0) if relu else keep
    _select(x, out, threshold, keep)
    return _packed(keep, num_bit_bytes(x)) if with_bits else None


def drop_by_bits(x: Tensor, out: Tensor, threshold: int, bits: Tensor) -> None:
    """Writes ``x * scale`` to ``out`` where the bits of a :func:`drop` of the same shape say so, else 0."""
    _check(x, out, threshold)
    if (len(bits), bits.dtype, bits.device) != (num_bit_bytes(x), torch.uint8, x.device) or not bits.is_contiguous():
        raise DropoutError(
            f"{len(bits)} bits of {bits.dtype} are of another tensor than {list(x.shape)} on {x.device}."
        )
    device = _runs_on(x.device)
    if device == "cpu":
        kernels.dropout_by_bits(*_request(x, out, threshold), bits.data_ptr())
    elif device is not None:
        on_device.drop_by_bits(device, x, out, scale_of(threshold), bits)
    else:
        keep = bits[:, None] & _places(bits) != 0
        _select(x, out, threshold, keep.flatten()[: x.numel()].view_as(x))


def keep_mask(count: int, threshold: int, key: DropoutKey, device: torch.device) -> Tensor:
    """Computes which of ``count`` elements are kept, bool, by torch's own operations."""
    block = torch.arange(-(-count // CHUNK) * BLOCKS, device=device)
    key0, key1 = key.low & _WORD, key.low >> 32
    x, y = block & _WORD, block >> 32
    z, w = torch.full_like(x, key.high & _WORD), torch.full_like(x, key.high >> 32)
    for _ in range(ROUNDS):
        # Of 64 bits, in which products wrap around; the sign that shifts bring in is masked.
        product0, product1 = (number * multiplier for number, multiplier in zip((x, z), MULTIPLIERS, strict=True))
        x, y = (product1 >> 32 & _WORD) ^ y ^ key0, product1 & _WORD
        z, w = (product0 >> 32 & _WORD) ^ w ^ key1, product0 & _WORD
        key0, key1 = (key0 + WEYL[0]) & _WORD, (key1 + WEYL[1]) & _WORD
    words = torch.stack([x, y, z, w]).view(4, -1, BLOCKS).transpose(0, 1)
    halves = torch.stack([words & 0xFFFF, words >> 16], dim=-1)
    return halves.reshape(-1)[:count] >= threshold


def _packed(keep: Tensor, num_bytes: int) -> Tensor:
    bits = keep.new_zeros(num_bytes * 8)
    bits[: keep.numel()] = keep.flatten()
    return torch.where(bits.view(-1, 8), _places(bits), 0).sum(dim=1, dtype=torch.uint8)


def _places(bits: Tensor) -> Tensor:
    return torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=bits.device)


def _select(x: Tensor, out: Tensor, threshold: int, keep: Tensor) -> None:
    out.copy_(torch.where(keep, x * scale_of(threshold), 0))


def _request(x: Tensor, out: Tensor, threshold: int) -> tuple[int, int, int, int, int, int]:
    return x.data_ptr(), out.data_ptr(), x.numel(), _FORMATS[x.dtype], threshold, torch.get_num_threads()


def _check(x: Tensor, out: Tensor, threshold: int) -> None:
    if x.dtype not in _FORMATS or x.layout is not torch.strided:
        raise DropoutError(
            f"dropout got {x.dtype} of layout {x.layout}, but takes {', '.join(map(str, _FORMATS))}, and no sparse or "
            "nested tensors. Convert it, or use torch.nn.Dropout there."
        )
    # Kernels get addresses.
    if (x.shape, x.dtype, x.device) != (out.shape, out.dtype, out.device):
        raise DropoutError(
            f"dropout writes to {list(out.shape)} of {out.dtype}, but gets {list(x.shape)} of {x.dtype}."
        )
    if not (x.is_contiguous() and out.is_contiguous()):
        raise DropoutError("dropout gets a tensor that is not contiguous: call x.contiguous() before.")
    if not 0 <= threshold < LEVELS:
        raise DropoutError(
            f"dropout gets threshold {threshold}, but it lies in [0, {LEVELS}): where p is 1, write zeros."
        )


def _runs_on(device: torch.device) -> Device | Literal["cpu"] | None:
    """Where kernels run for tensors of a device; None where there are none for it, or CuPy is not installed."""
    if device.type == "cpu":
        return "cpu"
    return device_of(device)

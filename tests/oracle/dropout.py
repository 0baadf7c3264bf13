"""Dropout by key, element by element. See kernels/dropout/dropout.h."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch

from lightning_gnnload.ops.philox import philox, uint32


def dropout_mask(
    count: int, threshold: int, *, seed: int, epoch: int, step: int, rank: int, layer: int, call: int
) -> np.ndarray:
    """Which of ``count`` elements are kept, bool."""
    x, y, z, w = philox(uint32(epoch, step, rank << 16 | layer, call), uint32(seed, seed >> 32)).tolist()
    mask = np.empty(count, bool)
    for i in range(count):
        chunk, place = divmod(i, 128)
        word, lane = place // 32, place % 32 // 2
        block = 16 * chunk + lane
        words = philox(uint32(block, block >> 32, z, w), uint32(x, y)).tolist()
        mask[i] = (words[word] >> 16 * (place % 2) & 0xFFFF) >= threshold
    return mask


def dropped(x: torch.Tensor, mask: np.ndarray, threshold: int, relu: bool) -> torch.Tensor:
    """``x`` where the mask keeps it, scaled, in the precision that the kernels compute in."""
    scale = float(Fraction(65536, 65536 - threshold))
    wide = x if x.dtype == torch.float64 else x.float()
    kept = torch.from_numpy(mask) & ~(wide <= 0) if relu else torch.from_numpy(mask)
    scaled = wide * torch.tensor(scale, dtype=wide.dtype)
    return torch.where(kept, scaled, torch.zeros_like(wide)).to(x.dtype)

"""Sums across blocks, whose predecessors may have come more or less far."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from .emulated import EmulatedDevice

OWN, WHOLE = 1 << 62, -(1 << 63)  # as kernels/common/cuda/scan.h marks a tile's word


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([WHOLE | 5, OWN | 7, OWN | 2], 14),
        ([OWN | 5, WHOLE | 12, OWN | 2], 14),  # what lies before a whole sum is in it
        ([WHOLE | 5, WHOLE | 12, WHOLE | 2**61], 2**61),
        ([WHOLE | 0, OWN | 0, OWN | 0], 0),
        ([WHOLE | 3, *[OWN | 1] * 100], 103),  # further than a warp sees at once
        ([OWN | 3, WHOLE | 50, *[OWN | 1] * 31], 81),
        ([OWN | 3, WHOLE | 50, *[OWN | 1] * 32], 82),
    ],
)
def test_a_tile_looks_back_to_the_last_whole_sum(emulated: EmulatedDevice, words: list[int], expected: int) -> None:
    held = emulated.put(np.array([len(words), *words, 0, 0], np.int64))
    tiles, before = emulated.empty(1, torch.int64), emulated.empty(1, torch.int64)
    emulated.launch("scan", "take_tile", blocks=1, threads=256, tiles=tiles, before=before, words=held)
    assert (tiles.item(), before.item()) == (len(words), expected)
    assert held[1 + len(words)].item() == WHOLE | expected + 256  # for those to come


def test_blocks_take_tiles_in_the_order_they_come(emulated: EmulatedDevice) -> None:
    tiles, before = emulated.empty(20, torch.int64), emulated.empty(20, torch.int64)
    words = emulated.zeros(21, torch.int64)
    emulated.launch("scan", "take_tile", blocks=20, threads=256, tiles=tiles, before=before, words=words)
    assert sorted(tiles.tolist()) == list(range(20))
    assert (before == 256 * tiles).all()

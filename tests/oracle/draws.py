"""The draws of one node, and of a batch. See kernels/common/draw.h."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from lightning_gnnload.ops.dispatch import DrawKey
from lightning_gnnload.ops.philox import philox, stream_keys, uint32

WAVE_TAG = 0x77617665  # "wave", in ASCII


class NodeDraws:
    """All draws of one destination node at one hop; ``key`` is the epoch's key for draws."""

    def __init__(self, key: np.ndarray, step: int, hop: int, node: int) -> None:
        self._key = key
        self._counter = (node, ((node >> 32) & 0xFFFF) | hop << 16, step)

    def words(self, count: int, attempt: int = 0) -> np.ndarray:
        """The words of draws 0 to ``count`` - 1, uint32."""
        counter = np.tile(uint32(*self._counter, attempt << 24), ((count + 3) // 4, 1))
        counter[:, 3] |= np.arange(len(counter), dtype=np.uint32)
        return philox(counter, self._key).ravel()[:count]

    def below(self, bounds: Sequence[int]) -> list[int]:
        """Draw ``j`` for each bound, exactly uniform in ``[0, bounds[j])``.

        Words whose product falls below 2**32 mod bound would be drawn too often: they are drawn again.
        """
        drawn = []
        for j, (bound, word) in enumerate(zip(bounds, self.words(len(bounds)).tolist(), strict=True)):
            attempt = 0
            while word * bound % 2**32 < 2**32 % bound:
                attempt += 1
                word = int(self.words(j + 1, attempt)[j])
            drawn.append(word * bound >> 32)
        return drawn

    def below64(self, j: int, bound: int) -> int:
        """Draw ``j`` of 64 bits, exactly uniform in ``[0, bound)``: of words ``2 j`` (low) and ``2 j + 1``."""
        attempt = 0
        while True:
            low, high = self.words(2 * j + 2, attempt)[-2:].tolist()
            product = (high << 32 | low) * bound
            if product % 2**64 >= 2**64 % bound:
                return product >> 64
            attempt += 1

    def of_wave(self, wave: int) -> NodeDraws:
        """The draws of a wave: of the first one these, of each later one those under a key of its own."""
        if wave == 0:
            return self
        other = copy(self)
        other._key = philox(uint32(wave, 0, 0, WAVE_TAG), self._key)[:2]
        return other


class BatchDraws:
    """The draws of a batch: of a node, in its name, at one of the batch's hops."""

    def __init__(self, key: DrawKey, names: np.ndarray | None) -> None:
        self._key, self._names = key, names
        self._draw_key, _ = stream_keys(key.seed, key.epoch)

    def of(self, node: int, hop: int) -> NodeDraws:
        return NodeDraws(self._draw_key, self._key.step, self._key.hop + hop, name_of(node, self._names))


def name_of(node: int, names: np.ndarray | None) -> int:
    """The id by which a node draws: its own, unless there are names."""
    return node if names is None else int(names[node])

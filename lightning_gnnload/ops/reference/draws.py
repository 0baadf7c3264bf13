"""The draws: Philox, the keys of an epoch, and the draws of one node. See kernels/common/draw.h."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dispatch import DrawKey

LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def philox(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Philox4x32-10 of many counters at once.

    Args:
        counter: uint32 ``[..., 4]``.
        key: uint32 ``[..., 2]``, broadcast against ``counter``.

    Returns:
        uint32 ``[..., 4]``.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11), section 3.3.

    Example:
        >>> [hex(word) for word in philox(np.zeros(4, np.uint32), np.zeros(2, np.uint32))]
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    # 64-bit lanes hold the products of 32-bit words.
    c0, c1, c2, c3 = np.moveaxis(np.asarray(counter, np.uint64), -1, 0)
    k0, k1 = np.moveaxis(np.asarray(key, np.uint64), -1, 0)
    for _ in range(10):
        product0 = np.uint64(0xD2511F53) * c0
        product1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (product1 >> SHIFT) ^ c1 ^ k0,
            product1 & LOW,
            (product0 >> SHIFT) ^ c3 ^ k1,
            product0 & LOW,
        )
        k0 = (k0 + np.uint64(0x9E3779B9)) & LOW
        k1 = (k1 + np.uint64(0xBB67AE85)) & LOW
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1).astype(np.uint32)


def stream_keys(seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """The two keys of an epoch, uint32 ``[2]`` each: for draws and for ordering keys."""
    words = philox(uint32(epoch, 0, 0, 0x6B657973), uint32(seed, seed >> 32))
    return words[:2], words[2:]


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


class BatchDraws:
    """The draws of a batch: of a node, in its name, at one of the batch's hops."""

    def __init__(self, key: DrawKey, names: np.ndarray | None) -> None:
        self._key, self._names = key, names
        self._draw_key, _ = stream_keys(key.seed, key.epoch)

    def of(self, node: int, hop: int) -> NodeDraws:
        return NodeDraws(self._draw_key, self._key.step, self._key.hop + hop, name_of(node, self._names))


def name_of(node: int, names: np.ndarray | None) -> int:
    """In whose name a node draws: its own, unless there are others."""
    return node if names is None else int(names[node])


def uint32(*words: int) -> np.ndarray:
    return np.array([word & 0xFFFFFFFF for word in words], np.uint32)

"""Philox in NumPy, and the keys of an epoch: see kernels/common/draw.h."""

from __future__ import annotations

import numpy as np

_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
ROUNDS, MULTIPLIERS, WEYL = 10, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def philox(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Computes Philox4x32-10 of many counters, uint32 ``[..., 4]``, with keys, uint32 ``[..., 2]``, broadcast: uint32
    ``[..., 4]``.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11), section 3.3.

    Example:
        >>> [hex(word) for word in philox(np.zeros(4, np.uint32), np.zeros(2, np.uint32))]
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    # 64-bit lanes hold the products of 32-bit words.
    c0, c1, c2, c3 = np.moveaxis(np.asarray(counter, np.uint64), -1, 0)
    k0, k1 = np.moveaxis(np.asarray(key, np.uint64), -1, 0)
    for _ in range(ROUNDS):
        product0 = np.uint64(MULTIPLIERS[0]) * c0
        product1 = np.uint64(MULTIPLIERS[1]) * c2
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0,
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ k1,
            product0 & _LOW,
        )
        k0 = (k0 + np.uint64(WEYL[0])) & _LOW
        k1 = (k1 + np.uint64(WEYL[1])) & _LOW
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1).astype(np.uint32)


# ASCII of "keys" and "rows", as in kernels/common/draw.h: tags keep both streams of an epoch apart.
KEYS_TAG, ROWS_TAG = 0x6B657973, 0x726F7773


def stream_keys(seed: int, epoch: int, tag: int = KEYS_TAG) -> tuple[np.ndarray, np.ndarray]:
    """Derives the two keys of an epoch, uint32 ``[2]`` each: for draws and for ordering keys."""
    words = philox(uint32(epoch, 0, 0, tag), uint32(seed, seed >> 32))
    return words[:2], words[2:]


def hash32(values: np.ndarray) -> np.ndarray:
    """Mixes numbers that count from 0, such as time codes, into draw names: uint32 of uint32, one to one.

    Source: the finalizer of MurmurHash3, by Austin Appleby.

    Example:
        >>> hash32(np.array([0, 1], np.uint32)).tolist()
        [0, 1364076727]
    """
    mixed = np.asarray(values, np.uint32)
    mixed = (mixed ^ mixed >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ mixed >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return mixed ^ mixed >> np.uint32(16)


def uint32(*words: int) -> np.ndarray:
    """Returns the low 32 bits of each word."""
    return np.array([word & 0xFFFFFFFF for word in words], np.uint32)

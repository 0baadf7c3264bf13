"""State: the counters by which the kernels of a batch tell each other, and later the host, what they have done."""

from __future__ import annotations

import numpy as np
import torch

from .device import Device

# Codes of kernels/common/cuda/state.h.
SEED_OUT_OF_RANGE, SEED_REPEATED, TOO_MANY_EDGES, BAD_ID, BAD_LOCATION, BAD_POSITION, TOO_MANY_QUERIES = range(1, 8)

# kPlaces of the same header: an error word holds a code in 8 bits and a place in 56.
_PLACES = 1 << 56
MAX_POSITIONS = 2**32 - 2  # nodes known before a hop and its edges, together: stamps have 32 bits
_SCAN_WORDS = 1 << 16  # half a megabyte, cleared in one launch with the rest: enough for all sums of most batches


class State:
    """The 64-bit counters of a batch on a device, zero at first: an error, the nodes and edges of each hop, scratch
    sums."""

    def __init__(self, device: Device, num_hops: int) -> None:
        self._device = device
        self._num_hops = num_hops
        # The error, the zero, a count of nodes before each hop and after the last, and one of edges for each hop.
        self._num_words = 2 * num_hops + 3
        # One array, so that one launch clears all of it and one copy reads it.
        self._words = device.zeros(self._num_words + _SCAN_WORDS, torch.int64)
        self._scans = self._words[self._num_words :]
        self.error = self._words[0:1]  # the first error and its position
        self.zero = self._words[1:2]  # stays 0

    def num_nodes(self, hop: int) -> torch.Tensor:
        """Returns the counter of the nodes known before a hop; with ``hop=num_hops``, of the batch."""
        return self._words[2 + hop : 3 + hop]

    def num_edges(self, hop: int) -> torch.Tensor:
        """Returns the counter of the edges up to the end of a hop."""
        at = 3 + self._num_hops + hop
        return self._words[at : at + 1]

    def scan_words(self, num_tiles: int) -> torch.Tensor:
        """Returns zeroed scratch for one sum over so many tiles (``TileScan``)."""
        needed = num_tiles + 1
        if needed > len(self._scans):
            self._scans = self._device.zeros(max(needed, _SCAN_WORDS), torch.int64)
        # No two sums share words, which have to be zero, as clearing them again would take a launch each.
        words, self._scans = self._scans[:needed], self._scans[needed:]
        return words

    def read(self) -> tuple[tuple[int, int] | None, list[int], list[int]]:
        """Reads the error's code and position, or None; the numbers of nodes; and of edges. Waits for the device."""
        words = self._device.read(self._words[: self._num_words]).tolist()
        split = 3 + self._num_hops
        return decode_error(words[0]), words[2:split], words[split:]


def decode_error(word: int | np.integer) -> tuple[int, int] | None:
    """Returns the code and first position of an error word; None where nothing went wrong."""
    word = int(word) % (1 << 64)
    # Kernels store positions counted down from the largest, so that an atomic maximum keeps the first.
    return None if word == 0 else (word & 0xFF, _PLACES - 1 - (word >> 8))

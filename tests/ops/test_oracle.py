"""The oracle itself, against published numbers and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.ops.philox import philox
from tests import oracle

PI = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (PI, [0xA4093822, 0x299F31D0], [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ],
)
def test_philox_gives_the_answers_its_authors_publish(counter, key, words):
    # Source: Random123, examples/kat_vectors, philox4x32 10. Swapped words or a missing round fail here.
    drawn = philox(np.array([counter, counter], np.uint32), np.array(key, np.uint32))
    np.testing.assert_array_equal(drawn, [words, words])


def test_floyd_by_hand():
    class Draws:
        def below(self, bounds):
            assert bounds == [3, 4, 5]  # inclusive: [0, d - k + j]
            return [1, 1, 1]

    # The first 1 stands; the repeats give way to d - k + j.
    assert oracle.sample_positions(5, 3, False, Draws()) == [1, 3, 4]

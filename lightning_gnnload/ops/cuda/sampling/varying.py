"""Varying: the numbers and sizes by which one batch's kernel launches differ from another's."""

from __future__ import annotations

from typing import NamedTuple

FIELDS = (
    *("seed", "epoch", "step", "num_seeds", "num_excluded", "batch", "paths_batch"),
    *("slab", "slab_begin", "slab_end"),
)
"""What differs, in the order of ``Field`` in ``kernels/device/plan.h``."""


class Varying(int):
    """An argument of a kernel that is another one for each batch: an integer, and what it is.

    Example:
        >>> Varying(7, "step") + 1, Varying(7, "step").field
        (8, 'step')
    """

    field: str

    def __new__(cls, value: int, field: str) -> Varying:
        self = super().__new__(cls, value)
        self.field = field
        return self


class HopKey(NamedTuple):
    """``DrawKey`` of ``kernels/common/cuda/batch.h``, of one hop."""

    seed: int
    epoch: int
    step: int
    hop: int


def most_of(count: int) -> int:
    """Rounds up to an eighth of a power of two, so that batches of similar sizes share their bounds.

    Example:
        >>> [most_of(count) for count in (0, 7, 17, 1000, 1024, 1025)]
        [0, 7, 18, 1024, 1024, 1152]
    """
    step = 1 << max((count - 1).bit_length() - 4, 0)
    return -(-count // step) * step

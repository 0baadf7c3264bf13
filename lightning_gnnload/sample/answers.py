"""Answers: what other ranks send back, of which nothing is believed before it is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from lightning_gnnload.errors import ExchangeError

MOST = 2**63
"""Below it lies every int64."""


@dataclass(frozen=True)
class Answer:
    """What one rank says about its nodes.

    Attributes:
        rank: which.
        places: int64 ``[D]``, where they stand among the nodes that were asked for.
        arrays: the result, as it came.
    """

    rank: int
    places: np.ndarray
    arrays: Mapping[str, np.ndarray]

    def numbers(self, name: str, below: int, length: int | None = None) -> np.ndarray:
        """Whole numbers in ``[0, below)``, of any integer dtype that int64 holds: ``[length]``, or as many as came.

        Raises:
            ExchangeError: the rank sent none, or others.
        """
        array = self.arrays.get(name)
        if array is None or not np.can_cast(array.dtype, np.int64):
            self.refuse(name, "whole numbers")
        if length is not None and len(array) != length:
            self.refuse(name, f"{length} numbers")
        if len(array) and not (array.min() >= 0 and array.max() < below):
            self.refuse(name, f"numbers in [0, {below})")
        return array

    def fractions(self, name: str, length: int) -> np.ndarray:
        """Floats ``[length]``.

        Raises:
            ExchangeError: the rank sent none, or something else.
        """
        array = self.arrays.get(name)
        if array is None or array.dtype.kind != "f" or len(array) != length:
            self.refuse(name, f"{length} floats")
        return array

    def refuse(self, name: str, wanted: str) -> NoReturn:
        """Raises ExchangeError: an array is not what was wanted."""
        array = self.arrays.get(name)
        found = f"no {name}"
        if array is not None:
            spans = f" in [{array.min()}, {array.max()}]" if len(array) else ""
            found = f"{name} {array.dtype} [{len(array)}]{spans}"
        raise ExchangeError(
            f"rank {self.rank} answered with {found}, but {wanted} were asked for. Do all ranks run the same version, "
            f"over parts that pass load_partition(folder, verify=True)?"
        )

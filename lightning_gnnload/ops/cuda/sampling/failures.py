"""What goes wrong with a batch on a device: the errors of its error word."""

from __future__ import annotations

from typing import NoReturn, Protocol

import numpy as np

from ....errors import SamplerConfigError, SeedError
from ..launch import state as codes

MAX_LOCAL = 2**31 - 1  # local ids are int32


class _AboveSeeds(Protocol):
    """The interface of :class:`.HostQueries` that errors need."""

    @property
    def shift(self) -> int: ...

    @property
    def above_seeds(self) -> np.ndarray: ...


def fail(code: int, position: int, seeds: np.ndarray, num_nodes: int, queries: _AboveSeeds | None) -> NoReturn:
    """Raises the error that kernels report by this code and position, for a batch of these seeds."""
    if code == codes.TOO_MANY_EDGES:
        raise SamplerConfigError(
            f"A batch of {len(seeds)} seeds reaches more than {MAX_LOCAL} edges, beyond int32 local ids. Use a smaller "
            f"batch or smaller fanouts."
        )
    if code == codes.TOO_MANY_QUERIES:
        assert queries is not None
        raise SamplerConfigError(
            f"A batch along paths has {(1 << 63 - queries.shift) + 1} times at which it asks for edges, of which each "
            f"needs a number of its own above those of nodes and edges, within 63 bits. Use a smaller batch."
        )
    if code == codes.SEED_OUT_OF_RANGE:
        raise SeedError(
            f"seeds[{position}] is {seeds[position]}, but the graph has {num_nodes} nodes: seeds must lie in [0, "
            f"{num_nodes})."
        )
    named = seeds if queries is None else queries.above_seeds | seeds
    first = int(np.flatnonzero(named == named[position])[0])
    raise SeedError(
        f"seeds[{position}] is {seeds[position]}, the same node as seeds[{first}]. The seeds of a batch must be "
        f"distinct: remove repeats, for example with numpy.unique."
    )

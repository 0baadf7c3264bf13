"""LateFeatures: a table that is gathered without a cache until there is one."""

from __future__ import annotations

import threading
from typing import Protocol

import torch

from lightning_gnnload.data.features import Reads, TierReads


class Rows(Protocol):
    """What gathers on a device: :class:`.DeviceFeatures`."""

    shape: tuple[int, int]
    dtype: torch.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor: ...
    def reads(self) -> Reads: ...
    def check(self) -> None: ...
    def close(self) -> None: ...


class LateFeatures:
    """Rows that one holder gathers until another takes over, and the same rows from then on. Thread-safe: a batch is
    gathered by one of them, whichever it finds.

    Args:
        first: gathers for now.
    """

    def __init__(self, first: Rows) -> None:
        self._holders = [first]  # all that ever were: kernels of any stream may still read what the first one holds
        self.shape, self.dtype = first.shape, first.dtype
        self._reading = threading.Lock()

    def take_over(self, rows: Rows) -> None:
        """From the next batch on."""
        self._holders.append(rows)

    def gather(self, ids: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """See :meth:`.DeviceFeatures.gather`."""
        return self._holders[-1].gather(ids, out)

    def reads(self) -> Reads:
        """Since the last call, of all holders together."""
        with self._reading:
            sums: dict[str, TierReads] = {}
            for holder in reversed(self._holders):
                for read in holder.reads():
                    before = sums.get(read.tier, TierReads(read.tier, 0, 0))
                    sums[read.tier] = TierReads(read.tier, before.rows + read.rows, before.num_bytes + read.num_bytes)
            return tuple(sums.values())

    def check(self) -> None:
        """See :meth:`.DeviceFeatures.check`."""
        for holder in self._holders:
            holder.check()

    def close(self) -> None:
        """No gather may be under way."""
        for holder in reversed(self._holders):
            holder.close()

    def __repr__(self) -> str:
        return f"LateFeatures({self._holders[-1]!r})"

"""Feature tables that a device gathers from, wherever the rows are.

Shapes: N graph nodes, B requested ids, F feature width.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.features import Reads, TierReads, summed_reads
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ops.cuda.launch.device import Device, Mapped
from lightning_gnnload.ops.cuda.tables.gather import gather_rows, raise_error
from lightning_gnnload.ops.cuda.tables.rows import AS_BYTES, RowCodes


class DeviceFeatures(ABC):
    """The interface of a feature table, ``(N, F)``, that a device gathers from on the current CUDA stream. Thread-safe.

    Nothing waits for the device unless a subclass says so. Errors that kernels find are raised later, by :meth:`check`
    and :meth:`reads`; until then, the rows concerned are zeros.
    """

    def __init__(self, device: Device, shape: tuple[int, int], dtype: torch.dtype) -> None:
        self.device, self.shape, self.dtype = device, shape, dtype
        # An error, the rows from each shard, and those from none: kernels of all streams add to them. One array, as
        # each copy to the host is a wait.
        self._notes = device.zeros(2 + ops.MAX_SHARDS, torch.int64)
        self._error, self._counts = self._notes[:1], self._notes[1:]
        self._reported: dict[str, TierReads] = {}
        self._reporting = threading.Lock()
        # Last, so that it covers what a subclass put on the device before it called this.
        self._ready = device.record()

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize

    def gather(self, ids: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Gathers row ``ids[b]`` as row ``b`` of ``out``, ``[B, F]`` on the device, contiguous; None allocates it.
        Returns ``out``. Raises GnnLoadError for another shape or dtype, DeviceMemoryError where there is no memory."""
        return self._gathered(ids, out, AS_BYTES)

    def decode(self, ids: torch.Tensor, codes: RowCodes, out: torch.Tensor | None = None) -> torch.Tensor:
        """Gathers rows of 8-bit codes as :meth:`gather` does, and decodes them in the same kernel: ``out`` is of
        ``codes.dtype``."""
        return self._gathered(ids, out, codes)

    def _gathered(self, ids: torch.Tensor, out: torch.Tensor | None, codes: RowCodes) -> torch.Tensor:
        shape, dtype = (len(ids), self.shape[1]), self.dtype if codes.dtype is None else codes.dtype
        if out is None:
            out = self.device.empty(shape[0] * shape[1], dtype).view(shape)
        elif out.shape != shape or out.dtype != dtype or not out.is_contiguous():
            raise GnnLoadError(
                f"out is {out.dtype} of shape {list(out.shape)}, but contiguous {dtype} of shape {list(shape)} is "
                f"needed."
            )
        if out.numel():
            self._ready.wait()  # the table may have been opened on another stream
            self._gather(ids, out.view(torch.uint8), codes)
        return out

    def reads(self) -> Reads:
        """Returns the reads since the last call, by tier, and raises as :meth:`check`. It waits for the current stream
        alone, so batches that other streams gather may count the next time."""
        with self._reporting:  # counts only grow, so the thread that reads later ones must report later
            counts = self._read_notes()[1:]
            before, now = self._reported, {read.tier: read for read in self._reads(counts)}
            self._reported = now
        nothing = TierReads("", 0, 0)
        return tuple(
            TierReads(tier, rows - before.get(tier, nothing).rows, num_bytes - before.get(tier, nothing).num_bytes)
            for tier, rows, num_bytes in now.values()
        )

    def check(self) -> None:
        """Raises SeedError if a gather so far had an id outside ``[0, N)``, CacheShareError if a location table named a
        slot that does not exist. Waits for the current stream."""
        self._read_notes()

    def close(self) -> None:
        """Waits until the device has done all its work, and gives memory back. No gather may follow."""
        self.device.synchronize()  # not one stream: those of all threads may read it

    @abstractmethod
    def _gather(self, ids: torch.Tensor, out: torch.Tensor, codes: RowCodes) -> None:
        """Gathers one row or more, decoded as ``codes`` say, into uint8 ``[B, row_bytes * codes.itemsize]``."""

    @abstractmethod
    def _reads(self, counts: np.ndarray) -> Reads:
        """Returns all reads so far; ``counts`` has the rows from each shard, then from none."""

    def _from(self, tier: str, rows: int) -> TierReads:
        return TierReads(tier, rows, rows * self.row_bytes)

    def _read_notes(self) -> np.ndarray:
        self._ready.wait()
        notes = self.device.read(self._notes)
        raise_error(int(notes[0]), self.shape[0])
        return notes


class WholeFeatures(DeviceFeatures):
    """A feature table with all rows in one memory: on the device, or mapped from the host's, which kernels read in
    place."""

    def __init__(
        self, device: Device, rows: torch.Tensor | Mapped, shape: tuple[int, int], dtype: torch.dtype, tier: str
    ) -> None:
        super().__init__(device, shape, dtype)
        self.tier = tier
        self._rows = rows if isinstance(rows, Mapped) or not rows.numel() else rows.view(torch.uint8)
        self._counting = threading.Lock()
        self._num_read = 0

    def _gather(self, ids: torch.Tensor, out: torch.Tensor, codes: RowCodes) -> None:
        gather_rows(self.device, self._rows, ids, out, self._error, codes=codes)
        with self._counting:
            self._num_read += len(ids)

    def _reads(self, counts: np.ndarray) -> Reads:
        return (self._from(self.tier, self._num_read),)

    def __repr__(self) -> str:
        return f"WholeFeatures(shape={self.shape}, dtype={self.dtype}, tier={self.tier!r})"


class QuantizedFeatures(DeviceFeatures):
    """A feature table that is cached as codes on a device, and decoded as it is gathered."""

    def __init__(self, store: QuantizedFeatureStore, codes: DeviceFeatures) -> None:
        device = codes.device
        self.codes = codes
        self._columns = RowCodes(device.put(store.scale.numpy()), device.put(store.offset.numpy()), store.dtype)
        super().__init__(device, store.shape, store.dtype)

    def reads(self) -> Reads:
        return self.codes.reads()

    def check(self) -> None:
        self.codes.check()

    def close(self) -> None:
        self.codes.close()

    def _gather(self, ids: torch.Tensor, out: torch.Tensor, codes: RowCodes) -> None:
        self.codes.decode(ids, self._columns, out.view(self.dtype))

    def _reads(self, counts: np.ndarray) -> Reads:
        return ()

    def __repr__(self) -> str:
        return f"QuantizedFeatures({self.codes!r}, dtype={self.dtype})"


class LateFeatures:
    """A feature table without a cache that gets one later, while batches are gathered. Thread-safe: each batch comes
    from the table before or after."""

    def __init__(self, first: DeviceFeatures) -> None:
        # All tables ever, as kernels of any stream may still read the memory of earlier ones.
        self._tables = [first]
        self.shape, self.dtype = first.shape, first.dtype
        self._reading = threading.Lock()

    def take_over(self, rows: DeviceFeatures) -> None:
        """Lets ``rows`` gather from the next batch on."""
        # Atomic for threads that gather: they see the last table or this one.
        self._tables.append(rows)

    def gather(self, ids: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """See :meth:`.DeviceFeatures.gather`."""
        return self._tables[-1].gather(ids, out)

    def reads(self) -> Reads:
        """Returns the reads since the last call, from all tables together."""
        with self._reading:
            return summed_reads([table.reads() for table in reversed(self._tables)])

    def check(self) -> None:
        """See :meth:`.DeviceFeatures.check`."""
        for table in self._tables:
            table.check()

    def close(self) -> None:
        """Closes all tables. No gather may be under way."""
        for table in reversed(self._tables):
            table.close()

    def __repr__(self) -> str:
        return f"LateFeatures({self._tables[-1]!r})"

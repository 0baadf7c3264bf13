"""Feature rows gathered on a device, wherever they lie.

Shapes: N graph nodes, B requested ids, F feature width.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import suppress

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.features import Reads, TierReads, summed_reads
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ops.cuda.device import Device, Mapped
from lightning_gnnload.ops.cuda.gather import gather_rows, raise_error


class DeviceFeatures(ABC):
    """The interface of a feature table that a device gathers from, on the current CUDA stream. Thread-safe.

    Nothing waits for the device, but where a subclass says so. What kernels find wrong is told later, by :meth:`check`
    and :meth:`reads`; the rows concerned are zeros meanwhile.

    Args:
        device: that gathers.
        shape: ``(N, F)``.
        dtype: of the rows.
    """

    def __init__(self, device: Device, shape: tuple[int, int], dtype: torch.dtype) -> None:
        self.device, self.shape, self.dtype = device, shape, dtype
        # The error, rows of each shard, rows of none. Kernels of all streams add to them.
        # In one array, as each copy to the host is a wait.
        self._notes = device.zeros(2 + ops.MAX_SHARDS, torch.int64)
        self._error, self._taken = self._notes[:1], self._notes[1:]
        self._told: dict[str, TierReads] = {}
        self._telling = threading.Lock()
        # Last: what a subclass put on the device before it called this is covered, too.
        self._ready = device.record()

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize

    def gather(self, ids: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Gathers row ``ids[b]`` as row ``b``.

        Args:
            ids: int64 ``[B]``, on the device.
            out: ``[B, F]``, on the device, contiguous; None for new memory.

        Returns:
            ``out``.

        Raises:
            GnnLoadError: ``out`` has another shape or dtype.
            DeviceMemoryError: there is no memory for it.
        """
        shape = (len(ids), self.shape[1])
        if out is None:
            out = self.device.empty(shape[0] * shape[1], self.dtype).view(shape)
        elif out.shape != shape or out.dtype != self.dtype or not out.is_contiguous():
            raise GnnLoadError(
                f"out is {out.dtype} of shape {list(out.shape)}, but contiguous {self.dtype} of shape {list(shape)} is "
                f"needed."
            )
        if out.numel():
            self._ready.wait()  # whoever opened it did so on another stream
            self._gather(ids, out.view(torch.uint8))
        return out

    def reads(self) -> Reads:
        """Returns what was read since the last call, and from where. It waits for the current stream alone: batches in
        the making may count the next time.

        Raises:
            SeedError, CacheShareError: as :meth:`check`.
        """
        with self._telling:  # of two threads, the one that reads the later notes must tell later
            taken = self._read_notes()[1:]
            before, now = self._told, {read.tier: read for read in self._reads(taken)}
            self._told = now
        nothing = TierReads("", 0, 0)
        return tuple(
            TierReads(tier, rows - before.get(tier, nothing).rows, num_bytes - before.get(tier, nothing).num_bytes)
            for tier, rows, num_bytes in now.values()
        )

    def check(self) -> None:
        """Raises what a gather before this found wrong. Waits for the current stream.

        Raises:
            SeedError: an id was not in ``[0, N)``.
            CacheShareError: a table of locations named a slot that there is not.
        """
        self._read_notes()

    def close(self) -> None:
        """Waits until the device has done all it was given, and gives back what it holds. No gather may follow."""
        if self.device.torch_device.type == "cuda":
            with suppress(RuntimeError):  # a device that failed says so where it is used
                torch.cuda.synchronize(self.device.torch_device)  # streams of all threads may read it

    @abstractmethod
    def _gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        """Gathers one row or more, to uint8 ``[B, row_bytes]``."""

    @abstractmethod
    def _reads(self, taken: np.ndarray) -> Reads:
        """Returns the reads since the beginning; ``taken`` counts the rows of each shard, and of none."""

    def _from(self, tier: str, rows: int) -> TierReads:
        return TierReads(tier, rows, rows * self.row_bytes)

    def _read_notes(self) -> np.ndarray:
        self._ready.wait()
        notes = self.device.read(self._notes)
        raise_error(int(notes[0]), self.shape[0])
        return notes


class WholeFeatures(DeviceFeatures):
    """A feature table with all rows in one place: on the device, or in the host's memory, which it reads in place.

    Args:
        device: that gathers.
        rows: ``[N, F]``, on the device, or mapped, in bytes.
        shape: ``(N, F)``.
        dtype: of the rows.
        tier: what :class:`.TierReads` calls it.
    """

    def __init__(
        self, device: Device, rows: torch.Tensor | Mapped, shape: tuple[int, int], dtype: torch.dtype, tier: str
    ) -> None:
        super().__init__(device, shape, dtype)
        self.tier = tier
        self._rows = rows if isinstance(rows, Mapped) or not rows.numel() else rows.view(torch.uint8)
        self._counting = threading.Lock()
        self._num_read = 0

    def _gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        gather_rows(self.device, self._rows, ids, out, self._error)
        with self._counting:
            self._num_read += len(ids)

    def _reads(self, taken: np.ndarray) -> Reads:
        return (self._from(self.tier, self._num_read),)

    def __repr__(self) -> str:
        return f"WholeFeatures(shape={self.shape}, dtype={self.dtype}, tier={self.tier!r})"


class QuantizedFeatures(DeviceFeatures):
    """Quantized rows on a device, which are cached as codes and decoded as they are gathered.

    Args:
        store: quantised.
        codes: its codes, on a device.
    """

    def __init__(self, store: QuantizedFeatureStore, codes: DeviceFeatures) -> None:
        device = codes.device
        self.codes = codes
        self._scale, self._offset = device.put(store.scale.numpy()), device.put(store.offset.numpy())
        super().__init__(device, store.shape, store.dtype)

    def reads(self) -> Reads:
        return self.codes.reads()

    def check(self) -> None:
        self.codes.check()

    def close(self) -> None:
        self.codes.close()

    def _gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        # Two steps, as the CPU rounds the product before it adds.
        rows = self.codes.gather(ids).float().mul_(self._scale).add_(self._offset)
        out.view(self.dtype).copy_(rows)

    def _reads(self, taken: np.ndarray) -> Reads:
        return ()

    def __repr__(self) -> str:
        return f"QuantizedFeatures({self.codes!r}, dtype={self.dtype})"


class LateFeatures:
    """A feature table without a cache that gets one later, while batches are being gathered. Thread-safe: each batch is
    gathered from the table before or from the one after.

    Args:
        first: gathers for now.
    """

    def __init__(self, first: DeviceFeatures) -> None:
        self._holders = [first]  # all that ever were: kernels of any stream may still read what the first one holds
        self.shape, self.dtype = first.shape, first.dtype
        self._reading = threading.Lock()

    def take_over(self, rows: DeviceFeatures) -> None:
        """Lets ``rows`` gather from the next batch on."""
        # One step for threads that gather: they see the table before, or this one.
        self._holders.append(rows)

    def gather(self, ids: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """See :meth:`.DeviceFeatures.gather`."""
        return self._holders[-1].gather(ids, out)

    def reads(self) -> Reads:
        """Returns what was read since the last call, from all tables together."""
        with self._reading:
            return summed_reads([holder.reads() for holder in reversed(self._holders)])

    def check(self) -> None:
        """See :meth:`.DeviceFeatures.check`."""
        for holder in self._holders:
            holder.check()

    def close(self) -> None:
        """Closes all tables that ever gathered. No gather may be under way."""
        for holder in reversed(self._holders):
            holder.close()

    def __repr__(self) -> str:
        return f"LateFeatures({self._holders[-1]!r})"

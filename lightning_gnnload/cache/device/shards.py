"""Shards: device memory that holds a cache's rows, or a graph's lists, and the functions that fill it with rows."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import numpy as np
import torch

from lightning_gnnload.cache.static import gather_in_pieces, rows_in_piece
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, byte_rows
from lightning_gnnload.errors import DeviceMemoryError, DeviceShareError
from lightning_gnnload.host.pages import private_bytes
from lightning_gnnload.ops.cuda.launch.device import Device, Mapped
from lightning_gnnload.ops.cuda.launch.shared_memory import ExportedMemory, OpenedMemory
from lightning_gnnload.ops.cuda.tables.gather import gather_rows

CLOSING_S = 30.0  # that an owner waits for its readers; all ranks close at the end of one fit
_log = logging.getLogger(__name__)


class PrivateMemory:
    """Device memory that no other rank reads. Raises DeviceMemoryError where there is no such memory."""

    def __init__(self, device: Device, num_bytes: int) -> None:
        self.bytes = device.empty(num_bytes, torch.uint8)
        self.address = self.bytes.data_ptr()

    def close(self, timeout_s: float) -> bool:
        return True


@dataclass
class Shards:
    """The shards of a cache or a graph, each in the memory of a device that this rank's device can read."""

    addresses: list[int] = field(default_factory=list)  # of each shard; a cache's rows follow without gaps
    num_rows: list[int] = field(default_factory=list)  # of each shard of a cache
    own_shard: int = -1  # that this rank has filled; -1: none
    memory: ExportedMemory | PrivateMemory | None = None  # this rank's
    opened: list[OpenedMemory] = field(default_factory=list)  # other ranks'

    def check(self) -> None:
        """Raises DeviceShareError where this rank has closed its memory, or another rank of which it reads some is gone
        or done."""
        if self.memory is None:
            raise DeviceShareError("Shards in devices' memory were closed, and cannot be read any more.")
        for opened in self.opened:
            if not opened.is_held:
                raise DeviceShareError(
                    f"{opened.purpose} is gone: that rank has ended, or is done. Look at its output; others cannot "
                    f"go on without what its device held."
                )

    def close(self) -> None:
        """Closes what this rank has opened, then its own memory once nobody reads it; a rank that is gone keeps nobody
        waiting. No gather may follow."""
        # Other ranks' memory first: their owners wait for this rank, as it then waits for its own readers.
        for opened in self.opened:
            opened.close()
        memory, self.memory, self.opened = self.memory, None, []
        if memory is not None and not memory.close(CLOSING_S):
            _log.warning(
                "Another rank still reads what this rank's device holds %g s after this one is done with it. That "
                "memory stays taken until this process ends.",
                CLOSING_S,
            )


def map_rows(device: Device, store: FeatureStore) -> Mapped | None:
    """Maps the store's rows in bytes, ``[N, row_bytes]``, for kernels to read in place. Returns None where they are not
    in memory or, with a warning, where the system lets no more memory be page-locked."""
    if type(store) is not MemoryFeatureStore:  # a subclass may gather otherwise
        return None
    rows = byte_rows(store.rows).view()
    rows.flags.writeable = False  # registered read-only: pages of a mapped file cannot be registered for writing
    try:
        return device.map_host(rows)
    except DeviceMemoryError as error:
        _log.warning("Feature rows that are not on the device are copied through the host: %s", error)
        return None


def fill_device_shard(
    device: Device,
    store: FeatureStore,
    ids: np.ndarray,
    shard: torch.Tensor,
    backing: Mapped | None = None,
    *,
    progress: bool = False,
) -> None:
    """Copies row ``ids[slot]`` of the store to ``shard[slot]``, uint8 ``[slots, row_bytes]`` on the device: from
    ``backing``, the store's rows mapped, or through the host in pieces; either way in the order of the store's rows.
    Raises DeviceMemoryError where the system lets no memory be page-locked."""
    error = device.zeros(1, torch.int64)  # never read: the host has made these ids itself, and they are valid
    if backing is not None:
        gather_rows(device, backing, device.put(ids), shard, error)
        return
    most = min(rows_in_piece(store), len(ids))
    piece = device.map_host(private_bytes(most * store.row_bytes).reshape(most, store.row_bytes))
    room = piece.tensor.numpy()
    slots = np.argsort(ids)
    for begin, rows in gather_in_pieces(store, ids[slots], lambda begin, end: room[: end - begin], progress=progress):
        staged = Mapped(piece.tensor[: len(rows)], piece.address, piece)
        positions = device.put(slots[begin : begin + len(rows)])
        gather_rows(device, staged, None, shard, error, positions)
        device.record().synchronize()  # the next piece overwrites this one


def fill_private_shard(
    device: Device, store: FeatureStore, hot: np.ndarray, backing: Mapped | None = None, *, progress: bool = False
) -> tuple[torch.Tensor, Shards]:
    """Copies the rows of ``hot``, int64, to the device; returns locations, int32 ``[N]``, and the shard. Raises
    DeviceMemoryError where the device has no such memory."""
    memory = PrivateMemory(device, len(hot) * store.row_bytes)
    location = device.empty(store.shape[0], torch.int32).fill_(-1)
    location.scatter_(0, device.put(hot), device.put(np.arange(len(hot), dtype=np.int32)))
    fill_device_shard(device, store, hot, memory.bytes.view(len(hot), store.row_bytes), backing, progress=progress)
    return location, Shards([memory.address], [len(hot)], own_shard=0, memory=memory)

"""Fills the device memory of a static cache: one rank's, or shards over the devices of all ranks of a machine."""

from __future__ import annotations

import logging
import zlib

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.device.linked_memory import LinkedMemory
from lightning_gnnload.cache.device.shards import Shards
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.cache.static import SharerOf, deal_to_shards, gather_in_pieces, rows_in_piece
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.errors import CacheConfigError, DeviceMemoryError
from lightning_gnnload.host.memory import in_units
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.runtime import Runtime

_log = logging.getLogger(__name__)


def fill_shared_shards(
    store: FeatureStore,
    hot: np.ndarray,
    device: Device,
    peers: PeerGroup | None,
    runtime: Runtime,
    sharer_of: SharerOf | None = None,
    *,
    copied: np.ndarray | None = None,
    required: bool = False,
    progress: bool = False,
) -> tuple[torch.Tensor, Shards]:
    """Copies the rows of ``hot`` to the ranks' devices, in equal shares of memory, and those of ``copied`` to each of
    them.

    Where all devices read each other's memory, each row is there once. Where only some do, these form groups, and each
    group holds the hottest rows that fit into its shares; a device that no other one reads is its own group. Shares
    shrink by a fifth, three times at most, until every device has room; then the cache has no rows, and all stay in the
    host's memory. Peer 0 logs one message on it.

    ``hot`` are node ids, int64, hottest first, the same in all ranks: as many as all devices have room for together.
    ``copied`` are not in ``hot``, and as many in each rank. ``sharer_of`` is alike in all ranks.

    Returns locations, int32 ``[N]`` on the device: ``shard << ops.SLOT_BITS | slot``, negative where there is no row;
    and the shards, which the caller closes. Raises CacheShareError where a rank failed, is gone or has other rows,
    CacheConfigError for more rows than shards can have, and, if ``required``, DeviceMemoryError where a device has no
    room.

    Source: DSP (PPoPP'23), section 3.1: a cache that is partitioned over the devices holds more rows; 3.2: hotter ones
    are copied; a copy in each group of devices that are linked, as Quiver and DGL have it, where not all are.
    """
    copied = hot[:0] if copied is None else copied
    filler = _ShardFiller(store, device, peers, runtime, sharer_of)
    try:
        rows = filler.arrange(hot, copied, required=required)
        filler.fill(rows, progress=progress)
        if peers is not None:
            peers.agree({})  # nobody reads before all are filled
        location = filler.locate(rows)
    except BaseException as error:
        if peers is not None:
            peers.abort(error)  # before close(), which waits for other ranks, which wait for this one
        filler.shards.close()
        raise
    if filler.memory.leads:
        filler.warn(len(rows))
    return location, filler.shards


class _ShardFiller:
    """Makes one rank's shard and opens the others'. Every step is collective, as each depends on all ranks' answers."""

    def __init__(
        self,
        store: FeatureStore,
        device: Device,
        peers: PeerGroup | None,
        runtime: Runtime,
        sharer_of: SharerOf | None,
    ) -> None:
        self.memory = LinkedMemory(device, peers, runtime, "the feature cache")
        self._sharer_of = sharer_of
        self._locations = np.empty(0, np.int32)  # of the rows of this rank's group
        self._copied = np.empty(0, np.int64)  # rows behind those of this rank's share
        self._store, self._device, self._peers, self._runtime = store, device, peers, runtime
        self._row_bytes = max(store.row_bytes, 1)
        self._refusal = ""

    @property
    def shards(self) -> Shards:
        return self.memory.shards

    def arrange(self, hot: np.ndarray, copied: np.ndarray, *, required: bool) -> np.ndarray:
        """Takes memory and opens the others'. Returns the rows of this rank's group, hottest first."""
        count = self.memory.count
        share = -(-len(hot) // count) + len(copied)
        if share > 1 << ops.SLOT_BITS:
            raise CacheConfigError(
                f"{len(hot)} rows are to be cached, and {len(copied)} in each rank, but {count} ranks can hold "
                f"{count << ops.SLOT_BITS}. Lower ratio or capacity_bytes."
            )
        sharers = None if self._sharer_of is None else self._sharer_of(hot)
        if self._peers is not None:
            self._agree(self._peers, hot, copied, sharers)
        self.memory.probe()
        if not share:
            return hot[:0]
        try:
            num_bytes = self.memory.take(share * self._row_bytes)
        except DeviceMemoryError as error:
            if required:
                raise
            self._refusal = str(error)
            return hot[:0]
        return self._deal(self.memory.group, num_bytes // self._row_bytes, hot, copied, sharers)

    def _agree(self, peers: PeerGroup, hot: np.ndarray, copied: np.ndarray, sharers: np.ndarray | None) -> None:
        peers.agree(
            {
                "shape": list(self._store.shape),
                "dtype": str(self._store.dtype),
                "rows": len(hot),
                "copied rows": len(copied),
                "checksum of ids": zlib.crc32(hot.tobytes()),
                "checksum of places": 0 if sharers is None else zlib.crc32(sharers.tobytes()),
            }
        )

    def _deal(
        self, group: list[int], share: int, hot: np.ndarray, copied: np.ndarray, sharers: np.ndarray | None
    ) -> np.ndarray:
        self._copied = copied[:share]
        rows = hot[: (share - len(self._copied)) * len(group)]
        if sharers is not None:
            # Rows whose rank is in another group go to any shard of this one.
            shard_of = np.full(self.memory.count + 1, -1)  # the last entry is for rows of no rank: index -1
            shard_of[group] = np.arange(len(group))
            sharers = shard_of[sharers[: len(rows)]]
        self._locations = deal_to_shards(len(rows), len(group), sharers)
        self.shards.num_rows = np.bincount(self._locations >> ops.SLOT_BITS, minlength=len(group)).tolist()
        self.shards.num_rows[self.shards.own_shard] += len(self._copied)
        return rows

    def fill(self, rows: np.ndarray, *, progress: bool) -> None:
        """Copies this rank's rows from the store to its shard, in pieces."""
        if not len(rows) and not len(self._copied):
            return
        mine = np.concatenate([rows[self._locations >> ops.SLOT_BITS == self.shards.own_shard], self._copied])
        address = self.shards.addresses[self.shards.own_shard]
        piece = np.empty((min(rows_in_piece(self._store), len(mine)), self._store.row_bytes), np.uint8)
        for begin, rows in gather_in_pieces(
            self._store, mine, lambda begin, end: piece[: end - begin], progress=progress
        ):
            staged = self._device.put(rows)
            # `staged` may be freed before it is copied: torch reuses its memory in the order of this stream.
            self._runtime.copy(address + begin * self._store.row_bytes, staged.data_ptr(), rows.nbytes)
        # Other ranks read on their own streams once all have agreed, and no event of this one orders these.
        self._device.record().synchronize()

    def locate(self, rows: np.ndarray) -> torch.Tensor:
        location = np.full(self._store.shape[0], -1, np.int32)
        location[rows] = self._locations
        if len(self._copied):
            end = self.shards.num_rows[self.shards.own_shard]
            location[self._copied] = self.shards.own_shard << ops.SLOT_BITS | np.arange(end - len(self._copied), end)
        return self._device.put(location)

    def warn(self, num_rows: int) -> None:
        """Logs, in one line, why the cache is smaller than it could be, if it is."""
        if self._refusal:
            _log.warning("The feature cache stays in the host's memory, as %s", self._refusal)
        elif self.memory.access.reasons:
            _log.warning(
                "Not all ranks' devices read each other's memory (%s). Each of the groups of ranks %s holds the "
                "hottest rows for itself: in the first rank's, %s, %.0f %% of all rows.",
                "; ".join(self.memory.access.reasons[:3]),
                self.memory.access.groups(),
                in_units(num_rows * self._store.row_bytes),
                100 * num_rows / self._store.shape[0],
            )

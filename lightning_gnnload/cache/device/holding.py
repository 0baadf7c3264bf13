"""How the rows of a static cache come to lie on devices, one rank's or those of all ranks of a machine."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.device.budget import shrinking
from lightning_gnnload.cache.device.links import Links
from lightning_gnnload.cache.device.shards import PrivateMemory, Shards
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.cache.static import SharerOf, deal, gather_in_pieces, rows_in_piece
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.memory import in_units
from lightning_gnnload.errors import CacheConfigError, CudaCallError, DeviceMemoryError, DeviceShareError
from lightning_gnnload.ops.cuda.device import Device
from lightning_gnnload.ops.cuda.runtime import NO_MEMORY, Runtime
from lightning_gnnload.ops.cuda.shared_memory import ExportedMemory, MemoryHandle, OpenedMemory

_log = logging.getLogger(__name__)


def hold_on_device(
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
    """Lays the rows of ``hot`` on the ranks' devices; each rank takes an equal share of memory, whatever else happens,
    and beside it holds those of ``copied`` for itself.

    Where all devices read each other's memory, each row is there once. Where only some do, those form groups, and each
    group holds the hottest rows that its shares have room for; a device that no other one reads is a group of its own.
    Shares shrink by a fifth, three times at most, until every device has room; then the cache has no rows, and all
    stay in the host's memory. One message tells of it, in peer 0.

    Args:
        store: has all rows.
        hot: int64, node ids, hottest first, the same in all ranks: as many as all devices have room for together.
        device: this rank's.
        peers: the ranks of this machine; None for one alone.
        runtime: of ``device``.
        sharer_of: which rank each row is to lie with, alike in all of them; None: any.
        copied: int64, node ids that are not in ``hot``, as many in each rank; None: none.
        required: no room is an error.
        progress: show a bar on stderr.

    Returns:
        Locations, int32 ``[N]`` on the device: ``shard << ops.SLOT_BITS | slot``, negative where there is no row; and
        the shards, which are to be closed.

    Raises:
        CacheShareError: a rank failed, is gone, or has other rows.
        CacheConfigError: more rows than shards can have.
        DeviceMemoryError: a cache is required, and a device has no room for it.

    Source: DSP (PPoPP'23), section 3.1: a cache that is partitioned over the devices holds more rows; 3.2: hotter ones
    are copied; a copy in each group of devices that are linked, as Quiver and DGL have it, where not all are.
    """
    copied = hot[:0] if copied is None else copied
    holder = _ShardFiller(store, device, peers, runtime, sharer_of)
    try:
        rows = holder.arrange(hot, copied, required=required)
        holder.fill(rows, progress=progress)
        if peers is not None:
            peers.agree({})  # nobody reads before all are filled
        location = holder.locate(rows)
    except BaseException as error:
        if peers is not None:
            peers.abort(error)  # first: others would be waited for, who wait for this rank
        holder.shards.close()
        raise
    if holder.leads:
        holder.warn(len(rows))
    return location, holder.shards


class _ShardFiller:
    """Makes one rank's shard and opens the others'. All ranks take the same turns, as each depends on what all said."""

    def __init__(
        self,
        store: FeatureStore,
        device: Device,
        peers: PeerGroup | None,
        runtime: Runtime,
        sharer_of: SharerOf | None,
    ) -> None:
        self.shards = Shards()
        self._sharer_of = sharer_of
        self._places = np.empty(0, np.int32)  # of this rank's group's rows
        self._copied = np.empty(0, np.int64)  # rows that lie behind those of this rank's share
        self._store, self._device, self._peers, self._runtime = store, device, peers, runtime
        self._rank = 0 if peers is None else peers.membership.index
        self._count = 1 if peers is None else peers.membership.count
        self._row_bytes = max(store.row_bytes, 1)
        self._links = Links(self._count)
        self._refusal = ""
        self._unshared = ""

    @property
    def leads(self) -> bool:
        return self._rank == 0

    def arrange(self, hot: np.ndarray, copied: np.ndarray, *, required: bool) -> np.ndarray:
        """Takes memory and opens the others'. Returns what this rank's group holds, hottest first."""
        share = -(-len(hot) // self._count) + len(copied)
        if share > 1 << ops.SLOT_BITS:
            raise CacheConfigError(
                f"{len(hot)} rows are to be cached, and {len(copied)} in each rank, but {self._count} ranks can hold "
                f"{self._count << ops.SLOT_BITS}. Lower ratio or capacity_bytes."
            )
        sharers = None if self._sharer_of is None else self._sharer_of(hot)
        if self._peers is not None:
            self._peers.agree(
                {
                    "shape": list(self._store.shape),
                    "dtype": str(self._store.dtype),
                    "rows": len(hot),
                    "copied rows": len(copied),
                    "checksum of ids": zlib.crc32(hot.tobytes()),
                    "checksum of places": 0 if sharers is None else zlib.crc32(sharers.tobytes()),
                }
            )
            self._links = Links.probe(self._peers, self._runtime)
        # Each turn but the last loses a link, so there are only so many.
        while share:
            group = next(group for group in self._links.groups() if self._rank in group)
            try:
                share = shrinking(
                    partial(self._allocate, group),
                    share * self._row_bytes,
                    close=lambda _: self.shards.close(),
                    all_have=self._all_have,
                )
            except DeviceMemoryError as error:
                if required:
                    raise
                self._refusal = str(error)
                break
            if self._open(group):
                self._copied = copied[:share]
                rows = hot[: (share - len(self._copied)) * len(group)]
                if sharers is not None:
                    # Rows of ranks that are in another group lie with any of this one's.
                    place_of = np.full(self._count + 1, -1)  # the last for rows of no rank
                    place_of[group] = np.arange(len(group))
                    sharers = place_of[sharers[: len(rows)]]
                self._places = deal(len(rows), len(group), sharers)
                self.shards.num_rows = np.bincount(self._places >> ops.SLOT_BITS, minlength=len(group)).tolist()
                self.shards.num_rows[self.shards.own] += len(self._copied)
                return rows
            self.shards.close()
        self.shards = Shards()
        return hot[:0]

    def fill(self, rows: np.ndarray, *, progress: bool) -> None:
        """Copies this rank's rows from the store to its shard, in pieces."""
        if not len(rows) and not len(self._copied):
            return
        mine = np.concatenate([rows[self._places >> ops.SLOT_BITS == self.shards.own], self._copied])
        address = self.shards.addresses[self.shards.own]
        piece = np.empty((min(rows_in_piece(self._store), len(mine)), self._store.row_bytes), np.uint8)
        for begin, rows in gather_in_pieces(
            self._store, mine, lambda begin, end: piece[: end - begin], progress=progress
        ):
            there = self._device.put(rows)
            # `there` may be dropped before it is copied: torch reuses its memory in the order of this stream.
            self._runtime.copy(address + begin * self._store.row_bytes, there.data_ptr(), rows.nbytes)
        # The other ranks read on streams of their own, once all have agreed.
        self._device.record().synchronize()

    def locate(self, rows: np.ndarray) -> torch.Tensor:
        location = np.full(self._store.shape[0], -1, np.int32)
        location[rows] = self._places
        if len(self._copied):
            end = self.shards.num_rows[self.shards.own]
            location[self._copied] = self.shards.own << ops.SLOT_BITS | np.arange(end - len(self._copied), end)
        return self._device.put(location)

    def warn(self, num_rows: int) -> None:
        """Logs, in one line, why the cache is smaller than it could be, if it is."""
        if self._refusal:
            _log.warning("The feature cache stays in the host's memory, as %s", self._refusal)
        elif self._links.reasons:
            _log.warning(
                "Not all ranks' devices read each other's memory (%s). Each of the groups of ranks %s holds the "
                "hottest rows for itself: in the first rank's, %s, %.0f %% of all rows.",
                "; ".join(self._links.reasons[:3]),
                self._links.groups(),
                in_units(num_rows * self._store.row_bytes),
                100 * num_rows / self._store.shape[0],
            )

    def _allocate(self, group: Sequence[int], num_bytes: int) -> int:
        """Takes memory, which others can open where there are any. Returns how many rows it has room for.

        Raises:
            DeviceMemoryError: there is no such memory.
        """
        self.shards = Shards(memory=self._shared(num_bytes) if len(group) > 1 else None)
        # Where it cannot be shared, this rank becomes a group of its own, once _open() has told the others.
        if self.shards.memory is None:
            self.shards.memory = PrivateMemory(self._device, num_bytes)
        return num_bytes // self._row_bytes

    def _shared(self, num_bytes: int) -> ExportedMemory | None:
        """Allocates memory that other ranks can open; None where CUDA does not share memory here. Raises
        DeviceMemoryError."""
        assert self._peers is not None, "a rank alone shares with nobody"
        try:
            whose = f"the feature cache of rank {self._rank} of {self._peers.membership.name!r}"
            return ExportedMemory(self._runtime, num_bytes, whose)
        except CudaCallError as failure:
            if failure.name == NO_MEMORY:
                raise DeviceMemoryError(
                    f"{in_units(num_bytes)} on the device of rank {self._rank}, which has "
                    f"{in_units(self._runtime.free_bytes())} free: {failure}"
                ) from failure
            self._unshared = str(failure)
            return None

    def _all_have(self, has: bool) -> bool:
        if self._peers is None:
            return has
        return all(each.fields["has"] for each in self._peers.all_gather({"has": has}))

    def _open(self, group: list[int]) -> bool:
        """Opens what the others of the group have. Returns whether all ranks could; otherwise there are fewer links."""
        memory = self.shards.memory
        assert memory is not None, "memory comes first"
        self.shards.own = group.index(self._rank)
        self.shards.addresses = [memory.address] * len(group)
        if self._peers is None:
            return True
        if isinstance(memory, ExportedMemory):
            given = self._peers.all_gather({"memory_handle": memory.memory_handle.values}, memory.fd)
        else:
            given = self._peers.all_gather({"unshared": self._unshared})
        fds = [each.fd for each in given]
        unread = {}
        try:
            for place, peer in enumerate(group):
                if peer == self._rank:
                    continue
                try:
                    self.shards.addresses[place] = self._opened(given[peer].fields, fds, peer)
                except DeviceShareError as error:
                    unread[str(peer)] = str(error)
        finally:
            for fd in fds:
                if fd >= 0:
                    os.close(fd)
        # Ranks of all groups take part: their records of links must stay the same.
        return not self._links.remove([each.fields["unread"] for each in self._peers.all_gather({"unread": unread})])

    def _opened(self, fields: dict[str, Any], fds: list[int], peer: int) -> int:
        """Opens another rank's memory and returns its address. Raises DeviceShareError."""
        if "memory_handle" not in fields:
            raise DeviceShareError(f"rank {peer} cannot share its device's memory. {fields.get('unshared')}")
        memory_handle = MemoryHandle.of(fields["memory_handle"])
        fd, fds[peer] = fds[peer], -1
        self.shards.opened.append(OpenedMemory(self._runtime, memory_handle, fd))
        return self.shards.opened[-1].address

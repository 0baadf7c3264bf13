"""StaticCache: a cache of rows that are chosen beforehand, and the memory that holds them."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.cache.store import StoreWrapper
from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, Reads, TierReads, byte_rows
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.host.pages import private_bytes
from lightning_gnnload.host.progress import progress as progress_bar

SharerOf = Callable[[np.ndarray], np.ndarray]
"""Says which of the ranks that share a cache should hold each row: ``rows -> int64``, negative: any; hottest first."""
_CHUNK_BYTES = 16 << 20  # read at once; filling a device's cache takes as much page-locked memory


class StaticCache(StoreWrapper):
    """A cache whose rows are chosen once, in shards, with a table from each node to its shard and slot.

    ``location`` is int32 ``[N]``: ``shard << ops.SLOT_BITS | slot``, negative where a row is not cached; each shard is
    uint8 ``[slots, row_bytes]``, in memory that another process may have filled. As nothing moves, ``gather`` takes no
    lock; a subclass that moves rows passes ``reading``, which is entered meanwhile. ``gather`` raises CacheShareError
    where the table names a slot that does not exist.

    Source: GNNLab (EuroSys'22), section 6.1; shards over trainers: DSP (PPoPP'23), section 3.1.
    """

    def __init__(
        self,
        store: FeatureStore,
        location: np.ndarray,
        shards: Sequence[np.ndarray],
        *,
        tier: str = "cache",
        reading: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        super().__init__(store, tier)
        self.location = location
        self.shards = list(shards)
        self._reading = reading
        # Rows in memory are read in the same pass. Not those of a subclass, whose gather may do anything.
        self._backing = byte_rows(store.rows) if type(store) is MemoryFeatureStore else None

    @property
    def num_rows(self) -> int:
        """Rows that there is room for."""
        return sum(len(shard) for shard in self.shards)

    def _gather(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        missed = self._missed(len(ids)) if self._backing is None else None
        missed_ids, missed_positions = (None, None) if missed is None else missed
        with self._reading():
            hits, num_missed = ops.gather_tiered(
                self.location,
                self.shards,
                self._backing,
                ids.numpy(),
                byte_rows(out),
                missed_ids,
                missed_positions,
                positions=None if positions is None else positions.numpy(),
            )
        own_reads = self._hits(sum(hits))
        if missed is None:
            return own_reads, TierReads("memory", num_missed, num_missed * self.row_bytes)
        # After the lock, as a slow store must not keep others from renewing rows.
        return own_reads, *self._ask_behind(missed[:, :num_missed], out)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_rows} of {self.shape[0]} rows, {self.store!r})"


def deal_to_shards(count: int, num_shards: int, sharers: np.ndarray | None = None) -> np.ndarray:
    """Deals the hottest rows out to the shards, hottest first, to and fro; returns locations, int32 ``[count]``.

    So shards differ by one row at most, and their load by no more than that of the hottest row. ``sharers``, int64
    ``[count]``, names the shard of each row, as long as that has room; rows with a negative one, and those beyond, fill
    up the others.

    Source: the partitioned cache of DSP (PPoPP'23), section 3.1, whose shards follow the graph's patches.

    Example:
        >>> places = deal_to_shards(6, num_shards=2)
        >>> (places >> ops.SLOT_BITS).tolist(), (places & (1 << ops.SLOT_BITS) - 1).tolist()
        ([0, 1, 1, 0, 0, 1], [0, 0, 1, 1, 2, 2])
        >>> (deal_to_shards(6, 2, sharers=np.array([0, 0, 0, 0, 1, -1])) >> ops.SLOT_BITS).tolist()
        [0, 0, 0, 1, 1, 1]
    """
    # To and fro: always in one direction, shard 0 would get the hotter row of every round.
    slot, turn = np.divmod(np.arange(count, dtype=np.int64), max(num_shards, 1))
    shard = np.where(slot % 2 == 0, turn, num_shards - 1 - turn)
    if sharers is not None:
        room = np.bincount(shard, minlength=num_shards)  # shards are as large as without sharers
        stays = (sharers >= 0) & (number_among_equals(sharers) < room[sharers])
        used = np.bincount(sharers[stays], minlength=num_shards)
        free = shard[number_among_equals(shard) >= used[shard]]
        shard = np.where(stays, sharers, 0)
        shard[~stays] = free
        slot = number_among_equals(shard)
    return (shard << ops.SLOT_BITS | slot).astype(np.int32)


def number_among_equals(values: np.ndarray) -> np.ndarray:
    """Counts, for each value, the equal ones before it: int64 of the same shape.

    Example:
        >>> number_among_equals(np.array([5, 7, 5, 5])).tolist()
        [0, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    numbers = np.empty(len(values), np.int64)
    numbers[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return numbers


def fill_shard(store: FeatureStore, ids: np.ndarray, shard: np.ndarray, *, progress: bool = False) -> None:
    """Copies row ``ids[slot]`` of the store to ``shard[slot]``, uint8 ``[slots, row_bytes]``, in pieces."""
    for _ in gather_in_pieces(store, ids, lambda begin, end: shard[begin:end], progress=progress):
        pass


def gather_in_pieces(
    store: FeatureStore, ids: np.ndarray, room: Callable[[int, int], np.ndarray], *, progress: bool = False
) -> Iterator[tuple[int, np.ndarray]]:
    """Gathers rows ``ids`` some megabytes at a time; yields the number of each piece's first id, and its rows in bytes.

    ``room(begin, end)`` is the memory of that piece, uint8 ``[end - begin, row_bytes]``; it may be the same for all.
    """
    step, num_bytes = rows_in_piece(store), len(ids) * store.row_bytes
    with progress_bar("Filling the cache", num_bytes, show=progress) as advance:
        for begin in range(0, len(ids), step):
            piece = np.ascontiguousarray(ids[begin : begin + step])
            rows = room(begin, begin + len(piece))
            store.gather(tensor_view(piece), as_rows_of(store, rows))
            yield begin, rows
            advance(rows.nbytes)


def rows_in_piece(store: FeatureStore) -> int:
    """Returns how many rows a cache is filled with at a time."""
    return max(_CHUNK_BYTES // max(store.row_bytes, 1), 1)


def as_rows_of(store: FeatureStore, rows: np.ndarray) -> torch.Tensor:
    """Views uint8 ``[B, row_bytes]`` as ``[B, F]`` of the store's dtype."""
    if not rows.size:  # view() to another dtype refuses a width of zero
        return torch.empty(len(rows), store.shape[1], dtype=store.dtype)
    return torch.from_numpy(rows).view(store.dtype)


@dataclass
class CacheMemory:
    """The memory of a static cache: a location table of all nodes, int32 ``[N]``, and shards, uint8 ``[slots,
    row_bytes]``."""

    location: np.ndarray
    shards: list[np.ndarray] = field(default_factory=list)
    own_shard: int = 0  # that this rank filled, and alone may write to; -1: none


def fill_private_memory(store: FeatureStore, hot: np.ndarray, *, progress: bool = False) -> CacheMemory:
    """Copies the rows of ``hot``, int64, to private memory of this rank, which may have 2 MB pages. Raises
    CacheConfigError for more rows than a shard can have, or than there is memory for."""
    locations = _locations(hot, 1)
    try:
        location = private_bytes(store.shape[0] * 4).view(np.int32)
        shard = private_bytes(len(hot) * store.row_bytes).reshape(len(hot), store.row_bytes)
    except MemoryError as error:
        raise CacheConfigError(f"the cache needs {error} Make it smaller (ratio, capacity_bytes).") from error
    location.fill(-1)
    location[hot] = locations
    fill_shard(store, hot, shard, progress=progress)
    return CacheMemory(location, [shard])


def fill_shared_memory(
    store: FeatureStore,
    hot: np.ndarray,
    peers: PeerGroup,
    sharer_of: SharerOf | None = None,
    *,
    renewed: bool = False,
    progress: bool = False,
) -> CacheMemory:
    """Caches each row of ``hot`` once on the machine, dealt out hottest first, so that shards carry equal load; each
    rank fills its own shard, which the others map read-only.

    ``hot`` and ``sharer_of`` are alike in all ranks. ``renewed`` lets ranks change the location table later. Raises
    CacheShareError where a rank failed or the machine has no such memory, CacheConfigError for more rows than the
    shards can have.

    Source: DSP (PPoPP'23), section 3.1: a cache that is partitioned over the trainers holds more rows.
    """
    # A location has bits for so many shards. Further ranks fill none, and read those of the others.
    rank, num_shards = peers.membership.index, min(peers.membership.count, ops.MAX_SHARDS)
    locations = _locations(hot, num_shards, sharer_of)
    # Ranks that disagree would read each other's rows in wrong slots, and nothing else would notice.
    peers.agree({"checksum of places": zlib.crc32(locations.data)})
    shard_of = locations >> ops.SLOT_BITS
    mine = hot[shard_of == rank]
    table = None
    if rank == 0:
        # Sealed against writes by other ranks, unless renewals have to enter their rows.
        table = MemoryFile.create("location", store.shape[0] * 4, open_to_all=renewed)
        located = table.array.view(np.int32)
        located.fill(-1)
        located[hot] = locations
    (table,) = exchange_files(peers, table, [store.shape[0] * 4], open_to_all=renewed)
    shard = None
    if rank < num_shards:
        shard = MemoryFile.create("cache", len(mine) * store.row_bytes)
        fill_shard(store, mine, shard.array.reshape(len(mine), store.row_bytes), progress=progress)
    sizes = np.bincount(shard_of, minlength=num_shards).tolist()
    # Exchanged once it is filled, so that whoever maps a shard finds its rows there.
    shards = exchange_files(peers, shard, [size * store.row_bytes for size in sizes])
    rows = [file.array.reshape(size, store.row_bytes) for file, size in zip(shards, sizes, strict=True)]
    return CacheMemory(table.array.view(np.int32), rows, rank if rank < num_shards else -1)


def exchange_files(
    peers: PeerGroup, file: MemoryFile | None, sizes: list[int], *, open_to_all: bool = False
) -> list[MemoryFile]:
    """Returns the files that the first peers have made, of these sizes; this peer's own is the object that it passed.
    All descriptors are closed, as the mappings suffice."""
    fds = [shared.fd for shared in peers.all_gather({}, -1 if file is None else file.fd)]
    try:
        # adopt() closes its descriptor even where it fails, so only those after it are closed here.
        files = [MemoryFile.adopt(fds.pop(0), size, open_to_all=open_to_all) for size in sizes]
    finally:
        for fd in fds:
            if fd >= 0:
                os.close(fd)
    for shared in files:
        shared.close()
    if file is not None:
        file.close()
        files[peers.membership.index] = file  # its mapping is writable, that of the duplicate is not
    return files


def _locations(hot: np.ndarray, num_shards: int, sharer_of: SharerOf | None = None) -> np.ndarray:
    if len(hot) > num_shards << ops.SLOT_BITS:
        raise CacheConfigError(
            f"{len(hot)} rows are to be cached, but {num_shards} ranks can hold {num_shards << ops.SLOT_BITS}. "
            f"Lower ratio or capacity_bytes."
        )
    if sharer_of is None:
        return deal_to_shards(len(hot), num_shards)
    sharers = sharer_of(hot)
    return deal_to_shards(len(hot), num_shards, np.where(sharers < num_shards, sharers, -1))

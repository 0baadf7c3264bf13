"""StaticCache: a cache of rows that are chosen beforehand, and the memory that they lie in."""

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
from lightning_gnnload.data.memfd import MemoryFile
from lightning_gnnload.data.pages import private_bytes
from lightning_gnnload.data.progress import progress as progress_bar
from lightning_gnnload.errors import CacheConfigError

SharerOf = Callable[[np.ndarray], np.ndarray]
"""Says which rank, of those that share a cache, is to hold each row of it: ``rows -> int64``, negative: any. Of its
rows those come first that are hottest."""
_CHUNK_BYTES = 16 << 20  # also the page-locked memory that filling a device's own cache takes


class StaticCache(StoreWrapper):
    """A cache whose rows are chosen once, in shards, with a table from each node to its shard and slot.

    A row is the same, whether it comes from a shard or from ``store``. Shards lie in memory that this process can
    read, and may have been filled by another. As nothing moves, ``gather`` takes no lock.

    Args:
        store: has all rows.
        location: int32 ``[N]``: ``shard << ops.SLOT_BITS | slot``; negative: not cached.
        shards: each uint8 ``[slots, row_bytes]``; at most ``ops.MAX_SHARDS``.
        tier: what :class:`TierReads` calls it.
        reading: entered while location and shards are read, where somebody changes them.

    Raises:
        CacheShareError: by ``gather``: the location table names a place that there is not.

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
        # What lies in memory is read in the same pass. A subclass may gather otherwise, and is asked.
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
        # After the lock: a store that takes its time keeps nobody from renewing rows.
        return own_reads, *self._ask_behind(missed[:, :num_missed], out)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_rows} of {self.shape[0]} rows, {self.store!r})"


def deal(count: int, num_shards: int, sharers: np.ndarray | None = None) -> np.ndarray:
    """Deals the hottest rows out to the shards, hottest first, to and fro: int32 ``[count]``.

    So shards differ by one row at most, and in how often they are read by no more than the hottest row is.

    Args:
        count: of rows.
        num_shards: which all have as much room.
        sharers: of each row, the shard that it lies in while that has room, int64 ``[count]``, negative: in any; what
            is left fills up the others. None: any shard does for all.

    Source: the partitioned cache of DSP (PPoPP'23), section 3.1, whose shards follow the graph's patches.

    Example:
        >>> places = deal(6, num_shards=2)
        >>> (places >> ops.SLOT_BITS).tolist(), (places & (1 << ops.SLOT_BITS) - 1).tolist()
        ([0, 1, 1, 0, 0, 1], [0, 0, 1, 1, 2, 2])
        >>> (deal(6, 2, sharers=np.array([0, 0, 0, 0, 1, -1])) >> ops.SLOT_BITS).tolist()
        [0, 0, 0, 1, 1, 1]
    """
    slot, turn = np.divmod(np.arange(count, dtype=np.int64), max(num_shards, 1))
    shard = np.where(slot % 2 == 0, turn, num_shards - 1 - turn)
    if sharers is not None:
        room = np.bincount(shard, minlength=num_shards)  # shards are as large as without sharers
        stays = (sharers >= 0) & (number_among_equals(sharers) < room[sharers])
        taken = np.bincount(sharers[stays], minlength=num_shards)
        free = shard[number_among_equals(shard) >= taken[shard]]
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


def fill(store: FeatureStore, ids: np.ndarray, shard: np.ndarray, *, progress: bool = False) -> None:
    """Copies row ``ids[slot]`` of the store to ``shard[slot]``, in pieces.

    Args:
        store: has the rows.
        ids: int64 ``[slots]``.
        shard: uint8 ``[slots, row_bytes]``, writable.
        progress: show a bar on stderr.
    """
    for _ in gather_in_pieces(store, ids, lambda begin, end: shard[begin:end], progress=progress):
        pass


def gather_in_pieces(
    store: FeatureStore, ids: np.ndarray, room: Callable[[int, int], np.ndarray], *, progress: bool = False
) -> Iterator[tuple[int, np.ndarray]]:
    """Gathers rows ``ids`` some megabytes at a time; yields the number of each piece's first id, and its rows in bytes.

    Args:
        store: has the rows.
        ids: int64 ``[slots]``.
        room: where rows ``[begin, end)`` go, uint8 ``[end - begin, row_bytes]``; may be the same for each piece.
        progress: show a bar on stderr.
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
    return max(_CHUNK_BYTES // max(store.row_bytes, 1), 1)


def as_rows_of(store: FeatureStore, rows: np.ndarray) -> torch.Tensor:
    """Views uint8 ``[B, row_bytes]`` as ``[B, F]`` of the store's dtype."""
    if not rows.size:  # view() to another dtype refuses a width of zero
        return torch.empty(len(rows), store.shape[1], dtype=store.dtype)
    return torch.from_numpy(rows).view(store.dtype)


@dataclass
class CacheMemory:
    """The memory of a static cache: a location table over all nodes, and the shards with the rows.

    What is shared travels as a descriptor, which is all that another kind of memory needs to do as well: CUDA's
    virtual memory is exported so, and outlives its maker in the same way.

    Attributes:
        location: int32 ``[N]``, as :class:`StaticCache` reads it.
        shards: each uint8 ``[slots, row_bytes]``.
        own: the shard that this rank has filled, and alone may write to; -1: none.
    """

    location: np.ndarray
    shards: list[np.ndarray] = field(default_factory=list)
    own: int = 0


def hold_alone(store: FeatureStore, hot: np.ndarray, *, progress: bool = False) -> CacheMemory:
    """Copies the rows of ``hot``, int64, to private memory of this rank, which may have 2 MB pages.

    Raises:
        CacheConfigError: more rows than a shard can have, or than there is memory for.
    """
    places = _places(hot, 1)
    try:
        location = private_bytes(store.shape[0] * 4).view(np.int32)
        shard = private_bytes(len(hot) * store.row_bytes).reshape(len(hot), store.row_bytes)
    except MemoryError as error:
        raise CacheConfigError(f"the cache needs {error} Make it smaller (ratio, capacity_bytes).") from error
    location.fill(-1)
    location[hot] = places
    fill(store, hot, shard, progress=progress)
    return CacheMemory(location, [shard])


def hold_together(
    store: FeatureStore,
    hot: np.ndarray,
    peers: PeerGroup,
    sharer_of: SharerOf | None = None,
    *,
    renewed: bool = False,
    progress: bool = False,
) -> CacheMemory:
    """Caches each row of ``hot`` once on the machine, dealt out hottest first, so that shards carry equal load. Each
    rank fills its own shard, which the others map and can only read.

    Args:
        store: has all rows.
        hot: node ids, hottest first, the same in all ranks.
        peers: the ranks.
        sharer_of: which of them each row is to lie with, alike in all ranks; None: any.
        renewed: ranks will change the location table.
        progress: show a bar on stderr.

    Raises:
        CacheShareError: a rank failed, or the machine gives no such memory.
        CacheConfigError: more rows than the shards can have.

    Source: DSP (PPoPP'23), section 3.1: a cache that is partitioned over the trainers holds more rows.
    """
    # Ranks beyond those that a location can name fill no shard; they read those of the others.
    own, num_shards = peers.membership.index, min(peers.membership.count, ops.MAX_SHARDS)
    places = _places(hot, num_shards, sharer_of)
    peers.agree({"checksum of places": zlib.crc32(places.data)})
    shard_of = places >> ops.SLOT_BITS
    mine = hot[shard_of == own]
    table = None
    if own == 0:
        # Sealed against writes by the others, but where renewals have to enter their rows.
        table = MemoryFile.create("location", store.shape[0] * 4, open_to_all=renewed)
        located = table.array.view(np.int32)
        located.fill(-1)
        located[hot] = places
    (table,) = exchange_files(peers, table, [store.shape[0] * 4], open_to_all=renewed)
    shard = None
    if own < num_shards:
        shard = MemoryFile.create("cache", len(mine) * store.row_bytes)
        fill(store, mine, shard.array.reshape(len(mine), store.row_bytes), progress=progress)
    sizes = np.bincount(shard_of, minlength=num_shards).tolist()
    # Exchanged when it is filled: who has mapped a shard finds its rows there.
    shards = exchange_files(peers, shard, [size * store.row_bytes for size in sizes])
    rows = [file.array.reshape(size, store.row_bytes) for file, size in zip(shards, sizes, strict=True)]
    return CacheMemory(table.array.view(np.int32), rows, own if own < num_shards else -1)


def exchange_files(
    peers: PeerGroup, file: MemoryFile | None, sizes: list[int], *, open_to_all: bool = False
) -> list[MemoryFile]:
    """Returns the files that the first peers have made, of so many bytes each; this peer's own is the object given.
    All descriptors are closed, as the mappings are enough."""
    fds = [each.fd for each in peers.all_gather({}, -1 if file is None else file.fd)]
    try:
        # adopt() owns what it is given, even where it fails: only what is left over is closed here.
        files = [MemoryFile.adopt(fds.pop(0), size, open_to_all=open_to_all) for size in sizes]
    finally:
        for fd in fds:
            if fd >= 0:
                os.close(fd)
    for each in files:
        each.close()
    if file is not None:
        file.close()
        files[peers.membership.index] = file  # the map that can be written to
    return files


def _places(hot: np.ndarray, num_shards: int, sharer_of: SharerOf | None = None) -> np.ndarray:
    if len(hot) > num_shards << ops.SLOT_BITS:
        raise CacheConfigError(
            f"{len(hot)} rows are to be cached, but {num_shards} ranks can hold {num_shards << ops.SLOT_BITS}. "
            f"Lower ratio or capacity_bytes."
        )
    if sharer_of is None:
        return deal(len(hot), num_shards)
    sharers = sharer_of(hot)
    return deal(len(hot), num_shards, np.where(sharers < num_shards, sharers, -1))

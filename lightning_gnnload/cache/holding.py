"""Holding: the memory of a static cache, as one rank sees it: its own, or in shards that ranks share."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.cache.sharers import Meeting
from lightning_gnnload.cache.static import deal, fill
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.memfd import MemoryFile
from lightning_gnnload.data.pages import private_bytes
from lightning_gnnload.errors import CacheConfigError


@dataclass
class Holding:
    """Where each node's row is, and the rows.

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


def hold_alone(store: FeatureStore, hot: np.ndarray, *, progress: bool = False) -> Holding:
    """A rank's own copy of the rows of ``hot``, int64, in private memory, which may have 2 MB pages.

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
    return Holding(location, [shard])


def hold_together(
    store: FeatureStore, hot: np.ndarray, meeting: Meeting, *, renewed: bool = False, progress: bool = False
) -> Holding:
    """Each row of ``hot`` once on the machine: dealt out hottest first, so that shards carry equal load. Each rank
    fills its own shard, which the others map and can only read.

    Args:
        store: has all rows.
        hot: node ids, hottest first, the same in all ranks.
        meeting: of the ranks.
        renewed: ranks will change the location table.
        progress: show a bar on stderr.

    Raises:
        CacheShareError: a rank failed, or the machine gives no such memory.
        CacheConfigError: more rows than the shards can have.

    Source: DSP (PPoPP'23), section 3.1: a cache that is partitioned over the trainers holds more rows.
    """
    own, num_shards = meeting.sharers.index, min(meeting.sharers.count, ops.MAX_SHARDS)
    places = _places(hot, num_shards)
    shard_of = places >> ops.SLOT_BITS
    mine = hot[shard_of == own]
    table = None
    if own == 0:
        table = MemoryFile.create("location", store.shape[0] * 4, open_to_all=renewed)
        located = table.array.view(np.int32)
        located.fill(-1)
        located[hot] = places
    (table,) = _traded(meeting, table, [store.shape[0] * 4], open_to_all=renewed)
    shard = None
    if own < num_shards:
        shard = MemoryFile.create("cache", len(mine) * store.row_bytes)
        fill(store, mine, shard.array.reshape(len(mine), store.row_bytes), progress=progress)
    sizes = np.bincount(shard_of, minlength=num_shards).tolist()
    shards = _traded(meeting, shard, [size * store.row_bytes for size in sizes])
    rows = [file.array.reshape(size, store.row_bytes) for file, size in zip(shards, sizes, strict=True)]
    return Holding(table.array.view(np.int32), rows, own if own < num_shards else -1)


def _traded(
    meeting: Meeting, file: MemoryFile | None, sizes: list[int], *, open_to_all: bool = False
) -> list[MemoryFile]:
    """The files that the first sharers have made, of these bytes each; this one's own as it is. Descriptors are
    closed: the mappings are enough."""
    fds = [each.fd for each in meeting.exchange({}, -1 if file is None else file.fd)]
    try:
        files = [MemoryFile.adopt(fds.pop(0), size, open_to_all=open_to_all) for size in sizes]
    finally:
        for fd in fds:
            if fd >= 0:
                os.close(fd)
    for each in files:
        each.close()
    if file is not None:
        file.close()
        files[meeting.sharers.index] = file  # the map that can be written to
    return files


def _places(hot: np.ndarray, num_shards: int) -> np.ndarray:
    if len(hot) > num_shards << ops.SLOT_BITS:
        raise CacheConfigError(
            f"{len(hot)} rows are to be cached, but {num_shards} ranks can hold {num_shards << ops.SLOT_BITS}. "
            f"Lower ratio or capacity_bytes."
        )
    return deal(len(hot), num_shards)

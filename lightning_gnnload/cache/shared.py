"""One copy of a table in memory, whatever the number of ranks."""

from __future__ import annotations

import numpy as np
import torch

from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.features import MemoryFeatureStore, byte_rows
from lightning_gnnload.errors import CacheShareError
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.host.pages import mapped_file

_CHUNK_BYTES = 1 << 20  # compared at once: a mask of the whole table would be as large as the table


def share_rows(store: MemoryFeatureStore, membership: Membership) -> MemoryFeatureStore:
    """Returns a store of the same rows in memory that all ranks map; a rank that drops its own store frees its copy.

    Peer 0's rows are copied to a memfd, and the others compare theirs with it byte by byte. Where all ranks mapped a
    file, the system shares its pages already, and ``store`` comes back as it is. Raises CacheShareError where a rank
    has other rows, is late or failed, or where the machine has no such memory.
    """
    rows = store.rows
    with membership.connect() as peers:
        peers.agree({"shape": list(rows.shape), "dtype": str(rows.dtype)})
        if all(value.fields["is_mapped"] for value in peers.all_gather({"is_mapped": is_mapped_file(rows)})):
            return store
        file = None
        local_rows = byte_rows(rows).reshape(-1)
        if membership.index == 0:
            file = MemoryFile.create("rows", rows.nbytes)
            file.array[:] = local_rows
        fds = [value.fd for value in peers.all_gather({}, -1 if file is None else file.fd)]
        root_rows = MemoryFile.adopt(fds[0], rows.nbytes)
        root_rows.close()  # the descriptor; the mapping stays
        if file is not None:
            file.close()
        if (differing := _first_difference(local_rows, root_rows.array)) is not None:
            row, width = divmod(differing, max(store.row_bytes, 1))[0], store.shape[1]
            raise CacheShareError(
                f"row {row} of {store.shape[0]} rows of {width} features differs between sharers 0 and "
                f"{membership.index} of {membership.name!r}. Make the features alike in all ranks: draw them with one "
                f"seed, or load them from one file."
            )
        peers.agree({})  # a rank that differs must fail all of them, not only itself
    # Only now, as the exchanges above need every rank.
    if not rows.numel():
        return store
    return MemoryFeatureStore(tensor_view(root_rows.array).view(rows.dtype).view(len(rows), *store.row_shape))


def is_mapped_file(rows: torch.Tensor) -> bool:
    """Whether rows lie in a mapped file or memfd, whose pages all processes share."""
    return mapped_file(rows.data_ptr()) is not None


def _first_difference(own_rows: np.ndarray, root_rows: np.ndarray) -> int | None:
    """Finds the first position where two arrays of bytes differ; None where they are equal."""
    for begin in range(0, len(own_rows), _CHUNK_BYTES):
        chunk = slice(begin, begin + _CHUNK_BYTES)
        if not np.array_equal(own_rows[chunk], root_rows[chunk]):
            return begin + int(np.flatnonzero(own_rows[chunk] != root_rows[chunk])[0])
    return None

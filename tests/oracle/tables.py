"""Oracle of the ops on tables and edge lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightning_gnnload.ops.philox import philox, stream_keys


def gather_rows(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """``[B, F]`` rows of ``table`` ``[N, F]``."""
    return table[ids]


def dequantized(codes: np.ndarray, scale: np.ndarray, offset: np.ndarray, dtype: str) -> np.ndarray:
    """``[B, F]`` int8 as ``"float32"``, ``"float16"``, or the bits of ``"bfloat16"``, rounded at each step."""
    values = codes.astype(np.float32) * scale.astype(np.float32) + offset.astype(np.float32)
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):
            return values.astype(dtype)
    bits = values.view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    return rounded.astype(np.uint16)


def gather_tiered(
    location: np.ndarray, shards: Sequence[np.ndarray], backing: np.ndarray | None, ids: np.ndarray
) -> tuple[dict[int, np.ndarray], tuple[int, ...], list[int]]:
    """Row by index into ``ids``, rows taken from each shard, and the indices into ``ids`` that no shard holds."""
    rows, hits, missed = {}, [0] * len(shards), []
    for b, node in enumerate(ids.tolist()):
        if location[node] >= 0:
            shard, slot = divmod(int(location[node]), 1 << 28)
            rows[b] = shards[shard][slot]
            hits[shard] += 1
        else:
            missed.append(b)
            if backing is not None:
                rows[b] = backing[node]
    return rows, tuple(hits), missed


def coo_to_csc(src: np.ndarray, dst: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``indptr``, ``indices`` and ``order`` of a graph given by its edges."""
    order = np.argsort(dst, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=num_nodes))])
    return indptr, src[order], order


def is_csc(indptr: np.ndarray, indices: np.ndarray) -> bool:
    """Whether :func:`.dispatch.check_csc` passes."""
    num_nodes, degrees = len(indptr) - 1, np.diff(indptr)
    return bool(
        indptr[0] == 0
        and indptr[-1] == len(indices)
        and np.all((degrees >= 0) & (degrees < 2**32))
        and np.all((indices >= 0) & (indices < num_nodes))
    )


def random_keys(seed: int, epoch: int, ids: np.ndarray) -> np.ndarray:
    """Ordering keys uint64 ``[B]``."""
    ids = np.asarray(ids, np.int64).astype(np.uint64)
    zeros = np.zeros_like(ids)
    counter = np.stack([ids & 0xFFFFFFFF, ids >> 32, zeros, zeros], axis=-1)
    words = philox(counter, stream_keys(seed, epoch)[1]).astype(np.uint64)
    return words[:, 0] | words[:, 1] << 32

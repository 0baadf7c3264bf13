"""A cache of the rows of those nodes that were asked for last.

Shapes: N graph nodes, B ids of a batch, M of these that are missed, R rows of the output, F feature width.
"""

from __future__ import annotations

import numpy as np

from ..errors import CacheConfigError, GnnLoadError, SeedError
from .checks import as_integer, check_apart, check_array
from .dispatch import MAX_NODES, as_bytes, check_positions, kernels
from .tiers import SLOT_BITS

SLOT_BYTES: dict[str, int] = dict(kernels.evictions())
"""The most bytes that a slot takes beside its row, by eviction rule; each node takes 4 bytes more."""
# In the order of the kernels' table, by which a rule is passed as its place.
EVICTIONS = tuple(SLOT_BYTES)
MAX_ROW_BYTES = 1 << 32


class DynamicCache:
    """The slots of a cache that admits every row it misses, and evicts another row for it. Threads may use it at once.

    A batch is one step: it hits what is there when it comes, and then its misses are admitted, in its order. With rows
    that is :meth:`read` and :meth:`admit`, where another thread's batch may come in between; without them, in
    simulations, :meth:`visit`.

    Args:
        num_nodes: N.
        num_slots: rows that have room, 1 to ``2**28``.
        row_bytes: of one row; 0 for a simulation.
        eviction: who goes: one of :data:`EVICTIONS`, which ``kernels/dynamic_cache/evictor.h`` explains.
        memory: uint8, of :meth:`block_bytes`, writable and at a multiple of 64: what several processes have mapped, all
            zero before the first of them has it. All who read hold a lock of theirs together, who admits alone; who is
            killed while it admits leaves an empty cache. None: private memory.

    Raises:
        CacheConfigError: settings that cannot work, or more memory than the machine gives.

    Source: BGL (NSDI'23), section 3.2.1; ``kernels/dynamic_cache/evictor.h`` has the rules.

    Example:
        >>> cache = DynamicCache(num_nodes=10, num_slots=3, row_bytes=0, eviction="fifo")
        >>> [cache.visit(np.array(batch)) for batch in ([1, 2], [2, 3], [4, 2], [1, 2])]
        [0, 1, 1, 1]
    """

    def __init__(
        self, num_nodes: int, num_slots: int, row_bytes: int, eviction: str, memory: np.ndarray | None = None
    ) -> None:
        shape = _checked_shape(num_nodes, num_slots, row_bytes, eviction)
        self.num_nodes, self.num_slots, self.row_bytes, rule = shape
        self.eviction = EVICTIONS[rule]
        if memory is not None:
            check_array("memory", memory, (np.uint8,), 1, CacheConfigError, writable=True)
            needed = kernels.cache_block_bytes(*shape)
            if len(memory) != needed or memory.ctypes.data % 64:
                raise CacheConfigError(
                    f"memory has {len(memory)} bytes at {memory.ctypes.data:#x}, but {needed} bytes are needed, at a "
                    f"multiple of 64."
                )
        try:
            self._native = kernels.DynamicCache(*shape, memory)
        except MemoryError as error:
            raise CacheConfigError(
                f"a cache of {num_slots} rows of {row_bytes} bytes, {num_slots * row_bytes / 2**30:.1f} GiB, is more "
                "than this machine gives. Use a smaller ratio or capacity_bytes."
            ) from error

    @staticmethod
    def block_bytes(num_nodes: int, num_slots: int, row_bytes: int, eviction: str) -> int:
        """Returns the bytes of memory that processes share as one cache of these settings.

        Raises:
            CacheConfigError: settings that cannot work.
        """
        return kernels.cache_block_bytes(*_checked_shape(num_nodes, num_slots, row_bytes, eviction))

    def read(
        self,
        ids: np.ndarray,
        out: np.ndarray,
        missed_ids: np.ndarray,
        missed_positions: np.ndarray,
        positions: np.ndarray | None = None,
    ) -> int:
        """Copies row ``ids[b]`` to ``out[b]``, or to ``out[positions[b]]``, where it is in the cache.

        Args:
            ids: int64 ``[B]``.
            out: ``[B, F]``, with ``positions`` ``[R, F]``; rows of ``row_bytes``; other places are left as they are.
            missed_ids: int64 ``[B]``; its first entries become the ids that are not here, in the order of ``ids``.
            missed_positions: int64 ``[B]``; likewise the rows of ``out`` that they should have gone to.
            positions: int64 ``[B]``, distinct, in ``[0, R)``.

        Returns:
            How many are here.

        Raises:
            SeedError: an id outside ``[0, N)`` or a position outside ``[0, R)``; nothing is then done.
            GnnLoadError: shapes or dtypes that do not fit each other.
        """
        self._check(ids, out, positions)
        for name, array in (("missed_ids", missed_ids), ("missed_positions", missed_positions)):
            check_array(name, array, (np.int64,), 1, GnnLoadError, writable=True)
            if len(array) != len(ids):
                raise GnnLoadError(f"{name} has {len(array)} entries, but ids has {len(ids)}: one each is needed.")
            for other, values in (("ids", ids), ("positions", positions), ("out", out)):
                if values is not None:
                    check_apart(name, array, (other, values))
        check_apart("missed_ids", missed_ids, ("missed_positions", missed_positions))
        return self._native.read(ids, positions, as_bytes(out), len(out), missed_ids, missed_positions)

    def admit(self, ids: np.ndarray, out: np.ndarray, positions: np.ndarray) -> None:
        """Takes in row ``ids[m]`` from ``out[positions[m]]``: what :meth:`read` missed, once it is there.

        Args:
            ids: int64 ``[M]``.
            out: ``[R, F]``; rows of ``row_bytes``.
            positions: int64 ``[M]``, in ``[0, R)``.

        Raises:
            SeedError: an id outside ``[0, N)`` or a position outside ``[0, R)``; nothing is then done.
            GnnLoadError: shapes or dtypes that do not fit each other.
        """
        self._check(ids, out, positions)
        self._native.admit(ids, positions, as_bytes(out), len(out))

    def visit(self, ids: np.ndarray) -> int:
        """Counts the hits of a batch, int64 ``[B]``, whose misses are then admitted: for simulations.

        Raises:
            SeedError: an id outside ``[0, N)``; nothing is then done.
            CacheConfigError: this cache has rows, which would not be those of the nodes admitted.
        """
        if self.row_bytes > 0:
            raise CacheConfigError(f"visit() is for caches of row_bytes=0; this one has rows of {self.row_bytes}.")
        check_array("ids", ids, (np.int64,), 1, SeedError)
        return self._native.visit(ids)

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Tells which of ``ids``, int64, are in the cache, as bool ``[B]``; that does not count as a visit.

        Raises:
            SeedError: an id outside ``[0, N)``.
        """
        check_array("ids", ids, (np.int64,), 1, SeedError)
        has = np.empty(len(ids), np.uint8)
        self._native.contains(ids, has)
        return has.view(np.bool_)

    @property
    def num_bytes(self) -> int:
        """The memory of rows and tables once all slots are filled; it is taken as they fill."""
        return self._native.num_bytes

    def _check(self, ids: np.ndarray, out: np.ndarray, positions: np.ndarray | None) -> None:
        check_array("ids", ids, (np.int64,), 1, SeedError)
        check_array("out", out, None, 2, GnnLoadError, writable=True, aligned=False)
        if out.dtype.hasobject or out.shape[1] * out.itemsize != self.row_bytes:
            raise GnnLoadError(
                f"out has dtype {out.dtype} and shape {out.shape}, but rows of {self.row_bytes} bytes are needed."
            )
        check_positions(positions, ids, out)
        check_apart("out", out, ("ids", ids))


def _checked_shape(num_nodes: int, num_slots: int, row_bytes: int, eviction: str) -> tuple[int, int, int, int]:
    """Returns the settings of a cache as its kernel takes them, the eviction by its place."""
    if not isinstance(eviction, str) or eviction not in EVICTIONS:
        raise CacheConfigError(f"eviction={eviction!r} is not known; give one of {', '.join(EVICTIONS)}.")
    return (
        _in_range("num_nodes", num_nodes, 0, MAX_NODES),
        _in_range("num_slots", num_slots, 1, 1 << SLOT_BITS),
        _in_range("row_bytes", row_bytes, 0, MAX_ROW_BYTES),
        EVICTIONS.index(eviction),
    )


def _in_range(name: str, value: int, least: int, most: int) -> int:
    value = as_integer(f"DynamicCache: {name}", value, CacheConfigError)
    if not least <= value <= most:
        raise CacheConfigError(f"DynamicCache: {name} is {value}, but must lie in [{least}, {most}].")
    return value

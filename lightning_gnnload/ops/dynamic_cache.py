"""The slots of caches that admit and evict rows.

Shapes: N graph nodes, B ids of a batch, M of these that are missed, R rows of the output, F feature width.
"""

from __future__ import annotations

import numpy as np

from ..errors import CacheConfigError, GnnLoadError, SeedError
from .checks import as_integer_within, check_apart, check_array
from .dispatch import MAX_NODES, bytes_view, check_positions, kernels
from .tiers import SLOT_BITS

SLOT_BYTES: dict[str, int] = dict(kernels.evictions())
"""By eviction rule, the most bytes that a slot takes beside its row; each node takes 4 more."""
# In the order of the kernels' table: a rule is passed as its index.
EVICTIONS = tuple(SLOT_BYTES)
MAX_ROW_BYTES = 1 << 32


class EvictingSlots:
    """The slots of a cache that admits every row it misses, and evicts another row for it. Threads may use it at once.

    A batch is one step: it hits what is cached when it comes, then its misses are admitted in its order. With rows that
    is :meth:`read` and :meth:`admit`, between which another thread's batch may come; without rows, in simulations,
    :meth:`visit`. ``kernels/dynamic_cache/evictor.h`` explains :data:`EVICTIONS`.

    ``memory``, uint8 of :meth:`block_bytes` at a multiple of 64, is mapped by several processes, all zero at first;
    None: private memory. Readers hold a lock of theirs together, whoever admits holds it alone; a process that is
    killed while it admits leaves an empty cache. Raises CacheConfigError for settings that do not work, or more memory
    than the machine gives.

    Source: BGL (NSDI'23), section 3.2.1; ``kernels/dynamic_cache/evictor.h`` has the rules.

    Example:
        >>> cache = EvictingSlots(num_nodes=10, num_slots=3, row_bytes=0, eviction="fifo")
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
        """Returns the bytes of memory that processes share as one cache of these settings. Raises CacheConfigError."""
        return kernels.cache_block_bytes(*_checked_shape(num_nodes, num_slots, row_bytes, eviction))

    def read(
        self,
        ids: np.ndarray,
        out: np.ndarray,
        missed_ids: np.ndarray,
        missed_positions: np.ndarray,
        positions: np.ndarray | None = None,
    ) -> int:
        """Copies row ``ids[b]`` to ``out[b]``, or to ``out[positions[b]]``, where it is cached. Returns how many are.

        ``ids`` are int64 ``[B]``, rows of ``out`` have ``row_bytes``. The first entries of ``missed_ids`` and
        ``missed_positions``, int64 ``[B]``, become the other ids, in order, and their rows of ``out``, which stay.
        Raises SeedError for an id or position out of range, before anything is done, and GnnLoadError for shapes or
        dtypes that do not fit each other.
        """
        self._check(ids, out, positions)
        for name, array in (("missed_ids", missed_ids), ("missed_positions", missed_positions)):
            check_array(name, array, (np.int64,), 1, GnnLoadError, writable=True)
            if len(array) != len(ids):
                raise GnnLoadError(f"{name} has {len(array)} entries, but ids has {len(ids)}: one each is needed.")
            for input_name, values in (("ids", ids), ("positions", positions), ("out", out)):
                if values is not None:
                    check_apart(name, array, (input_name, values))
        check_apart("missed_ids", missed_ids, ("missed_positions", missed_positions))
        return self._native.read(ids, positions, bytes_view(out), len(out), missed_ids, missed_positions)

    def admit(self, ids: np.ndarray, out: np.ndarray, positions: np.ndarray) -> None:
        """Admits row ``ids[m]`` from ``out[positions[m]]``, int64 ``[M]`` each: what :meth:`read` missed, once it is
        there. Raises as :meth:`read`."""
        self._check(ids, out, positions)
        self._native.admit(ids, positions, bytes_view(out), len(out))

    def visit(self, ids: np.ndarray) -> int:
        """Counts the hits of a batch, int64 ``[B]``, and admits its misses: for simulations. Raises SeedError for an id
        out of range, CacheConfigError for a cache that has rows, which would not be those of the nodes admitted."""
        if self.row_bytes > 0:
            raise CacheConfigError(f"visit() is for caches of row_bytes=0; this one has rows of {self.row_bytes}.")
        check_array("ids", ids, (np.int64,), 1, SeedError)
        return self._native.visit(ids)

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Tells which of ``ids``, int64, are cached, bool ``[B]``, without counting a visit. Raises SeedError."""
        check_array("ids", ids, (np.int64,), 1, SeedError)
        is_cached = np.empty(len(ids), np.uint8)
        self._native.contains(ids, is_cached)
        return is_cached.view(np.bool_)

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
    """Returns the settings of a cache as its kernel takes them."""
    if not isinstance(eviction, str) or eviction not in EVICTIONS:
        raise CacheConfigError(f"eviction={eviction!r} is not known; give one of {', '.join(EVICTIONS)}.")
    return (
        as_integer_within("DynamicCache: num_nodes", num_nodes, 0, MAX_NODES, CacheConfigError),
        as_integer_within("DynamicCache: num_slots", num_slots, 1, 1 << SLOT_BITS, CacheConfigError),
        as_integer_within("DynamicCache: row_bytes", row_bytes, 0, MAX_ROW_BYTES, CacheConfigError),
        EVICTIONS.index(eviction),
    )

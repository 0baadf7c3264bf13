"""LRU and the optimum (Belady), natively, over node ids: what dynamic caches are compared with."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from tests.benchmarks.errors import Unavailable

_SOURCE = Path(__file__).parent / "native" / "eviction_models.cpp"
_INT, _ARRAY = ctypes.c_int64, ctypes.c_void_p


class Lru:
    """Evicts who was visited longest ago; visits batches as :class:`.ops.EvictingSlots` does.

    Raises:
        Unavailable: there is no C++ compiler, or it cannot compile the source.
    """

    def __init__(self, num_nodes: int, num_slots: int) -> None:
        self._lru = None
        self._native = _native()
        self._lru = self._native.lru_new(_INT(num_nodes), _INT(num_slots))

    def visit(self, ids: np.ndarray) -> int:
        """Hits of distinct ids, int64 ``[B]``."""
        return self._native.lru_visit(_ARRAY(self._lru), _ARRAY(ids.ctypes.data), _INT(len(ids)))

    def __del__(self) -> None:
        if self._lru is not None:
            self._native.lru_delete(_ARRAY(self._lru))


def belady_hits(num_nodes: int, num_slots: int, batches: Sequence[np.ndarray]) -> np.ndarray:
    """Hits of each batch of distinct ids, int64: the most that any cache can have which fetches rows when they are
    missed.

    Raises:
        Unavailable: see :class:`Lru`.
    """
    ids = np.concatenate(batches)
    begins = np.cumsum([0, *map(len, batches)], dtype=np.int64)
    hits = np.empty(len(batches), np.int64)
    arrays = (_ARRAY(array.ctypes.data) for array in (ids, begins))
    _native().belady(_INT(num_nodes), _INT(num_slots), *arrays, _INT(len(batches)), _ARRAY(hits.ctypes.data))
    return hits


@cache
def _native() -> ctypes.CDLL:
    names = (os.environ.get("CXX"), "c++", "g++")
    compiler = next((found for name in names if name and (found := shutil.which(name))), "")
    if not compiler:
        raise Unavailable("there is no C++ compiler: set CXX, or install g++")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "eviction_models.so"
        flags = ("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC")
        done = subprocess.run([compiler, *flags, str(_SOURCE), "-o", str(library)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"{compiler} cannot compile {_SOURCE.name}: {done.stderr.strip()[-300:]}")
        native = ctypes.CDLL(str(library))
    native.lru_new.restype = ctypes.c_void_p
    native.lru_visit.restype = _INT
    return native

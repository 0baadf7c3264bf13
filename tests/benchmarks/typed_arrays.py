"""TypedArrays: a prepared graph with types of nodes and edges as NumPy arrays, for every library in whatever Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

EdgeType = tuple[str, str, str]
TYPES = "types.json"


class Columns(NamedTuple):
    """The in-neighbours by edges of one type, each node's in the order of time where edges have times.

    Attributes:
        indptr: int64 ``[N_dst + 1]``.
        indices: int64 ``[E_k]``, ids within the source type.
    """

    indptr: np.ndarray
    indices: np.ndarray


class TypedArrays:
    """Arrays by name and number of their type, mapped from a folder when they are asked for.

    Attributes:
        node_types: names.
        num_nodes: of each type.
        edge_types: triples of names; edges of type k are known by k below.
        reverse: for each edge type, the number of the type that has its edges turned round, or None.
        is_timed: every edge has a time.
        span: the earliest time and the latest.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        told = json.loads((self.folder / TYPES).read_text())
        self.node_types: list[str] = told["node_types"]
        self.num_nodes: list[int] = told["num_nodes"]
        self.edge_types: list[EdgeType] = [tuple(triple) for triple in told["edge_types"]]
        self.reverse: list[int | None] = told["reverse"]
        self.is_timed = told["span"] is not None
        self.span: tuple[int, int] = tuple(told["span"] or (0, 0))

    def columns(self, k: int, place: Callable[[np.ndarray], np.ndarray] = lambda array: array) -> Columns:
        """``place`` puts each array where it should lie."""
        return Columns(*(place(self._map(f"{name}.{k}")) for name in Columns._fields))

    def num_edges(self, k: int) -> int:
        return len(self._map(f"indices.{k}"))

    def time(self, k: int) -> np.ndarray:
        """int64 ``[E_k]``, in the order of :meth:`columns`."""
        return self._map(f"time.{k}")

    def pairs(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Sources and targets, int32 ``[E_k]``, in the order in which edges were given."""
        return self._map(f"src.{k}"), self._map(f"dst.{k}")

    def time_given(self, k: int) -> np.ndarray:
        """int64 ``[E_k]``, in the order in which edges were given."""
        return self._map(f"given_time.{k}")

    def given(self, k: int) -> np.ndarray:
        """int32 ``[E_k]``: of each edge of :meth:`columns`, its position in :meth:`pairs`."""
        return self._map(f"given.{k}")

    def flat(self, name: str) -> np.ndarray:
        """Of the graph as one, whose node ids are cut by type: ``indptr``, ``indices`` and so on."""
        return self._map(f"flat.{name}")

    def features(self, t: int) -> np.ndarray | None:
        """float32 ``[N_t, F]``; None for a type without."""
        return self._map(f"x.{t}") if (self.folder / f"x.{t}.npy").exists() else None

    def type_number(self, name: str) -> int:
        return self.node_types.index(name)

    def _map(self, name: str) -> np.ndarray:
        # Writable as far as the process can see (copy on write), since torch asks for that; nobody writes.
        return np.load(self.folder / f"{name}.npy", mmap_mode="c")

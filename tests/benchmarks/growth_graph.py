"""GrowthGraph: a graph of the size of ogbn-papers100M, written in CSC as it is drawn.

No edge list, no sort: degrees are drawn first, then every place of ``indices`` on its own. So it takes no more
memory than it has, and all cores. Unlike :class:`Synthetic`, an edge may come twice and may be a self-loop (some
in a million), and there are neither features nor labels.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload import Graph, GraphData
from lightning_gnnload.datasets.base import default_root
from lightning_gnnload.datasets.stored import StoredDataset
from lightning_gnnload.host.progress import progress

_RECIPE = 1  # raise it when equal settings would give other arrays
_CHUNK = 1 << 16  # temporaries stay in the core's own cache
_CHUNKS_A_TASK = 64
_OFFSET = 100.0  # flattens the head of the power law: the greatest hub expects some 90,000 of 1.6 G edges
_POWER = 3.5  # 1 / (1 - 1 / (exponent - 1)) at exponent 2.4, which a square root and three products give


class _Purpose(IntEnum):
    """What random numbers are for: the first word of their key."""

    DEGREES = 0
    NEIGHBOURS = 1


@dataclass(frozen=True)
class GrowthGraph(StoredDataset):
    """Chung-Lu: in-degrees and in-neighbours follow one power law of exponent 2.4; ids are shuffled.

    Args:
        num_nodes: below 2**31.
        num_edges: expected; the degrees' rounding moves it by some thousands.
        num_train: nodes with in-neighbours to draw seeds from.
        root: the folder to keep it in; a per-user cache folder by default.
    """

    num_nodes: int = 111_000_000
    num_edges: int = 1_600_000_000
    num_train: int = 1_000_000
    root: str | Path | None = None

    @property
    def settings(self) -> dict[str, Any]:
        sizes = {"num_nodes": self.num_nodes, "num_edges": self.num_edges, "num_train": self.num_train}
        return {"dataset": "growth", "recipe": _RECIPE, **sizes}

    @property
    def folder(self) -> Path:
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:12]
        return Path(self.root or default_root()) / f"growth-{digest}"

    def build(self, scratch: Path) -> GraphData:
        indptr = self._indptr()
        indices = np.empty(int(indptr[-1]), np.int32)
        with progress(f"Drawing {len(indices):,} edges", len(indices)) as advance:
            self._draw(indices, self._neighbours, _Purpose.NEIGHBOURS, advance)
        train = self._train(indptr)
        return GraphData(Graph.from_csc(indptr, indices), train=train)

    def _indptr(self) -> np.ndarray:
        """int64 ``[N + 1]``: degrees drawn by rank, then moved to where the shuffle puts each rank."""
        by_rank = np.empty(self.num_nodes, np.int32)
        with progress(f"Drawing the degrees of {self.num_nodes:,} nodes", self.num_nodes) as advance:
            self._draw(by_rank, self._degrees, _Purpose.DEGREES, advance)
        indptr = np.zeros(self.num_nodes + 1, np.int64)
        degree = indptr[1:]
        for begin in range(0, self.num_nodes, _CHUNK):
            ranks = np.arange(begin, min(begin + _CHUNK, self.num_nodes))
            degree[self._ids(ranks)] = by_rank[begin : begin + _CHUNK]
        np.cumsum(degree, out=degree)
        return indptr

    def _train(self, indptr: np.ndarray) -> np.ndarray:
        """Distinct nodes with in-neighbours, in random order."""
        draw = np.random.default_rng(0)
        drawn = draw.integers(0, self.num_nodes, 4 * self.num_train)
        drawn = np.unique(drawn[indptr[drawn + 1] > indptr[drawn]])
        return draw.permutation(drawn)[: self.num_train]

    @property
    def _span(self) -> tuple[float, float]:
        """Of ``(rank + offset) ** (1 / power)``, in which all ends are equally likely."""
        return _OFFSET ** (1 / _POWER), (self.num_nodes + _OFFSET) ** (1 / _POWER)

    def _degrees(self, out: np.ndarray, begin: int, draw: np.random.Generator) -> None:
        """Rounded up or down at random, so that the mean is what the law says."""
        low, high = self._span
        bounds = (np.arange(begin, begin + len(out) + 1) + _OFFSET) ** (1 / _POWER)
        expected = np.diff(bounds) * (self.num_edges / (high - low))
        np.floor(expected + draw.random(len(out)), out=out, casting="unsafe")

    def _neighbours(self, out: np.ndarray, begin: int, draw: np.random.Generator) -> None:
        low, high = self._span
        place = draw.random(len(out))
        place *= high - low
        place += low
        rank = np.sqrt(place)
        rank *= place
        rank *= place
        rank *= place
        rank -= _OFFSET
        np.clip(rank, 0, self.num_nodes - 1, out=rank)
        out[:] = self._ids(rank.astype(np.int64))

    def _ids(self, ranks: np.ndarray) -> np.ndarray:
        """A bijection of [0, N) that puts nodes of like degree far apart: steps of the golden section."""
        return ranks * self._stride % self.num_nodes

    @property
    def _stride(self) -> int:
        stride = int(self.num_nodes * (math.sqrt(5) - 1) / 2)
        while math.gcd(stride, self.num_nodes) != 1:
            stride += 1
        return stride

    def _draw(
        self,
        out: np.ndarray,
        fill: Callable[[np.ndarray, int, np.random.Generator], None],
        purpose: _Purpose,
        advance: Callable[[int], None],
    ) -> None:
        """Fills ``out`` on all cores; a chunk has its own random numbers, so that threads make no difference."""

        def task(first: int) -> int:
            span = range(first, min(first + _CHUNK * _CHUNKS_A_TASK, len(out)), _CHUNK)
            for begin in span:
                draw = np.random.Generator(np.random.SFC64([purpose, begin]))
                fill(out[begin : begin + _CHUNK], begin, draw)
            return min(span.stop, len(out)) - first

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            for done in threads.map(task, range(0, len(out), _CHUNK * _CHUNKS_A_TASK)):
                advance(done)

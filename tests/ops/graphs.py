"""Small graphs, arenas with guards, and batches read back from them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_gnnload.ops import (
    ArenaTooSmall,
    DrawKey,
    SampleLayout,
    SamplerInput,
    Workspace,
    coo_to_csc,
    instruction_sets,
    sample_neighbors,
    use_instruction_set,
)

KEY = DrawKey(seed=7, epoch=1, step=2)
GUARD = 0xA5
_MOST_BYTES = 1 << 17  # that these small batches need


@contextlib.contextmanager
def instruction_set(name: str) -> Iterator[None]:
    """All kernels use it meanwhile."""
    use_instruction_set(name)
    try:
        yield
    finally:
        use_instruction_set(instruction_sets()[-1])


@dataclass
class Arena:
    """``num_bytes`` of aligned memory between two guards."""

    whole: np.ndarray
    begin: int
    num_bytes: int

    @classmethod
    def of(cls, num_bytes: int) -> Arena:
        whole = np.full(num_bytes + 192, GUARD, np.uint8)
        begin = 64 + -whole.ctypes.data % 64
        return cls(whole, begin, num_bytes)

    @property
    def bytes(self) -> np.ndarray:
        return self.whole[self.begin : self.begin + self.num_bytes]

    def guards_hold(self) -> bool:
        end = self.begin + self.num_bytes
        return bool(np.all(self.whole[: self.begin] == GUARD) and np.all(self.whole[end:] == GUARD))


@dataclass
class Hop:
    num_src: int
    indptr: np.ndarray
    indices: np.ndarray
    edge_ids: np.ndarray | None
    edge_weights: np.ndarray | None
    edge_types: np.ndarray | None


@dataclass
class Batch:
    nodes: np.ndarray
    hops: list[Hop]
    layout: SampleLayout
    queries: np.ndarray | None


def read_batch(layout: SampleLayout, arena: np.ndarray) -> Batch:
    def array(offset: int, count: int, dtype: type) -> np.ndarray:
        return np.frombuffer(arena, dtype, count, offset).copy() if count else np.empty(0, dtype)

    def column(offset: int, count: int, dtype: type) -> np.ndarray | None:
        return array(offset, count, dtype) if offset >= 0 else None

    hops = [
        Hop(
            hop.num_src,
            array(hop.indptr_offset, hop.num_dst + 1, np.int32),
            array(hop.indices_offset, hop.num_edges, np.int32),
            column(hop.edge_ids_offset, hop.num_edges, np.int64),
            column(hop.edge_weights_offset, hop.num_edges, np.float32),
            column(hop.edge_types_offset, hop.num_edges, np.int32),
        )
        for hop in layout.hops
    ]
    queries = column(layout.queries_offset, layout.num_nodes, np.int32)
    return Batch(array(0, layout.num_nodes, np.int64), hops, layout, queries)


def sample(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: Any,
    fanouts: list[int],
    key: DrawKey = KEY,
    workspace: Workspace | None = None,
    **options: Any,
) -> Batch:
    """A batch in an arena that grows until it fits."""
    workspace = workspace or Workspace(len(indptr) - 1)
    graph, names = (workspace, indptr, indices, np.asarray(seeds, np.int64), key), options.pop("names", None)
    return sampled(lambda arena: sample_neighbors(SamplerInput(*graph, arena, names), fanouts, **options))


def sample_with(
    op: Callable[..., SampleLayout],
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    key: DrawKey,
    arena: np.ndarray,
    names: np.ndarray | None = None,
    **settings: Any,
) -> SampleLayout:
    """What ``op`` makes of an input and its own settings, told by name: for tests that change one of them all."""
    return op(SamplerInput(workspace, indptr, indices, seeds, key, arena, names), **settings)


def sampled(sample_into: Callable[[np.ndarray], SampleLayout], read: Callable[..., Batch] = read_batch) -> Any:
    """What a kernel samples into an arena that grows until it fits."""
    num_bytes = 1 << 12
    while True:
        arena = Arena.of(num_bytes)
        try:
            layout = sample_into(arena.bytes)
        except ArenaTooSmall as signal:
            num_bytes = 2 * signal.needed_bytes // 64 * 64
        else:
            assert arena.guards_hold()
            return read(layout, arena.bytes)


def in_every_size(
    sample_into: Callable[[np.ndarray], SampleLayout], read: Callable[..., Batch] = read_batch, least_fits: int = 10
) -> Iterator[Any]:
    """Tries arenas from none on, 64 bytes larger each: a kernel fits its batch in, or says what it needs, and never
    writes beyond. Yields what fits, until ``least_fits`` sizes in a row did."""
    num_fits = num_bytes = 0
    while num_fits < least_fits:
        arena, needed_bytes = Arena.of(num_bytes), 0
        try:
            layout = sample_into(arena.bytes)
        except ArenaTooSmall as signal:
            needed_bytes = signal.needed_bytes
        else:
            num_fits += 1
            yield read(layout, arena.bytes)
        assert arena.guards_hold()
        if needed_bytes:
            assert num_bytes < needed_bytes < _MOST_BYTES  # so that a caller who grows to it gets on
            assert num_fits == 0  # what fits an arena fits any larger one
        num_bytes += 64


def random_graph(num_nodes: int, num_edges: int, seed: int, dtype: type = np.int64) -> tuple[np.ndarray, np.ndarray]:
    """Edges drawn at random, some repeated, some loops, in-degrees skewed: many nodes have none."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, num_nodes, num_edges).astype(dtype)
    dst = (num_nodes * rng.random(num_edges) ** 3).astype(dtype)
    indptr, indices, _ = coo_to_csc(src, dst, num_nodes)
    return indptr, indices


def star_graph(hubs: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes 0 to ``hubs`` - 1 have the same ``degree`` in-neighbours: independent trials of one choice."""
    indptr = np.concatenate([np.arange(hubs + 1) * degree, np.full(degree, hubs * degree)])
    indices = np.tile(np.arange(hubs, hubs + degree), hubs)
    return indptr, indices


WEIGHTS = [0.0, -0.0, 1.0, 1.0, 0.3, 1e-3, 1e9, 5e-324, 1e-40, 1e30]


def random_weights(num_edges: int, dtype: type = np.float64, seed: int = 0) -> np.ndarray:
    """Some zero, some equal, some subnormal, some that are next to nothing beside others."""
    return np.random.default_rng(seed).choice(np.array(WEIGHTS, dtype), num_edges)

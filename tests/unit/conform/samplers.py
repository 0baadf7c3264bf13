"""A sampler in NumPy that is right, and what becomes of it when one thing is wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lightning_gnnload import Graph, NeighborSampler, Sampler
from lightning_gnnload.ops import ArenaTooSmall, Draw, DrawKey, SampleLayout
from lightning_gnnload.sample.build import ArenaBuilder, draw_words


class FloydSampler(Sampler):
    """Uniform without replacement by Floyd's algorithm, all nodes of a hop at once. Subclasses break it."""

    def __init__(self, fanouts: Sequence[int]) -> None:
        self.fanouts = fanouts

    @property
    def num_layers(self) -> int:
        return len(self.fanouts)

    @property
    def reach(self) -> int | None:
        return len(self.fanouts)

    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        return draw_words(key, hop, nodes, count)

    def names(self, graph: Graph, nodes: np.ndarray) -> np.ndarray:
        return graph.names_of(nodes)

    def degrees(self, graph: Graph, nodes: np.ndarray) -> np.ndarray:
        return graph.in_degrees[nodes]

    def span(self, last: np.ndarray) -> np.ndarray:
        return last + 1

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        build = ArenaBuilder(graph, draw.seeds, memory)
        for hop, fanout in enumerate(self.fanouts):
            counts, positions = self.draw_hop(graph, build.nodes, fanout, hop, draw.key)
            edges = graph.indptr[np.repeat(build.nodes, counts)] + positions
            self.add_hop(build, graph, counts, edges)
        return build.layout()

    def add_hop(self, build: ArenaBuilder, graph: Graph, counts: np.ndarray, edges: np.ndarray) -> None:
        build.add_hop(counts, graph.indices[edges], edge_ids=edges)

    def draw_hop(self, graph: Graph, nodes: np.ndarray, fanout: int, hop: int, key: DrawKey) -> tuple[Any, Any]:
        degrees = self.degrees(graph, nodes)
        words = self.words(key, hop, self.names(graph, nodes), fanout).astype(np.uint64)
        picks = np.tile(np.arange(fanout), (len(nodes), 1))
        many = degrees > fanout
        for number in range(fanout):
            last = np.maximum(degrees - fanout + number, 1)
            drawn = (words[:, number] * self.span(last).astype(np.uint64) >> np.uint64(32)).astype(np.int64)
            taken = (picks[:, :number] == drawn[:, None]).any(axis=1)
            picks[:, number] = np.where(many, np.where(taken, last, drawn), number)
        counts = np.minimum(degrees, fanout)
        return counts, picks[np.arange(fanout) < counts[:, None]]


# Wrong choices


class ShortFloyd(FloydSampler):
    """Draws j over [0, j) instead of [0, j]."""

    def span(self, last: np.ndarray) -> np.ndarray:
        return last


class DropsLast(FloydSampler):
    def degrees(self, graph: Graph, nodes: np.ndarray) -> np.ndarray:
        return np.maximum(graph.in_degrees[nodes] - 1, 0)


class NearlyUniform(FloydSampler):
    """One word in 16 is rounded down: the first neighbours come too often, by some per cent."""

    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        words = draw_words(key, hop, nodes, count)
        return np.where(words % 16 == 0, 0, words)


class Paired(FloydSampler):
    """Neighbours come in runs: each as often as any other, and yet not every subset."""

    def draw_hop(self, graph: Graph, nodes: np.ndarray, fanout: int, hop: int, key: DrawKey) -> tuple[Any, Any]:
        degrees = graph.in_degrees[nodes]
        counts = np.minimum(degrees, fanout)
        start = self.words(key, hop, nodes, 1)[:, 0] % np.maximum(degrees, 1)
        picks = (start[:, None] + np.arange(fanout)) % np.maximum(degrees, 1)[:, None]
        return counts, picks[np.arange(fanout) < counts[:, None]]


class IgnoresHop(FloydSampler):
    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        return draw_words(key, 0, nodes, count)


class IgnoresStep(FloydSampler):
    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        return draw_words(DrawKey(key.seed, key.epoch, 0), hop, nodes, count)


class IgnoresEpoch(FloydSampler):
    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        return draw_words(DrawKey(key.seed, 0, key.step), hop, nodes, count)


class ShortSeed(FloydSampler):
    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        return draw_words(DrawKey(key.seed % 2**32, key.epoch, key.step), hop, nodes, count)


class IgnoresNode(FloydSampler):
    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        return draw_words(key, hop, np.asarray(nodes) // 2, count)


class SharedByPlace(FloydSampler):
    """A pure function, but what a node draws depends on its place in the batch."""

    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        return draw_words(key, hop, np.arange(len(nodes)), count)


class NamedByPart(FloydSampler):
    """Draws in the name of a part's own ids."""

    def names(self, graph: Graph, nodes: np.ndarray) -> np.ndarray:
        return nodes


class ReadsFurther(FloydSampler):
    """Says that it reads less than it does."""

    @property
    def reach(self) -> int | None:
        return len(self.fanouts) - 1


# State


class Stateful(FloydSampler):
    def __init__(self, fanouts: Sequence[int]) -> None:
        super().__init__(fanouts)
        self.generator = np.random.default_rng(0)

    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        return self.generator.integers(0, 2**32, (len(nodes), count))


class Salted(FloydSampler):
    """Each copy of the sampler draws by a salt of its own."""

    def __init__(self, fanouts: Sequence[int]) -> None:
        super().__init__(fanouts)
        self.salt = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Salted:
        copied = Salted(self.fanouts)
        copied.salt = self.salt + 1
        return copied

    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        return draw_words(DrawKey(self.salt, key.epoch, key.step), hop, nodes, count)


class ByThread(FloydSampler):
    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        salt = 0 if threading.current_thread() is threading.main_thread() else 1
        return draw_words(DrawKey(key.seed + salt, key.epoch, key.step), hop, nodes, count)


class MainThreadOnly(FloydSampler):
    """Its scratch memory is another thread's."""

    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("in use")
        return draw_words(key, hop, nodes, count)


class GlobalGenerator(FloydSampler):
    """Seeds NumPy's global generator by the key: pure, but everybody else's random numbers change."""

    def words(self, key: DrawKey, hop: int, nodes: np.ndarray, count: int) -> np.ndarray:
        np.random.seed([key.seed, key.epoch, key.step, hop])
        return np.random.randint(0, 2**32, (len(nodes), count))


# Wrong blocks


class NoPrefix(FloydSampler):
    """Its destinations are the known nodes backwards."""

    def add_hop(self, build: ArenaBuilder, graph: Graph, counts: np.ndarray, edges: np.ndarray) -> None:
        build.add_hop(counts[::-1].copy(), graph.indices[edges[::-1]])


class Duplicates(FloydSampler):
    """The last node that draws anything takes its last neighbour twice."""

    def add_hop(self, build: ArenaBuilder, graph: Graph, counts: np.ndarray, edges: np.ndarray) -> None:
        counts = counts.copy()
        counts[np.flatnonzero(counts)[-1:]] += 1
        build.add_hop(counts, graph.indices[np.concatenate([edges, edges[-1:]])])


class OneTooMany(FloydSampler):
    def draw_hop(self, graph: Graph, nodes: np.ndarray, fanout: int, hop: int, key: DrawKey) -> tuple[Any, Any]:
        return super().draw_hop(graph, nodes, fanout + 1, hop, key)


class PositionsForIds(FloydSampler):
    """Edge ids that count within the adjacency list."""

    def add_hop(self, build: ArenaBuilder, graph: Graph, counts: np.ndarray, edges: np.ndarray) -> None:
        positions = edges - graph.indptr[np.repeat(build.nodes, counts)]
        build.add_hop(counts, graph.indices[edges], edge_ids=positions)


class NegativeWeights(FloydSampler):
    def add_hop(self, build: ArenaBuilder, graph: Graph, counts: np.ndarray, edges: np.ndarray) -> None:
        build.add_hop(counts, graph.indices[edges], edge_weight=np.full(len(edges), -1.0))


class OtherTypes(FloydSampler):
    def add_hop(self, build: ArenaBuilder, graph: Graph, counts: np.ndarray, edges: np.ndarray) -> None:
        build.add_hop(counts, graph.indices[edges], edge_ids=edges, edge_type=np.full(len(edges), 7))


class OtherColumns(FloydSampler):
    columns = ("edge_weight",)  # type: ignore[assignment]


class NeedsSeeds(FloydSampler):
    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        return super().draw(graph, draw._replace(seeds=draw.seeds[np.r_[0, 1 : len(draw.seeds)]]), memory)


class SortsSeeds(FloydSampler):
    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        return super().draw(graph, draw._replace(seeds=np.sort(draw.seeds)), memory)


class WrapsSeeds(FloydSampler):
    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        return super().draw(graph, draw._replace(seeds=draw.seeds % graph.num_nodes), memory)


class WritesToTheGraph(FloydSampler):
    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        graph.indices.sort()
        return super().draw(graph, draw, memory)


class OneLayerLess(FloydSampler):
    @property
    def num_layers(self) -> int:
        return len(self.fanouts) - 1


class ModestNeeds(FloydSampler):
    """Asks for less memory than it needs."""

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        try:
            return super().draw(graph, draw, memory)
        except ArenaTooSmall as small:
            raise ArenaTooSmall(small.needed_bytes // 2) from None


class Spoiled(NeighborSampler):
    """Right batches, of which ``spoil(arena, layout)`` changes something or returns another layout."""

    def __init__(self, spoil: Callable[[np.ndarray, SampleLayout], SampleLayout | None]) -> None:
        super().__init__([4, 3])
        self.spoil = spoil

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        layout = super().draw(graph, draw, memory)
        return self.spoil(memory, layout) or layout


# Weighted


class WeightedSampler(FloydSampler):
    """By edge weights: exponential keys without replacement, inverted sums with it. Of few neighbours a node."""

    def __init__(self, fanouts: Sequence[int], replace: bool = False) -> None:
        super().__init__(fanouts)
        self.replace = replace

    def weights(self, graph: Graph) -> np.ndarray:
        assert graph.edge_weight is not None
        return graph.edge_weight

    def draw_hop(self, graph: Graph, nodes: np.ndarray, fanout: int, hop: int, key: DrawKey) -> tuple[Any, Any]:
        degrees = graph.in_degrees[nodes]
        width = int(degrees.max(initial=0))
        place = np.arange(width)
        weights = np.zeros((len(nodes), width))
        inside = place < degrees[:, None]
        weights[inside] = self.weights(graph)[(graph.indptr[nodes][:, None] + place)[inside]]
        drawable = (weights > 0).sum(axis=1)
        if self.replace:
            below = np.cumsum(weights, axis=1)
            share = draw_words(key, hop, nodes, fanout) / 2**32 * below[:, -1:] if width else np.empty((len(nodes), 0))
            picks = (below[:, None, :] <= share[:, :, None]).sum(axis=2)
            counts = np.where(drawable > 0, fanout, 0)
            return counts, picks[drawable > 0].ravel()
        uniform = (draw_words(key, hop, nodes, width) + 0.5) / 2**32
        with np.errstate(divide="ignore"):
            keys = np.where(weights > 0, -np.log(uniform) / weights, np.inf)
        counts = np.minimum(drawable, fanout)
        picks = np.argsort(keys, axis=1)
        return counts, picks[place < counts[:, None]]


class IgnoresWeights(WeightedSampler):
    def weights(self, graph: Graph) -> np.ndarray:
        return (super().weights(graph) > 0).astype(np.float32)


class SteepWeights(WeightedSampler):
    def weights(self, graph: Graph) -> np.ndarray:
        return super().weights(graph) ** 1.2


class DrawsZeros(WeightedSampler):
    def weights(self, graph: Graph) -> np.ndarray:
        return np.maximum(super().weights(graph), 1e-4)

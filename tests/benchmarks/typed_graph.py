"""Graphs with types of nodes and edges, prepared as arrays that every library maps."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lightning_gnnload import Graph, GraphData
from lightning_gnnload.data.clock import Clock
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.datasets.base import default_root
from lightning_gnnload.datasets.debian import Debian
from tests.benchmarks.typed_arrays import TYPES, EdgeType, TypedArrays

_RECIPE = 2  # raise it when equal settings would give other arrays
_FEATURES = 64
_DRAWN_ROWS = 1 << 16
MAPPED = ("indptr", "indices", "run_ptr", "edge_time", "edge_order")


class Edges(NamedTuple):
    """Edges of one type as they are given: integers ``[E_k]`` each."""

    src: np.ndarray
    dst: np.ndarray
    time: np.ndarray | None


class TypedGraph:
    """A graph that is drawn or read once, and kept in a folder as :class:`TypedArrays` reads it."""

    @property
    def folder(self) -> Path:
        raise NotImplementedError

    @property
    def seed_type(self) -> str:
        """The node type of seeds."""
        raise NotImplementedError

    @property
    def link_type(self) -> int:
        """The edge type of links."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Builds the folder unless it is there. Another process that does so already is waited for."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with open(self.folder.with_name(f".{self.folder.name}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.folder.exists():
                return
            partial = self.folder.with_name(f"{self.folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            self.write(partial)
            partial.rename(self.folder)

    def write(self, folder: Path) -> None:
        raise NotImplementedError

    @cached_property
    def arrays(self) -> TypedArrays:
        return TypedArrays(str(self.folder))

    def load(self) -> GraphData:
        """The graph, mapped, with the features of those node types that have some."""
        arrays = self.arrays
        types = GraphTypes(tuple(arrays.node_types), tuple(arrays.num_nodes), tuple(arrays.edge_types))
        mapped = {name: arrays.flat(name) for name in MAPPED if arrays.is_timed or name != "edge_time"}
        graph = Graph(**mapped, types=types, clock=self._clock(arrays))
        features = {name: arrays.features(t) for t, name in enumerate(types.node_types)}
        return GraphData(graph, x={name: x for name, x in features.items() if x is not None})

    @staticmethod
    def _clock(arrays: TypedArrays) -> Clock | None:
        if not arrays.is_timed:
            return None
        return Clock(*arrays.span, None, np.ones(len(arrays.edge_types), np.bool_))


@dataclass(frozen=True)
class Market(TypedGraph):
    """Users, items, tags and sellers, whose degrees are far from even; every edge has a time, most of them late.

    The graph of the project's figures: at scale 1 it has 3 M, 0.8 M, 2,000 and 60,000 nodes, and 100 M edges of eight
    types, with lists of up to 322,000.

    Args:
        scale: of all counts of nodes and edges.
        root: the folder to keep it in; a per-user cache folder by default.
    """

    scale: float = 1.0
    root: str | Path | None = None

    seed_type = "user"
    link_type = 1

    @property
    def folder(self) -> Path:
        return Path(self.root or default_root()) / f"market-{self.scale:g}-{_RECIPE}"

    @property
    def num_nodes(self) -> dict[str, int]:
        whole = {"user": 3_000_000, "item": 800_000, "tag": 2_000, "seller": 60_000}
        return {name: round(count * self.scale) for name, count in whole.items()}

    def write(self, folder: Path) -> None:
        edges = dict(self._edges())
        write_edges(folder, edges)
        graph = Graph.from_hetero(
            self.num_nodes,
            {kind: (each.src, each.dst) for kind, each in edges.items()},
            edge_time={kind: each.time.astype(np.int64) for kind, each in edges.items() if each.time is not None},
            keep_order=True,
        )
        del edges
        write_graph(folder, graph, reverse=[1, 0, None, 4, 3, 6, 5, None])
        draw = np.random.default_rng(1)
        for t, count in enumerate(self.num_nodes.values()):
            x = np.lib.format.open_memmap(folder / f"x.{t}.npy", "w+", np.float32, (count, _FEATURES))
            for begin in range(0, count, _DRAWN_ROWS):
                draw.random(out=x[begin : begin + _DRAWN_ROWS], dtype=np.float32)
            x.flush()

    def _edges(self) -> Iterator[tuple[EdgeType, Edges]]:
        draw, count = np.random.default_rng(0), self.num_nodes
        renamed = {name: draw.permutation(number).astype(np.int32) for name, number in count.items()}

        def pick(name: str, number: int, power: int) -> np.ndarray:
            rank = count[name] * draw.random(number, np.float32).astype(np.float64) ** power
            return renamed[name][np.minimum(rank.astype(np.int64), count[name] - 1)]

        def times(number: int) -> np.ndarray:
            return (157_680_000 * draw.random(number) ** 0.7).astype(np.int64)

        def scaled(number: int) -> int:
            return round(number * self.scale)

        number = scaled(30_000_000)
        users, items, when = pick("user", number, 2), pick("item", number, 3), times(number)
        yield ("item", "rev_buys", "user"), Edges(items, users, when)
        yield ("user", "buys", "item"), Edges(users, items, when)
        number = scaled(15_000_000)
        users = pick("user", number, 2)
        yield ("user", "follows", "user"), Edges(users, pick("user", number, 2), times(number))
        number = scaled(4_000_000)
        tags, items, when = pick("tag", number, 2), pick("item", number, 1), times(number)
        yield ("tag", "names", "item"), Edges(tags, items, when)
        yield ("item", "rev_names", "tag"), Edges(items, tags, when)
        number = count["item"]
        sellers, items, when = pick("seller", number, 3), draw.permutation(number).astype(np.int32), times(number)
        yield ("seller", "sells", "item"), Edges(sellers, items, when)
        yield ("item", "rev_sells", "seller"), Edges(items, sellers, when)
        number = scaled(15_400_000)
        items = pick("item", number, 3)
        yield ("item", "like", "item"), Edges(items, pick("item", number, 2), times(number))


@dataclass(frozen=True)
class TypedDebian(TypedGraph):
    """Debian's packages, sources and maintainers: the graph that the package ships; without times."""

    root: str | Path | None = None

    seed_type = "package"
    link_type = 0

    @property
    def folder(self) -> Path:
        return Path(self.root or default_root()) / f"debian-typed-{_RECIPE}"

    def write(self, folder: Path) -> None:
        from lightning_gnnload.datasets import debian

        source = debian._read_source(
            "labels",
            "words",
            "num_words",
            "word_vectors",
            *(f"{kind}.{name}" for name in debian.EDGE_TYPES for kind in ("degrees", "neighbors")),
            *(f"group.{name}" for name in debian.GROUPS),
        )
        graph = Debian(typed=True)._typed_graph(source)
        assert graph.types is not None
        write_graph(folder, graph, reverse=[_reverse_of(kind, graph.types) for kind in graph.types.edge_types])
        np.save(folder / "x.0.npy", debian._features(source).numpy())


def _reverse_of(kind: EdgeType, types: GraphTypes) -> int | None:
    src, name, dst = kind
    turned = (dst, name.removeprefix("rev_") if name.startswith("rev_") else f"rev_{name}", src)
    return types.edge_types.index(turned) if turned in types.edge_types else None


def write_edges(folder: Path, edges: dict[EdgeType, Edges]) -> None:
    for k, each in enumerate(edges.values()):
        np.save(folder / f"src.{k}.npy", each.src)
        np.save(folder / f"dst.{k}.npy", each.dst)
        if each.time is not None:
            np.save(folder / f"given_time.{k}.npy", each.time)


def write_graph(folder: Path, graph: Graph, reverse: list[int | None]) -> None:
    """Writes the graph as one, and the same lists by edge type, for those who want them so."""
    types, clock = graph.types, graph.clock
    assert types is not None
    for name in MAPPED:
        if (array := getattr(graph, name)) is not None:
            np.save(folder / f"flat.{name}.npy", array)
    for t, name in enumerate(types.node_types):
        _write_columns(folder, graph, t, types.range_of(name))
    span = None if clock is None else [clock.first, clock.last]
    told = types.to_json() | {"reverse": reverse, "span": span}
    (folder / TYPES).write_text(json.dumps(told))


def _write_columns(folder: Path, graph: Graph, t: int, nodes: range) -> None:
    """Of each edge type that ends in node type ``t``, whose runs lie side by side in the graph's lists."""
    types, run_ptr, order = graph.types, graph.run_ptr, graph.edge_order
    assert types is not None
    assert run_ptr is not None
    assert order is not None
    slots = types.slots[t]
    if not slots:
        return
    begin, end = int(graph.indptr[nodes.start]), int(graph.indptr[nodes.stop])
    length = np.diff(run_ptr[types.first_run[t] : types.first_run[t + 1] + 1].astype(np.int64))
    slot_of_edge = np.repeat(np.tile(np.arange(len(slots), dtype=np.int8), len(nodes)), length)
    for slot, k in enumerate(slots):
        chosen = begin + np.flatnonzero(slot_of_edge == slot)
        source = types.range_of(types.edge_types[k][0]).start
        indptr = np.concatenate([[0], np.cumsum(length[slot :: len(slots)])])
        np.save(folder / f"indptr.{k}.npy", indptr.astype(np.int64))
        np.save(folder / f"indices.{k}.npy", graph.indices[chosen].astype(np.int64) - source)
        np.save(folder / f"given.{k}.npy", order[chosen].astype(np.int32))
        if graph.edge_time is not None and graph.clock is not None:
            np.save(folder / f"time.{k}.npy", graph.edge_time[chosen].astype(np.int64) + graph.clock.first)
    assert end == begin + len(slot_of_edge)


TYPED_GRAPHS: dict[str, TypedGraph] = {"debian-typed": TypedDebian(), "m10": Market(0.1), "m100": Market()}

"""Oracle of sampling by edge type, by time and for queries: edges are filtered and sorted anew at every draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lightning_gnnload.ops import DrawKey, Queries
from lightning_gnnload.ops.philox import KEYS_TAG, ROWS_TAG, hash32, stream_keys

from .draws import NodeDraws, name_of
from .neighbors import sample_positions


class TypedEdge(NamedTuple):
    """Number ``number`` of the edges of its type; ``time`` is a code, or None for types without times."""

    src: int
    dst: int
    kind: int
    time: int | None
    number: int


@dataclass(frozen=True)
class TypedHop:
    """One hop: ``indptr`` ``[num_dst + 1]``, ``indices`` (local ids), and the edges that were drawn."""

    num_src: int
    indptr: list[int]
    indices: list[int]
    edges: list[TypedEdge]


class Asker(NamedTuple):
    """A node, the number of its seed's query, and below which code edges count for it; None: whatever their time."""

    node: int
    query: int
    until: int | None


class TypedSampling:
    """Samples as :func:`.sample_typed_neighbors` does, one run after the other.

    Args:
        edges: of the graph.
        fanouts: ``[hops][edge types]``.
        untyped: the one edge type is none.
        excluded: edges into seeds, by query.
    """

    def __init__(
        self,
        edges: Sequence[TypedEdge],
        fanouts: Sequence[Sequence[int]],
        key: DrawKey,
        *,
        replace: bool = False,
        expand: str = "all",
        pick: str = "uniform",
        untyped: bool = False,
        queries: Queries | None = None,
        excluded: Sequence[tuple[int, TypedEdge]] = (),
        names: np.ndarray | None = None,
    ) -> None:
        self._edges_into: dict[tuple[int, int], list[TypedEdge]] = {}
        for edge in edges:
            self._edges_into.setdefault((edge.dst, edge.kind), []).append(edge)
        self._fanouts, self._key, self._replace, self._expand, self._pick = fanouts, key, replace, expand, pick
        self._untyped, self._queries, self._excluded, self._names = untyped, queries, set(excluded), names
        by_row = queries is not None and queries.by_row
        self._draw_key, _ = stream_keys(key.seed, key.epoch, ROWS_TAG if by_row else KEYS_TAG)

    def run(self, seeds: Sequence[int]) -> tuple[list[int], list[int], list[TypedHop]]:
        """The nodes of a batch, the query of each, and its hops."""
        known = {self._asker_of_seed(i, int(seed)): i for i, seed in enumerate(seeds)}
        assert len(known) == len(seeds)
        hops = list[TypedHop]()
        indptr, indices, edges = [0], list[int](), list[TypedEdge]()
        for hop in range(len(self._fanouts)):
            if self._expand == "all":
                indptr, indices, edges = [0], [], []
            for local, asker in list(enumerate(known))[len(indptr) - 1 :]:
                for edge in self._drawn(asker, hop, is_seed=local < len(seeds)):
                    indices.append(known.setdefault(self._found(asker, edge), len(known)))
                    edges.append(edge)
                indptr.append(len(indices))
            hops.append(TypedHop(len(known), list(indptr), list(indices), list(edges)))
        return [asker.node for asker in known], [asker.query for asker in known], hops

    def _asker_of_seed(self, i: int, seed: int) -> Asker:
        if self._queries is None:
            return Asker(seed, 0, None)
        query = int(self._queries.of_seed[i])
        return Asker(seed, query, None if self._queries.until is None else int(self._queries.until[query]))

    def _found(self, asker: Asker, edge: TypedEdge) -> Asker:
        until = asker.until
        if self._queries is not None and self._queries.along_path and edge.time is not None:
            until = edge.time + self._queries.path_end
        return Asker(edge.src, asker.query, until)

    def _drawn(self, asker: Asker, hop: int, is_seed: bool) -> list[TypedEdge]:
        drawn = []
        # Along paths a seed's node may be found again, as another asker.
        leaves_out = is_seed or (self._queries is not None and self._queries.along_path)
        for kind, fanout in enumerate(self._fanouts[hop]):
            edges = [
                edge
                for edge in self._edges_into.get((asker.node, kind), [])
                if self._counts(edge, asker) and not (leaves_out and (asker.query, edge) in self._excluded)
            ]
            edges.sort(key=lambda edge: (edge.time or 0, edge.number))
            if self._pick == "last" and fanout >= 0 and edges and edges[0].time is not None:
                drawn += edges[max(len(edges) - fanout, 0) :]
            elif fanout != 0:
                draws = self._draws(asker, hop if self._untyped else hop | (kind + 1) << 4)
                drawn += [edges[i] for i in sample_positions(len(edges), fanout, self._replace, draws)]
        return drawn

    def _counts(self, edge: TypedEdge, asker: Asker) -> bool:
        if self._queries is None or edge.time is None:
            return True
        since = 0 if self._queries.since is None else int(self._queries.since[asker.query])
        return since <= edge.time and (asker.until is None or edge.time < asker.until)

    def _draws(self, asker: Asker, hop: int) -> NodeDraws:
        step = self._key.step
        if self._queries is not None and self._queries.name is not None:
            step = int(self._queries.name[asker.query])
        if self._queries is not None and self._queries.along_path:
            assert self._queries.until is not None
            if asker.until != int(self._queries.until[asker.query]):
                step ^= int(hash32(np.array([asker.until], np.uint32))[0])
        return NodeDraws(self._draw_key, step, self._key.hop + hop, name_of(asker.node, self._names))

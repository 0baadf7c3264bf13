"""Negatives: how the false edges of link prediction are made.

Shapes: P edges of a mini-batch, N graph nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import GraphDataError, SamplerConfigError, SeedError
from lightning_gnnload.ops import Corrupt, DrawKey
from lightning_gnnload.sample.seeds.lookup import EdgeLookup, ListLookup

NegativeMode = Literal["binary", "triplet", "joint", "in_batch", "hard"]
NodeTables = tuple[ops.AliasTable, ops.AliasTable]
"""By which the sources and the destinations of an edge type are drawn."""


@dataclass(frozen=True)
class Negatives:
    """Settings by which each edge of a mini-batch gets nodes that would make a false edge of it.

    No negative is an edge that the graph has before the row's time, nor a node that is later than that; where none was
    found, it is -1, and counts for nothing. Nodes are drawn of the type of the end that is replaced, uniformly or by
    weight. Those that a row draws for itself depend on its number and the epoch, not on the mini-batch that it comes
    in. Each epoch of training draws others; those of evaluation are fixed.

    - ``"binary"`` draws ``num`` for each row; mini-batches hold them as further edges of label 0. One end of each is
      the row's, where PyG draws both anew.
    - ``"triplet"`` draws the same; mini-batches hold them beside each edge.
    - ``"joint"`` draws ``num`` destinations for all rows of a step together, which saves their neighbourhoods. Those
      that a row cannot use are masked for it, and none is drawn again.
    - ``"in_batch"`` draws nothing: the destinations of the next ``num`` rows.
    - ``"hard"`` takes those that the seed table has in its column ``negatives``.

    Args:
        mode: one of these.
        num: how many each row gets. None: one; with ``"in_batch"`` the destinations of all other rows, with ``"hard"``
            all that are given.
        corrupt: the end that they replace, ``"dst"`` or ``"src"``. ``"both"``: the first half, rounded up, replaces
            destinations, the rest sources. Joint and in-batch negatives are destinations.
        tries: how often a negative is drawn before there is none. Where a source leads to half of all destinations,
            16 leave one in 65,536 without.
        weight: a table of the nodes, in proportion to which they are drawn; None: uniformly.

    Raises:
        SamplerConfigError: settings that cannot be.

    Source: PBG (SysML'19), section 4.3, for negatives in common; PyG's NegativeSampling for "binary" and "triplet".

    Example:
        >>> graph = Graph.from_coo(src=[0, 0, 1], dst=[1, 2, 3])
        >>> rows, src, dst = np.array([0, 1]), np.array([0, 1]), np.array([1, 3])
        >>> found = Negatives("triplet", num=4).draw(graph, 0, rows, src, dst, None, DrawKey(seed=0, epoch=0, step=0))
        >>> found.shape, sorted(set(found[0].tolist()))  # 0 leads to 1 and 2 already
        ((2, 4), [0, 3])
    """

    mode: NegativeMode = "binary"
    num: int | None = None
    corrupt: Corrupt = "dst"
    tries: int = 16
    weight: str | None = None

    def __post_init__(self) -> None:
        for name, choices in (("mode", get_args(NegativeMode)), ("corrupt", ops.CORRUPT)):
            if getattr(self, name) not in choices:
                raise SamplerConfigError(f"Negatives: {name} is {getattr(self, name)!r}, but must be one of {choices}.")
        for name in ("num", "tries"):
            value = getattr(self, name)
            if getattr(value, "dtype", type(value)) in (bool, torch.bool):
                raise SamplerConfigError(f"Negatives: {name} is {value}, but must be an integer.")
            if value is None and name == "num":
                continue
            # A plain integer, which JSON has; repr(), by which checkpoints compare settings, shows it alike.
            object.__setattr__(self, name, ops.as_integer(f"Negatives: {name}", value))
            if getattr(self, name) < 1:
                raise SamplerConfigError(f"Negatives: {name} is {value}, but must be at least 1.")
        if self.weight is not None and self.mode in ("in_batch", "hard"):
            raise SamplerConfigError(f"Negatives: mode {self.mode!r} draws nothing, so there is nothing to weigh by.")
        if self.mode in ("joint", "in_batch") and self.corrupt != "dst":
            raise SamplerConfigError(
                f"Negatives: mode {self.mode!r} has destinations in common, so corrupt must be 'dst', but it is "
                f"{self.corrupt!r}. To replace sources, take 'binary' or 'triplet', or turn the edges round."
            )

    def num_dst(self, num: int) -> int:
        """Counts those of ``num`` negatives, the first ones, that replace destinations."""
        return ops.num_corrupt_dst(num, self.corrupt)

    @staticmethod
    def weigh(graph: Graph, edge_type: Any, weight: np.ndarray) -> NodeTables:
        """Makes the tables from which nodes are drawn by ``weight``, floats ``[N]``: of an edge type's sources, and of
        its destinations; 8 bytes a node.

        Raises:
            GraphDataError: weights that are negative or no numbers, or not one a node.
        """
        if weight.shape != (graph.num_nodes,) or not (np.isfinite(weight).all() and (weight >= 0).all()):
            raise GraphDataError(
                f"Negatives: weights must be finite numbers [{graph.num_nodes}] of 0 or more, one a node, but they are "
                f"{weight.dtype} {list(weight.shape)}, or some are negative or no numbers."
            )
        edges = _EdgesOfType.of(graph, edge_type)
        src, dst = (
            ops.build_alias(np.array([0, len(nodes)]), weight[nodes.start : nodes.stop].astype(np.float64))
            for nodes in (edges.sources, edges.destinations)
        )
        return src, dst

    def check(self, graph: Graph, edge_type: Any = 0, lookup: EdgeLookup | None = None) -> None:
        """Raises GraphDataError: every pair is an edge, so that none is false."""
        edges = _EdgesOfType.of(graph, edge_type, lookup=lookup)
        num_pairs = len(edges.sources) * len(edges.destinations)
        if edges.lookup.count(edges.edge_type, distinct=False) < num_pairs:
            return
        distinct = edges.lookup.count(edges.edge_type, distinct=True)
        if distinct == num_pairs:
            raise GraphDataError(
                f"Negatives{edges.named}: all {num_pairs} pairs of {len(edges.sources)} sources and "
                f"{len(edges.destinations)} destinations are edges, so that no edge is false. Train without negatives, "
                "or leave edges out of the graph."
            )

    def draw(
        self,
        graph: Graph,
        edge_type: Any,
        rows: np.ndarray,
        src: np.ndarray,
        dst: np.ndarray,
        until: np.ndarray | None,
        key: DrawKey,
        hard: np.ndarray | None = None,
        weights: NodeTables | None = None,
        lookup: EdgeLookup | None = None,
    ) -> np.ndarray:
        """Makes the negatives of one mini-batch: a pure function of all that it is given.

        Args:
            graph: N nodes, with :attr:`.Graph.link_lists`.
            edge_type: of the edges, as :meth:`.Graph.edge_type_number` finds it.
            rows: int64 ``[P]``, the edges' rows in the seed table.
            src: int64 ``[P]``, sources, ids of the graph.
            dst: int64 ``[P]``, destinations.
            until: uint32 ``[P]``, :meth:`.Clock.until` of the rows' times; None: edges and nodes count at all times.
            key: seed and epoch, and for joint negatives the step.
            hard: int64 ``[P, R]``, with mode ``"hard"``: ids of the graph, -1 for none.
            weights: what :meth:`weigh` made of the table named ``weight``.
            lookup: finds edges whose lists lie elsewhere; None: in the graph's own.

        Returns:
            int64 ``[P, num]``, ids of the graph; -1 where there is none.

        Raises:
            SeedError: ends that are no nodes of the types of the edge, hard negatives that are missing.
            SamplerConfigError: no such edge type, or a graph that is a part of another.
        """
        if (weights is None) != (self.weight is None):
            raise SamplerConfigError(
                f"Negatives: weight is {self.weight!r}, so draw() {'needs' if self.weight else 'takes no'} weights."
            )
        edges = _EdgesOfType.of(graph, edge_type, until, lookup)
        src_table, dst_table = weights or (None, None)
        if self.mode == "joint":
            return self._joint(edges, src, dst, key, dst_table)
        if self.mode == "in_batch":
            return self._in_batch(edges, src, dst)
        if self.mode == "hard":
            return self._hard(edges, rows, src, dst, hard)
        num = self.num or 1
        num_dst = self.num_dst(num)
        return edges.lookup.draw_negatives(
            edges.edge_type,
            edges.sources,
            rows,
            key,
            num,
            src=src,
            dst=dst,
            until=edges.until,
            src_time=edges.times_of(edges.sources),
            dst_time=edges.times_of(edges.destinations),
            # The end that is kept may have weights of 0 alone, as where a table says nothing of its type.
            src_table=src_table if num_dst < num else None,
            dst_table=dst_table if num_dst else None,
            corrupt=self.corrupt,
            tries=self.tries,
        )

    def _joint(
        self, edges: _EdgesOfType, src: np.ndarray, dst: np.ndarray, key: DrawKey, table: ops.AliasTable | None
    ) -> np.ndarray:
        step = np.array([key.step])
        [shared] = edges.lookup.draw_negatives(
            edges.edge_type, edges.sources, step, key, self.num or 1, dst_table=table
        )
        return np.where(edges.refused(src, dst, shared), -1, shared)

    def _in_batch(self, edges: _EdgesOfType, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        most = max(len(dst) - 1, 0)
        num = most if self.num is None else self.num
        distinct, number = np.unique(dst, return_inverse=True)  # one popular node may end many rows' edges
        refused = edges.refused(src, dst, distinct)
        negatives = np.full((len(dst), num), -1, np.int64)
        row = np.arange(len(dst))[:, None]
        later = (row + 1 + np.arange(min(num, most))) % max(len(dst), 1)
        negatives[:, : later.shape[1]] = np.where(refused[row, number[later]], -1, dst[later])
        return negatives

    def _hard(
        self, edges: _EdgesOfType, rows: np.ndarray, src: np.ndarray, dst: np.ndarray, hard: np.ndarray | None
    ) -> np.ndarray:
        if hard is None or hard.ndim != 2 or len(hard) != len(src) or hard.dtype != np.int64:
            shape = None if hard is None else f"{hard.dtype} {list(hard.shape)}"
            raise SeedError(
                f"Negatives: mode 'hard' needs the seed table's column 'negatives', int64 [{len(src)}, num], but it is "
                f"{shape}. Give the table one, or take another mode."
            )
        num = hard.shape[1] if self.num is None else self.num
        if num > hard.shape[1]:
            raise SeedError(f"Negatives: num is {num}, but the column 'negatives' has {hard.shape[1]} a row.")
        negatives = hard[:, :num].copy()
        first = self.num_dst(num)
        for columns, is_dst in ((slice(0, first), True), (slice(first, num), False)):
            row, column = np.nonzero(negatives[:, columns] >= 0)
            nodes = negatives[:, columns][row, column]
            pairs = (src[row], nodes) if is_dst else (nodes, dst[row])
            refused = edges.refused_pairs(*pairs, row, is_dst, rows) | (nodes == (dst if is_dst else src)[row])
            negatives[:, columns][row[refused], column[refused]] = -1
        return negatives


@dataclass(frozen=True)
class _EdgesOfType:
    """The edges of one type, and until when they and their nodes count."""

    graph: Graph
    edge_type: int
    sources: range
    destinations: range
    until: np.ndarray | None
    lookup: EdgeLookup

    @classmethod
    def of(
        cls, graph: Graph, edge_type: Any, until: np.ndarray | None = None, lookup: EdgeLookup | None = None
    ) -> _EdgesOfType:
        if graph.origin is not None:
            raise SamplerConfigError(
                "Negatives: they are drawn from the nodes of the whole graph, but this is a part of one. Train on the "
                "whole graph."
            )
        number = graph.edge_type_number(edge_type)
        until, lookup = None if graph.clock is None else until, lookup or ListLookup(graph)
        if graph.types is None:
            return cls(graph, number, range(graph.num_nodes), range(graph.num_nodes), until, lookup)
        src, _, dst = graph.types.edge_types[number]
        return cls(graph, number, graph.types.range_of(src), graph.types.range_of(dst), until, lookup)

    @property
    def named(self) -> str:
        """Names the edge type in errors."""
        return "" if self.graph.types is None else f" of {self.graph.types.edge_types[self.edge_type]}"

    def times_of(self, nodes: range) -> np.ndarray | None:
        """Returns the codes of all nodes of a type, uint32; None where they always are there."""
        return self.graph.node_codes_of(nodes)

    def refused(self, src: np.ndarray, dst: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Tells which of the same destinations are no negatives for each row: bool ``[P, len(nodes)]``."""
        refused = self.lookup.mark(self.edge_type, src, nodes, self.until) | (nodes == dst[:, None])
        codes = self.times_of(self.destinations)
        if codes is not None and self.until is not None:
            refused |= codes[nodes - self.destinations.start] >= self.until[:, None]
        return refused

    def refused_pairs(
        self, src: np.ndarray, dst: np.ndarray, rows: np.ndarray, is_dst: bool, names: np.ndarray
    ) -> np.ndarray:
        """Tells which pairs, each of one of these rows, are edges, or have a false end that is not there yet: bool.
        Errors call rows by ``names``."""
        for name, nodes, among in (("source", src, self.sources), ("destination", dst, self.destinations)):
            bad = np.flatnonzero((nodes < among.start) | (nodes >= among.stop))
            if len(bad):
                raise SeedError(
                    f"Negatives{self.named}: {nodes[bad[0]] - among.start}, of row {names[rows[bad[0]]]} of the seed "
                    f"table, cannot be the {name} of an edge: such ids lie in [0, {len(among)})."
                )
        until = None if self.until is None else self.until[rows]
        refused = self.lookup.are_edges(self.edge_type, src, dst, until)
        if until is None:
            return refused
        nodes, among = (dst, self.destinations) if is_dst else (src, self.sources)
        if (codes := self.times_of(among)) is not None:
            refused |= codes[nodes - among.start] >= until
        return refused

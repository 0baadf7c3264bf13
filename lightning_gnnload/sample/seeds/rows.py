"""Kinds of seed: what the rows of a mini-batch ask a sampler for, and what belongs to them.

Shapes: R rows of a mini-batch, S seeds, Q queries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from lightning_gnnload.data.edge_lists import ALWAYS
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.data.seedform import NODE_SEEDS, SeedForm
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.visibility import VisibleEdges
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import Draw, DrawKey, Queries
from lightning_gnnload.ops.philox import hash32

Sharing = Literal["plain", "disjoint", "time"]
"""Which rows of a mini-batch share the nodes that they find: all, none, or those of the same time."""


class SeedBatch(NamedTuple):
    """What a sampler is asked for, and what belongs to the rows: labels of their own, and tensors ``[R, ...]``."""

    draw: Draw
    y: torch.Tensor | None
    columns: dict[str, torch.Tensor]
    form: SeedForm = NODE_SEEDS

    @property
    def takes_labels_of_nodes(self) -> bool:
        """Whether the graph's labels, if it has any, are those of the rows: nodes without labels of their own."""
        return self.y is None and self.form.name == "nodes"


class SeedKind(ABC):
    """A kind of seed turns the rows of a phase into what a sampler is asked for. Thread-safe.

    A further kind is a subclass, a row of :data:`.seedform.COLUMNS`, and a writer in each format.
    """

    form = NODE_SEEDS
    table: SeedTable | None = None
    rows: np.ndarray
    """Numbers of all rows, which orders order, int64; of plain nodes their ids."""
    sharing: Sharing
    is_timed: bool
    has_negatives = False
    description = ""
    """What is asked beside the rows, as checkpoints compare it."""

    @property
    def settings_by_name(self) -> dict[str, Any]:
        """What else mini-batches depend on than rows, sampler and :attr:`description`, as checkpoints compare it."""
        return {}

    @property
    @abstractmethod
    def needs(self) -> frozenset[str]:
        """What the sampler has to heed, of :attr:`.Sampler.heeds`; empty where there are no :class:`.Queries`."""

    @abstractmethod
    def nodes_of(self, rows: np.ndarray) -> np.ndarray:
        """Returns the nodes of rows, int64 ``[R, 1]``, of links ``[R, 2]``."""

    @abstractmethod
    def ask(self, rows: np.ndarray, key: DrawKey) -> SeedBatch:
        """Returns what these rows ask for."""

    @abstractmethod
    def seen(self, rows: np.ndarray) -> VisibleEdges | None:
        """Counts which in-edges of these rows count at their times; None where times do not."""

    def span_of_times(self) -> tuple[Any, Any] | None:
        """Returns the earliest and the latest time of all rows; None where times do not count, or there are no rows."""
        return None

    @abstractmethod
    def bound(self, order: SeedOrder, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        """Returns the order for these rows, as :meth:`.SeedOrder.bind` does, with the labels of the graph's nodes."""


_NEEDS = {
    "rows": "draw by time, or give each row nodes of its own. Take",
    "exclusion": "leave edges out, as exclude= of links asks. Give exclude=None, or take",
}


class NodeSeeds(SeedKind):
    """Seeds that are nodes: ids int64 ``[S]``, or rows of a table. One without a time has that of its node, as in PyG.

    Of the sampler, ``heeds``, ``sharing``, ``before``, ``window`` and ``order`` count, where it has them.
    """

    def __init__(self, graph: Graph, sampler: Any, seeds: np.ndarray | SeedTable) -> None:
        self.graph = graph
        self.sampler = sampler
        if isinstance(seeds, SeedTable):
            self.table, self.rows, self._nodes = seeds, np.arange(len(seeds)), seeds.nodes_in(graph)
        else:
            self.rows = seeds
        self.is_timed = graph.clock is not None and getattr(sampler, "before", "<=") is not None
        self.sharing: Sharing = getattr(sampler, "sharing", None) or ("disjoint" if self.is_timed else "plain")
        if self.is_timed:
            self._check_timed()
        elif (name := _timed_setting(sampler)) is not None:
            raise SamplerConfigError(
                f"{name}={getattr(sampler, name)!r} needs times, but the graph has none. Build it with "
                f"Graph.from_coo or from_hetero(..., edge_time=times), or leave {name}= out."
            )
        self._check_rows()
        for need in sorted(self.needs - sampler.heeds, reverse=True):
            raise SamplerConfigError(f"{sampler!r} cannot {_NEEDS[need]} NeighborSampler, which can.")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(() if self.sharing == "plain" else ("rows",))

    def nodes_of(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, None] if self.table is None else self._nodes[rows]

    def ask(self, rows: np.ndarray, key: DrawKey, *, names: np.ndarray | None = None) -> SeedBatch:
        """Returns what these rows ask for. Disjoint rows draw by ``names``, int64 ``[R]``, or else by their numbers."""
        nodes = self.nodes_of(rows)
        query, constraints, columns, y = self._described(rows, nodes, key, names)
        queries = None if constraints is None else as_queries(query, constraints)
        return SeedBatch(Draw(nodes[:, 0], key, queries), y, columns)

    def _described(
        self, rows: np.ndarray, nodes: np.ndarray, key: DrawKey, names: np.ndarray | None = None
    ) -> tuple[np.ndarray, dict[str, Any] | None, dict[str, torch.Tensor], torch.Tensor | None]:
        """Returns the query of each row and the arguments of :class:`.Queries` but for seeds; columns, and labels."""
        times, table = self._times_of(rows, nodes) if self.is_timed else None, self.table
        query, constraints = self._queries(rows if names is None else names, times, key)
        columns = {} if times is None else {"time": torch.from_numpy(times)}
        if table is None:
            return query, constraints, columns, None
        at = torch.from_numpy(rows)
        columns |= {"input_id": at} | {name: column[at] for name, column in table.columns.items()}
        return query, constraints, columns, None if table.y is None else table.y[at]

    def seen(self, rows: np.ndarray) -> VisibleEdges | None:
        if not self.is_timed or not self.graph.has_lists:
            return None
        assert self.graph.clock is not None
        if self.table is None:  # others, written to a split later, are an error where they are sampled
            rows = rows[(rows >= 0) & (rows < self.graph.num_nodes)]
        nodes = self.nodes_of(rows)
        return VisibleEdges.of(
            self.graph.typed_lists,
            self.graph.clock,
            nodes,
            self._times_of(rows, nodes),
            use_node_times=self.table is None or self.table.time is None,
            before=self.sampler.before,
            window=self.sampler.window,
        )

    def span_of_times(self) -> tuple[Any, Any] | None:
        if not self.is_timed or not len(self.rows):
            return None
        times = self._times_of(self.rows, self.nodes_of(self.rows))
        return times.min().item(), times.max().item()

    def bound(self, order: SeedOrder, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        if self.table is None:
            return order.bind(self.graph, labels, global_batch_size)
        return order.bind_rows(self.table, self._nodes, self.graph, global_batch_size)

    def _queries(
        self, names: np.ndarray, times: np.ndarray | None, key: DrawKey
    ) -> tuple[np.ndarray, dict[str, Any] | None]:
        """Returns the query of each row, int64 ``[R]``, and the arguments of :class:`.Queries` but for seeds."""
        # By the row's number, not by its place in the mini-batch: a row draws alike whatever comes with it.
        if self.sharing == "plain":
            return np.zeros(len(names), np.int64), None
        if self.sharing == "disjoint":
            eligible = {} if times is None else self._eligible(times)
            name = (names & 0xFFFFFFFF).astype(np.uint32)  # a word of the counters that draws are keyed by
            return np.arange(len(names)), {"name": name, "by_row": True, **eligible}
        assert times is not None, "the constructor refuses it"
        distinct, query = np.unique(times, return_inverse=True)
        eligible = self._eligible(distinct)
        return query, {"name": np.uint32(key.step & 0xFFFFFFFF) ^ hash32(eligible["until"]), **eligible}

    def _eligible(self, times: np.ndarray) -> dict[str, Any]:
        """Returns which codes count at these times."""
        clock, window, before = self.graph.clock, self.sampler.window, self.sampler.before
        assert clock is not None
        until, since = clock.eligible(times, before, window)
        eligible: dict[str, Any] = {"until": until} | ({} if since is None else {"since": since})
        if self.sampler.order == "path":
            eligible |= {"along_path": True, "path_end": int(before == "<=")}
        return eligible

    def _times_of(self, rows: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Raises SeedError: a node without a time of its own."""
        if self.table is not None and self.table.time is not None:
            return self.table.time[rows]
        assert self.graph.node_time is not None, "the constructor refuses it"
        times = self.graph.node_time[nodes[:, 0]]
        bad = np.flatnonzero(times == (ALWAYS if times.dtype == np.int64 else -np.inf))
        if len(bad):
            raise SeedError(
                f"{self._named(int(nodes[bad[0], 0]))} is a seed without a time, and has none itself; so are "
                f"{len(bad)} of {len(times)} seeds. Give each row's: SeedTable(nodes, time=times), or "
                "sampler.sample(..., times=times); to predict, say for which time: as_of= (--as-of); leave these rows "
                "out, in prediction by predict= with the name of a split or of a node type whose nodes have times; or "
                "ignore the graph's times: before=None."
            )
        return times

    def _named(self, node: int) -> str:
        types, node = self.graph.types, int(self.graph.names_of(np.array([node]))[0])  # of the whole graph, in a part
        if types is None:
            return f"node {node}"
        node_type = types.node_types[types.number_of(np.array([node]))[0]]
        return f"node {node - types.range_of(node_type).start} of type {node_type!r}"

    def _check_timed(self) -> None:
        if "times" not in self.sampler.heeds:
            raise SamplerConfigError(
                f"the graph has times, but {type(self.sampler).__name__} draws whatever their time, also from the "
                "future of a seed. NeighborSampler heeds times, and ignores them with before=None."
            )
        clock, window = self.graph.clock, self.sampler.window
        if isinstance(window, np.timedelta64) and clock is not None and not clock.has_dates:
            raise SamplerConfigError(
                f"window={window!r} is a length of time, but the graph's times are numbers, whose unit is not known. "
                "Give window as a number of the same unit; or give the graph's times as datetime64."
            )
        if self.sharing == "plain":
            raise SamplerConfigError(
                "sharing='plain' lets rows of different times share nodes, so that some would see what came later. "
                "Give sharing='disjoint' or 'time'; or before=None, which ignores times."
            )
        has_times = self.table is not None and self.table.time is not None
        if not has_times and (self.graph.node_time is None or not self.form.rows_are_seeds):
            raise SeedError(
                "the graph has times, but the seeds have none. Give each row's: SeedTable(..., time=times), or "
                "sampler.sample(..., times=times); to predict, say for which time: as_of= (--as-of); or ignore the "
                "graph's: NeighborSampler(..., before=None)."
            )

    def _check_rows(self) -> None:
        table = self.table
        if table is None or not len(table) or not self.form.rows_are_seeds:
            pass  # seeds of links are the distinct endpoints
        elif self.sharing != "disjoint":
            self._check_distinct(table)
        elif self.is_timed:
            self._times_of(rows := np.arange(len(table)), self.nodes_of(rows))  # now, not in mid-epoch

    def _check_distinct(self, table: SeedTable) -> None:
        """Raises SeedError: rows share a node that is in two of them, of the same time where that matters."""
        nodes = self.nodes_of(np.arange(len(table)))[:, 0]
        times = self._times_of(np.arange(len(table)), nodes[:, None]) if self.is_timed else np.zeros(len(nodes))
        order = np.lexsort((times, nodes))
        twice = np.flatnonzero((np.diff(nodes[order]) == 0) & (np.diff(times[order]) == 0))
        if len(twice):
            first, second = sorted(order[[twice[0], twice[0] + 1]].tolist())
            shared = "node and time" if self.is_timed else "node"
            raise SeedError(
                f"rows {first} and {second} have the same {shared}, but with sharing={self.sharing!r} rows of a "
                "mini-batch share their nodes. Give NeighborSampler(..., sharing='disjoint'), by which each row has "
                "its own."
            )


def as_queries(seed_query: np.ndarray, constraints: dict[str, Any]) -> Queries:
    """Returns the queries of seeds, each of which has the number of its query."""
    return Queries(seed_query.astype(np.int32), **constraints)


def _timed_setting(sampler: Any) -> str | None:
    """Returns the first of a sampler's settings that mean something only where there are times."""
    for name in ("window", "sharing", "before", "order"):
        value = getattr(sampler, name, None)
        if value in ("time", "<", "path") or (name == "window" and value is not None):
            return name
    return None

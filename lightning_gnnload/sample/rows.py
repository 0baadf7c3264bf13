"""What a mini-batch's rows ask a sampler for: which seeds, until when, by which names, and what belongs to the rows.

Shapes: R rows of a mini-batch, S seeds, Q queries.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch

from lightning_gnnload.data.edge_lists import ALWAYS
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.visibility import VisibleEdges
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import Draw, DrawKey, Queries
from lightning_gnnload.ops.philox import hash32
from lightning_gnnload.sample.links import LinkRows, LinkSettings, distinct_ends

Sharing = Literal["plain", "disjoint", "time"]
"""Which rows of a mini-batch share the nodes that they find: all, none, or those of the same time."""


class SeedBatch(NamedTuple):
    """The seeds of one mini-batch, and what belongs to its rows.

    Attributes:
        draw: what a sampler is asked for. Seeds are distinct within each query; without queries, all share one that
            asks for every edge.
        y: labels of the rows; None where they have none of their own.
        columns: what else belongs to each row, tensors ``[R, ...]`` by name.
    """

    draw: Draw
    y: torch.Tensor | None
    columns: dict[str, torch.Tensor]

    @property
    def takes_labels_of_nodes(self) -> bool:
        """Whether the graph's labels, if it has any, are those of the rows: nodes without labels of their own."""
        return self.y is None and "src" not in self.columns


class AsksRows(Protocol):
    """The interface of what turns the rows of a mini-batch into what they ask for: :class:`SeedRows`, or PyG's rules.

    Attributes:
        sharing: which rows share nodes.
        is_timed: whether times count.
    """

    sharing: Sharing
    is_timed: bool

    @property
    def has_queries(self) -> bool:
        """Whether mini-batches are asked for by :class:`.Queries`."""

    def nodes_of(self, rows: np.ndarray) -> np.ndarray:
        """Returns the nodes of rows, int64 ``[R, 1]``, of links ``[R, 2]``."""

    def ask(self, rows: np.ndarray, key: DrawKey) -> SeedBatch:
        """Returns what these rows ask for."""

    def seen(self, rows: np.ndarray) -> VisibleEdges | None:
        """Counts which in-edges of these rows count at their times; None where times do not."""


class SeedRows:
    """Turns the rows of a mini-batch into seeds and queries, as a sampler's settings say. Thread-safe.

    A node that is a seed without a time has its own, as in PyG. The rows of a split of plain node ids are numbered by
    these ids.

    Args:
        graph: the topology.
        sampler: whose ``sharing``, ``before``, ``window`` and ``order`` count, if it has them.
        table: the rows; None where they are plain node ids.
        links: what else is asked, where the rows are links.

    Raises:
        SamplerConfigError: the graph has times, and the sampler cannot heed them, or is to share nodes at all times.
        SeedError: rows without a time in a graph with times; or a node in several rows that would share it.
    """

    def __init__(
        self, graph: Graph, sampler: Any, table: SeedTable | None = None, links: LinkSettings | None = None
    ) -> None:
        self.graph = graph
        self.sampler = sampler
        self.table = table
        is_links = table is not None and table.is_links
        if not is_links and links is not None and links.negatives is not None:
            raise SamplerConfigError(
                f"{links.negatives} need seeds that are links, but the seeds are nodes. Give SeedTable(src=..., "
                "dst=...), or no negatives."
            )
        self._links = LinkRows(graph, table, links or LinkSettings()) if table is not None and is_links else None
        self._ends = None if table is None else table.nodes_in(graph)
        self._targets = table.targets_in(graph) if table is not None and is_links else None
        self.is_timed = graph.clock is not None and getattr(sampler, "before", "<=") is not None
        self.sharing: Sharing = getattr(sampler, "sharing", None) or ("disjoint" if self.is_timed else "plain")
        if self.is_timed:
            self._check_timed()
        elif (name := _timed_setting(sampler)) is not None:
            raise SamplerConfigError(
                f"{name}={getattr(sampler, name)!r} needs times, but the graph has none. Build it with "
                f"Graph.from_coo or from_hetero(..., edge_time=times), or leave {name}= out."
            )
        if table is not None:
            self._check_rows(table)
        if self.sharing != "plain" and "rows" not in sampler.heeds:
            raise SamplerConfigError(
                f"{sampler!r} cannot draw by time, or give each row nodes of its own. Take NeighborSampler, which can."
            )
        excludes = self._links is not None and self._links.settings.exclude is not None
        if excludes and "exclusion" not in sampler.heeds:
            raise SamplerConfigError(
                f"{sampler!r} cannot leave edges out, as exclude= of links asks. Give exclude=None, or take "
                f"NeighborSampler, which can."
            )

    @property
    def has_queries(self) -> bool:
        """Whether mini-batches are asked for by :class:`.Queries`."""
        return self.sharing != "plain" or (self._links is not None and self._links.settings.exclude is not None)

    def nodes_of(self, rows: np.ndarray) -> np.ndarray:
        """Returns the nodes of rows, int64 ``[R, 1]``, of links ``[R, 2]``, with the first target of each."""
        return rows[:, None] if self._ends is None else self._ends[rows]

    def ask(self, rows: np.ndarray, key: DrawKey, *, names: np.ndarray | None = None) -> SeedBatch:
        """Returns what these rows ask for.

        Args:
            rows: their numbers, int64 ``[R]``.
            key: of the mini-batch; its step names draws that rows of one time share.
            names: by which disjoint rows draw, int64 ``[R]``; None for their numbers.

        Raises:
            SeedError: a node without a time of its own.
        """
        ends = self.nodes_of(rows)
        times = self._times_of(rows, ends) if self.is_timed else None
        of_row, queries = self._queries(rows if names is None else names, times, key)
        columns = {} if times is None else {"time": torch.from_numpy(times)}
        if self.table is None:
            return SeedBatch(Draw(ends[:, 0], key, _queries(of_row, queries)), None, columns)
        at = torch.from_numpy(rows)
        columns |= {"input_id": at} | {name: column[at] for name, column in self.table.columns.items()}
        y = None if self.table.y is None else self.table.y[at]
        if self._links is None:
            return SeedBatch(Draw(ends[:, 0], key, _queries(of_row, queries)), y, columns)
        assert self._targets is not None
        until = None if times is None or queries is None else queries["until"][of_row]
        taken = self.table.taken(rows, key.seed, key.epoch)
        link = np.stack([ends[:, 0], self._targets[taken]], axis=1)
        ends = np.concatenate([link, self._links.negatives(rows, link, until, key)], axis=1)
        seeds, of_seed, places = distinct_ends(ends, of_row, self.graph.num_nodes)
        columns |= self._links.columns(rows, ends, places)
        excluded = self._links.excluded(link, taken, of_row)
        if excluded is not None:
            queries = {**(queries or {}), "excluded": excluded[0], "excluded_query": excluded[1]}
        return SeedBatch(Draw(seeds, key, _queries(of_seed, queries)), y, columns)

    def seen(self, rows: np.ndarray) -> VisibleEdges | None:
        """Counts which in-edges of these rows count at their times; None where times do not.

        Raises:
            SeedError: a node without a time of its own.
        """
        if not self.is_timed:
            return None
        assert self.graph.clock is not None
        if self.table is None:  # others, written to a split later, are an error where they are sampled
            rows = rows[(rows >= 0) & (rows < self.graph.num_nodes)]
        ends = self.nodes_of(rows)
        return VisibleEdges.of(
            self.graph.typed_lists,
            self.graph.clock,
            ends,
            self._times_of(rows, ends),
            use_node_times=self.table is None or self.table.time is None,
            before=self.sampler.before,
            window=self.sampler.window,
        )

    def _queries(
        self, names: np.ndarray, times: np.ndarray | None, key: DrawKey
    ) -> tuple[np.ndarray, dict[str, Any] | None]:
        """Returns the query of each row, int64 ``[R]``, and the arguments of :class:`.Queries` but for seeds."""
        if self.sharing == "plain":
            return np.zeros(len(names), np.int64), None
        if self.sharing == "disjoint":
            eligible = {} if times is None else self._eligible(times)
            name = (names & 0xFFFFFFFF).astype(np.uint32)
            return np.arange(len(names)), {"name": name, "by_row": True, **eligible}
        assert times is not None, "the constructor refuses it"
        distinct, of_row = np.unique(times, return_inverse=True)
        eligible = self._eligible(distinct)
        return of_row, {"name": np.uint32(key.step & 0xFFFFFFFF) ^ hash32(eligible["until"]), **eligible}

    def _eligible(self, times: np.ndarray) -> dict[str, Any]:
        """Returns which codes count at these times."""
        clock, window, before = self.graph.clock, self.sampler.window, self.sampler.before
        assert clock is not None
        until, since = clock.eligible(times, before, window)
        found: dict[str, Any] = {"until": until} | ({} if since is None else {"since": since})
        if self.sampler.order == "path":
            found |= {"along_path": True, "path_end": int(before == "<=")}
        return found

    def _times_of(self, rows: np.ndarray, ends: np.ndarray) -> np.ndarray:
        if self.table is not None and self.table.time is not None:
            return self.table.time[rows]
        assert self.graph.node_time is not None, "the constructor refuses it"
        times = self.graph.node_time[ends[:, 0]]
        bad = np.flatnonzero(times == (ALWAYS if times.dtype == np.int64 else -np.inf))
        if len(bad):
            raise SeedError(
                f"{self._named(int(ends[bad[0], 0]))} is a seed without a time, and has none itself; so are {len(bad)} "
                f"of {len(times)} seeds. Give each row's: SeedTable(nodes, time=times), or sampler.sample(..., "
                "times=times); leave these rows out, in prediction by predict= with the name of a split or of a node "
                "type whose nodes have times; or ignore the graph's times: before=None."
            )
        return times

    def _named(self, node: int) -> str:
        types = self.graph.types
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
        is_given = self.table is not None and self.table.time is not None
        if not is_given and (self.graph.node_time is None or (self.table is not None and self.table.is_links)):
            raise SeedError(
                "the graph has times, but the seeds have none. Give each row's: SeedTable(..., time=times), or "
                "sampler.sample(..., times=times); or ignore the graph's: NeighborSampler(..., before=None)."
            )

    def _check_rows(self, table: SeedTable) -> None:
        if table.is_links or not len(table):
            pass  # seeds are the distinct ends
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
            one, other = sorted(order[[twice[0], twice[0] + 1]].tolist())
            same = "node and time" if self.is_timed else "node"
            raise SeedError(
                f"rows {one} and {other} have the same {same}, but with sharing={self.sharing!r} rows of a mini-batch "
                f"share their nodes. Give NeighborSampler(..., sharing='disjoint'), by which each row has its own."
            )


def _queries(of_seed: np.ndarray, given: dict[str, Any] | None) -> Queries | None:
    return None if given is None else Queries(of_seed.astype(np.int32), **given)


def _timed_setting(sampler: Any) -> str | None:
    """Returns the first of a sampler's settings that mean something only where there are times."""
    for name in ("window", "sharing", "before", "order"):
        value = getattr(sampler, name, None)
        if value in ("time", "<", "path") or (name == "window" and value is not None):
            return name
    return None

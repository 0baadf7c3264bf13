"""Links as seeds: their endpoints, their negatives, and the edges that they must not see; and the kind of any seeds.

Shapes: R rows of a mini-batch, M negatives a row, P links: rows, and binary negatives, X excluded edges, S seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from lightning_gnnload.data.arrays import is_integer
from lightning_gnnload.data.checksums import checksum_of
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedform import LinkForm, SeedForm
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.types import by_edge_type
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.host.pages import source_of
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.sample.seeds.exclusion import excluded_positions, reverse_of
from lightning_gnnload.sample.seeds.lookup import EdgeLookup, ListLookup
from lightning_gnnload.sample.seeds.negatives import Negatives
from lightning_gnnload.sample.seeds.rows import NodeSeeds, SeedBatch, SeedKind, as_queries

Exclude = Literal["self", "reverse"]


@dataclass(frozen=True)
class LinkSettings:
    """Settings of links: which false edges come with them, and which edges are left out, as GraphDataModule has them;
    and ``weights`` of nodes by their names, floats ``[N]``, in proportion to which negatives are drawn.

    Raises:
        SamplerConfigError: an unknown name; no dict of types.
    """

    negatives: Negatives | Mapping[Any, Negatives | None] | None = None
    exclude: Exclude | None = None
    reverse_types: Mapping[Any, Any] | None = None
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.exclude not in ("self", "reverse", None):
            raise SamplerConfigError(f"exclude={self.exclude!r} is not known; give 'reverse', 'self' or None.")
        if self.reverse_types is not None and not isinstance(self.reverse_types, Mapping):
            raise SamplerConfigError(
                f"reverse_types={self.reverse_types!r}: a dict {{edge type: type of the edges that go back}} is needed."
            )

    @property
    def description(self) -> str:
        """The settings that mini-batches depend on, as checkpoints compare them."""
        return f", negatives={self.negatives!r}, exclude={self.exclude!r}"


class LinkSeeds(NodeSeeds):
    """Seeds that are links, of one edge type or several: the distinct endpoints of rows and of their negatives.

    Each type draws its negatives and leaves edges out by itself, by the numbers of rows within it: as a loader of this
    type alone does.
    """

    form = SeedForm("links")

    def __init__(self, graph: Graph, sampler: Any, seeds: SeedTable, settings: LinkSettings) -> None:
        self.settings = settings
        # Edges of a graph whose lists are not here are looked up by who samples over its parts.
        self._lookup: EdgeLookup | None = ListLookup(graph) if graph.has_lists else getattr(sampler, "lookup", None)
        super().__init__(graph, sampler, seeds)
        by_type = _negatives_by_type(graph, seeds, settings.negatives)
        self._binary = any(negatives is not None and negatives.mode == "binary" for negatives in by_type)
        self.has_negatives = any(negatives is not None for negatives in by_type)
        self._targets = seeds.targets_in(graph)
        self._types = [
            _LinkType(graph, seeds, edge_type, settings, negatives, self._lookup)
            for edge_type, negatives in zip(seeds.rows_by_type, by_type, strict=True)
        ]
        self.form = SeedForm("links", tuple(links.form for links in self._types))
        self._first_rows = np.array([links.first_row for links in self._types])
        self._numbers = np.array([links.form.number for links in self._types], np.int32)

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | (frozenset() if self.settings.exclude is None else {"exclusion"})

    @property
    def settings_by_name(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        types, exclude = self.graph.types, self.settings.exclude
        if exclude == "reverse" and types is not None:
            back = [links.reverse_type for links in self._types]
            settings["reverse_types"] = [None if number is None else types.edge_types[number] for number in back]
        if exclude is not None and self.table is not None and self.table.edge_ids is not None:
            settings["edge_order"] = f"{self.graph.order_checksum:08x}"  # by which ids name edges
        if self.settings.weights:
            weights = self.settings.weights
            settings["weights"] = f"{checksum_of(weights[name] for name in sorted(weights)):08x}"
        return settings

    def ask(self, rows: np.ndarray, key: DrawKey, *, names: np.ndarray | None = None) -> SeedBatch:
        assert self.table is not None
        nodes = self.nodes_of(rows)
        query, constraints, columns, y = self._described(rows, nodes, key, names)
        until = (constraints or {}).get("until")
        columns.pop("negatives", None)  # those of mode "hard", which come back as positions
        target = self.table.taken(rows, key.seed, key.epoch)
        links = np.stack([nodes[:, 0], self._targets[target]], axis=1)
        parts = self._parts(rows, columns)
        negatives, width = [], 0
        for part, at in parts:
            negatives.append(part.draw_negatives(rows[at], links[at], None if until is None else until[query[at]], key))
            width = max(width, negatives[-1].shape[1])
        endpoints, num_dst = np.full((len(rows), 2 + width), -1), np.zeros(len(rows), np.int64)
        endpoints[:, :2] = links
        for (part, at), nodes in zip(parts, negatives, strict=True):
            endpoints[at, 2 : 2 + nodes.shape[1]] = nodes
            num_dst[at] = nodes.shape[1] if part.form.num_dst is None else part.form.num_dst
        seeds, seed_query, positions = distinct_ends(endpoints, query, self.graph.num_nodes)
        columns |= self._columns(positions, endpoints[:, 2:] >= 0, num_dst)
        if self.settings.exclude is not None:
            excluded, excluded_query = self._excluded(parts, rows, links, target, query)
            constraints = {**(constraints or {}), "excluded": excluded, "excluded_query": excluded_query}
        queries = None if constraints is None else as_queries(seed_query, constraints)
        return SeedBatch(Draw(seeds, key, queries), y, columns, self.form)

    def _parts(self, rows: np.ndarray, columns: dict[str, torch.Tensor]) -> list[tuple[_LinkType, Any]]:
        """Finds the rows of each type, by an index of ``rows``; of several types, tells rows by type in ``columns``."""
        if len(self._types) == 1:
            return [(self._types[0], slice(None))]
        assert self.table is not None
        position = self.table.types_of(rows)
        columns |= {
            "input_id": torch.from_numpy(rows - self._first_rows[position]),
            "type": torch.from_numpy(self._numbers[position]),
        }
        return [(self._types[number], np.flatnonzero(position == number)) for number in np.unique(position).tolist()]

    def _excluded(
        self,
        parts: list[tuple[_LinkType, Any]],
        rows: np.ndarray,
        links: np.ndarray,
        target: np.ndarray,
        query: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the edges that are left out: positions in ``indices``, int64 ``[X]``, and for which query, int32."""
        # By one number for both: rows that share a query leave out the same edge once, and kernels look up in order.
        num_edges, keys = max(self.graph.num_edges, 1), []
        ids = None if self.table is None or self.table.edge_ids is None else self.table.edge_ids[target]
        for part, at in parts:
            src, dst = np.ascontiguousarray(links[at].T)
            edge_ids, back = None if ids is None else ids[at], part.reverse_type
            names = rows[at] - part.first_row
            positions, row = excluded_positions(
                self.graph, part.form.number, src, dst, edge_ids, reverse_type=back, names=names, lookup=self._lookup
            )
            keys.append(query[at][row] * num_edges + positions)
        excluded_query, positions = np.divmod(np.unique(np.concatenate(keys)), num_edges)
        return positions, excluded_query.astype(np.int32)

    def _columns(self, positions: np.ndarray, is_there: np.ndarray, num_dst: np.ndarray) -> dict[str, torch.Tensor]:
        """Returns what a mini-batch says about its links, by name, from the positions of sources, targets and negatives
        among the seeds, int64 ``[R, 2 + M]``; the first ``num_dst`` negatives of a row, int64 ``[R]``, replace its
        target."""
        src, dst, negatives = positions[:, 0], positions[:, 1], positions[:, 2:]
        if not self.has_negatives:
            return _tensors(src=src, dst=dst)
        if not self._binary:
            return _tensors(src=src, dst=dst, negatives=negatives, negative_mask=is_there)
        # Further links, row by row: each keeps the endpoint that was not replaced.
        row, number = np.nonzero(is_there)
        replaces_dst = number < num_dst[row]
        label = np.ones(len(src) + len(row), np.float32)
        label[len(src) :] = 0
        return _tensors(
            src=np.concatenate([src, np.where(replaces_dst, src[row], negatives[row, number])]),
            dst=np.concatenate([dst, np.where(replaces_dst, negatives[row, number], dst[row])]),
            label=label,
            row=np.concatenate([np.arange(len(src)), row]),
        )


class _LinkType:
    """The links of one edge type of a table: draws their negatives, and finds the edges that they must not see."""

    def __init__(
        self,
        graph: Graph,
        table: SeedTable,
        edge_type: Any,
        settings: LinkSettings,
        negatives: Negatives | None,
        lookup: EdgeLookup | None,
    ) -> None:
        rows, number = table.rows_by_type[edge_type], graph.edge_type_number(edge_type)
        self.graph, self.table, self.first_row, self.negatives = graph, table, rows.start, negatives
        self._lookup = lookup
        self.reverse_type = None
        if settings.exclude == "reverse":
            self.reverse_type = reverse_of(graph.types, number, settings.reverse_types)
        self._weights = None
        if negatives is not None:
            # Of no rows, nothing is drawn; who has no lists, and asks nobody for them, draws nothing either.
            if len(rows) and (graph.has_lists or lookup is not None):
                negatives.check(graph, number, lookup)
            if negatives.weight in settings.weights:
                self._weights = negatives.weigh(graph, number, settings.weights[str(negatives.weight)])
        num, y = _num_negatives(negatives, table), table.y
        if negatives is not None and negatives.mode == "hard":
            self._check_hard(negatives.num_dst(num or 0), num or 0, edge_type)
        self.form = LinkForm(
            None if graph.types is None else graph.types.edge_types[number],
            number,
            num,
            None if negatives is None or num is None else negatives.num_dst(num),
            # By the whole table: by a mini-batch's, the same label would be another number in the next one.
            int(y is not None and len(rows) > 0 and bool(y[rows.start : rows.stop].double().min() == 0)),
        )

    def _check_hard(self, num_dst: int, num: int, edge_type: Any) -> None:
        """Raises SeedError: a negative that is no node of the end that it replaces; now, not in mid-epoch."""
        rows, types = self.table.rows_by_type[edge_type], self.graph.types
        column = self.table.columns["negatives"]
        counts = [self.graph.num_nodes] * 2
        if types is not None:
            src, _, dst = types.edge_types[self.graph.edge_type_number(edge_type)]
            counts = [len(types.range_of(src)), len(types.range_of(dst))]
        for name, count, ids in (
            ("destination", counts[1], column[rows.start : rows.stop, :num_dst]),
            ("source", counts[0], column[rows.start : rows.stop, num_dst:num]),
        ):
            bad = ids.long() >= count
            if bool(bad.any()):
                row, at = torch.nonzero(bad)[0].tolist()
                at += 0 if name == "destination" else num_dst
                raise SeedError(
                    f"{self.table.title(edge_type)}: negatives[{row}, {at}] is {column[rows.start + row, at]}, which "
                    f"cannot be the {name} of an edge of this type; ids must lie in [0, {count}), or be -1 for none."
                    f"{source_of(column.data_ptr())}"
                )

    def draw_negatives(self, rows: np.ndarray, links: np.ndarray, until: np.ndarray | None, key: DrawKey) -> np.ndarray:
        """Returns the negatives of these rows, ids in the graph, int64 ``[R, M]``; -1 where there is none. ``until`` is
        the code before which known edges count, uint32 ``[R]``."""
        if self.negatives is None:
            return np.empty((len(rows), 0), np.int64)
        src, dst = np.ascontiguousarray(links.T)
        hard = self._hard(rows) if self.negatives.mode == "hard" else None
        rows = rows - self.first_row
        return self.negatives.draw(
            self.graph, self.form.number, rows, src, dst, until, key, hard, self._weights, self._lookup
        )

    def _hard(self, rows: np.ndarray) -> np.ndarray:
        """Returns the table's own negatives by their ids in the graph."""
        ids = self.table.columns["negatives"][torch.from_numpy(rows)].long().numpy()
        if self.graph.types is None:
            return ids
        src, _, dst = self.graph.types.edge_types[self.form.number]
        assert self.form.num_dst is not None
        is_dst = np.arange(ids.shape[1]) < self.form.num_dst
        first = np.where(is_dst, self.graph.types.range_of(dst).start, self.graph.types.range_of(src).start)
        return np.where(ids < 0, -1, ids + first)


def _negatives_by_type(graph: Graph, table: SeedTable, negatives: Any) -> list[Negatives | None]:
    """Returns the negatives of each edge type of a table. Raises SamplerConfigError: types or modes do not fit."""
    if not isinstance(negatives, Mapping):
        return [negatives] * len(table.rows_by_type)
    by_number = by_edge_type("negatives", negatives, graph.edge_type_number)
    numbers = [graph.edge_type_number(edge_type) for edge_type in table.rows_by_type]
    if by_number.keys() != set(numbers):
        raise SamplerConfigError(
            f"negatives are given for {', '.join(map(str, negatives))}, but the links are of "
            f"{', '.join(map(str, table.rows_by_type))}. Name each of these types, with None for those without."
        )
    modes = {settings.mode for settings in by_number.values() if settings is not None}
    if len(modes) > 1:
        raise SamplerConfigError(
            f"negatives of types have the modes {', '.join(sorted(modes))}, but a mini-batch holds them in one form. "
            "Give all types one mode; how many of them there are may differ."
        )
    return [by_number[number] for number in numbers]


def _num_negatives(negatives: Negatives | None, table: SeedTable) -> int | None:
    """Returns how many negatives each row of a table has; None where the mini-batch decides.

    Raises:
        SeedError: mode ``"hard"``, and no column of them.
    """
    if negatives is None or negatives.mode != "hard":
        return 0 if negatives is None else negatives.num or (None if negatives.mode == "in_batch" else 1)
    column = table.columns.get("negatives")
    if column is None or column.ndim != 2 or not is_integer(column):
        problem = "there is none" if column is None else f"it is {column.dtype} {list(column.shape)}"
        raise SeedError(
            f"SeedTable: Negatives of mode 'hard' take its column 'negatives', integers [{len(table)}, num], "
            f"but {problem}. Give SeedTable(..., columns={{'negatives': ids}}), or take another mode."
        )
    if negatives.num is not None and negatives.num > column.shape[1]:
        raise SeedError(
            f"SeedTable: its column 'negatives' has {column.shape[1]} a row, but {negatives.num} are asked for: "
            f"{negatives!r}. Give num={column.shape[1]} or fewer, or None for all."
        )
    return negatives.num or column.shape[1]


def seed_kind(
    graph: Graph, sampler: Any, seeds: np.ndarray | SeedTable, settings: LinkSettings | None = None
) -> SeedKind:
    """Returns the kind of node ids, or of a table of nodes or links; ``settings`` say what is asked beside links.

    Raises:
        SamplerConfigError: times, rows that share no nodes, or edges to leave out, which the sampler cannot heed;
            negatives of nodes, or of types or modes that do not fit.
        SeedError: rows without a time in a graph with times, a node in several rows that would share it, or a table
            without the negatives that are asked of it.
        GraphDataError: negatives where every pair is an edge.
    """
    seed_rows: SeedKind
    if isinstance(seeds, SeedTable) and seeds.kind == "links":
        seed_rows = LinkSeeds(graph, sampler, seeds, settings or LinkSettings())
    elif settings is None or settings.negatives is None:
        seed_rows = NodeSeeds(graph, sampler, seeds)
    else:
        raise SamplerConfigError(
            f"{settings.negatives} need seeds that are links, but the seeds are nodes. Give SeedTable(src=..., "
            "dst=...), or no negatives."
        )
    seed_rows.description = "" if settings is None else settings.description
    return seed_rows


def distinct_ends(nodes: np.ndarray, query: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the distinct nodes of each query, in order of first occurrence.

    Args:
        nodes: of each row, int64 ``[R, C]``; -1 where there is none.
        query: of each row, int64 ``[R]``.
        num_nodes: of the graph.

    Returns:
        Nodes int64 ``[S]``, the query of each, and their positions among them, int64 ``[R, C]``; 0 for none.

    Example:
        >>> seeds, _, positions = distinct_ends(np.array([[5, 3], [3, -1]]), np.array([0, 0]), num_nodes=8)
        >>> seeds.tolist(), positions.tolist()
        ([5, 3], [[0, 1], [1, 0]])
    """
    is_there = nodes >= 0
    query = np.broadcast_to(query[:, None], nodes.shape)[is_there]
    endpoints = nodes[is_there]
    _, first, number = np.unique(query * num_nodes + endpoints, return_index=True, return_inverse=True)
    # np.unique sorts by node: seeds are to stand as rows name them, so that their order depends on no other id.
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    positions = np.zeros(nodes.shape, np.int64)
    positions[is_there] = rank[number.ravel()]
    return endpoints[first[order]], query[first[order]], positions


def _tensors(**arrays: np.ndarray) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}

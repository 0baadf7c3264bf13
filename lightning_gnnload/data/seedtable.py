"""SeedTable: seeds as rows, each a node or a link with a time, a label and a weight of its own."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_ids, as_rows
from lightning_gnnload.data.checksums import checksum_of
from lightning_gnnload.data.clock import TimeForm, as_times
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.joined_seeds import joined_arguments
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import GraphDataError, SeedError
from lightning_gnnload.ops import as_integer
from lightning_gnnload.ops.philox import philox, stream_keys

_TARGETS_TAG = 0x74617267  # "targ", in ASCII: the stream of draws that choose among a row's targets
RESERVED = ("input_id", "time", "weight", "y", "src", "dst", "label", "row", "negative_mask")
"""What no column of a user's can be named: names of what mini-batches have by themselves."""


class SeedTable:
    """Holds seeds as rows: each is a node or a link, with what belongs to the row alone.

    A row's number, from 0 on, is its ``input_id`` in mini-batches; orders shuffle rows, and labels are found by row. So
    a node may come in several rows, with another time and label in each.

    Args:
        nodes: the node of each row, integer ``[R]``; None where rows are links.
        src: of links, the source of each row, integer ``[R]``.
        dst: likewise, the target; with ``dst_ptr``, the targets of all rows, ``[P]``.
        dst_ptr: integer ``[R + 1]``, where a row has several targets, at least one: those of row ``i`` are
            ``dst[dst_ptr[i]:dst_ptr[i + 1]]``. Each epoch takes one of them, drawn by the row's number and the epoch.
        node_type: the type of all ``nodes``, within which ids count; None: they are ids in the graph.
        edge_type: the type of all links, within whose node types ids count; None in a graph without types. Of several
            types, how many rows each has, ``{edge type: count}``, one type's behind the other's: :meth:`of_types`.
        edge_ids: of links that are edges of the graph, for each ``dst`` the row in the edge list that the graph was
            built from, of ``edge_type`` where there are types: the target edges, which are left out of sampling.
        time: of each row, int64, float64 or datetime64 ``[R]``.
        time_form: in which predictions have times that are given as nanoseconds; None: as they are given here.
        y: labels ``[R]`` or ``[R, C]``.
        weight: of each row, floats ``[R]``, finite and not negative, which mini-batches carry: what it weighs is up to
            the model.
        columns: further tensors or arrays by name, ``[R, ...]``, that mini-batches carry. ``"negatives"`` of links,
            integers ``[R, M]``, are for :class:`.Negatives` of mode ``"hard"``: ids as of the ends that they replace,
            or -1 for none.

    Attributes:
        kind: ``"nodes"`` or ``"links"``.
        rows_by_type: the rows of each edge type, ranges by type; of nodes, and where there are no types, all under
            None.
        ends: int64 ``[R, 1]``, the nodes, or ``[R, 2]``, sources and targets, as they were given; of several targets
            the first.
        targets: int64 ``[P]``, all targets of links; None for nodes.
        columns: all that mini-batches carry by row, tensors by name: ``"time"``, ``"weight"`` and the further ones.

    Shapes: R rows, P targets, as many unless ``dst_ptr`` says otherwise.

    Raises:
        GraphDataError: ids that are none, lengths that differ, a name that is taken, a label that is not a number.
        SeedError: a time that is none.

    Example:
        >>> table = SeedTable([7, 7, 3], time=[20, 40, 40], y=[0, 1, 0])
        >>> table, len(table)
        (SeedTable(3 nodes, time, y), 3)
    """

    def __init__(
        self,
        nodes: Any = None,
        *,
        src: Any = None,
        dst: Any = None,
        dst_ptr: Any = None,
        node_type: str | None = None,
        edge_type: EdgeType | str | Mapping[Any, int] | None = None,
        edge_ids: Any = None,
        time: Any = None,
        time_form: TimeForm | None = None,
        y: Any = None,
        weight: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> None:
        endpoints = _endpoints(nodes, src, dst, node_type, (edge_type, edge_ids, dst_ptr))
        self.kind = "links" if nodes is None else "nodes"
        self._num_rows = len(next(iter(endpoints.values())))
        self.targets = endpoints.get("dst")
        self.dst_ptr = None if dst_ptr is None else _starts(dst_ptr, self._num_rows, endpoints["dst"])
        if self.dst_ptr is not None:
            endpoints["dst"] = endpoints["dst"][self.dst_ptr[:-1]]
        for name, ids in endpoints.items():
            self._check_length(name, ids)
        self.ends = np.stack(list(endpoints.values()), axis=1)
        self.node_type = node_type
        edge_type = tuple(edge_type) if isinstance(edge_type, list) else edge_type
        self.rows_by_type = self._rows_by_type(edge_type)
        self.edge_type = None if isinstance(edge_type, Mapping) else edge_type
        self.edge_ids = None if edge_ids is None else as_ids(edge_ids, name="SeedTable: edge_ids")
        self.time = None if time is None else as_times(time, name="SeedTable: time", error=SeedError)
        self.time_form = TimeForm.of(time) if time_form is None else time_form
        self.y = None if y is None else as_rows(y, name="SeedTable: y")
        for name in ("time", "y"):
            if (rows := getattr(self, name)) is not None:
                self._check_length(name, rows)
        if self.edge_ids is not None and self.targets is not None and len(self.edge_ids) != len(self.targets):
            raise GraphDataError(
                f"SeedTable: edge_ids has {len(self.edge_ids)} entries for {len(self.targets)} targets; one each."
            )
        if self.y is not None:
            _check_labels(self.y)
        self.columns = self._columns(weight, {} if columns is None else columns)

    @classmethod
    def of_types(cls, tables: Mapping[Any, SeedTable], fill: Mapping[str, Any] | None = None) -> SeedTable:
        """Joins tables of links of several edge types: mini-batches of the table have links of all of them.

        Rows are those of the tables, one after the other. ``input_id`` of a row is its number in its own table, and
        the column ``"type"`` the number of its edge type.

        Args:
            tables: by edge type, a triple or a name. All have labels, times and edge ids, or none.
            fill: what stands in columns that some tables lack, by the column's name, ``"weight"`` among them.

        Raises:
            GraphDataError: a table of nodes, of another type or several, or with several targets a row; columns, labels
                or times that do not go together; what cannot fill a column.

        Example:
            >>> buys, views = SeedTable(src=[0, 1], dst=[4, 4]), SeedTable(src=[1], dst=[2])
            >>> SeedTable.of_types({("user", "buys", "item"): buys, ("user", "views", "item"): views})
            SeedTable(3 links of ('user', 'buys', 'item'): 2, ('user', 'views', 'item'): 1)
        """
        if not isinstance(tables, Mapping) or not tables:
            raise GraphDataError(
                f"SeedTable.of_types: {tables!r:.200} is no dict of tables. Give {{edge type: SeedTable(...)}}."
            )
        for edge_type, table in tables.items():
            _check_joins(edge_type, table)
        counts = {edge_type: len(table) for edge_type, table in tables.items()}
        return cls(
            edge_type=counts if len(counts) > 1 else next(iter(counts), None),
            **joined_arguments([table.arguments() for table in tables.values()], {} if fill is None else fill),
        )

    def __len__(self) -> int:
        return self._num_rows

    @property
    def is_links(self) -> bool:
        """Deprecated: whether :attr:`kind` is ``"links"``."""
        warnings.warn(
            'SeedTable.is_links still works. Write SeedTable.kind == "links".', DeprecationWarning, stacklevel=2
        )
        return self.kind == "links"

    @property
    def takes_labels_of_nodes(self) -> bool:
        """Whether the labels of rows are those of their nodes: of nodes, without labels of their own."""
        return self.y is None and self.kind == "nodes"

    @property
    def checksum(self) -> int:
        """CRC-32 of what rows are: nodes or links, their types, edges and times; not of labels and columns."""
        checksum = zlib.crc32(repr((self.node_type, self._named_type())).encode())
        return checksum_of((self.ends, self.targets, self.dst_ptr, self.edge_ids, self.time), checksum)

    @property
    def columns_checksum(self) -> int:
        """CRC-32 of what rows bring into mini-batches: labels and columns, hard negatives among them, by name."""
        columns = {**self.columns, **({} if self.y is None else {"y": self.y})}
        forms = [(name, str(columns[name].dtype), *columns[name].shape) for name in sorted(columns)]
        return checksum_of((columns[name] for name in sorted(columns)), zlib.crc32(repr(forms).encode()))

    def taken(self, rows: np.ndarray, seed: int, epoch: int) -> np.ndarray:
        """Returns which of its targets each row has in an epoch: places in ``dst`` and ``edge_ids``, int64 ``[n]``.

        Of several, each is equally likely, but for less than ``2**-32``, whatever the other rows and epochs take.

        Args:
            rows: their numbers, int64 ``[n]``.
            seed: the random seed of the run.
            epoch: of the mini-batch.
        """
        if self.dst_ptr is None:
            return rows
        # By the row's number alone, and by a product: the remainder of a division would favour the first targets.
        first, count = self.dst_ptr[rows], self.dst_ptr[rows + 1] - self.dst_ptr[rows]
        counter = np.zeros((len(rows), 4), np.uint32)
        counter[:, 0], counter[:, 1] = rows & 0xFFFFFFFF, rows >> 32
        words = philox(counter, stream_keys(seed, epoch, _TARGETS_TAG)[0])[:, 0].astype(np.uint64)
        return first + (words * count.astype(np.uint64) >> np.uint64(32)).astype(np.int64)

    def types_of(self, rows: np.ndarray) -> np.ndarray:
        """Returns the position in :attr:`rows_by_type` of the type of these rows, int64 ``[n]``."""
        # Of types without rows, which begin where the next one does, searchsorted passes over all.
        return np.searchsorted([part.start for part in self.rows_by_type.values()], rows, side="right") - 1

    def targets_in(self, graph: Graph) -> np.ndarray:
        """Returns all targets of links by their ids in the graph, int64 ``[P]``, of rows that passed
        :meth:`nodes_in`."""
        assert self.targets is not None, "these are nodes"
        targets = self.targets.copy()
        for edge_type, rows in self.rows_by_type.items():
            positions = slice(rows.start, rows.stop) if self.dst_ptr is None else slice(None)
            targets[positions] += self._ranges(graph, edge_type)[1].start
        return targets

    def nodes_in(self, graph: Graph) -> np.ndarray:
        """Returns the nodes of each row by their ids in the graph, int64 ``[R, 1]``; of links ``[R, 2]``.

        Raises:
            GraphDataError: an id that is no node of its type, a type in a graph without, or none for links in one with.
            SamplerConfigError: a type that the graph does not have.
        """
        nodes = self.ends.copy()
        for edge_type, rows in self.rows_by_type.items():
            part = slice(rows.start, rows.stop)
            for column, node_ids in enumerate(self._ranges(graph, edge_type)):
                ids = self.ends[part, column] if column == 0 or self.dst_ptr is None else self.targets
                assert ids is not None
                bad = np.flatnonzero((ids < 0) | (ids >= len(node_ids)))
                if len(bad):
                    raise GraphDataError(
                        f"{self.title(edge_type)}: {self._names[column]}[{bad[0]}] is {ids[bad[0]]}, which is not a "
                        f"node; ids must lie in [0, {len(node_ids)})."
                    )
                nodes[part, column] += node_ids.start
        self._check_edge_ids(graph)
        return nodes

    def title(self, edge_type: EdgeType | str | None) -> str:
        """Names the rows of a type in errors, which count from 0 within it, as in the table that they were given in."""
        return f"SeedTable of {edge_type}" if len(self.rows_by_type) > 1 else "SeedTable"

    @property
    def _names(self) -> tuple[str, ...]:
        """What the columns of :attr:`ends` are called."""
        return ("src", "dst") if self.kind == "links" else ("nodes",)

    def _ranges(self, graph: Graph, edge_type: EdgeType | str | None) -> list[range]:
        """Returns the ids in the graph among which the nodes of rows are, of links sources and targets."""
        name, types = self.node_type if edge_type is None else edge_type, graph.types
        if name is None:
            if types is not None and self.kind == "links":
                raise GraphDataError(f"SeedTable: edge_type is needed for links in {types}.")
            return [range(graph.num_nodes)] * self.ends.shape[1]
        if types is None:
            raise GraphDataError(f"SeedTable: the type {name!r} is given, but the graph has no types of nodes.")
        if self.node_type is not None:
            return [types.range_of(self.node_type)]
        number = types.edge_type_number(edge_type)
        if sum(types.edge_type_number(name) == number for name in self.rows_by_type) > 1:
            raise GraphDataError(f"SeedTable: the edge type {types.edge_types[number]} is given twice.")
        src, _, dst = types.edge_types[number]
        return [types.range_of(src), types.range_of(dst)]

    def _rows_by_type(self, edge_type: Any) -> dict[EdgeType | str | None, range]:
        """Raises GraphDataError: types of other numbers of rows, or with several targets a row."""
        if not isinstance(edge_type, Mapping):
            try:
                return {edge_type: range(self._num_rows)}
            except TypeError as error:  # no key of a dict
                raise GraphDataError(
                    f"SeedTable: edge_type is {edge_type!r:.100}; a triple or a name is needed."
                ) from error
        counts = [as_integer("SeedTable: edge_type", count, GraphDataError) for count in edge_type.values()]
        if sum(counts) != self._num_rows or min(counts, default=0) < 0 or self.dst_ptr is not None:
            raise GraphDataError(
                f"SeedTable: edge_type={dict(edge_type)} says how many of the {self._num_rows} rows each type has, one "
                "type's behind the other's, with one target a row (without dst_ptr)."
            )
        bounds = pairwise(accumulate(counts, initial=0))
        return {name: range(first, last) for name, (first, last) in zip(edge_type, bounds, strict=True)}

    def _named_type(self) -> Any:
        """Returns the edge type, as the constructor takes it."""
        if set(self.rows_by_type) == {self.edge_type}:
            return self.edge_type
        return {name: len(rows) for name, rows in self.rows_by_type.items()}

    def arguments(self) -> dict[str, Any]:
        """Returns what :class:`SeedTable` takes to make this table once more, by name."""
        nodes = {"nodes": self.ends[:, 0]} if self.targets is None else {"src": self.ends[:, 0], "dst": self.targets}
        names = ("dst_ptr", "node_type", "edge_ids", "time", "time_form", "y")
        columns = {name: rows for name, rows in self.columns.items() if name != "time"}
        more = {"edge_type": self._named_type(), "weight": columns.pop("weight", None), "columns": columns}
        return nodes | {name: getattr(self, name) for name in names} | more

    def _check_edge_ids(self, graph: Graph) -> None:
        if self.edge_ids is None or not len(self.edge_ids):
            return
        # How many edges each type has is known to those who look them up; here, that it is an edge at all.
        low, high = int(self.edge_ids.min()), int(self.edge_ids.max())
        if low < 0 or high >= graph.num_edges:
            bad = int(np.flatnonzero((self.edge_ids < 0) | (self.edge_ids >= graph.num_edges))[0])
            edge_type, first = None, 0  # with several targets a row there are more ids than rows, of one type
            if self.dst_ptr is None:
                edge_type, rows = list(self.rows_by_type.items())[self.types_of(np.array([bad]))[0]]
                first = rows.start
            raise GraphDataError(
                f"{self.title(edge_type)}: edge_ids[{bad - first}] is {self.edge_ids[bad]}, which is not an edge; rows "
                f"of the edge list lie in [0, {graph.num_edges})."
            )

    def _columns(self, weight: Any, columns: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        if not isinstance(columns, Mapping):
            raise GraphDataError(f"SeedTable: columns must be a dict by name, but it is a {type(columns).__name__}.")
        if "type" in columns and len(self.rows_by_type) > 1:
            raise GraphDataError("SeedTable: 'type' tells the types of rows apart. Name that column anew.")
        carried = {} if self.time is None else {"time": torch.from_numpy(np.array(self.time))}
        if weight is not None:
            carried["weight"] = as_rows(weight, name="SeedTable: weight")
        for name, rows in columns.items():
            if name in RESERVED or not isinstance(name, str) or not name.isidentifier():
                raise GraphDataError(
                    f"SeedTable: no column can be named {name!r}. Give an identifier other than {', '.join(RESERVED)}."
                )
            carried[name] = as_rows(rows, name=f"SeedTable: column {name!r}")
        for name, rows in carried.items():
            self._check_length(name, rows)
        if weight is not None:
            _check_weights(carried["weight"])
        return carried

    def _check_length(self, name: str, rows: np.ndarray | torch.Tensor) -> None:
        if rows.ndim < 1 or len(rows) != self._num_rows:
            raise GraphDataError(
                f"SeedTable: {name} has the shape {list(rows.shape)}, but {self._names[0]} has {self._num_rows} rows; "
                "one entry a row is needed."
            )

    def __repr__(self) -> str:
        columns = [*self.columns, *(name for name in ("y", "edge_ids") if getattr(self, name) is not None)]
        rows, name = f"{len(self)} {self.kind}", self.edge_type if self.node_type is None else self.node_type
        if name is not None:
            rows += f" of {name!r}"
        elif len(self.rows_by_type) > 1:
            rows += f" of {', '.join(f'{edge_type}: {len(part)}' for edge_type, part in self.rows_by_type.items())}"
        return f"SeedTable({', '.join([rows, *columns])})"


def _endpoints(
    nodes: Any, src: Any, dst: Any, node_type: str | None, settings_of_links: tuple[Any, ...]
) -> dict[str, np.ndarray]:
    """Returns the ids of rows that are nodes or links, by the names of their arguments.

    Raises:
        GraphDataError: neither, or settings of the other kind.
    """
    if (nodes is None) == (src is None) or (src is None) != (dst is None):
        raise GraphDataError("SeedTable: rows are nodes, or links: give nodes=ids, or both src=ids and dst=ids.")
    if node_type is not None if nodes is None else any(setting is not None for setting in settings_of_links):
        raise GraphDataError("SeedTable: node_type= is for nodes; edge_type=, edge_ids= and dst_ptr= are for links.")
    by_name = {"src": src, "dst": dst} if nodes is None else {"nodes": nodes}
    return {name: as_ids(ids, name=f"SeedTable: {name}") for name, ids in by_name.items()}


def _names_of(edge_type: Any) -> set[Any]:
    """Returns what a table may call its edge type, which is a triple, a name or a number; raises GraphDataError."""
    parts = edge_type if isinstance(edge_type, tuple) and len(edge_type) == 3 else (edge_type,)
    if not all(isinstance(part, str) for part in parts) and type(edge_type) is not int:
        raise GraphDataError(f"SeedTable.of_types: {edge_type!r:.200} is no edge type. Give a triple or a name.")
    return {edge_type, parts[1], "__".join(parts)} if len(parts) == 3 else {edge_type}


def _check_joins(edge_type: Any, table: Any) -> None:
    """Raises GraphDataError: it is no table of links of this edge type, with one target a row."""
    names = _names_of(edge_type)
    if not isinstance(table, SeedTable):
        raise GraphDataError(
            f"SeedTable.of_types: {edge_type!r} is given {table!r:.200}. Give SeedTable(src=..., dst=...)."
        )
    has_one_type = len(table.rows_by_type) == 1 and table.rows_by_type.keys() <= {None, *names}
    if table.kind != "links" or table.dst_ptr is not None or not has_one_type:
        raise GraphDataError(
            f"SeedTable.of_types: {edge_type!r} is given {table!r}. Tables of links are needed, each under its "
            "own edge type, with one target a row; rows with several have one type a table (dst_ptr=), and a "
            "table of several types is given by itself, or in its parts."
        )


def _starts(dst_ptr: Any, num_rows: int, targets: np.ndarray) -> np.ndarray:
    """Raises GraphDataError: these do not cut the targets into one piece a row, none of them empty."""
    starts = as_ids(dst_ptr, name="SeedTable: dst_ptr")
    fits = len(starts) == num_rows + 1 and starts[0] == 0 and starts[-1] == len(targets)
    empty = np.flatnonzero(starts[1:] <= starts[:-1])
    if not fits or len(empty):
        problem = f"row {empty[0]} has no target" if fits else f"it has {len(starts)} entries"
        raise GraphDataError(
            f"SeedTable: dst_ptr must rise from 0 to {len(targets)}, as dst ends, in {num_rows + 1} entries, one more "
            f"than src, but {problem}. Leave rows without a target out."
        )
    return starts


def _check_weights(weights: torch.Tensor) -> None:
    """Raises GraphDataError: weights that are not ``[R]``, or a negative or infinite one."""
    if weights.ndim != 1 or weights.is_complex():
        raise GraphDataError(f"SeedTable: weight must be [R], but it is {weights.dtype} {list(weights.shape)}.")
    # Torch compares no unsigned numbers of more than 8 bits.
    numbers = weights if weights.is_floating_point() else weights.long()
    good = numbers.isfinite() & (numbers >= 0)
    if not bool(good.all()):
        bad = int(torch.argmin(good.byte()))
        raise GraphDataError(f"SeedTable: weight[{bad}] is {weights[bad]}, but must be finite and not negative.")


def _check_labels(y: torch.Tensor) -> None:
    """Raises GraphDataError: labels ``[R]`` or ``[R, C]`` with a row that has none."""
    if y.ndim not in (1, 2):
        raise GraphDataError(f"SeedTable: y must be [R] or [R, C], but the shape is {list(y.shape)}.")
    if y.is_floating_point():
        gap = y.isnan() if y.ndim == 1 else y.isnan().all(1)
        if bool(gap.any()):
            raise GraphDataError(
                f"SeedTable: y[{int(torch.argmax(gap.byte()))}] is no label (NaN); {int(gap.sum())} of {len(y)} rows "
                "have none. Leave these rows out of the table."
            )

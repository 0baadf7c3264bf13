"""SeedTable: seeds as rows, each a node or a link with a time, a label and a weight of its own."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_ids, as_rows
from lightning_gnnload.data.clock import TimeForm, as_times
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import GraphDataError, SeedError
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
        edge_type: the type of all links, within whose node types ids count; None in a graph without types.
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
        edge_type: EdgeType | str | None = None,
        edge_ids: Any = None,
        time: Any = None,
        time_form: TimeForm | None = None,
        y: Any = None,
        weight: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> None:
        self.is_links = nodes is None
        if self.is_links == (src is None) or (src is None) != (dst is None):
            raise GraphDataError("SeedTable: rows are nodes, or links: give nodes=ids, or both src=ids and dst=ids.")
        of_links = any(given is not None for given in (edge_type, edge_ids, dst_ptr))
        if (self.is_links and node_type is not None) or (not self.is_links and of_links):
            raise GraphDataError(
                "SeedTable: node_type= is for nodes; edge_type=, edge_ids= and dst_ptr= are for links."
            )
        given = {"src": src, "dst": dst} if self.is_links else {"nodes": nodes}
        ends = {name: as_ids(ids, name=f"SeedTable: {name}") for name, ids in given.items()}
        self._num_rows = len(next(iter(ends.values())))
        self.targets = ends.get("dst")
        self.dst_ptr = None if dst_ptr is None else _starts(dst_ptr, self._num_rows, ends["dst"])
        if self.dst_ptr is not None:
            ends["dst"] = ends["dst"][self.dst_ptr[:-1]]
        for name, ids in ends.items():
            self._check_length(name, ids)
        self.ends = np.stack(list(ends.values()), axis=1)
        self.node_type = node_type
        self.edge_type = edge_type
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

    def __len__(self) -> int:
        return self._num_rows

    @property
    def checksum(self) -> int:
        """CRC-32 of all that mini-batches are drawn by: nodes or links, their types, and times; not of labels."""
        found = zlib.crc32(repr((self.node_type, self.edge_type)).encode())
        for values in (self.ends, self.targets, self.dst_ptr, self.edge_ids, self.time):
            found = zlib.crc32(b"" if values is None else np.ascontiguousarray(values).data, found)
        return found

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
        first, count = self.dst_ptr[rows], self.dst_ptr[rows + 1] - self.dst_ptr[rows]
        counter = np.zeros((len(rows), 4), np.uint32)
        counter[:, 0], counter[:, 1] = rows & 0xFFFFFFFF, rows >> 32
        words = philox(counter, stream_keys(seed, epoch, _TARGETS_TAG)[0])[:, 0].astype(np.uint64)
        return first + (words * count.astype(np.uint64) >> np.uint64(32)).astype(np.int64)

    def targets_in(self, graph: Graph) -> np.ndarray:
        """Returns all targets of links by their ids in the graph, int64 ``[P]``, of rows that passed
        :meth:`nodes_in`."""
        first = 0 if graph.types is None else graph.types.range_of(self._end_types(graph)[1]).start
        assert self.targets is not None, "these are nodes"
        return self.targets + first

    def nodes_in(self, graph: Graph) -> np.ndarray:
        """Returns the nodes of each row by their ids in the graph, int64 ``[R, 1]``; of links ``[R, 2]``.

        Raises:
            GraphDataError: an id that is no node of its type, a type in a graph without, or none for links in one with.
            SamplerConfigError: a type that the graph does not have.
        """
        ranges = [range(graph.num_nodes)] * self.ends.shape[1]
        if self.node_type is not None or self.edge_type is not None:
            if graph.types is None:
                name = self.node_type or self.edge_type
                raise GraphDataError(f"SeedTable: the type {name!r} is given, but the graph has no types of nodes.")
            ranges = [graph.types.range_of(name) for name in self._end_types(graph)]
        elif self.is_links and graph.types is not None:
            raise GraphDataError(f"SeedTable: edge_type is needed for links in {graph.types}.")
        for column, of_type in enumerate(ranges):
            ids = self.ends[:, column] if column == 0 or self.targets is None else self.targets
            bad = np.flatnonzero((ids < 0) | (ids >= len(of_type)))
            if len(bad):
                what = ("src", "dst")[column] if self.is_links else "nodes"
                raise GraphDataError(
                    f"SeedTable: {what}[{bad[0]}] is {ids[bad[0]]}, which is not a node; ids must lie in "
                    f"[0, {len(of_type)})."
                )
        self._check_edge_ids(graph)
        return self.ends + np.array([of_type.start for of_type in ranges])

    def _end_types(self, graph: Graph) -> list[str]:
        if self.node_type is not None:
            return [self.node_type]
        assert graph.types is not None
        src, _, dst = graph.types.edge_types[graph.types.edge_type_number(self.edge_type)]
        return [src, dst]

    def _check_edge_ids(self, graph: Graph) -> None:
        if self.edge_ids is None or not len(self.edge_ids):
            return
        # How many edges each type has is known to those who look them up; here, that it is an edge at all.
        low, high = int(self.edge_ids.min()), int(self.edge_ids.max())
        if low < 0 or high >= graph.num_edges:
            bad = int(np.flatnonzero((self.edge_ids < 0) | (self.edge_ids >= graph.num_edges))[0])
            raise GraphDataError(
                f"SeedTable: edge_ids[{bad}] is {self.edge_ids[bad]}, which is not an edge; rows of the edge list lie "
                f"in [0, {graph.num_edges})."
            )

    def _columns(self, weight: Any, columns: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        if not isinstance(columns, Mapping):
            raise GraphDataError(f"SeedTable: columns must be a dict by name, but it is a {type(columns).__name__}.")
        found = {} if self.time is None else {"time": torch.from_numpy(np.array(self.time))}
        if weight is not None:
            found["weight"] = as_rows(weight, name="SeedTable: weight")
        for name, rows in columns.items():
            if name in RESERVED or not isinstance(name, str) or not name.isidentifier():
                raise GraphDataError(
                    f"SeedTable: no column can be named {name!r}. Give an identifier other than {', '.join(RESERVED)}."
                )
            found[name] = as_rows(rows, name=f"SeedTable: column {name!r}")
        for name, rows in found.items():
            self._check_length(name, rows)
        if weight is not None:
            weights = found["weight"]
            if weights.ndim != 1 or weights.is_complex():
                raise GraphDataError(f"SeedTable: weight must be [R], but it is {weights.dtype} {list(weights.shape)}.")
            good = weights.isfinite() & (weights >= 0)
            if not bool(good.all()):
                bad = int(torch.argmin(good.byte()))
                raise GraphDataError(
                    f"SeedTable: weight[{bad}] is {weights[bad]}, but must be finite and not negative."
                )
        return found

    def _check_length(self, name: str, rows: np.ndarray | torch.Tensor) -> None:
        if rows.ndim < 1 or len(rows) != self._num_rows:
            what = "src" if self.is_links else "nodes"
            raise GraphDataError(
                f"SeedTable: {name} has the shape {list(rows.shape)}, but {what} has {self._num_rows} rows; one entry "
                "a row is needed."
            )

    def __repr__(self) -> str:
        held = [*self.columns, *(name for name in ("y", "edge_ids") if getattr(self, name) is not None)]
        what = f"{len(self)} {'links' if self.is_links else 'nodes'}"
        of_type = self.node_type or self.edge_type
        return f"SeedTable({', '.join([what if of_type is None else f'{what} of {of_type!r}', *held])})"


def _starts(dst_ptr: Any, num_rows: int, targets: np.ndarray) -> np.ndarray:
    """Raises GraphDataError: these do not cut the targets into one piece a row, none of them empty."""
    starts = as_ids(dst_ptr, name="SeedTable: dst_ptr")
    fits = len(starts) == num_rows + 1 and starts[0] == 0 and starts[-1] == len(targets)
    empty = np.flatnonzero(starts[1:] <= starts[:-1])
    if not fits or len(empty):
        problem = f"row {empty[0]} has no target" if fits else f"it has {len(starts)} entries"
        raise GraphDataError(
            f"SeedTable: dst_ptr must rise from 0 to {len(targets)}, as dst ends, in {num_rows + 1} entries, but "
            f"{problem}. Leave rows without a target out."
        )
    return starts


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


def refuse_tables(name: str, seeds: Any) -> None:
    """Raises GraphDataError: tables lie in a list, or in a dict by type, where one table alone is taken."""
    if isinstance(seeds, Mapping):
        for node_type, of_type in seeds.items():
            if isinstance(of_type, SeedTable):
                raise GraphDataError(
                    f"{name}: a SeedTable says its type itself. Give SeedTable(nodes, node_type={node_type!r}) in the "
                    f"place of {{{node_type!r}: {of_type!r}}}."
                )
            refuse_tables(name, of_type)
    elif isinstance(seeds, list | tuple) and any(isinstance(each, SeedTable) for each in seeds):
        raise GraphDataError(
            f"{name}: one SeedTable is needed, not a {type(seeds).__name__} of {len(seeds)}: {list(seeds)}. Put all "
            "rows into one. Seeds of another type are another task's, which has its own fit: GraphData(tasks=...) and "
            "GraphDataModule(task=...)."
        )
    elif seeds is SeedTable:
        raise GraphDataError(f"{name} is the class SeedTable; give one of it: SeedTable(nodes, ...).")

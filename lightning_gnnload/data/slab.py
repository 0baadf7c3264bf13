"""Slab: what the memory of a mini-batch holds. A Schema names its columns; a Header says how long they are, and where.

Nodes lie at the begin, the hops that a sampler drew at the end, and all else in between, each column at a multiple of
64 bytes. A schema is the same for all mini-batches of a phase; a header is one mini-batch's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, islice
from operator import add
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from lightning_gnnload.data.seedform import NODE_SEEDS, SeedForm
from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.ops import SampleLayout
from lightning_gnnload.ops.checks import ARENA_ALIGNMENT

_MOST_COLUMNS = 4096
_MAX_SIZE = 1 << 48


class EdgeColumn(NamedTuple):
    """Describes a column of numbers, one an edge, that blocks may hold beside their indices.

    Attributes:
        name: in a :class:`.Block`, and where a sampler declares its columns.
        offset: its place, in a :class:`.HopLayout`.
        dtype: of the numbers.
    """

    name: str
    offset: str
    dtype: torch.dtype

    @property
    def plural(self) -> str:
        """The column's name in kernels, and in what they leave on a device."""
        return self.offset.removesuffix("_offset")


EDGE_COLUMNS = (
    EdgeColumn("edge_ids", "edge_ids_offset", torch.int64),
    EdgeColumn("edge_weight", "edge_weights_offset", torch.float32),
    EdgeColumn("edge_type", "edge_types_offset", torch.int32),
)
"""In the order of HopLayout's offsets."""


_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


class Axis(NamedTuple):
    """A set of rows of a mini-batch, of which columns have one each.

    Attributes:
        entity: ``"node"``; ``"seed"``; ``"row"``, of what belongs to the seeds' rows; of a hop ``"src"``, ``"edge"``,
            and
            ``"ptr"``, one more than its destinations.
        hop: of a hop, nearest first; -1 where the rows of all hops lie one after the other, as :meth:`Header.spans`
            has them.
        part: these are the rows of some nodes, of one type's edges or of one seed column alone, and which; -1: of all.
    """

    entity: str
    hop: int = -1
    part: int = -1


NODES, SEEDS, ROWS, EDGES = (Axis(entity) for entity in ("node", "seed", "row", "edge"))


class Column(NamedTuple):
    """A column of a mini-batch: an array with one entry a row.

    Attributes:
        axis: whose rows.
        field: where it goes in a :class:`.MiniBatch`, or in a :class:`.Block` of the hop. ``"positions"``: which rows
            of the whole those of a part are, for all tables of that part.
        dtype: torch's name of it.
        name: in the field, where that is a dict; else None.
        width: the shape of an entry.
    """

    axis: Axis
    field: str
    dtype: str
    name: str | None = None
    width: tuple[int, ...] = ()

    @classmethod
    def of(cls, axis: Axis, field: str, rows: Any, name: str | None = None) -> Column:
        """Returns the column of these rows: a tensor, or a feature store."""
        width = rows.shape[1:] if isinstance(rows, torch.Tensor) else rows.row_shape
        return cls(axis, field, _NAMES[rows.dtype], name, tuple(width))


class Schema:
    """The columns of mini-batches, and the sets of rows that they belong to.

    Args:
        columns: first those that the sampler draws, hop by hop.
        counted: further sets of rows, which have no column.
        seed_form: what the seeds are.
    """

    def __init__(
        self, columns: tuple[Column, ...], counted: tuple[Axis, ...] = (), seed_form: SeedForm = NODE_SEEDS
    ) -> None:
        self.columns = columns
        self.seed_form = seed_form
        self.axes = tuple(dict.fromkeys((NODES, SEEDS, *(column.axis for column in columns), *counted)))
        self.number = {axis: number for number, axis in enumerate(self.axes)}
        self.indices = [number for number, column in enumerate(columns) if column.field == "indices"]
        """The number of each hop's column of indices, nearest first."""
        self.hops = [
            (self.number[axis], self.number[Axis("src", axis.hop)]) for axis in self.axes if axis.entity == "ptr"
        ]
        """Of each hop, nearest first: the numbers of its sets of pointers and of sources."""
        self.over_hops = [axis for axis in self.axes if axis.entity == "edge" and axis.hop < 0]
        self.forms = list[tuple[int, torch.dtype, int]]()
        """Of each column: the number of its axis, its dtype, and the bytes of an entry."""
        for column in columns:
            dtype = getattr(torch, column.dtype)
            self.forms.append((self.number[column.axis], dtype, dtype.itemsize * math.prod(column.width)))
        tables: dict[Axis, list[str]] = {axis: [] for axis in self.axes}
        for column in columns:
            if column.name is not None:
                tables[column.axis].append(column.name)
        self.names = [
            tables[axis] if field == "positions" else [] if name is None else [name]
            for axis, field, _, name, _ in columns
        ]
        """Of each column: the names that it has in its field, where that is a dict."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and all(
            getattr(self, name) == getattr(other, name) for name in ("axes", "columns", "seed_form")
        )

    def __hash__(self) -> int:
        return hash(self.columns)

    @cached_property
    def text(self) -> str:
        """The schema as JSON, by which another process knows it."""
        columns = [[self.number[axis], *form] for axis, *form in self.columns]
        return json.dumps([self.axes, columns, self.seed_form], separators=(",", ":"))

    @staticmethod
    @lru_cache(maxsize=256)
    def of_text(text: str) -> Schema:
        """Reads what :attr:`text` gives. QueueProtocolError: it is something else."""
        try:
            axes, columns, seed_form = json.loads(text)
            if max(len(axes), len(columns), len(seed_form[1])) > _MOST_COLUMNS:
                raise ValueError(f"there are more than {_MOST_COLUMNS}")
            axes = tuple(Axis(*axis) for axis in axes)
            columns = tuple(
                Column(axes[number], field, dtype, name, tuple(width)) for number, field, dtype, name, width in columns
            )
            _check_columns(axes, columns)
            schema = Schema(columns, axes, SeedForm.of_json(seed_form))
            if schema.axes != axes:
                raise ValueError("sets of rows are not in the order of their columns, or repeat")
        except (TypeError, ValueError, KeyError, IndexError, RecursionError) as error:
            raise QueueProtocolError(f"a mini-batch's columns are malformed: {error!r} in {text!r:.200}") from error
        return schema


@lru_cache(maxsize=256)
def _schema_of(
    has_queries: bool, hops: tuple[tuple[bool, ...], ...], columns: tuple[Column, ...], seed_form: SeedForm
) -> Schema:
    """Returns the schema of what a sampler draws, and further columns; ``hops``: which of EDGE_COLUMNS each has."""
    node_columns, counted = [Column(NODES, "nodes", "int64")], list[Axis]()
    if has_queries:
        node_columns.append(Column(NODES, "rows", "int32"))
    for hop, presence in enumerate(hops):
        edges = Axis("edge", hop)
        node_columns += [Column(Axis("ptr", hop), "indptr", "int32"), Column(edges, "indices", "int32")]
        for (name, _, dtype), is_there in zip(EDGE_COLUMNS, presence, strict=True):
            if is_there:
                node_columns.append(Column(edges, name, _NAMES[dtype]))
        counted.append(Axis("src", hop))
    parts = {axis.part for axis, *_ in columns if axis.entity == "edge" and axis.part >= 0}
    counted += [Axis("edge", hop, part) for part in sorted(parts) for hop in range(len(hops))]
    return Schema((*node_columns, *columns), tuple(counted), seed_form)


@dataclass(frozen=True)
class Header:
    """How long the columns of one mini-batch are (by axis of the schema), and where they begin in its memory (by
    column). ``epoch`` and ``step`` are those of the draw key."""

    schema: Schema
    epoch: int
    step: int
    lengths: tuple[int, ...]
    offsets: tuple[int, ...]

    @classmethod
    def place(
        cls,
        layout: SampleLayout,
        num_seeds: int,
        epoch: int,
        step: int,
        columns: tuple[Column, ...] = (),
        lengths: Mapping[Axis, int] = MappingProxyType({}),
        seed_form: SeedForm = NODE_SEEDS,
    ) -> tuple[Header, int]:
        """Places columns behind the nodes that were drawn, one after the other; also returns where they end.
        ``lengths`` are those of the columns' axes, and of each hop's edges of a part."""
        presence, offsets, counts = [], [0], [layout.num_nodes, num_seeds]
        if layout.queries_offset >= 0:
            offsets.append(layout.queries_offset)
        for hop in layout.hops:
            ids, weights, types = optional = hop.edge_ids_offset, hop.edge_weights_offset, hop.edge_types_offset
            presence.append((ids >= 0, weights >= 0, types >= 0))
            offsets += hop.indptr_offset, hop.indices_offset
            for offset in optional:
                if offset >= 0:
                    offsets.append(offset)
            counts += hop.num_dst + 1, hop.num_edges
        schema = _schema_of(layout.queries_offset >= 0, tuple(presence), columns, seed_form)
        for axis in schema.axes[len(counts) :]:
            counts.append(layout.hops[axis.hop].num_src if axis.entity == "src" else lengths[axis])
        end = layout.free_begin
        for number, _, row_bytes in schema.forms[len(offsets) :]:
            offsets.append(end)
            end += -(-counts[number] * row_bytes // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
        return cls(schema, epoch, step, tuple(counts), tuple(offsets)), end

    def length(self, axis: Axis) -> int:
        """Returns how many rows an axis has."""
        return self.lengths[self.schema.number[axis]]

    @property
    def num_nodes(self) -> int:
        return self.lengths[0]

    @property
    def num_seeds(self) -> int:
        return self.lengths[1]

    @property
    def num_edges(self) -> int:
        """Edges of all blocks; hops that share one array (``expand="new"``) count once."""
        longest: dict[int, int] = {}
        for column in self.schema.indices:
            array, count = self.offsets[column], self.lengths[self.schema.forms[column][0]]
            longest[array] = max(count, longest.get(array, 0))
        return sum(longest.values())

    @property
    def num_bytes(self) -> int:
        """The bytes of all columns, without the gaps between them; hops that share an array count once."""
        longest: dict[int, int] = {}
        for begin, end in self.extents():
            longest[begin] = max(end, longest.get(begin, 0))
        return sum(end - begin for begin, end in longest.items())

    @property
    def end(self) -> int:
        """The offset at which the mini-batch ends."""
        return max(end for _, end in self.extents())

    def extents(self) -> list[tuple[int, int]]:
        """Returns where each column begins and ends."""
        columns = zip(self.offsets, self.schema.forms, strict=True)
        return [(offset, offset + self.lengths[number] * row_bytes) for offset, (number, _, row_bytes) in columns]

    def spans(self, part: int = -1) -> list[slice]:
        """Returns the rows of each hop among those of all hops, of one part (-1: all). Hops that are prefixes of one
        array share rows."""
        arrays, counts = list[int](), list[int]()
        for hop, column in enumerate(self.schema.indices):
            arrays.append(self.offsets[column])
            counts.append(self.lengths[self.schema.number[Axis("edge", hop, part)]])
        return hop_spans(arrays, counts)

    def views(self, memory: Any, first: int = 0) -> list[torch.Tensor]:
        """Returns the columns from number ``first`` on, without a copy; they keep ``memory`` alive. ValueError: one
        lies beyond its end."""
        views, is_on_host = list[torch.Tensor](), not isinstance(memory, torch.Tensor)
        columns = zip(self.offsets, self.schema.forms, self.schema.columns, strict=True)
        for offset, (axis, dtype, _), column in islice(columns, first, None):
            count = self.lengths[axis]
            if is_on_host and not column.width and count:  # most columns: view_of() would do the same
                views.append(torch.frombuffer(memory, dtype=dtype, count=count, offset=offset))
            else:
                views.append(view_of(memory, offset, (count, *column.width), dtype))
        return views

    def numbers(self) -> list[int]:
        """Returns what :meth:`of_numbers` takes."""
        return [self.epoch, self.step, *self.lengths, *self.offsets]

    @classmethod
    def of_numbers(cls, schema: Schema, numbers: Sequence[int]) -> Header:
        """Checks a header that comes from another process; QueueProtocolError where the numbers are none of this
        schema. Memory that is too short is an error of :meth:`views`."""
        try:
            num_axes = len(schema.axes)
            if len(numbers) != 2 + num_axes + len(schema.columns):
                raise ValueError(f"{len(numbers)} numbers of {num_axes} axes, {len(schema.columns)} columns")
            for number in numbers:
                if type(number) is not int or not 0 <= number < _MAX_SIZE:
                    raise ValueError(f"{number!r:.50} is no size")
            epoch, step, *counts = numbers
            header = cls(schema, epoch, step, tuple(counts[:num_axes]), tuple(counts[num_axes:]))
            header._check()
        except (TypeError, ValueError) as error:
            raise QueueProtocolError(f"a mini-batch's header is malformed: {error!r} in {numbers!r:.200}") from error
        return header

    def _check(self) -> None:
        if self.num_seeds > self.num_nodes:
            raise ValueError(f"{self.num_seeds} seeds of {self.num_nodes} nodes")
        for axis, length in zip(self.schema.axes, self.lengths, strict=True):
            if axis.entity == "ptr" and length == 0:
                raise ValueError("a hop has no pointers")
            if axis.entity == "edge" and axis.hop < 0 and any(span.stop > length for span in self.spans(axis.part)):
                raise ValueError(f"{axis} has {length} rows, and its hops more")
        for (begin, end), (_, dtype, _) in zip(self.extents(), self.schema.forms, strict=True):
            if end >= _MAX_SIZE or begin % dtype.itemsize:
                raise ValueError(f"a column of {dtype} cannot lie at {begin} to {end}")


def _check_columns(axes: tuple[Axis, ...], columns: tuple[Column, ...]) -> None:
    """Checks columns that come from another process. Raises ValueError, TypeError."""
    num_hops = sum(axis.entity == "ptr" for axis in axes)
    for axis in axes:
        is_counted = type(axis.hop) is type(axis.part) is int and axis.hop < num_hops
        if not is_counted or _form(axis) not in _FIELDS:
            raise ValueError(f"{axis!r:.100} is no set of rows")
    for column in columns:
        _check_column(*column)
    keys = [(axis, field, name) for axis, field, _, name, _ in columns]
    hops, parts = range(num_hops), [axis for axis in axes if "positions" in _FIELDS[_form(axis)]]
    needed_keys = {(NODES, "nodes", None), *((axis, "positions", None) for axis in parts)}
    hop_columns = [[(Axis("ptr", hop), "indptr", None), (Axis("edge", hop), "indices", None)] for hop in hops]
    if len(set(keys)) < len(keys) or not needed_keys <= set(keys):
        raise ValueError("a column comes twice, or is missing")
    if [key for key in keys if key[1] in ("indptr", "indices")] != [key for pair in hop_columns for key in pair]:
        raise ValueError("hops are missing, or in another order")
    counted = {Axis("src", hop) for hop in hops}
    counted |= {Axis("edge", hop, axis.part) for axis in parts if axis.entity == "edge" for hop in hops}
    if not counted <= set(axes):
        raise ValueError(f"{counted - set(axes)} are not counted")


def _check_column(axis: Axis, field: str, dtype: str, name: str | None, width: tuple[int, ...]) -> None:
    if not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise ValueError(f"{dtype!r:.50} is no dtype")
    if any(type(size) is not int or not 0 <= size < _MAX_SIZE for size in width):
        raise ValueError(f"{width!r:.50} is no shape")
    needed = _FIELDS[_form(axis)][field]
    if needed and (dtype, width) != (needed, ()):
        raise ValueError(f"{field} of {axis} are {dtype} {width}")
    if type(name) is not (str if field in _DICTS else type(None)):
        raise ValueError(f"{field} of {axis} has the name {name!r:.50}")


_FIELDS: dict[tuple[str, bool, bool], dict[str, str]] = {
    ("node", False, False): {"nodes": "int64", "rows": "int32", "x": "", "tables": ""},
    ("node", False, True): {"positions": "int64", "tables": ""},
    ("seed", False, False): {"y": ""},
    ("row", False, False): {"y": ""},
    ("row", False, True): {"seed_columns": ""},
    ("src", True, False): {},
    ("ptr", True, False): {"indptr": "int32"},
    ("edge", True, False): {"indices": "int32", **{column.name: _NAMES[column.dtype] for column in EDGE_COLUMNS}},
    ("edge", False, False): {"x": "", "tables": ""},
    ("edge", False, True): {"positions": "int64", "tables": ""},
    ("edge", True, True): {},
}
"""The fields of sets of rows, by ``(entity, is of a hop, is a part)``, and their dtypes where only one will do."""
_DICTS = ("tables", "seed_columns")


def _form(axis: Axis) -> tuple[str, bool, bool]:
    return axis.entity, axis.hop >= 0, axis.part >= 0


def hop_spans(arrays: Sequence[int], counts: Sequence[int]) -> list[slice]:
    """Lays the edges of hops one after the other, by where their indices begin and how many they are. Hops that are
    prefixes of one array share rows.

    Example:
        >>> hop_spans([0, 64, 64], [2, 3, 5])
        [slice(0, 2, None), slice(2, 5, None), slice(2, 7, None)]
    """
    longest: dict[int, int] = {}
    for array, count in zip(arrays, counts, strict=True):
        longest[array] = max(count, longest.get(array, 0))
    begins = dict(zip(longest, accumulate(longest.values(), initial=0), strict=False))
    firsts = [*map(begins.__getitem__, arrays)]
    return [*map(slice, firsts, map(add, firsts, counts))]


def view_of(buffer: Any, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor over ``buffer`` (host memory, or a uint8 tensor on any device) at a byte offset, which keeps the
    memory alive. Empty shapes own no memory. ValueError: it lies beyond the end."""
    count = math.prod(shape)
    if not isinstance(buffer, torch.Tensor):
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        flat = torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset)
        return flat if len(shape) == 1 else flat.view(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype, device=buffer.device)
    end = offset + count * dtype.itemsize
    if not 0 <= offset < end <= len(buffer) or offset % dtype.itemsize:
        raise ValueError(f"{count} numbers of {dtype} at byte {offset} do not lie in a buffer of {len(buffer)} bytes")
    return buffer[offset:end].view(dtype).view(shape)

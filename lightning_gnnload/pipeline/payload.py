"""Payload: the description of a mini-batch in a slot, and of what it took to make, as a sampler sends it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import torch

from lightning_gnnload.data.block import EDGE_COLUMNS, Block, MiniBatch, hop_arrays
from lightning_gnnload.data.features import Reads, TierReads
from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.ops import DrawKey, HopLayout, SampleLayout
from lightning_gnnload.pipeline.tables import EdgePositions, TableLayout, edge_spans, num_edge_rows

_MAX_SIZE = 1 << 48  # sizes come from another process: their products must stay within int64


@dataclass(frozen=True)
class Timing:
    """Which thread made a mini-batch, when, and how long it took.

    Attributes:
        made_by: global rank that made it; the trainer's own unless a sampler says otherwise.
        thread: name of the thread that did.
        began_s: when sampling began, by ``time.monotonic``, the one clock of all processes of a machine.
        sample_ms: sampling.
        gather_ms: gathering features and labels, from then on.
        cpu_ms: of these two, the time that the thread ran on a core.
    """

    made_by: int
    thread: str
    began_s: float
    sample_ms: float
    gather_ms: float
    cpu_ms: float

    @property
    def sampled_s(self) -> float:
        """When sampling ended, and gathering began."""
        return self.began_s + self.sample_ms / 1e3

    @property
    def made_s(self) -> float:
        """When gathering ended."""
        return self.sampled_s + self.gather_ms / 1e3


_OF_TIMING = tuple(each.name for each in fields(Timing))


@dataclass(frozen=True)
class Payload:
    """Describes where a mini-batch's arrays lie in a slot, and what it cost to make.

    Attributes:
        reads: where the features came from, nearest tier first; empty where their store does not count.
        tables: named tables; ``positions`` are those of node types, as in :class:`.tables.TablePlaces`.
        edge_tables: edge features of all hops by name, ``edge_positions`` those of edge types, as in
            :class:`.tables.TablePlaces`.
        seed_columns: what belongs to the seeds' rows, by name.
    """

    layout: SampleLayout
    num_seeds: int
    key: DrawKey
    x: TableLayout | None
    y: TableLayout | None
    timing: Timing
    reads: Reads = ()
    tables: dict[str, TableLayout] = field(default_factory=dict)
    positions: dict[str, TableLayout] = field(default_factory=dict)
    edge_tables: dict[str, TableLayout] = field(default_factory=dict)
    edge_positions: dict[str, EdgePositions] = field(default_factory=dict)
    seed_columns: dict[str, TableLayout] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        return self.layout.num_nodes

    @property
    def num_edges(self) -> int:
        """Edges of all blocks; hops that share one array (``expand="new"``) count once."""
        by_place = {hop.indices_offset: hop.num_edges for hop in self.layout.hops}
        return sum(by_place.values())

    @property
    def num_bytes(self) -> int:
        """The bytes of the mini-batch's arrays, without the gaps between them."""
        total = self._node_bytes + sum(table.num_bytes for table in self._all_tables)
        for hop in {hop.indices_offset: hop for hop in self.layout.hops}.values():
            total += sum(count * dtype.itemsize for _, count, dtype in hop_arrays(hop).values())
        return total

    @property
    def _node_bytes(self) -> int:
        """The bytes of the nodes' ids and, where there are queries, of their numbers."""
        return (8 if self.layout.queries_offset < 0 else 12) * self.layout.num_nodes

    @property
    def _all_tables(self) -> list[TableLayout]:
        single = (table for table in (self.x, self.y) if table is not None)
        named = (self.tables, self.positions, self.edge_tables, self.seed_columns)
        places = (each.places for each in self.edge_positions.values())
        return [*single, *(table for tables in named for table in tables.values()), *places]

    @property
    def end(self) -> int:
        """The offset in the slot at which the mini-batch ends."""
        ends = [8 * self.layout.num_nodes, self.layout.queries_offset + 4 * self.layout.num_nodes]
        ends += [table.offset + table.num_bytes for table in self._all_tables]
        for hop in self.layout.hops:
            ends += [offset + count * dtype.itemsize for offset, count, dtype in hop_arrays(hop).values()]
        return max(ends)

    def view(self, buffer: Any) -> MiniBatch:
        """Returns the mini-batch without a copy; its tensors keep ``buffer``'s memory alive.

        Raises:
            QueueProtocolError: parts of it lie beyond the end of ``buffer``.
        """
        try:
            batch = MiniBatch.view(buffer, self.layout, self.num_seeds, epoch=self.key.epoch, step=self.key.step)
            x, y = (None if table is None else table.view(buffer) for table in (self.x, self.y))
            tables, positions, of_edges, seed_columns = (
                {name: table.view(buffer) for name, table in named.items()}
                for named in (self.tables, self.positions, self.edge_tables, self.seed_columns)
            )
            places = {name: each.places.view(buffer) for name, each in self.edge_positions.items()}
        except ValueError as error:  # torch looks at where the buffer ends
            raise QueueProtocolError(f"a mini-batch does not lie in its slot: {error}.") from error
        blocks = batch.blocks
        if of_edges:
            spans = edge_spans(self.layout.hops)
            hops = reversed(range(len(spans)))  # blocks begin with the outermost
            blocks = [
                self._with_tables(block, hop, spans[hop], of_edges, places)
                for hop, block in zip(hops, blocks, strict=True)
            ]
        return replace(batch, blocks=blocks, x=x, y=y, tables=tables, positions=positions, seed_columns=seed_columns)

    def _with_tables(
        self, block: Block, hop: int, span: slice, tables: dict[str, torch.Tensor], places: dict[str, torch.Tensor]
    ) -> Block:
        """Returns a hop's block with its rows of edge tables, and the places of those of one type."""
        own = {name: slice(*each.spans[hop]) for name, each in self.edge_positions.items()}
        rows = {name: table[own.get(name, span)] for name, table in tables.items()}
        return replace(
            block,
            x=rows.pop("edge_x", None),
            tables=rows,
            positions={name: where[own[name]] for name, where in places.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values; the timing's fields stand in its place."""
        before, after = asdict(self), dict[str, Any]()
        for name, value in before.items():
            after |= value if name == "timing" else {name: value}
        return after

    @classmethod
    def from_json(cls, message: Any) -> Payload:
        """Raises QueueProtocolError: ``message`` is not what :meth:`to_json` gives."""
        try:
            layout = message["layout"]
            hops = tuple(HopLayout(**hop) for hop in layout["hops"])
            single = {name: _table(message[name]) for name in ("x", "y") if message[name] is not None}
            named = {
                name: {key: _table(table) for key, table in message[name].items()}
                for name in ("tables", "positions", "edge_tables", "seed_columns")
            }
            positions = {
                key: EdgePositions(_table(each["places"]), tuple(tuple(span) for span in each["spans"]))
                for key, each in message["edge_positions"].items()
            }
            others = dict(message)
            timing = Timing(*(others.pop(name) for name in _OF_TIMING))
            # Unknown and missing fields are errors of the constructors.
            payload = cls(
                **{
                    **others,
                    **single,
                    **named,
                    "edge_positions": positions,
                    "layout": SampleLayout(**{**layout, "hops": hops}),
                    "key": DrawKey(**message["key"]),
                    "timing": timing,
                    "reads": tuple(TierReads(*read) for read in message["reads"]),
                }
            )
            payload._check()
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise QueueProtocolError(
                f"a mini-batch's description is malformed: {error!r} in {message!r:.200}"
            ) from error
        return payload

    def _check(self) -> None:
        """Checks what :meth:`view` relies on. Raises ValueError, TypeError."""
        tables = self._all_tables
        sizes = [self.num_seeds, self.layout.num_nodes, self.layout.free_begin, self.layout.free_end]
        sizes += [self.layout.queries_offset] * (self.layout.queries_offset != -1)
        sizes += [number for table in tables for number in (table.offset, *table.shape)]
        optional = {column.offset for column in EDGE_COLUMNS}
        # An offset of -1 says that a hop has no such column.
        for hop in self.layout.hops:
            sizes += [number for name, number in vars(hop).items() if number != -1 or name not in optional]
        for number in sizes:
            if type(number) is not int or not 0 <= number < _MAX_SIZE:
                raise ValueError(f"{number!r} is no size")
        # Python's product does not overflow, where torch's of the same sizes would.
        if any(math.prod(table.shape) >= _MAX_SIZE for table in tables):
            raise ValueError("a table is too large")
        if self.num_seeds > self.layout.num_nodes:
            raise ValueError(f"{self.num_seeds} seeds of {self.layout.num_nodes} nodes")
        for table in tables:
            if not isinstance(getattr(torch, table.dtype, None), torch.dtype):
                raise ValueError(f"{table.dtype!r} is no dtype")
        for name, positions in self.positions.items():
            if positions.dtype != "int64" or positions.shape != self.tables[name].shape[:1]:
                raise ValueError(f"{positions!r} are no positions of {self.tables[name]!r}")
        self._check_edges()
        for read in self.reads:
            if type(read.tier) is not str or any(type(n) is not int or not 0 <= n < _MAX_SIZE for n in read[1:]):
                raise ValueError(f"{read!r:.100} is no count of reads")
        made_by, thread, *times = vars(self.timing).values()
        if type(made_by) is not int or type(thread) is not str:
            raise ValueError("its maker has no rank, or no name")
        for time_taken in times:
            if not isinstance(time_taken, int | float) or not math.isfinite(time_taken):
                raise ValueError(f"{time_taken!r} is no time")

    def _check_edges(self) -> None:
        num_rows, hops = num_edge_rows(self.layout.hops), self.layout.hops
        for name, table in self.edge_tables.items():
            if name not in self.edge_positions and table.shape[:1] != (num_rows,):
                raise ValueError(f"{table!r} is no row an edge")
        for name, each in self.edge_positions.items():
            if each.places.dtype != "int64" or each.places.shape != self.edge_tables[name].shape[:1]:
                raise ValueError(f"{each.places!r} are no places of {self.edge_tables[name]!r}")
            ends = [end for span in each.spans for end in span]
            if any(type(end) is not int for end in ends) or [len(span) for span in each.spans] != [2] * len(hops):
                raise ValueError(f"{each.spans!r:.100} are no spans of {len(hops)} hops")
            for (begin, end), hop in zip(each.spans, hops, strict=True):
                if not 0 <= begin <= end <= min(each.places.shape[0], begin + hop.num_edges):
                    raise ValueError(f"rows {begin} to {end} are none of {each.places!r}")


def _table(fields: Any) -> TableLayout:
    return TableLayout(**{**fields, "shape": tuple(fields["shape"])})

"""Whole mini-batches made by owners: one request a mini-batch in the place of two a hop.

A mini-batch is a pure function, so who trains asks for those of coming steps before they are needed, each sampling
thread for one: owners make them while the trainer trains, and no step waits for the network. The owner of most seeds
draws the mini-batch, asks other owners for their draws, and sends the result at once, with those of its rows that it
has itself; others come from who has them.

Source: BGL (NSDI'23), section 3.1, where graph store servers sample; DSP (PPoPP'23), section 3.2, seeds beside lists.
"""

from __future__ import annotations

import itertools
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.features import Reads, TierReads, byte_rows
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.parted import PartedTable
from lightning_gnnload.errors import ExchangeError, GnnLoadError, OwnerLostError
from lightning_gnnload.host.pages import scratch_rows
from lightning_gnnload.ops import ARENA_ALIGNMENT, ArenaTooSmall, Draw, DrawKey, HopLayout, SampleLayout
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.coming import ComingAnswer
from lightning_gnnload.owners.connection import OwnerFailedError
from lightning_gnnload.owners.owner import Owner, Reply, gathered_rows
from lightning_gnnload.owners.rows import RemoteFeatureStore
from lightning_gnnload.owners.wire import Wire, WireRows
from lightning_gnnload.pipeline.fill import Filler
from lightning_gnnload.sample.base import Sampler, draw_here
from lightning_gnnload.sample.build import check_seeds
from lightning_gnnload.sample.group.messages import Answer, Message
from lightning_gnnload.sample.parts.collective import CollectiveSampler, SampledApart
from lightning_gnnload.sample.parts.queries import as_task, from_task
from lightning_gnnload.sample.parts.settings import describe_whole, whole_described
from lightning_gnnload.sample.seeds.rows import SeedBatch
from lightning_gnnload.storage.graphs import stores_by_array
from lightning_gnnload.storage.partitions import StoredPartition

BATCH = "batch"
"""The operation that makes a whole mini-batch, beside those of :class:`.Owner`."""
_MOST_CLIENTS = 8
_LENGTH_BYTES = 8  # of the number, int64, that an answer begins with: of the bytes of its head, which rows follow
_PATIENCE_S = 10.0  # of an owner with its colleagues: who asked for the mini-batch has more


class BatchOwner(Owner):
    """An owner that also makes whole mini-batches: it draws from its own lists, and asks others for theirs.

    Args:
        partition: loaded from its folder, of which it has the head and its parts.
        parts: as :class:`.Owner` has them.
        secret: by which it knows its colleagues, whose addresses come with a request.

    Raises:
        PartitionError, StoreFormatError: as :class:`.Owner`.
    """

    def __init__(self, partition: StoredPartition, parts: Sequence[int] | None, secret: bytes) -> None:
        super().__init__(partition, parts)
        self._secret = secret.decode()
        self._colleagues: OrderedDict[tuple[str, ...], _Colleagues] = OrderedDict()
        self._meeting = threading.Lock()
        self._data = partition.graph_data
        self._filler = Filler(self._data)
        self._names = dict(zip(self._data.stores, stores_by_array(self._data), strict=True))

    def answer(self, task: np.ndarray) -> Reply:
        message = Message.from_bytes(task)
        if message.about.get("operation") != BATCH:
            return super().answer(task)
        try:
            return self._make(message)
        except OwnerLostError as error:
            # Another owner may reach those that this one does not.
            raise OwnerFailedError(str(error)) from error
        except (LookupError, TypeError, ValueError, OverflowError, MemoryError) as error:
            if isinstance(error, GnnLoadError):
                raise
            raise ExchangeError(f"a mini-batch cannot be made: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Leaves its colleagues. Safe to call twice."""
        with self._meeting:
            colleagues, self._colleagues = self._colleagues, OrderedDict()
        for client in colleagues.values():
            client.close()

    def _make(self, task: Message) -> Reply:
        about = task.about
        seeds = task.numbers("seeds", self.partition.num_nodes).astype(np.int64)
        colleagues = self._meet(about["owners"], about.get("wire", "exact"))
        sampler = CollectiveSampler(whole_described(about["sampler"]), colleagues)
        draw = Draw(seeds, DrawKey(*about["key"]), from_task(task, len(seeds)))
        arena, layout = draw_here(sampler, self._data.graph, draw)
        placed = self._filler.place(layout, SeedBatch(draw, None, {}), arena).contents
        rows = {self._names[name]: ids for name, ids in placed if isinstance(name, str) and ids is not None}
        tables = [str(name) for name in about["tables"]]
        if missing := [name for name in tables if name not in rows]:
            raise ExchangeError(f"a mini-batch has no rows of {missing[0]!r:.100}, but of {', '.join(rows) or 'none'}.")
        # Those that lie here: others would cross the network twice. Copies, as the arena is for the next one.
        here = {name: self._own(name, rows[name].numpy()) for name in tables}
        counts = {name: sum(map(len, by_part.values())) for name, by_part in here.items()}
        forms = {name: colleagues.form_of(name) for name in tables}
        head = Message(
            {
                "layout": _written(layout.compact()),
                "parts": list(self.parts),
                "tables": [[name, count, _checksum(rows[name].numpy())] for name, count in counts.items()],
            },
            {"begin": arena[: layout.free_begin], "end": arena[layout.free_end : _aligned_end(arena)]},
        ).to_bytes()
        stores = self.partition.parts
        gathered = (
            gathered_rows(name, stores[part].stores[name], numbers, forms[name])
            for name in tables
            for part, numbers in here[name].items()
        )
        pieces: Iterable[np.ndarray] = itertools.chain(
            [np.array([len(head)]).view(np.uint8), head], itertools.chain.from_iterable(gathered)
        )
        if not all(form.is_exact for form in forms.values()):
            pieces = [piece.copy() for piece in pieces]  # numbers that cannot be sent are told before anything is
        num_bytes = _LENGTH_BYTES + len(head) + sum(count * forms[name].row_bytes for name, count in counts.items())
        return Reply(num_bytes, pieces)

    def _own(self, table: str, rows: np.ndarray) -> dict[int, np.ndarray]:
        """Returns the rows that lie here, by part, in their numbers there."""
        return {part: numbers for part, numbers, _ in self.partition.parted[table].by_part(rows) if part in self.parts}

    def _meet(self, addresses: Any, wire: Wire) -> _Colleagues:
        named = tuple(map(str, addresses))
        key = (wire, *named)
        with self._meeting:
            if key not in self._colleagues:
                client = _Colleagues.connect(
                    self.partition, named, secret=self._secret, patience_s=_PATIENCE_S, num_streams=1, wire=wire
                )
                client.local = self
                self._colleagues[key] = client
                if len(self._colleagues) > _MOST_CLIENTS:
                    self._colleagues.popitem(last=False)[1].close()
            self._colleagues.move_to_end(key)
            return self._colleagues[key]


class _Colleagues(Owners):
    """The owners of a graph as one of them sees them, which does itself what is about its own parts."""

    local: Owner

    def _answers(self, operation: str, positions: dict[int, np.ndarray], tasks: dict[int, Message]) -> list[Answer]:
        away = {part: task for part, task in tasks.items() if part not in self.local.parts}
        ask_others, sent = super()._answers, None
        if away:  # while this owner does its own share
            sent = self._pool().submit(ask_others, operation, {part: positions[part] for part in away}, away)
        answers = {
            part: Answer(part, positions[part], self.local.do(part, task))
            for part, task in tasks.items()
            if part not in away
        }
        if sent is not None:
            answers |= {answer.rank: answer for answer in sent.result()}
        return [answers[part] for part in positions]


class OwnedBatches:
    """The mini-batches that owners make for one process, and the rows that come with each. Thread-safe.

    Each sampling thread asks for one mini-batch at a time, so that as many are under way as there are threads.

    Args:
        owners: returns who is asked.
        addresses: returns the owners' addresses, by which these find each other.
    """

    def __init__(self, owners: Callable[[], Owners], addresses: Callable[[], Sequence[str]]) -> None:
        self.owners = owners
        self.addresses = addresses
        self._tables: list[str] = []
        self._of_thread = _Latest()

    def store(self, name: str, table: PartedTable) -> PushedFeatureStore:
        """Returns the store of a table whose rows come with mini-batches."""
        if name not in self._tables:
            self._tables.append(name)
        return PushedFeatureStore(name, table, self)

    def ask(self, sampler: dict[str, Any], draw: Draw) -> Message:
        """Has an owner make a mini-batch, and keeps it for this thread, with its rows: the memory that it is for may be
        too small at first."""
        owners, latest = self.owners(), self._of_thread
        if latest.draw is draw:
            return latest.head
        partition = owners.partition
        about: dict[str, Any] = {}
        arrays = {"seeds": draw.seeds}
        if draw.queries is not None:
            about, by_seed, shared = as_task(draw.queries)
            arrays |= {**by_seed, **shared}
        # Who draws and does not gather, to rank rows for a cache say, is not sent them again.
        latest.unwanted |= latest.coming.keys()
        latest.forget()
        tables = [name for name in self._tables if name not in latest.unwanted]
        about |= {
            "operation": BATCH,
            "sampler": sampler,
            "key": astuple(draw.key),
            "owners": list(self.addresses()),
            "tables": tables,
            "wire": owners.wire,
        }
        num_seeds = np.bincount(partition.part_of(draw.seeds), minlength=partition.num_parts)
        answer = owners.ask_part(int(num_seeds.argmax()), Message(about, arrays))
        latest.expect(answer, owners.form_of)
        if list(latest.coming) != tables:
            latest.forget()
            raise ExchangeError("an owner sent other rows with a mini-batch than were asked for.")
        latest.draw = draw
        return latest.head

    def take(self, name: str, ids: np.ndarray) -> _Latest | None:
        """Returns the mini-batch that this thread has asked for last, if rows of these ids come with it."""
        latest = self._of_thread
        rows = latest.coming.get(name)
        if rows is not None and rows.checksum == _checksum(ids):
            return latest
        latest.unwanted.discard(name)
        if rows is not None:
            latest.forget()
        return None


@dataclass
class _ComingRows:
    """Rows of a table that come with a mini-batch: how many, how each is on the wire, and the checksum of all ids of
    the mini-batch; ``packed`` uint8 ``[count, row_bytes]`` where others behind them were read first."""

    count: int
    form: WireRows
    checksum: int
    packed: np.ndarray | None = None


class _Latest(threading.local):
    """The mini-batch that a thread has asked for last: its head, and the rows that come behind it, by table, which stay
    in the connection until each is read to its place; and the tables whose rows the thread has left there before."""

    def __init__(self) -> None:
        self.answer: ComingAnswer | None = None
        self.unwanted: set[str] = set()
        self.forget()

    def forget(self) -> None:
        if self.answer is not None:
            self.answer.close()
        self.answer = None
        self.draw: Draw | None = None
        self.head = Message({}, {})
        self.coming: dict[str, _ComingRows] = {}
        self.parts: frozenset[int] = frozenset()

    def expect(self, answer: ComingAnswer, form_of: Callable[[str], WireRows]) -> None:
        """Reads a mini-batch's head, and notes what rows follow it. ExchangeError: it is no mini-batch."""
        self.answer = answer
        length = np.empty(1, np.int64)
        try:
            answer.read(length.view(np.uint8))
            if not 0 <= length[0] <= answer.num_left:
                raise ExchangeError(f"an owner sent a mini-batch of {length[0]} bytes in {answer.num_left}.")
            answer.read(content := np.empty(length[0], np.uint8))
            self.head = Message.from_bytes(content)
            self.parts = frozenset(map(int, self.head.about["parts"]))
            for name, count, checksum in self.head.about["tables"]:
                self.coming[name] = _ComingRows(int(count), form_of(name), int(checksum))
            sizes = [rows.count * rows.form.row_bytes for rows in self.coming.values()]
            if min(sizes, default=0) < 0 or sum(sizes) != answer.num_left:
                raise ExchangeError(
                    f"{answer.num_left} bytes of rows follow a mini-batch, which tells of {sum(sizes)}."
                )
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            self.forget()
            raise ExchangeError(f"an owner sent what is no mini-batch: {type(error).__name__}: {error}") from error
        except BaseException:
            self.forget()
            raise

    def read(self, name: str, out: np.ndarray, positions: np.ndarray) -> None:
        """Reads a table's rows to ``out`` uint8 ``[*, bytes]`` at ``positions`` int64. ExchangeError: others came;
        OSError: the owner is lost, and with it what it has not sent."""
        assert self.answer is not None
        rows = self.coming[name]
        if rows.count != len(positions):
            raise ExchangeError("an owner sent other rows with a mini-batch than it has.")
        for table, before in self.coming.items():
            if table == name:
                break
            if before.packed is None:
                before.packed = np.empty((before.count, before.form.row_bytes), np.uint8)
                self.answer.read(before.packed)
        del self.coming[name]
        if rows.packed is not None:
            rows.form.unpack(rows.packed, out, positions)
        elif rows.form.is_exact:
            self.answer.read_rows(out, positions)
        else:
            with scratch_rows(rows.count, rows.form.row_bytes, torch.uint8) as packed:
                self.answer.read(packed.numpy())
                rows.form.unpack(packed.numpy(), out, positions)


class OwnedSampler(SampledApart):
    """Draws what a sampler draws, by an owner that makes the whole mini-batch.

    Raises:
        SamplerConfigError: a sampler that cannot be described to another process, or be drawn over parts.
    """

    def __init__(self, sampler: Sampler, batches: OwnedBatches) -> None:
        super().__init__(sampler)
        self.batches = batches
        self._described = describe_whole(sampler)
        CollectiveSampler(sampler, batches.owners())  # what it refuses is told here, once

    def draw(self, graph: Graph | None, draw: Draw, memory: np.ndarray) -> SampleLayout:
        partition = self.batches.owners().partition
        queries = draw.queries
        check_seeds(draw.seeds, partition.num_nodes, None if queries is None else queries.of_seed)
        head = self.batches.ask(self._described, draw)
        try:
            begin, end = head.arrays["begin"], head.arrays["end"]
            layout = _checked(_read(head.about["layout"]), begin, end, draw.seeds, partition.num_nodes)
        except (LookupError, TypeError, ValueError) as error:
            raise ExchangeError(f"an owner sent what is no mini-batch: {type(error).__name__}: {error}") from error
        last = _aligned_end(memory)
        if len(begin) + len(end) > last:
            raise ArenaTooSmall(len(begin) + len(end) + ARENA_ALIGNMENT)
        memory[: len(begin)] = begin
        memory[last - len(end) : last] = end
        return layout.with_gap(last - len(end) - len(begin))

    @property
    def colleagues(self) -> Owners:
        return self.batches.owners()

    def __repr__(self) -> str:
        return f"OwnedSampler({self.sampler!r})"


class PushedFeatureStore(RemoteFeatureStore):
    """Takes the rows that came with a mini-batch, and gathers others from their owners."""

    def __init__(self, name: str, table: PartedTable, batches: OwnedBatches) -> None:
        super().__init__(name, table, batches.owners)
        self._batches = batches

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads:
        coming = self._batches.take(self.name, ids.numpy()) if self.row_bytes else None
        if coming is None:
            return super().gather(ids, out)
        form = coming.coming[self.name].form
        parts, rows = self.table.by_part(ids.numpy()), byte_rows(out)
        at, missing = (
            _joined([part.positions for part in parts if (part.part in coming.parts) is is_coming])
            for is_coming in (True, False)
        )
        lost = []

        def read() -> None:
            try:
                coming.read(self.name, rows, at)
            except OSError as error:
                coming.forget()
                lost.append(error)

        num_bytes = 0
        if len(missing):  # are under way while those are read that came unasked
            num_bytes = self._owners().gather(self.name, ids.numpy()[missing], rows, missing, read)
        else:
            read()
        pushed = TierReads("pushed", len(at), len(at) * form.row_bytes)
        if lost:  # any other owner of their parts has them too
            [pushed] = self.gather_at(ids[torch.from_numpy(at)], torch.from_numpy(at), out)
        return (pushed, *([TierReads("remote", len(missing), num_bytes)] if len(missing) else []))


def _joined(positions: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(positions) if positions else np.empty(0, np.int64)


def _checksum(ids: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(ids).view(np.uint8).data)


def _aligned_end(memory: np.ndarray) -> int:
    return len(memory) // ARENA_ALIGNMENT * ARENA_ALIGNMENT


def _written(layout: SampleLayout) -> list[Any]:
    hops = [list(vars(hop).values()) for hop in layout.hops]
    return [layout.num_nodes, hops, layout.free_begin, layout.queries_offset]


def _read(numbers: Any) -> SampleLayout:
    num_nodes, hops, free_begin, queries_offset = numbers
    return SampleLayout(num_nodes, tuple(HopLayout(*hop) for hop in hops), free_begin, free_begin, queries_offset)


def _checked(
    layout: SampleLayout, begin: np.ndarray, end: np.ndarray, seeds: np.ndarray, num_graph_nodes: int
) -> SampleLayout:
    """Checks a compact layout, whose arrays are ``begin`` and ``end``, before ids in it index memory. ExchangeError: it
    is not of these seeds, or not sound."""
    if not (
        _are_nodes(layout, begin, seeds, num_graph_nodes) and all(_is_hop(layout, hop, end) for hop in layout.hops)
    ):
        raise ExchangeError("an owner sent a mini-batch that is not sound. Do all owners run the same version?")
    return layout


def _are_nodes(layout: SampleLayout, begin: np.ndarray, seeds: np.ndarray, num_graph_nodes: int) -> bool:
    """Returns whether ``begin`` has the nodes that a layout says, and their queries, seeds first."""
    nodes = begin[: 8 * layout.num_nodes].view(np.int64)
    if len(begin) != layout.free_begin or len(nodes) != layout.num_nodes:
        return False
    if layout.queries_offset + 4 * layout.num_nodes > len(begin):  # -1 where nodes have none
        return False
    return np.array_equal(nodes[: len(seeds)], seeds) and _are_below(nodes, num_graph_nodes)


def _is_hop(layout: SampleLayout, hop: HopLayout, end: np.ndarray) -> bool:
    """Returns whether ``end`` has the arrays of a hop, and these fit each other."""
    if not (0 <= hop.num_dst <= hop.num_src <= layout.num_nodes and hop.num_edges >= 0):
        return False
    columns = [(hop.edge_ids_offset, 8), (hop.edge_weights_offset, 4), (hop.edge_types_offset, 4)]
    spans = [(hop.indptr_offset, 4 * (hop.num_dst + 1)), (hop.indices_offset, 4 * hop.num_edges)]
    spans += [(at, width * hop.num_edges) for at, width in columns if at >= 0]
    first = layout.free_begin  # where what the layout describes goes on in ``end``
    if not all(first <= at and at - first + size <= len(end) for at, size in spans):
        return False
    indptr, indices = (end[at - first : at - first + size].view(np.int32) for at, size in spans[:2])
    ascends = indptr[0] == 0 and indptr[-1] == hop.num_edges and bool((np.diff(indptr) >= 0).all())
    return bool(ascends) and _are_below(indices, hop.num_src)


def _are_below(ids: np.ndarray, count: int) -> bool:
    return not len(ids) or bool(ids.min() >= 0 and ids.max() < count)

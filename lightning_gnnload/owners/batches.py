"""Whole mini-batches made by owners: one request a mini-batch in the place of two a hop.

A mini-batch is a pure function, so who trains asks for those of coming steps before they are needed, each sampling
thread for one: owners make them while the trainer trains, and no step waits for the network. The owner of most seeds
draws the mini-batch, asks other owners for their draws, and sends the result at once, with those of its rows that it
has itself; others come from who has them.

Source: BGL (NSDI'23), section 3.1, where graph store servers sample; DSP (PPoPP'23), section 3.2, seeds beside lists.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.features import Reads, TierReads, byte_rows, gather
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.parted import PartedTable
from lightning_gnnload.errors import ExchangeError, GnnLoadError, OwnerLostError
from lightning_gnnload.host.pages import scratch_rows
from lightning_gnnload.ops import ARENA_ALIGNMENT, ArenaTooSmall, Draw, DrawKey, HopLayout, SampleLayout
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.connection import OwnerFailedError
from lightning_gnnload.owners.owner import Owner, Reply
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
_PIECE_BYTES = 8 << 20  # of rows, which an owner gathers, from others too, and sends
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
        # Those that lie here: others would cross the network twice. Indexing copies, as the arena is for the next one.
        here = {name: ids[self._is_here(name, ids)] for name in tables if (ids := rows[name].numpy()) is not None}
        head = Message(
            {
                "layout": _written(layout.compact()),
                "parts": list(self.parts),
                "tables": [[name, len(ids), _checksum(rows[name].numpy())] for name, ids in here.items()],
            },
            {"begin": arena[: layout.free_begin], "end": arena[layout.free_end : _aligned_end(arena)]},
        ).to_bytes()
        forms = {name: colleagues.form_of(name) for name in tables}
        num_bytes = len(head) + sum(len(ids) * forms[name].row_bytes for name, ids in here.items())
        pieces: Iterable[np.ndarray] = self._pieces(head, here, forms)
        if not all(form.is_exact for form in forms.values()):
            pieces = [piece.copy() for piece in pieces]  # numbers that cannot be sent are told before anything is
        return Reply(num_bytes, pieces)

    def _is_here(self, table: str, rows: np.ndarray) -> np.ndarray:
        return np.isin(self.partition.parted[table].locate(rows)[0], self.parts)

    def _pieces(
        self, head: np.ndarray, here: dict[str, np.ndarray], forms: dict[str, WireRows]
    ) -> Iterator[np.ndarray]:
        yield head
        for name, ids in here.items():
            row_bytes = forms[name].row_bytes
            if not row_bytes:
                continue
            most = max(_PIECE_BYTES // row_bytes, 1)
            with scratch_rows(min(most, len(ids)), row_bytes, torch.uint8) as memory:
                for begin in range(0, len(ids), most):
                    piece = memory[: len(ids[begin : begin + most])].numpy()
                    self._gather_here(name, ids[begin : begin + most], piece, forms[name])
                    yield piece.reshape(-1)

    def _gather_here(self, table: str, rows: np.ndarray, out: np.ndarray, form: WireRows) -> None:
        parts, numbers = self.partition.parted[table].locate(rows)
        for part in np.unique(parts).tolist():
            at = np.flatnonzero(parts == part)
            store = self.partition.parts[part].stores[table]
            if form.is_exact:
                typed = torch.from_numpy(out).view(store.dtype).view(len(out), store.shape[1])
                store.gather_at(torch.from_numpy(numbers[at]), torch.from_numpy(at), typed)
                continue
            with scratch_rows(len(at), store.shape[1], store.dtype) as memory:
                store.gather(torch.from_numpy(numbers[at]), memory)
                out[at] = form.pack(memory, table)

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
        latest.unwanted |= latest.rows.keys()
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
        head = Message.from_bytes(answer)
        sizes = [(name, count * owners.form_of(name).row_bytes) for name, count, _ in head.about["tables"]]
        at = len(answer) - sum(num_bytes for _, num_bytes in sizes)
        if [name for name, _ in sizes] != tables or at < 0:
            raise ExchangeError("an owner sent other rows with a mini-batch than were asked for.")
        for (name, num_bytes), (_, _, checksum) in zip(sizes, head.about["tables"], strict=True):
            latest.rows[name] = checksum, answer[at : at + num_bytes]
            at += num_bytes
        # Copied, as a view would keep the answer, with all its rows, until the next mini-batch has come.
        latest.head = Message(head.about, {key: array.copy() for key, array in head.arrays.items()})
        latest.draw = draw
        latest.parts = np.array(head.about["parts"], np.int64)
        return latest.head

    def take(self, name: str, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns the rows that came with the mini-batch that this thread has asked for last, uint8, and the parts that
        they are of, if these are its ids."""
        latest = self._of_thread
        checksum, rows = latest.rows.pop(name, (None, None))
        if rows is not None and checksum == _checksum(ids):
            return rows, latest.parts
        latest.unwanted.discard(name)
        return None


class _Latest(threading.local):
    """The mini-batch that a thread has asked for last, and its rows, each table's with the checksum of its ids; and the
    tables whose rows it has left there before."""

    def __init__(self) -> None:
        self.forget()
        self.unwanted: set[str] = set()

    def forget(self) -> None:
        self.draw: Draw | None = None
        self.head = Message({}, {})
        self.rows: dict[str, tuple[int, np.ndarray]] = {}
        self.parts = np.empty(0, np.int64)


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
        came = self._batches.take(self.name, ids.numpy())
        if came is None:
            return super().gather(ids, out)
        packed, parts = came
        form = self._batches.owners().form_of(self.name)
        has_come = np.isin(self.table.locate(ids.numpy())[0], parts)
        at = torch.from_numpy(np.flatnonzero(has_come))
        if len(packed) != len(at) * form.row_bytes:
            raise ExchangeError("an owner sent other rows with a mini-batch than it has.")
        with scratch_rows(len(at), self.shape[1], self.dtype) as memory:
            form.unpack(packed.reshape(len(at), form.row_bytes), byte_rows(memory))
            gather(memory, torch.arange(len(at)), out, at)
        pushed = TierReads("pushed", len(at), len(packed))
        missing = torch.from_numpy(np.flatnonzero(~has_come))
        return (pushed, *(self.gather_at(ids[missing], missing, out) if len(missing) else ()))


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

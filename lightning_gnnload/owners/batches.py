"""Whole mini-batches made by owners: one request a mini-batch in the place of two a hop.

A mini-batch is a pure function, so who trains asks for those of coming steps before they are needed, each sampling
thread for one: owners make them while the trainer trains, and no step waits for the network. The owner of most seeds
draws the mini-batch, asks other owners for their draws, and sends the result at once, with those of its rows that it
has itself; others come from who has them.

Source: BGL (NSDI'23), section 3.1, where graph store servers sample; DSP (PPoPP'23), section 3.2, seeds beside lists.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.features import Reads, TierReads, byte_rows
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.parted import PartedTable
from lightning_gnnload.errors import ExchangeError
from lightning_gnnload.host.pages import scratch_rows
from lightning_gnnload.ops import ARENA_ALIGNMENT, ArenaTooSmall, Draw, SampleLayout
from lightning_gnnload.owners.batch_form import BATCH, aligned_end, checksum, read_layout
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.coming import ComingAnswer
from lightning_gnnload.owners.rows import RemoteFeatureStore
from lightning_gnnload.owners.wire import WireRows
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.build import check_seeds
from lightning_gnnload.sample.group.messages import Message
from lightning_gnnload.sample.parts.collective import CollectiveSampler, SampledApart
from lightning_gnnload.sample.parts.queries import as_task
from lightning_gnnload.sample.parts.settings import describe_whole

_NOTHING = np.empty(0, np.uint8)


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
        if rows is not None and rows.checksum == checksum(ids):
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
        begin, end = (head.arrays.get(side, _NOTHING) for side in ("begin", "end"))
        layout = read_layout(head.about.get("layout"), begin, end, draw.seeds, partition.num_nodes)
        last = aligned_end(memory)
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

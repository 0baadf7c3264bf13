"""Owners that make whole mini-batches: an owner draws one over its own lists and those of its colleagues, and sends it
with those of its rows that it has.

Source: BGL (NSDI'23), section 3.1, where graph store servers sample; DSP (PPoPP'23), section 3.2, seeds beside lists.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from lightning_gnnload.errors import ExchangeError, GnnLoadError, OwnerLostError
from lightning_gnnload.ops import Draw, DrawKey, SampleLayout
from lightning_gnnload.owners.batch_form import BATCH, aligned_end, checksum, written
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.connection import OwnerFailedError
from lightning_gnnload.owners.owner import Owner, Reply, gathered_rows
from lightning_gnnload.owners.wire import Wire, WireRows
from lightning_gnnload.pipeline.fill import Filler
from lightning_gnnload.sample.base import draw_here
from lightning_gnnload.sample.group.messages import Answer, Message
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.sample.parts.queries import from_task
from lightning_gnnload.sample.parts.settings import whole_described
from lightning_gnnload.sample.seeds.rows import SeedBatch
from lightning_gnnload.storage.graphs import stores_by_array
from lightning_gnnload.storage.partitions import StoredPartition

_MOST_CLIENTS = 8
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
        colleagues = self._meet(task.about["owners"], task.about.get("wire", "exact"))
        arena, layout, rows = self._draw(task, colleagues)
        tables = [str(name) for name in task.about["tables"]]
        if missing := [name for name in tables if name not in rows]:
            raise ExchangeError(f"a mini-batch has no rows of {missing[0]!r:.100}, but of {', '.join(rows) or 'none'}.")
        # Those that lie here: others would cross the network twice. Copies, as the arena is for the next one.
        here = {name: self._own(name, rows[name]) for name in tables}
        counts = {name: sum(map(len, by_part.values())) for name, by_part in here.items()}
        forms = {name: colleagues.form_of(name) for name in tables}
        head = Message(
            {
                "layout": written(layout.compact()),
                "parts": list(self.parts),
                "tables": [[name, count, checksum(rows[name])] for name, count in counts.items()],
            },
            {"begin": arena[: layout.free_begin], "end": arena[layout.free_end : aligned_end(arena)]},
        ).to_bytes()
        length = np.array([len(head)]).view(np.uint8)
        pieces: Iterable[np.ndarray] = itertools.chain([length, head], self._gathered(here, forms))
        if not all(form.is_exact for form in forms.values()):
            pieces = [piece.copy() for piece in pieces]  # numbers that cannot be sent are told before anything is
        num_bytes = len(length) + len(head) + sum(count * forms[name].row_bytes for name, count in counts.items())
        return Reply(num_bytes, pieces)

    def _draw(self, task: Message, colleagues: Owners) -> tuple[np.ndarray, SampleLayout, dict[str, np.ndarray]]:
        """Draws a mini-batch; returns the arena, where it lies there, and the rows that it has of each table."""
        seeds = task.numbers("seeds", self.partition.num_nodes).astype(np.int64)
        sampler = CollectiveSampler(whole_described(task.about["sampler"]), colleagues)
        draw = Draw(seeds, DrawKey(*task.about["key"]), from_task(task, len(seeds)))
        arena, layout = draw_here(sampler, self._data.graph, draw)
        placed = self._filler.place(layout, SeedBatch(draw, None, {}), arena).contents
        rows = {self._names[name]: ids.numpy() for name, ids in placed if isinstance(name, str) and ids is not None}
        return arena, layout, rows

    def _gathered(self, here: dict[str, dict[int, np.ndarray]], forms: dict[str, WireRows]) -> Iterator[np.ndarray]:
        for name, by_part in here.items():
            for part, numbers in by_part.items():
                yield from gathered_rows(name, self.partition.parts[part].stores[name], numbers, forms[name])

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

"""Owner: what a process answers for the parts of a graph that it has, whoever asks, over whatever connection."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.features import FeatureStore, byte_rows
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import ExchangeError, PartitionError
from lightning_gnnload.sample.group.group import OPERATIONS, PROTOCOL, OwnedLists
from lightning_gnnload.sample.group.messages import Message
from lightning_gnnload.sample.parts import lists  # noqa: F401  what owners do for others

CHUNK_BYTES = 2 << 20
"""Rows are gathered and sent so many bytes at a time: a processor's cache holds them until they are sent."""


class Owner:
    """Answers for parts of a graph: draws in their lists, and gathers rows of their nodes and edges. Thread-safe.

    It keeps no state between requests, so any other owner of the part answers alike, bit for bit.

    Args:
        partition: loaded from its folder, made with ``hops=0``.
        parts: which it answers for; None: all.

    Raises:
        PartitionError: another kind of partition, or no such part.

    Source: BGL (NSDI'23), section 3.1, graph store servers; DSP (PPoPP'23), section 3.1, the layout.
    """

    def __init__(self, partition: Partition, parts: Sequence[int] | None = None) -> None:
        if partition.is_self_reliant:
            raise PartitionError(
                f"{partition} holds {partition.hops} hops of its seeds in each part, which samples alone. Owners "
                "answer for parts that hold each list once: gnnload partition ... --hops 0."
            )
        self.parts = tuple(range(partition.num_parts)) if parts is None else tuple(sorted(set(parts)))
        if not self.parts or not 0 <= self.parts[0] <= self.parts[-1] < partition.num_parts:
            raise PartitionError(f"parts {list(self.parts)} are to be owned, of {partition.num_parts}, from 0 on.")
        self.partition = partition
        self._lists: dict[int, OwnedLists] = {}
        self._mapping = threading.Lock()

    def open(self) -> None:
        """Maps the parts; otherwise the first requests do."""
        for part in self.parts:
            self._owned(part)

    @property
    def identity(self) -> dict[str, Any]:
        """What clients compare before they ask: the graph, its numbering, and which parts are here; JSON values."""
        graph = self._owned(self.parts[0]).graph
        return {
            **identity_of(self.partition),
            "parts": list(self.parts),
            "columns": [name for name in Graph.ARRAYS if getattr(graph, name) is not None],
        }

    def answer(self, task: Message) -> np.ndarray:
        """Does what a task asks for, by one of :data:`.OPERATIONS`; returns its result as a message, uint8 ``[bytes]``.

        Raises:
            ExchangeError: the task is none that this owner can do.
        """
        owned = self._owned(task.about.get("part"))
        serve = OPERATIONS.get(str(task.about.get("operation")))
        if serve is None:
            raise ExchangeError(f"{task.about.get('operation')!r:.100} is nothing that owners do.")
        return Message({}, serve(owned, owned.rows_of(task), task)).to_bytes()

    def rows(self, task: Message) -> tuple[int, Iterator[np.ndarray]]:
        """Gathers rows of a table that a part has; returns how many bytes they are, and these in pieces, of which each
        is valid until the next is asked for.

        Raises:
            ExchangeError: there is no such table, or a row is none of the part's.
        """
        part, name = self._part(task.about.get("part")), task.about.get("table")
        store = self.partition.parts[part].stores.get(str(name))
        if store is None:
            raise ExchangeError(
                f"part {part} has no table {name!r:.100}; it has {list(self.partition.parts[part].stores)}."
            )
        rows = task.numbers("rows", store.shape[0])
        return len(rows) * store.row_bytes, _gather(store, rows)

    def _part(self, part: Any) -> int:
        if type(part) is not int or part not in self.parts:
            raise ExchangeError(f"part {part!r:.20} is not here; this owner has {list(self.parts)}.")
        return part

    def _owned(self, part: Any) -> OwnedLists:
        part = self._part(part)
        with self._mapping:
            if part not in self._lists:
                self._lists[part] = OwnedLists(self.partition, part)
            return self._lists[part]


def identity_of(partition: Partition) -> dict[str, Any]:
    """Returns what an owner and its client must have alike; JSON values."""
    return {
        "protocol": PROTOCOL,
        "fingerprint": partition.fingerprint,
        "num_parts": partition.num_parts,
        # Parts may be of equal sizes and yet of other nodes, which would be answered for unnoticed.
        "numbering": f"{zlib.crc32(np.ascontiguousarray(partition.node_ids).data):08x}",
    }


def _gather(store: FeatureStore, rows: np.ndarray) -> Iterator[np.ndarray]:
    if not len(rows) or not store.row_bytes:
        return
    at_once = min(max(CHUNK_BYTES // store.row_bytes, 1), len(rows))
    out = torch.empty(at_once, store.shape[1], dtype=store.dtype)
    for begin in range(0, len(rows), at_once):
        ids = torch.from_numpy(rows[begin : begin + at_once].astype(np.int64))
        store.gather(ids, out[: len(ids)])
        yield byte_rows(out[: len(ids)]).reshape(-1)

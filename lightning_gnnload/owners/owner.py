"""Owner: what a process does that has parts of a partition, and answers for them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import ExchangeError, GnnLoadError, PartitionError
from lightning_gnnload.host.pages import scratch_rows
from lightning_gnnload.owners.wire import WireRows
from lightning_gnnload.sample.group.group import OPERATIONS, PROTOCOL, Operation, OwnedLists
from lightning_gnnload.sample.group.messages import Message
from lightning_gnnload.sample.parts import layer_nodes, lists  # noqa: F401  what owners are asked for

ROWS = "rows"
"""The operation that gathers rows of a table, beside those of :data:`.OPERATIONS`."""
MOST_IDS = 1 << 24
"""Of one request."""
MOST_ROUNDED_BYTES = 1 << 24
"""Likewise, of rows that are rounded, as an owner has all of them before it sends the first."""
_PIECE_BYTES = 4 << 20
"""Rows are gathered and sent piece by piece: one of this size is still in the cache when it is sent."""


class Reply(NamedTuple):
    """What an owner answers: uint8 pieces, ``num_bytes`` in all. A piece is valid until the next is asked for."""

    num_bytes: int
    pieces: Iterable[np.ndarray]


class Owner:
    """Answers for some parts of a partition: draws from their lists, and gathers their rows. Thread-safe.

    It has no state but what it maps, so that any process that maps the same folder gives the same answers.

    Args:
        partition: made with ``hops=0``, so that each list and row lies with its owner.
        parts: the numbers of those to answer for; None: all.
        operations: what it can be asked for, by name.

    Raises:
        PartitionError: parts that hold hops of their seeds, or numbers of none.
        StoreFormatError: a part's folder is not here, or broken.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, load_partition, partition_graph
        >>> ring = GraphData(Graph.from_coo(range(8), [1, 2, 3, 4, 5, 6, 7, 0]), x=torch.ones(8, 1), train=range(8))
        >>> _ = partition_graph(ring, "parts", 2, hops=0, progress=False)
        >>> owner = Owner(load_partition("parts"), [1])
        >>> owner.parts, owner.hello["tables"]
        ((1,), {'x': 4})
    """

    def __init__(
        self,
        partition: Partition,
        parts: Sequence[int] | None = None,
        operations: Mapping[str, Operation] = OPERATIONS,
    ) -> None:
        numbers = range(partition.num_parts) if parts is None else parts
        if wrong := [part for part in numbers if not 0 <= part < partition.num_parts]:
            raise PartitionError(f"there is no part {wrong[0]}: {partition!r} has 0 to {partition.num_parts - 1}.")
        if partition.is_self_reliant:
            raise PartitionError(
                f"{partition!r}: parts that hold {partition.hops} hops of their seeds have no owners, as each is "
                "sampled by itself. Make one with hops=0: gnnload partition ... --hops 0."
            )
        self.partition = partition
        self.parts = tuple(sorted(set(numbers)))
        self._operations = operations
        # Mapped now: the first request shall not wait, and a broken part is told before any comes.
        self._lists = {part: OwnedLists(partition, part) for part in self.parts}
        for part in self.parts:
            for store in partition.parts[part].stores.values():
                store.open()
        self.hello = self._introduce()
        """What a client is told first, JSON values: whose parts these are, which, and what they hold."""

    def answer(self, task: np.ndarray) -> Reply:
        """Answers a request, the bytes of a :class:`.Message` (uint8, aligned to 8): ``about`` names the operation and
        the part, ``rows`` are those of the part's own nodes, or of its own rows of the table that ``about`` names.

        Raises:
            ExchangeError: it is no request, or of a part, an operation, a table or rows that are not here.
        """
        message = Message.from_bytes(task)
        part, operation = (message.about.get(name) for name in ("part", "operation"))
        if type(part) is not int or part not in self._lists:
            raise ExchangeError(f"part {part!r} is asked for, but this owner has {list(self.parts)}.")
        if len(message.arrays.get("rows", ())) > MOST_IDS:
            raise ExchangeError(f"more than {MOST_IDS} rows are asked for at once.")
        if operation == ROWS:
            return self._gather(part, message)
        answer = Message({}, self.do(part, message)).to_bytes()
        return Reply(len(answer), [answer])

    def do(self, part: int, task: Message) -> Mapping[str, np.ndarray]:
        """Does a task of :data:`.OPERATIONS` on a part that is here. ExchangeError: as :meth:`answer`."""
        operation, owned = task.about.get("operation"), self._lists[part]
        if not isinstance(operation, str) or operation not in self._operations:
            raise ExchangeError(f"there is no operation {operation!r}: do client and owner run the same version?")
        try:
            return self._operations[operation](owned, owned.rows_of(task), task)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            # Of settings or columns that the operation cannot use: as bad on any other owner.
            raise ExchangeError(f"{operation} cannot be done: {type(error).__name__}: {error}") from error

    def _gather(self, part: int, message: Message) -> Reply:
        table, stores = message.about.get("table"), self.partition.parts[part].stores
        if not isinstance(table, str) or table not in stores:
            raise ExchangeError(f"there is no table {table!r} in part {part}, but {', '.join(stores) or 'none'}.")
        # All of them before the first is sent: what begins to come comes whole.
        rows = message.numbers("rows", stores[table].shape[0])
        store = stores[table]
        try:
            form = WireRows(message.about.get("wire", "exact"), store.dtype, store.shape[1])
        except GnnLoadError as error:
            raise ExchangeError(str(error)) from error
        pieces: Iterable[np.ndarray] = gathered_rows(table, store, rows, form)
        if not form.is_exact:
            if len(rows) > max(MOST_ROUNDED_BYTES // form.row_bytes, 1):
                raise ExchangeError(f"more than {MOST_ROUNDED_BYTES} bytes of rounded rows are asked for at once.")
            pieces = list(pieces)  # which tells of numbers that cannot be sent
        return Reply(len(rows) * form.row_bytes, pieces)

    def _introduce(self) -> dict[str, Any]:
        graphs = [owned.graph for owned in self._lists.values()]
        columns = [name for name in Graph.ARRAYS if any(graph.has(name) for graph in graphs)]
        stores = self.partition.parts[self.parts[0]].stores if self.parts else {}
        tables = {name: store.row_bytes for name, store in stores.items()}
        return {"parts": list(self.parts), "columns": columns, "tables": tables, **identity(self.partition)}


def identity(partition: Partition) -> dict[str, Any]:
    """Returns what an owner and its clients must have alike: JSON values."""
    content = partition.folder_fingerprint
    if content is None:
        content = f"{zlib.crc32(np.ascontiguousarray(partition.node_ids).data):08x}"
    return {"protocol": PROTOCOL, "fingerprint": partition.fingerprint, "content": content}


def gathered_rows(table: str, store: FeatureStore, rows: np.ndarray, form: WireRows) -> Iterator[np.ndarray]:
    """Gathers rows of a part's table piece by piece, as they travel; each is valid until the next is asked for."""
    most = max(_PIECE_BYTES // max(store.row_bytes, 1), 1)
    # While the system still sends a piece out of its own memory, the next one is gathered.
    with scratch_rows(min(most, len(rows)), store.shape[1], store.dtype) as memory:
        for begin in range(0, len(rows), most):
            ids = rows[begin : begin + most].astype(np.int64)
            store.gather(torch.from_numpy(ids), memory[: len(ids)])
            yield form.pack(memory[: len(ids)], table).reshape(-1)

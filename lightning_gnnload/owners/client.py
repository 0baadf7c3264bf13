"""Owners: the client of those who have a partition's parts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar, get_args
from weakref import WeakSet

import numpy as np
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import ExchangeError, FrameError, LoaderConfigError
from lightning_gnnload.host.pages import scratch_rows
from lightning_gnnload.host.threads import Threads
from lightning_gnnload.owners.address import Address, find_secret
from lightning_gnnload.owners.coming import ComingAnswer
from lightning_gnnload.owners.connection import Connection
from lightning_gnnload.owners.directory import Addresses, Directory
from lightning_gnnload.owners.owner import MOST_IDS, MOST_ROUNDED_BYTES, ROWS
from lightning_gnnload.owners.wire import Wire, WireRows
from lightning_gnnload.sample.group.group import KnownGraph, SamplingGroup
from lightning_gnnload.sample.group.messages import Answer, Message, narrow
from lightning_gnnload.settings import check_one_of

_STREAM_BYTES = 8 << 20
"""Rows of at least so many bytes are worth a further stream (docs/benchmarks_owners.md)."""


AnyOwners = TypeVar("AnyOwners", bound="Owners")


def _nothing() -> None:
    """What is done meanwhile, unless something is."""


class _Request(NamedTuple):
    """A request to any owner of a part, and how its answer is received."""

    part: int
    task: np.ndarray
    receive: Callable[[Connection], Any]


@dataclass(frozen=True)
class _Known:
    """The graph as far as owners tell it: its columns, and no edge."""

    graph: Graph


class Owners(SamplingGroup):
    """The owners of a partition's parts, seen from a process that has none of the lists or rows that it asks for.

    Samplers draw over it as over ranks that sample together (:class:`.CollectiveSampler`). Nothing is connected before
    the first request. Any thread may ask; a fork, and a process that this is pickled to, connect anew.

    A request is pure, so that an owner that is lost is replaced by any other of the same part, with the same answer:
    one that is known, one that has come back, or one at an address that ``addresses`` tells when asked again.

    Args:
        partition: whose owners these are, as :func:`.load_partition` has it: the head of the folder suffices.
        addresses: ``HOST:PORT`` of each owner, or a function that returns them as of now.
        secret: None: as :func:`.find_secret` finds it. It is not pickled.
        deadline_s: seconds; an owner that is silent for so long counts as gone.
        patience_s: seconds to look for another.
        num_streams: connections to one owner that large gathers are spread over.
        wire: ``"exact"``: rows come as they are; ``"float16"``, ``"bfloat16"``, ``"int8"``: those of real numbers come
            rounded, in a half or a quarter of float32's bytes. :class:`.WireRows` says what becomes of a number.

    Raises:
        SecretError: there is no secret.
        OwnerLostError: on asking, no owner of a part is left.
        StrangerError, PartitionMismatchError: likewise, owners have another secret, or parts of another graph.
        ExchangeError: likewise, an owner refuses what it is asked for.

    Example:
        >>> from lightning_gnnload import CollectiveSampler, Graph, GraphData, NeighborSampler
        >>> from lightning_gnnload import load_partition, partition_graph
        >>> from lightning_gnnload.owners.owner import Owner
        >>> from lightning_gnnload.owners.tcp import TcpFront
        >>> ring = GraphData(Graph.from_coo(range(8), [1, 2, 3, 4, 5, 6, 7, 0]), train=range(8))
        >>> _ = partition_graph(ring, "parts", 2, hops=0, progress=False)
        >>> partition, secret = load_partition("parts"), "a secret of ours"
        >>> with TcpFront(Owner(partition), "127.0.0.1", 0, secret.encode()) as front:
        ...     owners = Owners.connect(partition, [str(front.address)], secret=secret)
        ...     batch = CollectiveSampler(NeighborSampler([1]), owners).sample(None, [0])
        ...     owners.close()
        >>> batch.nodes.tolist()
        [0, 7]

    Source: BGL (NSDI'23), section 3.1, for graph store servers.
    """

    def __init__(
        self, partition: Partition, addresses: Addresses, directory: Directory, num_streams: int, wire: Wire
    ) -> None:
        super().__init__(partition)
        self._addresses, self._directory, self._num_streams = addresses, directory, num_streams
        self.wire = wire
        self._settings: dict[str, Any] = {"num_streams": num_streams, "wire": wire}
        self._known: _Known | None = None
        self._coming: WeakSet[ComingAnswer] = WeakSet()
        self._threads: tuple[int, Threads] | None = None
        self._starting = threading.Lock()

    @classmethod
    def connect(
        cls: type[AnyOwners],
        partition: Partition,
        addresses: Addresses,
        *,
        secret: str | None = None,
        deadline_s: float = 30.0,
        patience_s: float = 60.0,
        num_streams: int = 4,
        wire: Wire = "exact",
    ) -> AnyOwners:
        """Makes the client; see :class:`Owners`."""
        if deadline_s <= 0 or patience_s < 0 or num_streams < 1:
            raise LoaderConfigError(
                f"deadline_s={deadline_s}, patience_s={patience_s}, num_streams={num_streams}: give a time above 0, "
                "one of at least 0, and at least one stream."
            )
        check_one_of("wire", wire, get_args(Wire), LoaderConfigError)
        if not callable(addresses):
            addresses = [addresses] if isinstance(addresses, str) else list(addresses)
            for address in addresses:
                Address.parse(address)  # a mistake is told before training begins
        directory = Directory(partition, addresses, find_secret(secret), deadline_s, patience_s)
        owners = cls(partition, addresses, directory, num_streams, wire)
        owners._settings |= {"deadline_s": deadline_s, "patience_s": patience_s}
        return owners

    @property
    def owned(self) -> KnownGraph:
        """What owners tell of the graph, asked for once."""
        if self._known is None:
            hello = self._directory.call(None, lambda connection: connection.hello)
            columns = hello.get("columns")
            if not isinstance(columns, list) or not set(map(str, columns)) <= set(Graph.ARRAYS):
                raise FrameError(f"an owner says that the graph's columns are {columns!r}.")
            self._known = _Known(self.partition.outline.with_columns(columns))
        return self._known

    @property
    def rank(self) -> int:
        return -1

    def gather(
        self,
        table: str,
        rows: np.ndarray,
        out: np.ndarray,
        positions: np.ndarray | None = None,
        meanwhile: Callable[[], object] = _nothing,
    ) -> int:
        """Gathers rows of a table from who has them; returns the bytes on the wire.

        Args:
            table: the name of the array that holds them, as in :attr:`.Partition.parted`.
            rows: int64 ``[B]``, of the whole table.
            out: uint8 ``[*, row_bytes]``, contiguous; of B rows, or with ``positions`` of any number.
            positions: int64 ``[B]``, distinct: where in ``out`` each row belongs; others stay.
            meanwhile: called once, while owners gather.

        Raises:
            SeedError: a row is none of the table's.
            OwnerLostError, ExchangeError: as :class:`Owners`; or a number is beyond what ``wire`` can hold.
        """
        form = self.form_of(table)
        if form.is_exact:
            self._gather_packed(table, rows, out, positions, meanwhile)
        else:
            with scratch_rows(len(rows), form.row_bytes, torch.uint8) as memory:
                packed = memory.numpy()
                self._gather_packed(table, rows, packed, None, meanwhile)
                form.unpack(packed, out, positions)
        return len(rows) * form.row_bytes

    def form_of(self, table: str) -> WireRows:
        """Returns how rows of a table are on the wire. ExchangeError: there is no such table."""
        parted = self.partition.parted.get(table)
        if parted is None:
            raise ExchangeError(
                f"{self.partition!r} has no table {table!r} whose rows lie with owners, but "
                f"{', '.join(self.partition.parted) or 'none'}."
            )
        return WireRows(self.wire, parted.dtype, int(np.prod(parted.row_shape, dtype=np.int64)))

    def _gather_packed(
        self,
        table: str,
        rows: np.ndarray,
        out: np.ndarray,
        positions: np.ndarray | None,
        meanwhile: Callable[[], object],
    ) -> None:
        """Gathers rows as :meth:`gather`, but leaves them as they are on the wire: :meth:`form_of` widens them."""
        most = MOST_IDS if self.form_of(table).is_exact else max(MOST_ROUNDED_BYTES // out.shape[1], 1)
        row_bytes, requests = out.shape[1], []
        by_part = {part: (numbers, at) for part, numbers, at in self.partition.parted[table].by_part(rows)}
        for part, (numbers, at) in by_part.items():
            step = min(self._rows_a_stream(len(at), row_bytes), most)
            for begin in range(0, len(at), step):
                piece = at[begin : begin + step]
                into = piece if positions is None else positions[piece]
                is_all = positions is None and len(piece) == len(rows)
                about = {"operation": ROWS, "part": part, "table": table, "wire": self.wire}
                task = Message(about, {"rows": narrow(numbers[begin : begin + step])}).to_bytes()
                requests.append(_Request(part, task, partial(_receive_rows, out=out, into=None if is_all else into)))
        self._ask_at_once(requests, len(rows) * row_bytes, meanwhile)
        sent = {part: sum(len(request.task) for request in requests if request.part == part) for part in by_part}
        positions_by_part = {part: at for part, (_, at) in by_part.items()}
        self._count(ROWS, positions_by_part, sent, {part: len(at) * row_bytes for part, (_, at) in by_part.items()})

    def ask_part(self, part: int, task: Message) -> ComingAnswer:
        """Asks an owner of a part for what is about more than its rows; returns the answer once it begins to come.

        Raises:
            OwnerLostError, ExchangeError: as :class:`Owners`.
        """
        sent = Message({**task.about, "part": part}, task.arrays).to_bytes()

        def begin(connection: Connection) -> int:
            connection.send(sent)
            return connection.begin()

        num_bytes, connection, address = self._directory.call_and_keep(part, begin)
        nowhere = {part: np.empty(0, np.int64)}
        self._count(str(task.about["operation"]), nowhere, {part: len(sent)}, {part: num_bytes})
        self._coming.add(answer := ComingAnswer(self._directory, connection, address, num_bytes))
        return answer

    def close(self) -> None:
        """Leaves the owners; who asks later connects anew. Safe to call twice."""
        for answer in list(self._coming):
            answer.close()
        with self._starting:
            threads, self._threads = self._threads, None
        if threads is not None and threads[0] == os.getpid():
            threads[1].shutdown()
        self._directory.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _connect_again, (self.partition, self._addresses, self._settings)

    def __repr__(self) -> str:
        return f"Owners(of {self.partition!r})"

    def _answers(self, operation: str, positions: dict[int, np.ndarray], tasks: dict[int, Message]) -> list[Answer]:
        requests = []
        for part, message in tasks.items():
            task = Message({**message.about, "part": part}, message.arrays).to_bytes()
            requests.append(_Request(part, task, _receive))
        answers = dict(zip(tasks, self._ask_in_turn(requests), strict=True))
        sent = {request.part: len(request.task) for request in requests}
        self._count(operation, positions, sent, {part: len(answer) for part, answer in answers.items()})
        return [Answer(part, at, Message.from_bytes(answers[part]).arrays) for part, at in positions.items()]

    def _ask_in_turn(self, requests: Sequence[_Request], meanwhile: Callable[[], object] = _nothing) -> list[Any]:
        """Sends all requests before the first answer is received, so that owners work at once, and ``meanwhile``."""
        directory = self._directory
        under_way: list[tuple[Connection, Address] | None] = []
        results = []
        try:
            for request in requests:
                under_way.append(lent := directory.lend(request.part))
                try:
                    lent[0].send(request.task)
                except OSError as error:
                    lent[0].close()
                    directory.report(lent[1], error)
                    under_way[-1] = None
            meanwhile()
            for number, request in enumerate(requests):
                results.append(self._result(request, under_way[number]))
                under_way[number] = None
        finally:
            for lent in filter(None, under_way):
                lent[0].close()  # an answer is under way that nobody waits for
        return results

    def _result(self, request: _Request, lent: tuple[Connection, Address] | None) -> Any:
        """Receives an answer, or asks again, perhaps another owner, where that fails."""
        if lent is not None:
            connection, address = lent
            try:
                result = request.receive(connection)
            except OSError as error:
                connection.close()
                self._directory.report(address, error)
            else:
                self._directory.give_back(connection, address)
                return result

        def again(connection: Connection) -> Any:
            connection.send(request.task)
            return request.receive(connection)

        return self._directory.call(request.part, again)

    def _ask_at_once(self, requests: Sequence[_Request], num_bytes: int, meanwhile: Callable[[], object]) -> None:
        """Receives large answers by a thread each, small ones one after the other."""
        if len(requests) == 1 or num_bytes < _STREAM_BYTES:
            self._ask_in_turn(requests, meanwhile)
            return
        threads = self._pool()
        futures = [threads.submit(self._ask_in_turn, [request]) for request in requests[1:]]
        try:
            self._ask_in_turn(requests[:1], meanwhile)
        finally:
            errors = [future.exception() for future in futures]  # none writes to ``out`` after this returns
        for error in filter(None, errors):
            raise error

    def _rows_a_stream(self, num_rows: int, row_bytes: int) -> int:
        num_streams = min(self._num_streams, num_rows * row_bytes // _STREAM_BYTES)
        return -(-num_rows // max(num_streams, 1))

    def _pool(self) -> Threads:
        with self._starting:
            if self._threads is None or self._threads[0] != os.getpid():
                self._threads = os.getpid(), Threads(4 * self._num_streams, "gnnload-owners")
            return self._threads[1]


def _receive(connection: Connection) -> np.ndarray:
    return connection.receive()


def _receive_rows(connection: Connection, out: np.ndarray, into: np.ndarray | None) -> None:
    connection.receive_rows(out, into)


def _connect_again(partition: Partition, addresses: Addresses, settings: Mapping[str, Any]) -> Owners:
    return Owners.connect(partition, addresses, **settings)

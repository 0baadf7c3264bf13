"""SamplingGroup: the ranks that sample together, each with the adjacency lists of one part."""

from __future__ import annotations

import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeVar

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import ExchangeError, PartitionError, PartitionMismatchError
from lightning_gnnload.sample.group.all_to_all import AllToAll
from lightning_gnnload.sample.group.exchange import Exchange
from lightning_gnnload.sample.group.messages import Answer, Message, narrow

T = TypeVar("T")
PROTOCOL = 4
"""The version of the messages; ranks of different versions refuse each other."""


class KnownGraph(Protocol):
    """The interface of what is known of the graph whose parts others hold: ``graph`` has its columns, types and clock,
    whether or not it has lists."""

    @property
    def graph(self) -> Graph: ...


class OwnedLists:
    """The part of the graph that this rank owns and serves: its graph (n nodes, its own first), ``num_own``, the nodes'
    ``new_ids`` int64 ``[n]``, and N of the whole graph."""

    def __init__(self, partition: Partition, rank: int) -> None:
        part = partition.parts[rank]
        if part.graph.origin is None:
            raise PartitionError(f"part {rank} does not say where its nodes come from: it needs graph.origin.")
        self.graph = part.graph
        self.num_own = part.num_own
        self.new_ids = np.asarray(partition.new_ids)[part.graph.origin.node_ids]
        self.num_nodes = partition.num_nodes

    def rows_of(self, task: Message) -> np.ndarray:
        """Returns the nodes that a task is about, int64 rows of the part. ExchangeError: it does not own them."""
        # Other nodes of the part have empty lists: answers about them would be wrong, and raise nothing.
        return task.numbers("rows", self.num_own).astype(np.int64)


Operation = Callable[[OwnedLists, np.ndarray, Message], Mapping[str, np.ndarray]]
"""Serves a task: ``(what this rank holds, int64 rows of its own nodes, the task) -> arrays of the result``."""
OPERATIONS: dict[str, Operation] = {}
"""What ranks can ask each other for, by name; alike on all of them."""


def operation(serve: Operation) -> Operation:
    """Enters a function in :data:`OPERATIONS`, by its name."""
    OPERATIONS[serve.__name__] = serve
    return serve


@dataclass
class Traffic:
    """What one rank requested by one operation: tasks to other ranks, nodes asked for (and how many of them other ranks
    own), and bytes each way."""

    num_tasks: int = 0
    num_nodes: int = 0
    num_remote: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0

    @property
    def num_bytes(self) -> int:
        return self.bytes_sent + self.bytes_received


class SamplingGroup(ABC):
    """Those who hold the parts of a graph, as who samples by them sees them: ranks that sample together, or owners.

    Any thread may :meth:`ask`. ``traffic`` counts what was asked for here, by operation.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.traffic: dict[str, Traffic] = {}
        self._counting, self._making = threading.Lock(), threading.Lock()
        self._made: dict[str, Any] = {}

    @property
    @abstractmethod
    def owned(self) -> KnownGraph:
        """Returns what is known of the graph: columns, types, clock."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Returns the part that is here; -1: none is."""

    @property
    def num_ranks(self) -> int:
        """Returns the number of parts."""
        return self.partition.num_parts

    def ask(
        self,
        operation: str,
        nodes: np.ndarray,
        settings: Mapping[str, Any] | None = None,
        columns: Mapping[str, np.ndarray] | None = None,
        shared: Mapping[str, np.ndarray] | None = None,
    ) -> list[Answer]:
        """Asks each node's owner to run an operation on it; returns one answer a part that owns any of ``nodes`` (new
        ids, int64 ``[D]``).

        ``settings`` are JSON values for all; of ``columns`` (arrays ``[D]``) each owner gets its nodes' values, of
        ``shared`` all. ExchangeError, OwnerLostError: nobody can answer.
        """
        owners = self.partition.owner_of(nodes)
        about = {"operation": operation, **(settings or {})}
        positions, tasks = {}, {}
        for rank in range(self.num_ranks):
            at = np.flatnonzero(owners == rank)
            if len(at):
                # Rows rather than ids: they fit a smaller dtype on the wire, and their owner need not look them up.
                rows = narrow(nodes[at] - self.partition.starts[rank])
                positions[rank] = at
                local = {name: array[at] for name, array in (columns or {}).items()}
                tasks[rank] = Message(about, {"rows": rows, **local, **(shared or {})})
        return self._answers(operation, positions, tasks)

    def ask_all(self, operation: str, settings: Mapping[str, Any] | None = None) -> list[Answer]:
        """Asks every rank, as :meth:`ask` does, to run an operation that is about none of its nodes."""
        task = Message({"operation": operation, **(settings or {})}, {"rows": np.empty(0, np.uint8)})
        nowhere = dict.fromkeys(range(self.num_ranks), np.empty(0, np.int64))
        return self._answers(operation, nowhere, dict.fromkeys(nowhere, task))

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Returns what ``make`` makes, by asking, of what does not change; made once for all threads, and kept."""
        with self._making:
            if name not in self._made:
                self._made[name] = make()
            value: T = self._made[name]
            return value

    @abstractmethod
    def close(self) -> None:
        """Asks no more. Safe to call twice."""

    @abstractmethod
    def _answers(self, operation: str, positions: dict[int, np.ndarray], tasks: dict[int, Message]) -> list[Answer]:
        """Has tasks done, by part; ``positions`` say where each part's nodes stand among those that were asked for."""

    def _count(
        self, operation: str, positions: Mapping[int, np.ndarray], sent: Mapping[int, int], received: Mapping[int, int]
    ) -> None:
        with self._counting:
            traffic = self.traffic.setdefault(operation, Traffic())
            traffic.num_tasks += len(sent)
            traffic.num_nodes += sum(map(len, positions.values()))
            traffic.num_remote += sum(len(positions[part]) for part in sent)
            traffic.bytes_sent += sum(sent.values())
            traffic.bytes_received += sum(received.values())


class RankGroup(SamplingGroup):
    """Connects the ranks that sample together, each with one part of the graph; all of them open it together.

    Close it on every rank when sampling ends, or :meth:`fail`; it closes ``exchange``. ``operations`` are what ranks
    can be asked for by name, the same on all.

    Raises PartitionError where parts and ranks differ in number, PartitionMismatchError where another rank has another
    partition, ExchangeError where one is gone, late, or of another version.
    """

    def __init__(
        self, partition: Partition, exchange: Exchange, operations: Mapping[str, Operation] = OPERATIONS
    ) -> None:
        super().__init__(partition)
        self._exchange = exchange
        self._operations = operations
        try:
            self._owned = self._meet()
            self._all_to_all = AllToAll(exchange, self._serve)
        except BaseException:
            exchange.close()
            raise

    @property
    def owned(self) -> OwnedLists:
        return self._owned

    @property
    def rank(self) -> int:
        return self._exchange.rank

    @property
    def num_rounds(self) -> int:
        """Returns the number of all-to-alls so far."""
        return self._all_to_all.num_rounds

    def close(self) -> None:
        """Serves the others until they close too. Safe to call twice. ExchangeError: a rank failed meanwhile."""
        self._all_to_all.close()

    def fail(self, reason: str) -> None:
        """Tells all ranks that this one cannot go on, and waits for none of them. Safe to call twice."""
        self._all_to_all.fail(reason)

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.fail(f"{type(error).__name__}: {error}")

    def _answers(self, operation: str, positions: dict[int, np.ndarray], tasks: dict[int, Message]) -> list[Answer]:
        remote = {rank: task.to_bytes() for rank, task in tasks.items() if rank != self.rank}
        # Before the own share, which is then drawn while the others draw theirs.
        pending = self._all_to_all.ask(remote)
        arrays: dict[int, Mapping[str, np.ndarray]] = {}
        if self.rank in tasks:
            arrays[self.rank] = self._do(tasks[self.rank])
        results = pending.wait()
        arrays |= {rank: Message.from_bytes(result).arrays for rank, result in results.items()}
        self._count(operation, positions, _lengths(remote), _lengths(results))
        return [Answer(self._exchange.global_rank(rank), at, arrays[rank]) for rank, at in positions.items()]

    def _serve(self, rank: int, task: np.ndarray) -> np.ndarray:
        return Message({}, self._do(Message.from_bytes(task))).to_bytes()

    def _do(self, task: Message) -> Mapping[str, np.ndarray]:
        # Runs in sampling threads and in the exchange's at once, so operations must not write to what they share.
        return self._operations[task.about["operation"]](self.owned, self.owned.rows_of(task), task)

    def _meet(self) -> OwnedLists:
        """Checks with all ranks that they belong together, and returns what this one owns."""
        partition, rank, num_ranks = self.partition, self._exchange.rank, self._exchange.num_ranks
        called = self._exchange.global_rank
        report = {
            "protocol": PROTOCOL,
            "fingerprint": partition.fingerprint,
            "starts": partition.starts.tolist(),
            # Parts may be of equal sizes and yet of other nodes, which would answer for each other unnoticed.
            "numbering": f"{zlib.crc32(np.ascontiguousarray(partition.node_ids).data):08x}",
        }
        received = self._exchange.all_to_all([Message(report, {}).to_bytes()] * num_ranks)
        # Every rank has said who it is before any refuses: so all learn why.
        for peer, data in enumerate(received):
            about = Message.from_bytes(data).about
            for name, value in report.items():
                if about.get(name) != value:
                    error = ExchangeError if name == "protocol" else PartitionMismatchError
                    raise error(
                        f"rank {called(peer)} has another partition than rank {called(rank)}, or another version of "
                        f"this package: its {name} is {about.get(name)}, not {value}. Give all ranks one folder, made "
                        f"once."
                    )
        if partition.num_parts != num_ranks:
            raise PartitionError(
                f"the partition has {partition.num_parts} parts, but {num_ranks} ranks sample together, one a part. "
                f"Make one of {num_ranks} parts, or start {partition.num_parts} ranks."
            )
        if partition.is_self_reliant:
            raise PartitionError(
                f"{partition}: parts that hold {partition.hops} hops of their seeds are sampled each by itself. "
                "Ranks sample together over a partition made with hops=0."
            )
        return OwnedLists(partition, rank)


def _lengths(messages: Mapping[int, np.ndarray]) -> dict[int, int]:
    return {rank: len(message) for rank, message in messages.items()}

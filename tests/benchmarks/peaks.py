"""Memory: the peaks of processes that do one thing, each new for this."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.benchmarks import goals
from tests.benchmarks.contenders import FANOUTS, comparison, count
from tests.benchmarks.measure import Comparison, Contender, Reply, Report, Role, take_turns
from tests.benchmarks.scale import Scale
from tests.benchmarks.workers import Worker, Workers


def loader_memory(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """Whole loaders, features included."""
    fanouts = FANOUTS[0]
    work: dict[str, Any] = {"num_batches": scale.loaded_batches, "fanouts": fanouts}
    contenders = []
    for number in (0, 2) if scale.every_setting else (0,):
        ours = partial(_peak_of_loader, "ours", graph, **work, batch_format="blocks", num_threads=number)
        contenders.append(Contender(f"ours, {count(number, 'thread')}", Role.OURS, ours))
        if "DGL" in workers.found:
            peer = partial(_peak_of_loader, "peer_dgl", graph, **work, num_workers=number)
            contenders.append(Contender(f"DGL, {count(number, 'worker')}", Role.PEER, peer, family="DGL"))
    yield take_turns(comparison("Memory", graph, fanouts, contenders, unit="MiB"), 1, report)


def sampling_memory(graph: str, scale: Scale, _: Workers, report: Report) -> Iterator[Comparison]:
    """Sampling alone, and the promise that it has to keep."""
    for num_threads in (1, 2):
        work = {"num_batches": scale.loaded_batches, "fanouts": FANOUTS[0], "num_threads": num_threads}
        promise = _Promise(graph, work)
        name = f"ours, {count(num_threads, 'thread')}"
        contenders = [
            Contender(name, Role.OURS, promise.measure),
            Contender(goals.PROMISE, Role.CEILING, promise.tell),
        ]
        compared = comparison("Memory of sampling", graph, FANOUTS[0], contenders, unit="MiB over what imports take")
        compared.goals = goals.of_memory(graph, name)
        yield take_turns(compared, 1, report)


class _Promise:
    """What a process took, and, of the same process, what it may take."""

    def __init__(self, graph: str, work: dict[str, Any]) -> None:
        self.graph, self.work = graph, work
        self.parts: dict[str, float] = {}

    def measure(self, turn: int) -> Reply:
        if turn == 0:  # a new process has nothing to warm up
            return {"values": []}
        with Worker("our_memory", graph=self.graph) as fresh:
            reply = fresh.call("sample", turn=turn, **self.work)
        values = reply.pop("values")
        self.parts = reply
        return {"values": values}

    def tell(self, turn: int) -> Reply:
        """Comes after :meth:`measure` in each turn."""
        return {"values": [sum(self.parts.values())], **self.parts}


def _peak_of_loader(module: str, graph: str, turn: int, **work: Any) -> Reply:
    if turn == 0:
        return {"values": []}
    with Worker(module, graph=graph) as fresh:
        fresh.call("load", turn=turn, **work)
        return fresh.call("peak")

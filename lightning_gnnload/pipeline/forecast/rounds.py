"""ExchangeRounds: ranks that sample together pass each other tasks and answers in rounds, which all of them go through.

What the simulation has of ``sample/group/all_to_all.py``: in a round, all ranks meet, tell each other how much comes,
and pass it; a rank then serves what has come, by one thread, and its answers go with the next round. A task that is
asked for during a round waits for the next one. So the slowest rank and the fullest link of each round decide, and a
large answer to one rank holds up all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from lightning_gnnload.pipeline.forecast.cluster import Cluster, RemoteTask
from lightning_gnnload.pipeline.forecast.fluid import (
    Clockwork,
    Command,
    Compute,
    Give,
    Off,
    Send,
    Store,
    Take,
    Together,
)
from lightning_gnnload.pipeline.forecast.sites import Site
from lightning_gnnload.sample.group.all_to_all import LONGEST_PAUSE_S, SHORTEST_PAUSE_S


@dataclass(eq=False)
class _WaitingTask:
    """A task that a rank of a machine has asked all others for."""

    machine: int
    task: RemoteTask
    size: float
    answered: Store = field(default_factory=lambda: Store("answers"))


class ExchangeRounds:
    """The rounds of all ranks, ``ranks_each`` of each machine; :meth:`ask` is what a sampling thread does.

    ``passed_ms``: how long bytes were on their way, of the clockwork's time.

    Source: DSP (PPoPP'23), sections 3.2 and 5: tasks are pushed to those who have the lists, all in one order.
    """

    def __init__(self, clockwork: Clockwork, sites: Sequence[Site], cluster: Cluster, ranks_each: int) -> None:
        self.passed_ms = 0.0
        self._clockwork = clockwork
        self._sites, self._cluster, self._ranks_each = sites, cluster, ranks_each
        self._tasks: list[_WaitingTask] = []

    def ask(self, machine: int, task: RemoteTask, size: float) -> Iterator[Command]:
        """Asks the ranks of all other machines, and waits for the last answer."""
        waiting = _WaitingTask(machine, task, size)
        self._tasks.append(waiting)
        yield Take(waiting.answered)

    def run(self) -> Iterator[Command]:
        """Goes from round to round; after idle ones all ranks pause, longer and longer."""
        answers: list[_WaitingTask] = []
        pause_ms = 1e3 * SHORTEST_PAUSE_S
        while True:
            tasks, self._tasks = self._tasks, []
            yield Off(self._cluster.latency_ms)
            if not tasks and not answers:
                yield Off(pause_ms)
                pause_ms = min(2 * pause_ms, 1e3 * LONGEST_PAUSE_S)
                continue
            pause_ms = 1e3 * SHORTEST_PAUSE_S
            requests = self._on_each(tasks, lambda task: task.request_bytes)
            results = self._on_each(answers, lambda task: task.answer_bytes)
            began_ms = self._clockwork.now_ms
            yield Together(tuple(self._pass_all(requests, results)))
            self.passed_ms += self._clockwork.now_ms - began_ms
            yield Off(self._cluster.latency_ms)
            for answered in answers:
                yield Give(answered.answered)
            yield Together(tuple(self._serve_all(tasks)))
            answers = tasks

    def _on_each(
        self, tasks: Sequence[_WaitingTask], size_of: Callable[[RemoteTask], float]
    ) -> list[tuple[float, float]]:
        """By machine: what its own tasks come to, and its share of all others'."""
        sums = [0.0] * len(self._sites)
        for task in tasks:
            sums[task.machine] += task.size * size_of(task.task)
        num_others = max(len(self._sites) - 1, 1)
        return [(mine, (sum(sums) - mine) / num_others) for mine in sums]

    def _pass_all(
        self, requests: list[tuple[float, float]], answers: list[tuple[float, float]]
    ) -> Iterator[Iterator[Command]]:
        """All bytes of a round; how those of a machine divide among the others does not matter to its own link."""
        costs = self._cluster.costs
        for site, (asks, is_asked), (gets, gives) in zip(self._sites, requests, answers, strict=True):
            # The thread of the rounds packs and unpacks, while the network library's own writes and reads.
            for copied_ms in (costs.asked_ms(asks + gets), costs.answered_ms(is_asked + gives)):
                for _ in range(self._ranks_each):
                    yield iter([Compute(copied_ms / self._ranks_each, 1, site.cores)])
            yield iter([Send(asks + gives, (site.sends,))])
            yield iter([Send(is_asked + gets, (site.receives,))])

    def _serve_all(self, tasks: Sequence[_WaitingTask]) -> Iterator[Iterator[Command]]:
        """What each rank computes for the others, by its one thread: their tasks, and the round itself."""
        costs = self._cluster.costs
        num_others = max(len(self._sites) - 1, 1) * self._ranks_each
        sums_ms = [0.0] * len(self._sites)
        for task in tasks:
            sums_ms[task.machine] += task.size * task.task.core_ms / num_others + costs.answer_ms
        for site, mine_ms in zip(self._sites, sums_ms, strict=True):
            for _ in range(self._ranks_each):
                yield iter([Compute(sum(sums_ms) - mine_ms, 1, site.cores)])

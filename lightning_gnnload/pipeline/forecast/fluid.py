"""A clockwork of processes that share cores, take turns at what only one can use, and wait for each other.

A process is a generator of commands. Its work goes on at the pace of the cores that are free for it: with more threads
than cores, each is on one of them equally often, and a step of several threads goes on while all of these are: each
waits for the others, on its core, as OpenMP's do. There is no chance in it: equal input gives equal times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

_INSTANT_MS = 1e-9  # what is left of work by rounding


@dataclass(eq=False)
class Store:
    """Items that processes give and take: free slots, ready mini-batches, or the one right to use something."""

    name: str
    count: int = 0
    waiting: deque[_Process] = field(default_factory=deque)


class Compute(NamedTuple):
    """Computes by ``threads`` threads at once, for so long if each has a core."""

    ms: float
    threads: int = 1


class Off(NamedTuple):
    """Waits without a core: for a disk, a link or a device."""

    ms: float


class Take(NamedTuple):
    """Takes an item, and waits for one where there is none."""

    store: Store


class Give(NamedTuple):
    """Gives an item, or takes one back."""

    store: Store


Command: TypeAlias = Compute | Off | Take | Give


@dataclass(eq=False)
class _Process:
    name: str
    commands: Iterator[Command]
    remaining_ms: float = 0.0
    threads: int = 0  # 0: off the cores
    waits_since: float = 0.0


class Clockwork:
    """Runs processes until one of them ends.

    Attributes:
        now_ms: the time since the start.
        busy_core_ms: how long cores were busy, summed.
        waited_ms: how long each process has waited to take from each store, by their names.

    Example:
        >>> def twice(name): yield from (Compute(10.0), Compute(10.0))
        >>> clockwork = Clockwork(cores=1)
        >>> clockwork.run({name: twice(name) for name in ("a", "b")})
        40.0
    """

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.now_ms = 0.0
        self.busy_core_ms = 0.0
        self.waited_ms: dict[tuple[str, str], float] = {}
        self._has_ended = False

    def run(self, processes: dict[str, Iterator[Command]]) -> float:
        """Returns the time at which the first process ended; without one that can go on, that is now."""
        ready = [_Process(name, commands) for name, commands in processes.items()]
        active: list[_Process] = []
        while True:
            while ready:
                self._advance(ready.pop(0), ready, active)
            if self._has_ended or not active:
                return self.now_ms
            ready = self._pass_time(active)
            active = [process for process in active if process not in ready]

    def _advance(self, process: _Process, ready: list[_Process], active: list[_Process]) -> None:
        """Lets a process go on until it works or waits."""
        for command in process.commands:
            if isinstance(command, Give):
                if command.store.waiting:
                    taker = command.store.waiting.popleft()
                    key = taker.name, command.store.name
                    self.waited_ms[key] = self.waited_ms.get(key, 0.0) + self.now_ms - taker.waits_since
                    ready.append(taker)
                else:
                    command.store.count += 1
            elif isinstance(command, Take):
                if not command.store.count:
                    process.waits_since = self.now_ms
                    command.store.waiting.append(process)
                    return
                command.store.count -= 1
            elif command.ms > 0:
                process.remaining_ms, process.threads = command.ms, getattr(command, "threads", 0)
                active.append(process)
                return
        self._has_ended = True

    def _pass_time(self, active: Sequence[_Process]) -> list[_Process]:
        """Passes the time until some work is done; returns whose."""
        demand = sum(process.threads for process in active)
        paces = [pace_of(process.threads, demand, self.cores) for process in active]
        passed_ms = min(process.remaining_ms / pace for process, pace in zip(active, paces, strict=True))
        self.now_ms += passed_ms
        self.busy_core_ms += passed_ms * min(demand, self.cores)
        for process, pace in zip(active, paces, strict=True):
            process.remaining_ms -= passed_ms * pace
        return [process for process in active if process.remaining_ms <= _INSTANT_MS]


def pace_of(threads: int, demand: int, cores: int) -> float:
    """How fast a step of ``threads`` threads goes on among ``demand`` that want a core: each is on one for the same
    share of the time, and the step goes on while all of its threads are.

    Example:
        >>> pace_of(threads=1, demand=4, cores=2), pace_of(threads=2, demand=4, cores=2)
        (0.5, 0.25)
    """
    return min(1.0, cores / demand) ** threads if threads else 1.0

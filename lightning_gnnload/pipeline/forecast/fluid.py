"""A clockwork of processes that share cores and links, take turns at what only one can use, and wait for each other.

A process is a generator of commands. Work goes on at the pace that is left for it: of more threads than cores each is
on one of them equally often, and a step of several threads goes on while all of these are: each waits for the others,
on its core, as OpenMP's do. Flows share each link equally, and go at the pace of the narrowest of theirs. There is no
chance in it: equal input gives equal times.

Work that shares its resources and its number of threads shares its pace, so that one clock for all of it, which runs at
that pace, tells when each ends (``_Lane``): an event costs a logarithm of what is under way, not all of it (virtual
time: Demers, Keshav and Shenker, SIGCOMM '89).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

_INSTANT_MS = 1e-9  # what is left of work by rounding


@dataclass(eq=False)
class Store:
    """Items that processes give and take: free slots, ready mini-batches, or the one right to use something."""

    name: str
    count: int = 0
    waiting: deque[_Process] = field(default_factory=deque)


@dataclass(eq=False)
class Cores:
    """Cores that threads share. ``busy_ms``: how long they were busy, summed."""

    count: float
    demand: int = 0
    busy_ms: float = 0.0

    def pace(self, threads: int) -> float:
        return pace_of(threads, self.demand, self.count)

    def pass_time(self, ms: float) -> None:
        self.busy_ms += ms * min(self.demand, self.count)


@dataclass(eq=False)
class Link:
    """One way of a link, which flows share equally. ``busy_ms``: how long its bytes would have taken it alone."""

    bytes_per_ms: float
    demand: int = 0
    busy_ms: float = 0.0

    def pace(self, _: int) -> float:
        return self.bytes_per_ms / max(self.demand, 1)

    def pass_time(self, ms: float) -> None:
        """Its bytes are counted when they are sent: a flow that another link holds up leaves this one idle."""


Resource: TypeAlias = Cores | Link


class Compute(NamedTuple):
    """Computes by ``threads`` threads at once, for so long if each has a core of ``cores``, or else the clockwork's."""

    ms: float
    threads: int = 1
    cores: Cores | None = None


class Send(NamedTuple):
    """Sends bytes over links, one behind the other."""

    num_bytes: float
    links: tuple[Link, ...]


class Off(NamedTuple):
    """Waits without a core: for a disk, a device, or the way of a message."""

    ms: float


class Take(NamedTuple):
    """Takes an item, and waits for one where there is none."""

    store: Store


class Give(NamedTuple):
    """Gives an item, or takes one back."""

    store: Store


class Together(NamedTuple):
    """Goes on when all of these have ended, which go on side by side meanwhile."""

    processes: tuple[Iterator[Command], ...]


Command: TypeAlias = Compute | Send | Off | Take | Give | Together


@dataclass(eq=False)
class _Process:
    name: str
    commands: Iterator[Command]
    number: int
    waits_since: float = 0.0
    parent: _Process | None = None
    children: int = 0


@dataclass(eq=False)
class _Lane:
    """Work under way that shares its resources and threads, hence its pace: by how far its clock is when it ends."""

    resources: tuple[Resource, ...]
    threads: int
    clock: float = 0.0
    pace: float = 0.0
    since_ms: float = 0.0
    version: int = 0
    first: int = 0  # the number of what ends first, as it was when its pace was set
    heap: list[tuple[float, int, _Process]] = field(default_factory=list)

    def pass_time(self, now_ms: float) -> None:
        self.clock += self.pace * (now_ms - self.since_ms)
        self.since_ms = now_ms


class Clockwork:
    """Runs processes until one of them ends.

    Attributes:
        now_ms: the time since the start.
        cores: those of work that names no others.
        waited_ms: how long each process has waited to take from each store, by their names.

    Example:
        >>> def twice(name): yield from (Compute(10.0), Compute(10.0))
        >>> clockwork = Clockwork(cores=1)
        >>> clockwork.run({name: twice(name) for name in ("a", "b")})
        40.0
    """

    def __init__(self, cores: float) -> None:
        self.cores = Cores(cores)
        self.now_ms = 0.0
        self.waited_ms: dict[tuple[str, str], float] = {}
        self._lanes: dict[tuple[tuple[Resource, ...], int], _Lane] = {}
        self._lanes_of: dict[Resource, list[_Lane]] = {}
        self._since_ms: dict[Resource, float] = {}
        self._changed: dict[Resource, None] = {}  # in the order of their changes
        self._events: list[tuple[float, int, int, _Lane | _Process]] = []
        self._ready: deque[_Process] = deque()
        self._count = 0
        self._has_ended = False

    @property
    def busy_core_ms(self) -> float:
        return self.cores.busy_ms

    def run(self, processes: dict[str, Iterator[Command]]) -> float:
        """Returns the time at which the first process ended; without one that can go on, that is now."""
        for name, commands in processes.items():
            self._ready.append(_Process(name, commands, self._next()))
        while True:
            while self._ready:
                self._advance(self._ready.popleft())
            self._change_paces()
            if self._has_ended or not self._pass_time():
                return self.now_ms

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _advance(self, process: _Process) -> None:
        """Lets a process go on until it works or waits."""
        for command in process.commands:
            if self._waits(process, command):
                return
        if process.parent is None:
            self._has_ended = True
            return
        process.parent.children -= 1
        if not process.parent.children:
            self._ready.append(process.parent)

    def _waits(self, process: _Process, command: Command) -> bool:
        """Begins a command, and returns whether the process goes on only later."""
        if isinstance(command, Give):
            self._give(command.store)
            return False
        if isinstance(command, Take):
            if command.store.count:
                command.store.count -= 1
                return False
            process.waits_since = self.now_ms
            command.store.waiting.append(process)
            return True
        if isinstance(command, Together):
            process.children = len(command.processes)
            for commands in command.processes:
                self._ready.append(_Process(process.name, commands, self._next(), parent=process))
            return bool(command.processes)
        if isinstance(command, Send):
            for link in command.links:
                link.busy_ms += command.num_bytes / link.bytes_per_ms
            return self._begin(process, command.num_bytes, command.links, 1)
        if isinstance(command, Compute):
            return self._begin(process, command.ms, (command.cores or self.cores,), command.threads)
        if command.ms <= 0:
            return False
        process.number = self._next()
        heappush(self._events, (self.now_ms + command.ms, process.number, 0, process))
        return True

    def _give(self, store: Store) -> None:
        if not store.waiting:
            store.count += 1
            return
        taker = store.waiting.popleft()
        key = taker.name, store.name
        self.waited_ms[key] = self.waited_ms.get(key, 0.0) + self.now_ms - taker.waits_since
        self._ready.append(taker)

    def _begin(self, process: _Process, amount: float, resources: tuple[Resource, ...], threads: int) -> bool:
        if amount <= 0:
            return False
        lane = self._lanes.get((resources, threads))
        if lane is None:
            lane = self._lanes[resources, threads] = _Lane(resources, threads, since_ms=self.now_ms)
            for resource in resources:
                self._lanes_of.setdefault(resource, []).append(lane)
        lane.pass_time(self.now_ms)
        process.number = self._next()
        heappush(lane.heap, (lane.clock + amount, process.number, process))
        self._change_demand(lane, threads)
        return True

    def _change_demand(self, lane: _Lane, threads: int) -> None:
        for resource in lane.resources:
            resource.pass_time(self.now_ms - self._since_ms.get(resource, 0.0))
            self._since_ms[resource] = self.now_ms
            resource.demand += threads
            self._changed[resource] = None

    def _change_paces(self) -> None:
        """Gives all work on resources whose demand has changed its new pace, and the time at which its first ends."""
        for lane in dict.fromkeys(lane for resource in self._changed for lane in self._lanes_of[resource] if lane.heap):
            pace = min(resource.pace(lane.threads) for resource in lane.resources)
            if pace == lane.pace and lane.heap[0][1] == lane.first:
                continue  # what holds it up is none of what has changed
            lane.pass_time(self.now_ms)
            lane.pace, lane.first = pace, lane.heap[0][1]
            lane.version += 1
            end_ms = self.now_ms + max(lane.heap[0][0] - lane.clock, 0.0) / pace
            heappush(self._events, (end_ms, self._next(), lane.version, lane))
        self._changed.clear()

    def _pass_time(self) -> bool:
        """Passes the time until some work ends, and lets go on who did it; False: there is none under way."""
        ended: list[_Process] = []
        while self._events and (not ended or self._events[0][0] <= self.now_ms + _INSTANT_MS):
            at_ms, _, version, worker = heappop(self._events)
            if isinstance(worker, _Process):
                self.now_ms = max(at_ms, self.now_ms)
                ended.append(worker)
            elif version == worker.version:
                self.now_ms = max(at_ms, self.now_ms)
                worker.pass_time(self.now_ms)
                # The first has ended, whatever the rounding of a clock that has run for long.
                limit = max(worker.clock, worker.heap[0][0]) + _INSTANT_MS
                while worker.heap and worker.heap[0][0] <= limit:
                    ended.append(heappop(worker.heap)[2])
                    self._change_demand(worker, -worker.threads)
        self._ready.extend(sorted(ended, key=lambda process: process.number))
        return bool(ended)


def pace_of(threads: int, demand: int, cores: float) -> float:
    """How fast a step of ``threads`` threads goes on among ``demand`` that want a core: each is on one for the same
    share of the time, and the step goes on while all of its threads are.

    Example:
        >>> pace_of(threads=1, demand=4, cores=2), pace_of(threads=2, demand=4, cores=2)
        (0.5, 0.25)
    """
    return min(1.0, cores / demand) ** threads if threads else 1.0

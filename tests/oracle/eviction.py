"""Oracle of caches that admit what they miss: which nodes are cached, batch by batch.

One class a rule, each as its source tells it; the kernel has one body for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable


class CacheModel(ABC):
    """Holds ``num_slots`` nodes.

    Example:
        >>> cache = Fifo(num_slots=3)
        >>> [cache.visit(batch) for batch in ([1, 2], [2, 3], [4, 2], [1, 2])]
        [set(), {2}, {2}, {2}]
        >>> sorted(cache.nodes)
        [1, 3, 4]
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots

    def visit(self, batch: Iterable[int]) -> set[int]:
        """The nodes of a batch that are hit; the others are then admitted, in its order."""
        batch = list(batch)
        hits = {node for node in batch if node in self.nodes}
        for node in batch:
            if node in hits:
                self.hit(node)
        for node in batch:
            if node not in hits and node not in self.nodes:
                self.admit(node)
        return hits

    @property
    @abstractmethod
    def nodes(self) -> set[int]:
        """The nodes that are cached."""

    @abstractmethod
    def hit(self, node: int) -> None:
        """Counts a visit of a node that is cached."""

    @abstractmethod
    def admit(self, node: int) -> None:
        """Takes in a node that is not cached; where there is no room, another goes."""


class Fifo(CacheModel):
    """Who came first goes first. BGL (NSDI'23), section 3.2.1."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self._queue: deque[int] = deque()

    @property
    def nodes(self) -> set[int]:
        return set(self._queue)

    def hit(self, node: int) -> None:
        pass

    def admit(self, node: int) -> None:
        if len(self._queue) == self.num_slots:
            self._queue.popleft()
        self._queue.append(node)


class Clock(CacheModel):
    """A hand goes round over the slots: it takes back the mark of a node that was visited, and evicts one without.
    Corbató, "A paging experiment with the Multics system", 1968."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self._slots: list[int] = []
        self._marked: set[int] = set()
        self._hand = 0

    @property
    def nodes(self) -> set[int]:
        return set(self._slots)

    def hit(self, node: int) -> None:
        self._marked.add(node)

    def admit(self, node: int) -> None:
        if len(self._slots) < self.num_slots:
            self._slots.append(node)
            return
        while self._slots[self._hand] in self._marked:
            self._marked.remove(self._slots[self._hand])
            self._hand = (self._hand + 1) % self.num_slots
        self._slots[self._hand] = node
        self._hand = (self._hand + 1) % self.num_slots


class S3Fifo(CacheModel):
    """A small queue filters who comes once. Yang et al. (SOSP'23), section 4 and algorithm 1.

    Where that leaves a choice: the small queue holds a tenth of the slots, and more while the main one has not its
    nine tenths; the main queue evicts once it has more than these, or the small one is empty; visits are forgotten on
    the way from the small to the main queue; who is remembered is looked up before room is made.
    """

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self._main_slots = num_slots - max(num_slots // 10, 1)
        self._small: deque[int] = deque()
        self._main: deque[int] = deque()
        self._visits: dict[int, int] = {}
        self._num_gone = 0
        self._gone: dict[int, int] = {}  # when who left the small queue, in numbers of those that left it before

    @property
    def nodes(self) -> set[int]:
        return set(self._visits)

    def hit(self, node: int) -> None:
        self._visits[node] = min(self._visits[node] + 1, 3)

    def admit(self, node: int) -> None:
        remembered = node in self._gone and self._num_gone - self._gone.pop(node) <= self._main_slots
        if len(self._visits) == self.num_slots:
            self._evict()
        (self._main if remembered else self._small).append(node)
        self._visits[node] = 0

    def _evict(self) -> None:
        while True:
            if not self._small or len(self._main) > self._main_slots:
                node = self._main.popleft()
                if self._visits[node] == 0:
                    del self._visits[node]
                    return
                self._visits[node] -= 1
                self._main.append(node)
                continue
            node = self._small.popleft()
            if self._visits[node] < 2:
                del self._visits[node]
                self._gone[node] = self._num_gone
                self._num_gone += 1
                return
            self._visits[node] = 0
            self._main.append(node)


CACHE_MODELS: dict[str, type[CacheModel]] = {"fifo": Fifo, "clock": Clock, "s3fifo": S3Fifo}

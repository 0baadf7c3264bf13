"""Who touches memory when: finds work on two streams that nothing orders.

The emulated device does all work at once, in the order of the calls, and so would never show a forgotten wait. Each
stream therefore keeps how far into every other one it has waited (a vector clock), and each piece of memory who wrote
it and who has read it since.
Source: Lamport, "Time, clocks, and the ordering of events in a distributed system", CACM 21(7), 1978.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch.multiprocessing.reductions import StorageWeakRef

Clock = Counter  # stream -> how much of its work is surely done


class UnorderedError(AssertionError):
    """Two streams touch the same memory, one of them to write, and neither waits for the other."""


@dataclass
class Touched:
    """What is known of a range of memory.

    Attributes:
        begin: its first byte within its storage, and ``end`` one beyond the last.
        writer: stream and moment of the last write.
        readers: moments of reads since, by stream.
    """

    begin: int
    end: int
    writer: tuple[str, int] | None = None
    readers: Clock = field(default_factory=Counter)


@dataclass
class Storage:
    """Memory that was allocated in one piece.

    Attributes:
        held: keeps the storage's name from being used again, not its memory.
        ranges: all that were touched; they may overlap.
    """

    held: StorageWeakRef
    ranges: dict[tuple[int, int], Touched] = field(default_factory=dict)


class Streams:
    """The streams of one device, and the memory they touch."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._own = threading.local()
        self._clocks: dict[str, Clock] = {}
        self._host: Clock = Counter()
        self._storages: dict[int, Storage] = {}
        self._most_storages = 100  # beyond them, those that are freed are forgotten

    @property
    def current(self) -> str:
        """Of the calling thread."""
        return getattr(self._own, "current", "default")

    @property
    def number(self) -> int:
        """The current stream's handle, as a driver would have it: 0 for the default one."""
        return 0 if self.current == "default" else self.current.__hash__() & 0xFFFFFFFF | 1

    @contextmanager
    def side(self, purpose: str) -> Iterator[None]:
        before = self.current
        self._own.current = f"{purpose} {threading.get_ident()}"
        try:
            yield
        finally:
            self._own.current = before

    def work(self, what: str, reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
        """Notes that work of the current stream reads and writes memory.

        Raises:
            UnorderedError: another stream may do so at the same time.
        """
        with self._lock:
            stream, clock = self.current, self._now()
            clock[stream] += 1
            for tensor in reads:
                self._check(what, "reads", tensor, clock)
            for tensor in writes:
                self._check(what, "writes", tensor, clock)
            for tensor in reads:
                self._of(tensor)[0].readers[stream] = clock[stream]
            for tensor in writes:
                touched, _ = self._of(tensor)
                touched.writer, touched.readers = (stream, clock[stream]), Counter()

    def moment(self) -> Clock:
        """All that is done when the current stream's work is."""
        with self._lock:
            return Counter(self._now())

    def wait(self, moment: Clock) -> None:
        """The current stream waits."""
        with self._lock:
            self._clocks[self.current] = self._now() | moment

    def wait_on_host(self, moment: Clock) -> None:
        """Whatever is launched from now on comes later."""
        with self._lock:
            self._host |= moment

    def _now(self) -> Clock:
        stream = self.current
        self._clocks[stream] = self._clocks.get(stream, Counter()) | self._host
        return self._clocks[stream]

    def _of(self, tensor: torch.Tensor) -> tuple[Touched, list[Touched]]:
        """The tensor's own range, and all that overlap it."""
        held = tensor.untyped_storage()
        if held._cdata not in self._storages:
            if len(self._storages) > self._most_storages:
                self._storages = {name: known for name, known in self._storages.items() if not known.held.expired()}
                self._most_storages = 2 * len(self._storages) + 100
            self._storages[held._cdata] = Storage(StorageWeakRef(held))
        ranges = self._storages[held._cdata].ranges
        begin = tensor.storage_offset() * tensor.element_size()
        end = begin + tensor.numel() * tensor.element_size()
        own = ranges.get((begin, end))
        if own is None:
            own = ranges[begin, end] = Touched(begin, end)
        return own, [other for other in ranges.values() if other.begin < end and begin < other.end]

    def _check(self, what: str, does: str, tensor: torch.Tensor, clock: Clock) -> None:
        for touched in self._of(tensor)[1]:
            others = [] if touched.writer is None else [(*touched.writer, "written")]
            if does == "writes":
                others += [(stream, moment, "read") for stream, moment in touched.readers.items()]
            for stream, moment, how in others:
                if clock[stream] < moment:
                    raise UnorderedError(
                        f"{what} {does} memory on stream {self.current!r} that was {how} on stream {stream!r}, and "
                        "does not wait for it. Record an event there after the work, and wait for it here before the "
                        "launch."
                    )

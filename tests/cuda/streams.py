"""Who touches memory when: finds work on two streams that nothing orders.

The emulated device does all work at once, in the order of the calls, and so would never show a forgotten wait. Each
stream therefore keeps how far into every other one it has waited (a vector clock), and each piece of memory who wrote
it and who has read it since.
Source: Lamport, "Time, clocks, and the ordering of events in a distributed system", CACM 21(7), 1978.

Memory that is freed goes back to the stream that allocated it, as torch's allocator has it: to that stream's next work
at once, whatever other streams still do with it, unless they were named by ``Tensor.record_stream``.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch.multiprocessing.reductions import StorageWeakRef

Clock = Counter  # stream -> how much of its work is surely done
DEFAULT = "default"
HOST_MEMORY = -1  # the storage that stands for what the device reads of the host's, by address


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
        held: keeps the storage's name from being used again, not its memory; None for the host's.
        ranges: all that were touched; they may overlap.
        owner: the stream that gets the memory again when it is freed; None where another allocator has it.
        kept_for: other streams whose work the owner's next use of the memory waits for.
    """

    held: StorageWeakRef | None
    ranges: dict[tuple[int, int], Touched] = field(default_factory=dict)
    owner: str | None = None
    kept_for: set[str] = field(default_factory=set)

    @property
    def is_freed(self) -> bool:
        return self.held is not None and self.held.expired()


@dataclass(frozen=True)
class Span:
    """Bytes of a storage that work touches, found by their address: of :data:`HOST_MEMORY`, the addresses."""

    storage: int
    begin: int
    end: int


class _Lent:
    """The side stream of a thread, which another thread gets when this one has ended, as a device lends them."""

    def __init__(self, name: str, idle: deque[str]) -> None:
        self.name, self._idle = name, idle

    def __del__(self) -> None:
        self._idle.append(self.name)


class Streams:
    """The streams of one device, and the memory they touch."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._own = threading.local()
        self._idle: deque[str] = deque()
        self._count = itertools.count()
        self._clocks: dict[str, Clock] = {}
        self._host: Clock = Counter()
        self._storages: dict[int, Storage] = {HOST_MEMORY: Storage(None)}
        self._numbers: dict[str, int] = {}
        self._most_storages = 100  # beyond them, those that are freed are forgotten

    @property
    def current(self) -> str:
        """Of the calling thread."""
        return getattr(self._own, "current", DEFAULT)

    @property
    def current_stream(self) -> torch.Stream:
        """As torch knows streams; the number leads back to this one."""
        with self._lock:
            name = self.current
            if name not in self._numbers:
                self._numbers[name] = next(_numbers)
                _of_number[self._numbers[name]] = weakref.ref(self), name
            return torch.Stream(stream_id=self._numbers[name], device_index=0, device_type=0)

    @contextmanager
    def side(self, purpose: str) -> Iterator[None]:
        lent = vars(self._own).setdefault("lent", {})
        if purpose not in lent:
            try:
                name = self._idle.pop()
            except IndexError:
                name = f"side {next(self._count)}"
            lent[purpose] = _Lent(name, self._idle)
        before = self.current
        self._own.current = lent[purpose].name
        try:
            yield
        finally:
            self._own.current = before

    def work(self, what: str, reads: Sequence[torch.Tensor | Span], writes: Sequence[torch.Tensor | Span]) -> None:
        """Notes that work of the current stream reads and writes memory.

        Raises:
            UnorderedError: another stream may do so at the same time.
        """
        with self._lock:
            stream, clock = self.current, self._now()
            clock[stream] += 1
            for memory in reads:
                self._check(what, "reads", memory, clock)
            for memory in writes:
                self._check(what, "writes", memory, clock)
            for memory in reads:
                self._of(memory)[0].readers[stream] = clock[stream]
            for memory in writes:
                touched, _ = self._of(memory)
                touched.writer, touched.readers = (stream, clock[stream]), Counter()

    def allocate(self, tensor: torch.Tensor) -> None:
        """Notes that the current stream has allocated a tensor's memory, as which it may have got whatever of its own
        was freed.

        Raises:
            UnorderedError: another stream may still use that, and was not named by ``record_stream``.
        """
        with self._lock:
            stream, clock = self.current, self._now()
            freed = [(name, old) for name, old in self._storages.items() if old.owner == stream and old.is_freed]
            for name, old in freed:
                del self._storages[name]
                for touched in old.ranges.values():
                    for other, moment, how in _touches(touched):
                        if clock[other] < moment and other not in old.kept_for:
                            raise UnorderedError(
                                f"stream {stream!r} gets memory again that was freed after it was {how} on stream "
                                f"{other!r}, whose work it does not wait for. Name that stream by "
                                "Tensor.record_stream() before the tensor is dropped, or wait for its work."
                            )
            self._storage_of(tensor).owner = stream

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is memory that one of the streams has allocated."""
        with self._lock:
            known = self._storages.get(tensor.untyped_storage()._cdata)
            return known is not None and known.owner is not None

    def keep(self, tensor: torch.Tensor, stream: str) -> None:
        """Lets the memory's next use wait for what the stream has been given by the time it is freed."""
        with self._lock:
            self._storage_of(tensor).kept_for.add(stream)

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

    def wait_for_all(self) -> None:
        """The host waits for the work of all streams."""
        with self._lock:
            for clock in self._clocks.values():
                self._host |= clock

    @property
    def is_idle(self) -> bool:
        """Whether the host has waited for all work."""
        with self._lock:
            return all(clock <= self._host for clock in self._clocks.values())

    def host_writes(self, address: int, num_bytes: int) -> None:
        """Notes that the host writes memory of its own that the device reads.

        Raises:
            UnorderedError: it may still read what is there.
        """
        with self._lock:
            for touched in self._of(Span(HOST_MEMORY, address, address + num_bytes))[1]:
                for stream, moment, _ in _touches(touched):
                    if self._host[stream] < moment:
                        raise UnorderedError(
                            f"the host writes memory that stream {stream!r} may still read. Wait for an event that was "
                            "recorded there after the read."
                        )

    def _now(self) -> Clock:
        stream = self.current
        self._clocks[stream] = self._clocks.get(stream, Counter()) | self._host
        return self._clocks[stream]

    def _storage_of(self, tensor: torch.Tensor) -> Storage:
        held = tensor.untyped_storage()
        if held._cdata not in self._storages:
            if len(self._storages) > self._most_storages:
                self._storages = {
                    name: known
                    for name, known in self._storages.items()
                    if known.owner is not None or not known.is_freed
                }
                self._most_storages = 2 * len(self._storages) + 100
            self._storages[held._cdata] = Storage(StorageWeakRef(held))
        return self._storages[held._cdata]

    def _of(self, memory: torch.Tensor | Span) -> tuple[Touched, list[Touched]]:
        """The memory's own range, and all that overlap it."""
        if isinstance(memory, Span):
            ranges, begin, end = self._storages[memory.storage].ranges, memory.begin, memory.end
        else:
            ranges = self._storage_of(memory).ranges
            begin = memory.storage_offset() * memory.element_size()
            last = sum((size - 1) * stride for size, stride in zip(memory.shape, memory.stride(), strict=True))
            end = begin + (last + 1) * memory.element_size() if memory.numel() else begin
        own = ranges.get((begin, end))
        if own is None:
            own = ranges[begin, end] = Touched(begin, end)
        return own, [other for other in ranges.values() if other.begin < end and begin < other.end]

    def _check(self, what: str, does: str, memory: torch.Tensor | Span, clock: Clock) -> None:
        for touched in self._of(memory)[1]:
            for stream, moment, how in _touches(touched):
                if (does == "writes" or how == "written") and clock[stream] < moment:
                    raise UnorderedError(
                        f"{what} {does} memory on stream {self.current!r} that was {how} on stream {stream!r}, and "
                        "does not wait for it. Record an event there after the work, and wait for it here before the "
                        "launch."
                    )


def _touches(touched: Touched) -> Iterator[tuple[str, int, str]]:
    """Stream, moment, and what was done."""
    if touched.writer is not None:
        yield (*touched.writer, "written")
    for stream, moment in touched.readers.items():
        yield stream, moment, "read"


_numbers = itertools.count(1)
_of_number: dict[int, tuple[weakref.ref[Streams], str]] = {}


def _record_stream(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """``Tensor.record_stream`` of an emulated device, whose tensors are the host's."""
    streams, name = _of_number[stream.stream_id]
    if (alive := streams()) is not None:
        alive.keep(tensor, name)


_library = torch.library.Library("aten", "IMPL")
_library.impl("record_stream", _record_stream, "CPU")

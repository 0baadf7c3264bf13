"""Without a GPU: the device is the CPU; streams and events are played, and reached when the test says so."""

from __future__ import annotations

import weakref
from contextlib import contextmanager

import pytest
import torch

from lightning_gnnload import MiniBatch
from lightning_gnnload.pipeline.transfer import DeviceCopies

CPU = torch.device("cpu")


class FakeCuda:
    """What torch.cuda is asked for, and a log of it in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[tuple] = []
        self.events: list[FakeEvent] = []
        self.streams = ["compute"]
        monkeypatch.setattr(torch.cuda, "Event", lambda: FakeEvent(self))
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream(self, "copy"))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream(self, self.streams[-1]))
        monkeypatch.setattr(torch.cuda, "stream", self.entered)
        monkeypatch.setattr(MiniBatch, "to", self.copied)
        monkeypatch.setattr(MiniBatch, "record_stream", lambda _, stream: self.log.append(("keeps for", stream.name)))

    @contextmanager
    def entered(self, stream: FakeStream):
        self.streams.append(stream.name)
        yield
        self.streams.pop()

    def copied(self, device: torch.device, non_blocking: bool) -> MiniBatch:
        assert non_blocking
        self.log.append(("copied on", self.streams[-1]))
        return MiniBatch(torch.arange(3), 1)


class FakeStream:
    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_event(self, event: FakeEvent) -> None:
        self.cuda.log.append((self.name, "waits for", event.stream))


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.reached, self.stream = cuda, False, ""
        cuda.events.append(self)

    def record(self, stream: FakeStream) -> None:
        self.stream = stream.name

    def query(self) -> bool:
        return self.reached

    def synchronize(self) -> None:
        self.cuda.log.append(("host waits for", self.stream, self.cuda.events.index(self)))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


def test_a_source_lives_until_its_copy_is_done(cuda: FakeCuda) -> None:
    copies = DeviceCopies()
    sources = [MiniBatch(torch.arange(3), 1) for _ in range(3)]
    alive = [weakref.ref(source) for source in sources]
    while sources:
        copies.start(sources.pop(0), CPU)
    # Nothing was reached: a slot given back now would be overwritten under the copy engine.
    assert all(reference() is not None for reference in alive)
    next(event for event in cuda.events if event.stream == "copy").reached = True
    copies.start(MiniBatch(torch.arange(3), 1), CPU)
    assert [reference() is not None for reference in alive] == [False, True, True]


def test_a_batch_is_copied_beside_the_computing_stream_which_waits_for_it(cuda: FakeCuda) -> None:
    DeviceCopies().start(MiniBatch(torch.arange(3), 1), CPU)
    # On the computing stream the copy would come after the step before; without the last, its memory would be another
    # copy's as soon as the host drops the batch, with the step still to come.
    assert cuda.log == [("copied on", "copy"), ("compute", "waits for", "copy"), ("keeps for", "compute")]


def test_the_host_is_two_steps_ahead_at_most(cuda: FakeCuda) -> None:
    copies = DeviceCopies()
    for _ in range(4):
        copies.start(MiniBatch(torch.arange(3), 1), CPU)
    begun = [number for number, event in enumerate(cuda.events) if event.stream == "compute"]
    waits = [entry[1:] for entry in cuda.log if entry[0] == "host waits for"]
    assert waits == [("compute", begun[0]), ("compute", begun[1])]

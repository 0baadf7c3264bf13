from __future__ import annotations

import weakref

import pytest
import torch

from lightning_gnnload import MiniBatch
from lightning_gnnload.pipeline.transfer import DeviceCopies


class FakeEvent:
    """An event that is reached when the test says so."""

    reached: bool = False
    made: list[FakeEvent]

    def __init__(self) -> None:
        FakeEvent.made.append(self)

    def record(self, stream: object) -> None:
        pass

    def query(self) -> bool:
        return self.reached


def test_a_source_lives_until_its_copy_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a GPU: the device is the CPU, and events are reached by hand.
    FakeEvent.made = []
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    copies = DeviceCopies()
    sources = [MiniBatch(torch.arange(3), 1) for _ in range(3)]
    alive = [weakref.ref(source) for source in sources]
    while sources:
        copies.start(sources.pop(0), torch.device("cpu"))
    # Nothing was reached: a slot given back now would be overwritten under the copy engine.
    assert all(reference() is not None for reference in alive)
    FakeEvent.made[0].reached = True
    copies.start(MiniBatch(torch.arange(3), 1), torch.device("cpu"))
    assert [reference() is not None for reference in alive] == [False, True, True]

"""Turns: who waits, and who need not."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lightning_gnnload.cache.locks import Turns

WAIT_S = 10.0


def thread(work: Callable[[], None]) -> threading.Thread:
    made = threading.Thread(target=work, daemon=True)
    made.start()
    return made


def test_readers_read_together_and_a_writer_alone() -> None:
    turns, together, written, began = Turns(), threading.Barrier(2), [], threading.Event()

    def read() -> None:
        with turns.reading():
            together.wait(WAIT_S)  # they would wait in vain if one kept the other out
            together.wait(WAIT_S)
            assert not written

    def write() -> None:
        began.set()
        with turns.writing():
            written.append(1)

    readers = [thread(read)]
    with turns.reading():
        together.wait(WAIT_S)
        writer = thread(write)
        assert began.wait(WAIT_S)
        together.wait(WAIT_S)
    for each in (*readers, writer):
        each.join(WAIT_S)
        assert not each.is_alive()
    assert written == [1]


def test_who_is_interrupted_while_it_waits_to_write_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()

    def interrupted(is_so: Callable[[], bool]) -> None:
        raise KeyboardInterrupt

    with turns.reading(), monkeypatch.context() as patch:
        patch.setattr(turns._changed, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), turns.writing():
            pass
    reader = thread(lambda: turns.reading().__enter__())
    reader.join(WAIT_S)
    assert not reader.is_alive()

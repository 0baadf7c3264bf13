"""Readers and writers: who waits, and who need not."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lightning_gnnload.host.locks import ReadWriteLock

WAIT_S = 10.0


def thread(work: Callable[[], None]) -> threading.Thread:
    made = threading.Thread(target=work, daemon=True)
    made.start()
    return made


def test_readers_read_together_and_a_writer_alone() -> None:
    lock, together, written, began = ReadWriteLock(), threading.Barrier(2), [], threading.Event()

    def read() -> None:
        with lock.reading():
            together.wait(WAIT_S)  # they would wait in vain if one kept the other out
            together.wait(WAIT_S)
            assert not written

    def write() -> None:
        began.set()
        with lock.writing():
            written.append(1)

    readers = [thread(read)]
    with lock.reading():
        together.wait(WAIT_S)
        writer = thread(write)
        assert began.wait(WAIT_S)
        together.wait(WAIT_S)
    for each in (*readers, writer):
        each.join(WAIT_S)
        assert not each.is_alive()
    assert written == [1]


def test_who_is_interrupted_while_it_waits_to_write_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = ReadWriteLock()

    def interrupted(is_so: Callable[[], bool]) -> None:
        raise KeyboardInterrupt

    with lock.reading(), monkeypatch.context() as patch:
        patch.setattr(lock._changed, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), lock.writing():
            pass
    reader = thread(lambda: lock.reading().__enter__())
    reader.join(WAIT_S)
    assert not reader.is_alive()

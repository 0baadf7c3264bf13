"""Who opens a stream is judged by what moves, not by a thread that lives."""

from __future__ import annotations

import threading
import time

import pytest

from lightning_gnnload.host.heartbeat import HEARTBEAT
from lightning_gnnload.host.progress import progress
from lightning_gnnload.pipeline.queue import setup_watch
from lightning_gnnload.pipeline.queue.setup_watch import watched

LOOK_S = 0.02
TIMEOUT_S = 5 * LOOK_S


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_watch, "_HEARTBEAT_S", LOOK_S)


def sleep_amid_setup() -> None:
    time.sleep(6 * TIMEOUT_S)


def test_who_gets_nowhere_is_told_of_once_with_where_it_hangs() -> None:
    signs: list[float] = []
    hung: list[str] = []
    with watched(TIMEOUT_S, gets_on=lambda: signs.append(time.monotonic()), hangs=hung.append):
        sleep_amid_setup()
        told_at = time.monotonic()
    assert len(hung) == 1
    assert "sleep_amid_setup" in hung[0]
    # No sign of life comes from it any more, though the watching thread lives.
    assert 0 < len(signs) < TIMEOUT_S / LOOK_S
    assert signs[-1] < told_at - TIMEOUT_S


@pytest.mark.parametrize("shown", [True, False])
def test_pieces_of_work_are_progress_whether_a_bar_shows_them_or_not(shown: bool) -> None:
    hung: list[str] = []
    with watched(TIMEOUT_S, gets_on=lambda: None, hangs=hung.append), progress("Filling", None, show=shown) as advance:
        for _ in range(30):
            time.sleep(LOOK_S)
            advance(1)
    assert not hung


def test_who_waits_for_another_process_is_not_to_blame_until_that_is_over() -> None:
    hung: list[str] = []
    with watched(TIMEOUT_S, gets_on=lambda: None, hangs=hung.append):
        with HEARTBEAT.waiting():
            time.sleep(4 * TIMEOUT_S)
        assert not hung
        time.sleep(4 * TIMEOUT_S)
    assert len(hung) == 1


def test_who_listens_hears_each_beat_until_it_is_enough() -> None:
    heard: list[int] = []
    with HEARTBEAT.heard_by(lambda: heard.append(threading.get_ident())):
        HEARTBEAT.beat()
        HEARTBEAT.beat()
    HEARTBEAT.beat()
    assert heard == [threading.get_ident()] * 2

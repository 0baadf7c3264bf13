"""What counts of a wait: the time in which the awaited process does nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lightning_gnnload.host import heartbeat as module
from lightning_gnnload.host.heartbeat import Patience


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def until_over(self, patience: Patience, every_s: float = 0.1, at_most_s: float = 10_000.0) -> float:
        began = self.now
        while not patience.is_over():
            self.now += every_s
            assert self.now - began < at_most_s, "it is waited for for ever"
        return self.now - began


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_only_idle_time_counts(clock: Clock) -> None:
    assert clock.until_over(Patience(60, 1800, lambda: False)) == pytest.approx(60, abs=1)
    began = clock.now
    # An import of ten minutes, and a hang after it.
    patience = Patience(60, 1800, lambda: clock.now - began < 600)
    assert clock.until_over(patience) == pytest.approx(660, abs=2)
    assert str(patience) == "it did nothing for 60 s"


def test_moments_in_which_a_thread_wakes_do_not_start_the_wait_anew(clock: Clock) -> None:
    """A rank that hangs still has threads that look for its parent from time to time."""
    looks = iter(range(10**6))
    assert clock.until_over(Patience(60, 1800, lambda: next(looks) % 20 == 0)) < 70


def test_who_is_busy_for_ever_is_given_up_at_last(clock: Clock) -> None:
    patience = Patience(60, 1800, lambda: True)
    assert clock.until_over(patience) == pytest.approx(1800, abs=2)
    assert str(patience) == "it was busy, but did not come within 1800 s"
    # A shorter limit of the whole is none: idle time alone may take longer.
    assert clock.until_over(Patience(60, 1, lambda: False)) == pytest.approx(60, abs=1)


def test_a_job_that_was_stopped_has_not_waited(clock: Clock) -> None:
    patience = Patience(60, 1800, lambda: False)
    clock.now += 3600
    assert not patience.is_over()
    assert clock.until_over(patience) > 58

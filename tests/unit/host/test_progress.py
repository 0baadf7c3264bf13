"""Progress where there is no terminal: few lines, and none of work that is soon over."""

from __future__ import annotations

import os

import pytest

from lightning_gnnload.host.progress import ProgressLines, no_bars_elsewhere, progress


def lines_of(seconds: list[float], total: float | None) -> list[str]:
    written: list[str] = []
    clock = iter([0.0, *seconds, seconds[-1]])
    lines = ProgressLines("Sorting", total, clock=lambda: next(clock), write=written.append)
    for _ in seconds:
        lines.advance(1)
    lines.end()
    return written


def test_work_that_is_soon_over_says_nothing() -> None:
    assert lines_of([1.0, 2.0, 4.9], 3) == []


def test_a_line_soon_and_then_one_a_minute() -> None:
    written = lines_of([float(second) for second in range(1, 201)], 200)
    assert written[0] == "Sorting: 2% (5 of 200), 5 s"
    assert len(written) == 5  # at 5, 65, 125 and 185 s, and at the end
    assert written[-1] == "Sorting: done, 200 s"


def test_an_unknown_amount_has_no_share() -> None:
    assert lines_of([6.0], None) == ["Sorting: 1, 6 s", "Sorting: done, 6 s"]


def test_no_bar_is_drawn_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Reading", 2) as advance:
        advance(1)
    assert capsys.readouterr() == ("", "")
    with no_bars_elsewhere():
        assert os.environ["TQDM_DISABLE"] == "1"
    assert "TQDM_DISABLE" not in os.environ

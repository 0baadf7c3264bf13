"""Moments: what dates, months and numbers mean, by the zone of the user's times, and what is refused."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lightning_gnnload.data.clock import Clock, TimeForm
from lightning_gnnload.data.moment import moment_of, moment_text
from lightning_gnnload.errors import SeedError

DATES = Clock.of([np.array([0, 10**18])], has_dates=True)
NUMBERS = Clock.of([np.array([3, 90])])
JULY = np.datetime64("2026-07-01", "ns").astype(np.int64).item()
HOUR = 3600 * 10**9


@pytest.mark.parametrize(
    ("value", "zone", "wanted"),
    [
        ("2026-07", None, JULY),
        ("2026-07-01", "UTC", JULY),
        ("2026-07-01", "Europe/Berlin", JULY - 2 * HOUR),
        ("2026-07-01 03:00:00", None, JULY + 3 * HOUR),
        ("2026-07-01T03:00:00+01:00", "Europe/Berlin", JULY + 2 * HOUR),  # its own zone counts
        ("2026-07-01T00:00:00Z", "Europe/Berlin", JULY),
        (date(2026, 7, 1), None, JULY),
        (datetime(2026, 7, 1, tzinfo=timezone(timedelta(hours=1))), None, JULY - HOUR),
        (np.datetime64("2026-07-01"), "Europe/Berlin", JULY),
        (pd.Timestamp("2026-07-01"), None, JULY),
    ],
)
def test_dates(value: Any, zone: str | None, wanted: int) -> None:
    assert moment_of(value, DATES, TimeForm("us", zone)) == wanted


def test_numbers() -> None:
    assert moment_of(7, NUMBERS) == 7
    assert moment_of(7.5, NUMBERS) == 7.5
    assert moment_of(JULY // 10**9, DATES, TimeForm("s", is_number=True)) == JULY


@pytest.mark.parametrize(
    ("value", "clock", "told"),
    [
        ("2026-07", None, "the graph has no times"),
        ("2026-07", NUMBERS, "the graph's times are numbers, as 90"),
        (True, NUMBERS, "the graph's times are numbers"),
        (7, DATES, "the graph's times are dates; give a date, as 2026-07-01"),
        ("next month", DATES, "'next month'.*give a date"),
        ("2026-02-30", DATES, "give a date"),
        ("9999-01-01", DATES, "1678 to 2262"),
        (np.datetime64("NaT"), DATES, "is no time"),
        (float("nan"), NUMBERS, "is no time"),
    ],
)
def test_what_is_no_moment(value: Any, clock: Any, told: str) -> None:
    with pytest.raises(SeedError, match=told):
        moment_of(value, clock)


def test_moments_are_written_as_people_do() -> None:
    assert moment_text(JULY, DATES) == "2026-07-01"
    assert moment_text(JULY + HOUR, DATES) == "2026-07-01 01:00:00 UTC"
    assert moment_text(7, NUMBERS) == "7"

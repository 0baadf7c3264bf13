"""Clocks: codes that compare as times do, and what is a time."""

from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_gnnload.data.clock import MOST_CODES, Clock, as_times
from lightning_gnnload.errors import GnnLoadError, GraphFormatError

DAY = 86_400 * 10**9


@pytest.mark.parametrize("base", [0, -(2**63), 2**62])
def test_times_far_apart_are_counted_in_their_common_unit(base: int) -> None:
    # Dates in nanoseconds span more than 32 bits within five seconds; ranks would take 8 bytes a time.
    days = np.array([3, 0, 36_500, 7])
    clock = Clock.of([days * DAY + base])
    assert (clock.ranked, clock.unit) == (None, DAY)
    assert clock.codes(days * DAY + base).tolist() == days.tolist()
    asked = np.array([7 * DAY + base - 1, 7 * DAY + base, 7 * DAY + base + 1])
    assert clock.until(asked, "<=").tolist() == [7, 8, 8]
    assert clock.until(asked, "<").tolist() == [7, 7, 8]
    assert clock.since(asked).tolist() == [7, 7, 8]


TIMES = st.one_of(
    st.lists(st.integers(-5, 5), min_size=1),
    st.lists(st.integers(-5, 5).map(lambda n: n * 10**10 + 3), min_size=1),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
)


@given(TIMES, st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-6, 6)), min_size=1), st.data())
def test_codes_compare_as_times_do(times, others, data) -> None:
    times = np.array(times, np.int64)
    asked = np.concatenate([np.array(others, np.int64), times])
    clock = Clock.of([times])
    again = Clock.from_json(clock.to_json(), clock.ranked)
    codes = clock.codes(times).astype(np.int64)
    for when, until, before, since in zip(
        asked, again.until(asked, "<="), again.until(asked, "<"), again.since(asked), strict=True
    ):
        assert ((codes < until) == (times <= when)).all()
        assert ((codes < before) == (times < when)).all()
        assert ((codes >= since) == (times >= when)).all()


@given(TIMES, st.lists(st.one_of(st.floats(allow_nan=False), st.floats(-6, 6)), min_size=1))
def test_fractions_compare_with_whole_times_as_they_are(times, asked) -> None:
    # Python compares whole numbers with floats exactly; NumPy rounds the whole ones first.
    clock = Clock.of([np.array(times, np.int64)])
    codes = clock.codes(np.array(times, np.int64)).tolist()
    for when, until, before in zip(
        asked, clock.until(np.array(asked), "<="), clock.until(np.array(asked), "<"), strict=True
    ):
        assert [code < until for code in codes] == [time <= when for time in times]
        # Of fractions beyond the largest number, the largest number itself is no earlier.
        assert [code < before for code in codes] == [time < min(when, 2**63 - 1) for time in times]


def test_dates_are_nanoseconds_by_utc() -> None:
    pandas = pytest.importorskip("pandas")
    text = "2024-05-01T12:00:00"
    exact = np.array([text], "M8[ns]").astype(np.int64)
    for given_as in ([text], [datetime.fromisoformat(text)], np.array([text], "M8[s]"), np.array([text], ">M8[us]")):
        assert (as_times(given_as, name="t") == exact).all()
    zone = timezone(timedelta(hours=2))
    with pytest.warns(UserWarning, match="timezones"):  # NumPy's
        assert as_times([datetime.fromisoformat(text).replace(tzinfo=zone)], name="t") == exact - 7200 * 10**9
    zoned = pandas.Series(pandas.to_datetime([f"{text}.000000001+02:00"]))
    assert as_times(zoned, name="t") == exact - 7200 * 10**9 + 1
    assert as_times(pandas.DatetimeIndex(zoned), name="t") == exact - 7200 * 10**9 + 1


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (np.array(["2020-01-01", "9999-12-31"], "M8[D]"), r"t\[1\] does not fit in 64 bits .*: 9999-12-31, as 1 of 2"),
        (["9999-12-31"], "does not fit"),  # which many tables have for "never", and which would become 1816
        ([datetime(9999, 12, 31), None], r"t\[1\] is no time: NaT"),
        (np.array([10**9], "m8[D]"), "does not fit"),
        (np.array([2**63], np.uint64), "does not fit in 64 bits"),
        (["5"], "does not fit"),  # the year
        (np.array(["2020", "NaT"], "M8[s]"), r"t\[1\] is no time: NaT, as 1 of 2"),
        (np.array([[1]]), r"must be \[n\]"),
        ([True], "numbers or datetime64"),
        ([[1], [2, 3]], "makes no NumPy array"),
    ],
)
def test_what_is_no_time_is_refused(times, message: str) -> None:
    with pytest.raises(GnnLoadError, match=message):
        as_times(times, name="t")


def test_fractions_of_a_nanosecond_are_cut() -> None:
    assert as_times(np.array([1500, -1], "M8[ps]"), name="t").tolist() == [1, -1]


@pytest.mark.parametrize(
    "changed",
    [
        {"first": 10},
        {"last": 2**63},
        {"last": MOST_CODES},
        {"unit": 0},
        {"unit": 1.0},
        {"timed": [1]},
        {"timed": True},
        {"of_dates": 1},
    ],
)
def test_values_that_describe_no_clock_are_refused(changed) -> None:
    values = Clock.of([np.array([0, 3, 7])]).to_json()
    assert Clock.from_json(values | {"unit": 1, "last": MOST_CODES - 1}, None).last == MOST_CODES - 1
    with pytest.raises(GraphFormatError, match="describes no clock"):
        Clock.from_json(values | changed, None)

"""Moments: a date or a number that a user names, as a graph's clock counts times, and back as text."""

from __future__ import annotations

import re
from datetime import date, datetime, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from lightning_gnnload.data.clock import Clock, TimeForm, as_times
from lightning_gnnload.errors import SeedError

_NEEDED = "give a date, as 2026-07-01 or 2026-07-01 12:00:00"


def moment_of(value: Any, clock: Clock | None, form: TimeForm | None = None) -> int | float:
    """Returns a moment as the clock of a graph counts it: of dates, nanoseconds since 1970, UTC.

    Args:
        value: a date as text, a month as ``"2026-07"``, a date of Python, NumPy or pandas; or a number, where the
            user's times are numbers.
        clock: of the graph.
        form: of the user's times, whose zone a date without one is in; None: UTC.

    Raises:
        SeedError: the graph has no times, or those are of another kind; a text that is no date.

    Example:
        >>> days = np.array(["2026-01-01", "2026-02-01"], "datetime64[ns]")
        >>> clock = Clock.of([days.view(np.int64)], has_dates=True)
        >>> moment_of("2026-01", clock), moment_text(moment_of("2026-01", clock), clock)
        (1767225600000000000, '2026-01-01')
    """
    if clock is None:
        raise SeedError(f"as of {value!r}: the graph has no times, so that it is the same at any. Leave it out.")
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)
    if not clock.has_dates:
        if not is_number:
            raise SeedError(f"as of {value!r}: the graph's times are numbers, as {clock.span[1]}; give one of these.")
        return as_times(np.array([value]), name="as of", error=SeedError)[0].item()
    if is_number:
        if form is None or not form.is_number:
            raise SeedError(f"as of {value!r}: the graph's times are dates; {_NEEDED}.")
        return int(as_times(np.array([value]).astype(f"datetime64[{form.unit}]"), name="as of", error=SeedError)[0])
    if isinstance(value, np.datetime64):
        return int(as_times(np.array([value]), name="as of", error=SeedError)[0])
    try:
        moment = date_of(value)
    except ValueError as error:
        raise SeedError(f"as of {value!r:.100}: {error}; {_NEEDED}.") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc if form is None or form.zone is None else ZoneInfo(form.zone))
    # Without a zone, as NumPy has none.
    plain = np.datetime64(moment.astimezone(timezone.utc).replace(tzinfo=None))
    return int(as_times(np.array([plain]), name="as of", error=SeedError)[0])


def moment_text(moment: int | float, clock: Clock | None) -> str:
    """Returns a moment of :func:`moment_of` as people write it; a date in UTC."""
    if clock is None or not clock.has_dates:
        return str(moment)
    text = str(np.datetime64(int(moment), "ns"))
    text = re.sub(r"\.0+$", "", text).replace("T", " ")
    return text.removesuffix(" 00:00:00") + ("" if text.endswith(" 00:00:00") else " UTC")


def date_of(value: Any) -> datetime:
    """Returns a date, or one as text, whose month is its first day; raises ValueError: it is none."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    text = str(value).strip()
    if re.fullmatch(r"\d{4}-\d\d", text):
        text += "-01"
    return datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))

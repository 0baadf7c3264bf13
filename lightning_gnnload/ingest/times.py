"""Times of tables, and the clock that makes codes of them, where they are too many for memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lightning_gnnload.data.clock import MOST_CODES, Clock
from lightning_gnnload.errors import TableError
from lightning_gnnload.host.pages import mapped_bytes
from lightning_gnnload.ops import NO_TIME
from lightning_gnnload.storage.folders import ArrayWriter

if TYPE_CHECKING:
    import pyarrow as pa

_NANOSECONDS = 1000  # in a microsecond
_SAMPLED = 256  # of how many sorted times one tells where stretches of equal size begin


def nanoseconds_of(column: pa.Array, where: str) -> np.ndarray:
    """Converts a column of microseconds to what a :class:`.Graph` makes of dates, int64 nanoseconds; a missing time is
    ``NO_TIME``, one beyond 64 bits of nanoseconds an error."""
    times = (column.fill_null(NO_TIME) if column.null_count else column).to_numpy(zero_copy_only=False)
    is_present = times != NO_TIME
    most = (2**63 - 1) // _NANOSECONDS
    bad = is_present & ((times > most) | (times < -most))
    if bad.any():
        first = int(bad.argmax())
        raise TableError(
            f"{where}: {int(bad.sum())} of {len(times)} times, the first {times[first]} microseconds since 1970, are "
            "not between 1678 and 2262, as 64 bits count them in nanoseconds. Is their unit another, or are they "
            "placeholders? Make them null where there is no time."
        )
    return np.where(is_present, times * _NANOSECONDS, NO_TIME)


@dataclass(frozen=True)
class TimeSpan:
    """What times span: the earliest and the latest, and the greatest unit that divides what lies between them; 0 where
    all are equal. There are none where ``first`` is after ``last``."""

    first: int = 2**63
    last: int = -(2**63)
    unit: int = 0

    @classmethod
    def of(cls, times: np.ndarray, unit: int = 0) -> TimeSpan:
        """Returns that of int64 times ``[n]`` but for missing ones; ``unit`` of others divides it, or is 0."""
        present = times[times != NO_TIME]
        if not len(present):
            return cls()
        first, last = int(present.min()), int(present.max())
        if unit != 1 and last - first < 2**63:
            since = present - first
            # A division by one number is quick, where a common divisor takes several of each.
            if unit == 0 or not np.array_equal(since // unit * unit, since):
                unit = int(np.gcd.reduce(since, initial=unit))
        return cls(first, last, unit if last - first < 2**63 else 1)

    def __or__(self, span: TimeSpan) -> TimeSpan:
        if span.first > span.last or self.first > self.last:
            return self if span.first > span.last else span
        unit = gcd(self.unit, span.unit, abs(self.first - span.first))
        return TimeSpan(min(self.first, span.first), max(self.last, span.last), unit)

    def clock(self, timed: np.ndarray, ranked: Callable[[], np.ndarray]) -> Clock:
        """Makes the clock of these times, as :meth:`.Clock.of` does. ``timed`` says which edge types have times, bool
        ``[K]``; ``ranked`` returns all times, each once and ascending, and is called where codes cannot count."""
        first, last = (self.first, self.last) if self.first <= self.last else (0, 0)
        unit = self.unit if MOST_CODES <= last - first < 2**63 else 1
        if last - first < MOST_CODES * unit:
            return Clock(first, last, None, timed, unit, has_dates=True)
        times = ranked()
        if len(times) > MOST_CODES:
            raise TableError(
                f"the tables have {len(times)} different times, but at most {MOST_CODES} can be told apart. Round "
                "them by SQL, as to seconds: date_trunc('second', ...)."
            )
        return Clock(0, 0, times, timed, has_dates=True)


def codes_of(times: np.ndarray, clock: Clock) -> np.ndarray:
    """Returns the codes, uint32 ``[n]``, of times that the clock was made of; a missing one's is that of the first."""
    if clock.ranked is None:
        return clock.codes(np.maximum(times, clock.first))
    # In the order of times, one search ends near the next one's, so that a processor's cache serves both.
    order = np.argsort(times)
    codes = np.empty(len(times), np.uint32)
    codes[order] = clock.codes(times[order])
    return codes


def merge_times(
    chunks: Iterable[np.ndarray], scratch: Path, folder: Path, name: str, most: int
) -> tuple[Path, dict[str, Any]]:
    """Writes all times, each once and ascending, as an array of ``folder``; returns its file and manifest entry. Each
    chunk, int64 ``[n]``, is sorted by itself and goes to a file. Then stretches of some ``most`` times are merged, so
    that memory holds one chunk, or one stretch."""
    runs, marks = _sorted_runs(chunks, scratch, name, most)
    begins = [0] * len(runs.arrays)
    with ArrayWriter(folder, name, np.int64) as merged:
        for mark in [*marks.tolist(), None]:
            stops = [len(run) if mark is None else int(np.searchsorted(run, mark)) for run in runs.arrays]
            pieces = [run[begin:stop] for run, begin, stop in zip(runs.arrays, begins, stops, strict=True)]
            if pieces:
                merged.append(np.unique(np.concatenate(pieces)))
            begins = stops
        entry = merged.entry()
    runs.file.unlink()
    return merged.path, entry


class _Runs(NamedTuple):
    file: Path
    arrays: list[np.ndarray]  # mapped, each ascending and without repeats


def _sorted_runs(chunks: Iterable[np.ndarray], scratch: Path, name: str, most: int) -> tuple[_Runs, np.ndarray]:
    """Sorts each chunk by itself into a file; returns them, and the times where stretches of ``most`` times end."""
    with ArrayWriter(scratch, f"sorted.{name}", np.int64) as writer:
        run_ends, sampled = [0], [np.empty(0, np.int64)]
        for chunk in chunks:
            times = np.unique(chunk)
            # NO_TIME is the least of int64, so it comes first.
            times = times[1:] if len(times) and times[0] == NO_TIME else times
            writer.append(times)
            run_ends.append(writer.num_rows)
            sampled.append(times[::_SAMPLED])
        writer.entry()
    # Each sampled time stands for the next _SAMPLED of its run: that many marks bound a stretch of all runs by about
    # `most`.
    step = max(most // _SAMPLED, 1)
    marks = np.unique(np.sort(np.concatenate(sampled))[step::step])
    flat = mapped_bytes(writer.path).view(np.int64) if writer.num_rows else np.empty(0, np.int64)
    return _Runs(writer.path, [flat[begin:end] for begin, end in pairwise(run_ends)]), marks
